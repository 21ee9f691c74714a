//! Iterators: resources that hand out a dataset's elements to whoever asks, step after step.

use super::{Element, Elements, unwrap};
use crate::data_flow::Declared;
use framework::kernel::{AsyncContext, AsyncKernel, BoxFuture, Outputs, async_kernel, function, kernel};
use framework::{
    Device, Function, InferenceContext, Kernel, KernelBuild, KernelContext, Op, Resource, StepContext, Value, shapes,
};
use futures_util::lock::Mutex;
use prost::Message;
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Tensor, failed_precondition, internal, invalid, out_of_range};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    let types = |op: Op| op.attr("output_types: list(type) >= 1").attr("output_shapes: list(shape) >= 1");
    let get_next = |name: &str| {
        types(Op::new(name).input("iterator: resource").output("components: output_types"))
            .stateful()
            .shape(|c| c.attr("output_shapes"))
            .kernel(async_kernel(|b| Ok(GetNext(Signature::new(b)?))))
    };
    let from_string = |name: &str| {
        Op::new(name)
            .input("string_handle: string")
            .output("resource_handle: resource")
            .attr("output_types: list(type) >= 0 = []")
            .attr("output_shapes: list(shape) >= 0 = []")
            .stateful()
            .shape(scalar_of_scalar)
            .kernel(kernel(|b| Ok(FromString(Signature::new(b)?))))
    };
    let declare = |name: &str| Op::new(name).output("handle: resource").stateful().shape(shapes::scalar);
    vec![
        types(declare("IteratorV2").attr("shared_name: string").attr("container: string")).kernel(kernel(Declare::new)),
        types(declare("Iterator").attr("shared_name: string").attr("container: string")).kernel(kernel(Declare::new)),
        types(declare("OneShotIterator").attr("dataset_factory: func"))
            .attr("container: string = ''")
            .attr("shared_name: string = ''")
            .kernel(kernel(Declare::one_shot)),
        Op::new("MakeIterator")
            .input("dataset: variant")
            .input("iterator: resource")
            .stateful()
            .shape(shapes::no_outputs)
            .kernel(async_kernel(|_| Ok(Initialize))),
        get_next("IteratorGetNext"),
        get_next("IteratorGetNextSync"),
        Op::new("IteratorToStringHandle")
            .input("resource_handle: resource")
            .output("string_handle: string")
            .stateful()
            .shape(scalar_of_scalar)
            .kernel(function(to_string)),
        from_string("IteratorFromStringHandle"),
        from_string("IteratorFromStringHandleV2"),
    ]
}

fn scalar_of_scalar(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    c.require_scalar(0)?;
    shapes::scalar(c)
}

/// What an iterator's elements are.
#[derive(Clone, Default)]
struct Signature {
    types: Vec<DType>,
    shapes: Vec<PartialShape>,
}

impl Signature {
    fn new(b: &KernelBuild<'_>) -> Result<Signature> {
        Ok(Signature { types: b.attr("output_types")?, shapes: b.attr("output_shapes")? })
    }

    /// An error unless what one node wants can be what another declared.
    fn check(&self, found: &Signature) -> Result<()> {
        if self.types.len() != found.types.len() {
            return Err(invalid!(
                "Number of components does not match: expected {} types but got {}.",
                self.types.len(),
                found.types.len()
            ));
        }
        for (i, (wanted, found)) in self.types.iter().zip(&found.types).enumerate() {
            if wanted != found {
                return Err(invalid!("Data type mismatch at component {i}: expected {wanted} but got {found}."));
            }
        }
        for (i, (wanted, found)) in self.shapes.iter().zip(&found.shapes).enumerate() {
            if wanted.merge(found).is_err() {
                return Err(invalid!("Incompatible shapes at component {i}: expected {wanted} but got {found}."));
            }
        }
        Ok(())
    }

    fn check_element(&self, element: &Element) -> Result<()> {
        if element.len() != self.types.len() {
            return Err(invalid!("an element has {} components, wanted {}", element.len(), self.types.len()));
        }
        for (i, (tensor, wanted)) in element.iter().zip(&self.types).enumerate() {
            if tensor.dtype() != *wanted {
                return Err(invalid!("component {i} of an element is {}, wanted {wanted}", tensor.dtype()));
            }
        }
        for (i, (tensor, wanted)) in element.iter().zip(&self.shapes).enumerate() {
            if !wanted.accepts(tensor.shape()) {
                return Err(invalid!("component {i} of an element has shape {}, wanted {wanted}", tensor.shape()));
            }
        }
        Ok(())
    }
}

/// A pass over a dataset, shared by steps. Whoever asks for an element holds the lock until it is there.
struct Iterator {
    signature: Signature,
    state: Mutex<State>,
}

enum State {
    /// Nobody has said yet over what.
    New,
    /// Over what the function makes, once somebody asks.
    OneShot(Arc<Function>),
    Running(Box<dyn Elements>),
}

impl Resource for Iterator {
    const TYPE_NAME: &'static str = "N10tensorflow4data16IteratorResourceE";
}

impl Iterator {
    async fn next(&self, step: &StepContext) -> Result<Element> {
        let mut state = self.state.lock().await;
        if let State::OneShot(factory) = &*state {
            let made = factory.call(step, Vec::new()).await?;
            let [dataset] = made.as_slice() else {
                return Err(invalid!("`dataset_factory` must return a single dataset, found {} values", made.len()));
            };
            *state = State::Running(unwrap(dataset)?.iterate()?);
        }
        let State::Running(elements) = &mut *state else {
            return Err(failed_precondition!(
                "GetNext() failed because the iterator has not been initialized. Ensure that you have run the \
                 initializer operation for this iterator before getting the next element."
            ));
        };
        elements.next(step).await?.ok_or_else(|| out_of_range!("End of sequence"))
    }
}

/// Makes an iterator, or finds one of its shared name.
struct Declare {
    declared: Declared<Iterator>,
    signature: Signature,
    factory: Option<Arc<Function>>,
}

impl Declare {
    fn new(b: &KernelBuild<'_>) -> Result<Declare> {
        Ok(Declare { declared: Declared::new(b)?, signature: Signature::new(b)?, factory: None })
    }

    fn one_shot(b: &KernelBuild<'_>) -> Result<Declare> {
        Ok(Declare { factory: Some(Arc::new(b.function("dataset_factory")?)), ..Declare::new(b)? })
    }
}

impl Kernel for Declare {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let make = |_: &str| {
            let state = self.factory.clone().map_or(State::New, State::OneShot);
            Ok(Iterator { signature: self.signature.clone(), state: Mutex::new(state) })
        };
        self.declared.output(ctx, make, |found, _| self.signature.check(&found.signature))
    }
}

fn iterator(device: &Arc<dyn Device>, handle: &Tensor) -> Result<Arc<Iterator>> {
    match handle.as_handles()? {
        [handle] => device.resources().resolve(handle),
        other => Err(invalid!("wanted the handle of an iterator, found {} handles", other.len())),
    }
}

struct Initialize;

impl AsyncKernel for Initialize {
    fn compute(&self, ctx: AsyncContext) -> BoxFuture<Result<Outputs>> {
        Box::pin(async move {
            let dataset = unwrap(&ctx.input(0)?)?;
            let iterator = iterator(&ctx.device, &ctx.input(1)?)?;
            let elements = dataset.iterate()?;
            *iterator.state.lock().await = State::Running(elements);
            Ok(Outputs::new())
        })
    }
}

struct GetNext(Signature);

impl AsyncKernel for GetNext {
    fn compute(&self, ctx: AsyncContext) -> BoxFuture<Result<Outputs>> {
        let signature = self.0.clone();
        Box::pin(async move {
            let element = iterator(&ctx.device, &ctx.input(0)?)?.next(&ctx.step).await?;
            signature.check_element(&element)?;
            Ok(element.into_iter().map(Value::Tensor).collect())
        })
    }
}

fn to_string(ctx: &mut KernelContext<'_>) -> Result<()> {
    iterator(ctx.device(), ctx.input(0))?;
    let message = ctx.input(0).to_proto();
    let handle = message.resource_handle_val.first().ok_or_else(|| internal!("a handle without a message"))?;
    ctx.set_output(0, Tensor::string(handle.encode_to_vec()))
}

struct FromString(Signature);

impl Kernel for FromString {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let text = ctx.input(0);
        if !text.shape().is_scalar() {
            return Err(invalid!("string_handle must be a scalar"));
        }
        let handle = proto::ResourceHandleProto::decode(text.string_item()?.clone())
            .map_err(|_| invalid!("Could not parse string_handle as a valid ResourceHandle"))?;
        let device = ctx.device().name().to_string();
        if handle.device != device {
            return Err(invalid!(
                "Attempted create an iterator on device \"{device}\" from handle defined on device \"{}\"",
                handle.device
            ));
        }
        let message = proto::TensorProto {
            dtype: DType::Resource.number(),
            tensor_shape: Some(Default::default()),
            resource_handle_val: vec![handle],
            ..Default::default()
        };
        let handle = Tensor::from_proto(&message)?;
        let found = iterator(ctx.device(), &handle)?;
        if !self.0.types.is_empty() {
            self.0.check(&found.signature)?;
        }
        ctx.set_output(0, handle)
    }
}
