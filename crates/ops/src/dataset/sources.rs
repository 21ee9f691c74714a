//! `TensorDataset`, `TensorSliceDataset` and `RangeDataset`: elements that are there already.

use super::by_item;
use super::{Dataset, Element, Elements, Next, number, output, ready, scalar_shape};
use framework::kernel::{function, kernel};
use framework::typed::Item;
use framework::{Kernel, KernelBuild, KernelContext, Op, StepContext};
use tensor::{DType, Result, Shape, Tensor, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("TensorDataset")
            .input("components: Toutput_types")
            .output("handle: variant")
            .attr("Toutput_types: list(type) >= 1")
            .attr("output_shapes: list(shape) >= 1")
            .attr("metadata: string = ''")
            .stateful()
            .shape(scalar_shape)
            .kernel(function(|ctx| {
                let element: Element = (0..ctx.num_inputs()).map(|i| ctx.input(i).clone()).collect();
                output(ctx, Once(element))
            })),
        Op::new("TensorSliceDataset")
            .input("components: Toutput_types")
            .output("handle: variant")
            .attr("Toutput_types: list(type) >= 1")
            .attr("output_shapes: list(shape) >= 1")
            .attr("is_files: bool = false")
            .attr("metadata: string = ''")
            .attr("replicate_on_split: bool = false")
            .stateful()
            .shape(scalar_shape)
            .kernel(function(slices)),
        Op::new("RangeDataset")
            .input("start: int64")
            .input("stop: int64")
            .input("step: int64")
            .output("handle: variant")
            .attr("output_types: list(type) >= 1")
            .attr("output_shapes: list(shape) >= 1")
            .attr("metadata: string = ''")
            .attr("replicate_on_split: bool = false")
            .stateful()
            .shape(scalar_shape)
            .kernel(kernel(MakeRange::new)),
    ]
}

/// A single element.
struct Once(Element);

impl Dataset for Once {
    fn iterate(&self) -> Result<Box<dyn Elements>> {
        Ok(Box::new(OncePass(Some(self.0.clone()))))
    }
}

struct OncePass(Option<Element>);

impl Elements for OncePass {
    fn next<'a>(&'a mut self, _: &'a StepContext) -> Next<'a> {
        ready(Ok(self.0.take()))
    }
}

/// The rows of some tensors.
struct Slices {
    components: Vec<Tensor>,
    count: usize,
}

fn slices(ctx: &mut KernelContext<'_>) -> Result<()> {
    let components: Vec<Tensor> = (0..ctx.num_inputs()).map(|i| ctx.input(i).clone()).collect();
    let mut count = None;
    for component in &components {
        let rows = component.dims().first();
        let rows = *rows.ok_or_else(|| {
            invalid!("All components must be at least 1-dimensional, found a scalar to take slices of")
        })?;
        if count.is_some_and(|count| count != rows) {
            return Err(invalid!(
                "All components must have the same size in the 0th dimension, found {} and {rows}",
                count.unwrap_or_default()
            ));
        }
        count = Some(rows);
    }
    output(ctx, Slices { components, count: count.unwrap_or(0) })
}

impl Dataset for Slices {
    fn iterate(&self) -> Result<Box<dyn Elements>> {
        Ok(Box::new(SlicesPass { components: self.components.clone(), count: self.count, at: 0 }))
    }
}

struct SlicesPass {
    components: Vec<Tensor>,
    count: usize,
    at: usize,
}

impl Elements for SlicesPass {
    fn next<'a>(&'a mut self, _: &'a StepContext) -> Next<'a> {
        if self.at >= self.count {
            return ready(Ok(None));
        }
        let element: Result<Element> = self.components.iter().map(|c| row(c, self.at)).collect();
        self.at += 1;
        ready(element.map(Some))
    }
}

/// One row of a tensor.
pub(super) fn row(tensor: &Tensor, index: usize) -> Result<Tensor> {
    fn of<I: Item>(tensor: &Tensor, shape: Shape, index: usize) -> Result<Tensor> {
        let size = shape.num_elements();
        let items = &I::items(tensor)?[index * size..][..size];
        I::build(tensor.dtype(), shape, &mut |out| {
            out.clone_from_slice(items);
            Ok(())
        })
    }
    let shape: Shape = tensor.dims().iter().skip(1).copied().collect();
    by_item!(tensor.dtype(), of(tensor, shape, index))
}

/// Numbers from a start up to, not including, a stop.
#[derive(Clone)]
struct Range {
    next: i64,
    stop: i64,
    step: i64,
    dtype: DType,
}

struct MakeRange {
    dtype: DType,
}

impl MakeRange {
    fn new(b: &KernelBuild<'_>) -> Result<MakeRange> {
        let types: Vec<DType> = b.attr("output_types")?;
        match types.as_slice() {
            [dtype @ (DType::I32 | DType::I64)] => Ok(MakeRange { dtype: *dtype }),
            other => Err(invalid!("a range is of one int32 or int64, found {other:?}")),
        }
    }
}

impl Kernel for MakeRange {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (next, stop, step) = (number(ctx, 0, "start")?, number(ctx, 1, "stop")?, number(ctx, 2, "step")?);
        if step == 0 {
            return Err(invalid!("step must be a non-zero integer."));
        }
        output(ctx, Range { next, stop, step, dtype: self.dtype })
    }
}

impl Dataset for Range {
    fn iterate(&self) -> Result<Box<dyn Elements>> {
        Ok(Box::new(self.clone()))
    }
}

impl Elements for Range {
    fn next<'a>(&'a mut self, _: &'a StepContext) -> Next<'a> {
        let is_over = if self.step > 0 { self.next >= self.stop } else { self.next <= self.stop };
        if is_over {
            return ready(Ok(None));
        }
        let value = match self.dtype {
            DType::I32 => Tensor::scalar(self.next as i32),
            _ => Tensor::scalar(self.next),
        };
        // Beyond the last number there is is beyond the stop, too.
        self.next = self.next.checked_add(self.step).unwrap_or(self.stop);
        ready(Ok(Some(vec![value])))
    }
}
