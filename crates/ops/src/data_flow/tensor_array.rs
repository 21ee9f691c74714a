//! `TensorArrayV3` and its family: a list of tensors that lives for one step.
//!
//! The float `flow` that passes from op to op only orders them. The gradient of an array is another array, found by
//! the first one's name and the place where the gradients are computed, into which several writes add up.

use super::rows;
use framework::kernel::{function, kernel};
use framework::op::KernelFn;
use framework::typed::{MoveKernel, NumberKernel, moves_of, numbers_by};
use framework::{
    Grad, GradValue, InferenceContext, Item, Kernel, KernelBuild, KernelContext, Number, Op, Output, Resource, Scope,
    shapes,
};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tensor::{DType, Error, PartialShape, Result, Shape, Tensor, exhausted, invalid, unsupported};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("TensorArrayV3")
            .input("size: int32")
            .output("handle: resource")
            .output("flow: float")
            .attr("dtype: type")
            .attr("element_shape: shape = <unknown>")
            .attr("dynamic_size: bool = false")
            .attr("clear_after_read: bool = true")
            .attr("identical_element_shapes: bool = false")
            .attr("tensor_array_name: string = ''")
            .stateful()
            .not_differentiable()
            .shape(|c| {
                c.require_scalar(0)?;
                shapes::scalar(c)
            })
            .kernel(kernel(Make::new)),
        Op::new("TensorArrayGradV3")
            .input("handle: resource")
            .input("flow_in: float")
            .output("grad_handle: resource")
            .output("flow_out: float")
            .attr("source: string")
            .stateful()
            .not_differentiable()
            .shape(shapes::scalar)
            .kernel(kernel(|b| Ok(MakeGradient { source: b.attr("source")?, prepends: false }))),
        Op::new("TensorArrayGradWithShape")
            .input("handle: resource")
            .input("flow_in: float")
            .input("shape_to_prepend: int32")
            .output("grad_handle: resource")
            .output("flow_out: float")
            .attr("source: string")
            .stateful()
            .not_differentiable()
            .shape(shapes::scalar)
            .kernel(kernel(|b| Ok(MakeGradient { source: b.attr("source")?, prepends: true }))),
        Op::new("TensorArrayWriteV3")
            .input("handle: resource")
            .input("index: int32")
            .input("value: T")
            .input("flow_in: float")
            .output("flow_out: float")
            .attr("T: type")
            .stateful()
            .shape(|c| {
                c.require_scalar(1)?;
                shapes::scalar(c)
            })
            .gradient(write_gradient)
            .kernel(writes(Put::One)),
        Op::new("TensorArrayScatterV3")
            .input("handle: resource")
            .input("indices: int32")
            .input("value: T")
            .input("flow_in: float")
            .output("flow_out: float")
            .attr("T: type")
            .stateful()
            .shape(scatter_shape)
            .gradient(scatter_gradient)
            .kernel(writes(Put::Rows)),
        Op::new("TensorArraySplitV3")
            .input("handle: resource")
            .input("value: T")
            .input("lengths: int64")
            .input("flow_in: float")
            .output("flow_out: float")
            .attr("T: type")
            .stateful()
            .shape(shapes::scalar)
            .gradient(split_gradient)
            .kernel(writes(Put::Pieces)),
        Op::new("TensorArrayReadV3")
            .input("handle: resource")
            .input("index: int32")
            .input("flow_in: float")
            .output("value: dtype")
            .attr("dtype: type")
            .stateful()
            .shape(|c| {
                c.require_scalar(1)?;
                shapes::unknown(c)
            })
            .gradient(read_gradient)
            .kernel(kernel(|b| Ok(Read { dtype: b.attr("dtype")? }))),
        Op::new("TensorArrayGatherV3")
            .input("handle: resource")
            .input("indices: int32")
            .input("flow_in: float")
            .output("value: dtype")
            .attr("dtype: type")
            .attr("element_shape: shape = <unknown>")
            .stateful()
            .shape(gather_shape)
            .gradient(gather_gradient)
            .kernel(kernel(|b| Ok(Gather { dtype: b.attr("dtype")?, element_shape: b.attr("element_shape")? }))),
        Op::new("TensorArrayConcatV3")
            .input("handle: resource")
            .input("flow_in: float")
            .output("value: dtype")
            .output("lengths: int64")
            .attr("dtype: type")
            .attr("element_shape_except0: shape = <unknown>")
            .stateful()
            .shape(|_| Ok(vec![PartialShape::unknown(), PartialShape::of_rank(1)]))
            .gradient(concat_gradient)
            .kernel(kernel(|b| Ok(Concat { dtype: b.attr("dtype")?, row_shape: b.attr("element_shape_except0")? }))),
        Op::new("TensorArraySizeV3")
            .input("handle: resource")
            .input("flow_in: float")
            .output("size: int32")
            .stateful()
            .not_differentiable()
            .shape(shapes::scalar)
            .kernel(function(size)),
        Op::new("TensorArrayCloseV3")
            .input("handle: resource")
            .stateful()
            .not_differentiable()
            .shape(shapes::no_outputs)
            .kernel(function(close)),
    ]
}

fn scatter_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    c.require_rank(1, 1)?;
    if let (Some(indices), Some(rows)) = (c.input(1).dim(0), c.input(2).dim(0))
        && indices != rows
    {
        return Err(invalid!("Dimensions must be equal, but are {rows} rows and {indices} indices"));
    }
    shapes::scalar(c)
}

fn gather_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    c.require_rank(1, 1)?;
    let element: PartialShape = c.attr("element_shape")?;
    Ok(vec![match element.dims() {
        Some(dims) => PartialShape::new(std::iter::once(c.input(1).dim(0)).chain(dims.iter().copied())),
        None => PartialShape::unknown(),
    }])
}

/// The array of gradients of the array that `handle` names, and the flow after it was made.
fn gradient_array(s: &Scope, handle: Output, flow: Output) -> Result<(Output, Output)> {
    let scope = s.current_name();
    let parts: Vec<&str> = scope.split('/').collect();
    let end = parts.iter().rposition(|p| p.starts_with("gradients"));
    let source = end.map_or("gradients".to_string(), |end| parts[..=end].join("/"));
    let made = s.colocated_with(handle.node, || {
        s.node("TensorArrayGradV3").input(handle).input(flow).attr("source", source).outputs()
    })?;
    Ok((made[0], made[1]))
}

fn write_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let (array, flow) = gradient_array(s, g.inputs[0], g.dy[0])?;
    let read = s.node("TensorArrayReadV3").inputs(&[array, g.inputs[1], flow]);
    let value = read.attr("dtype", g.attr::<DType>(s, "T")?).output()?;
    Ok(vec![None, None, Some(value.into()), Some(flow.into())])
}

fn scatter_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let (array, flow) = gradient_array(s, g.inputs[0], g.dy[0])?;
    let gather = s.node("TensorArrayGatherV3").inputs(&[array, g.inputs[1], flow]);
    let value = gather.attr("dtype", g.attr::<DType>(s, "T")?).output()?;
    Ok(vec![None, None, Some(value.into()), Some(flow.into())])
}

fn split_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let (array, flow) = gradient_array(s, g.inputs[0], g.dy[0])?;
    let concat = s.node("TensorArrayConcatV3").inputs(&[array, flow]);
    let value = concat.attr("dtype", g.attr::<DType>(s, "T")?).output()?;
    Ok(vec![None, Some(value.into()), None, Some(flow.into())])
}

fn read_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let (array, flow) = gradient_array(s, g.inputs[0], g.inputs[2])?;
    let flow = s.op("TensorArrayWriteV3", &[array, g.inputs[1], g.dy[0], flow])?;
    Ok(vec![None, None, Some(flow.into())])
}

fn gather_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let (array, flow) = gradient_array(s, g.inputs[0], g.inputs[2])?;
    let flow = s.op("TensorArrayScatterV3", &[array, g.inputs[1], g.dy[0], flow])?;
    Ok(vec![None, None, Some(flow.into())])
}

fn concat_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let (array, flow) = gradient_array(s, g.inputs[0], g.inputs[1])?;
    let flow = s.op("TensorArraySplitV3", &[array, g.dy[0], g.outputs[1], flow])?;
    Ok(vec![None, Some(flow.into())])
}

/// A list of tensors of one type.
struct TensorArray {
    name: String,
    dtype: DType,
    clears_after_read: bool,
    has_identical_shapes: bool,
    /// Several writes to one place add up: an array of gradients.
    adds_up: bool,
    state: Mutex<State>,
}

impl Resource for TensorArray {
    const TYPE_NAME: &'static str = "N10tensorflow11TensorArrayE";
}

struct State {
    is_dynamic: bool,
    is_closed: bool,
    element_shape: PartialShape,
    places: Vec<Place>,
}

#[derive(Clone, Default)]
struct Place {
    value: Option<Tensor>,
    /// The shape of what was written, or is to be written to an array of gradients.
    shape: Option<Shape>,
    was_read: bool,
    was_cleared: bool,
}

/// Adds a tensor to another of the same type and shape.
type Add = fn(&mut Tensor, &Tensor) -> Result<()>;

impl TensorArray {
    fn wrong(&self, what: impl std::fmt::Display) -> Error {
        invalid!("TensorArray {}: {what}", self.name)
    }

    fn open(&self) -> Result<parking_lot::MutexGuard<'_, State>> {
        let state = self.state.lock();
        match state.is_closed {
            true => Err(invalid!("TensorArray {} has already been closed.", self.name)),
            false => Ok(state),
        }
    }

    fn check_write(&self, dtype: DType) -> Result<()> {
        if dtype != self.dtype {
            return Err(invalid!("TensorArray dtype is {} but Op is trying to write dtype {dtype}.", self.dtype));
        }
        Ok(())
    }

    fn check_read(&self, dtype: DType) -> Result<()> {
        if dtype != self.dtype {
            return Err(invalid!("TensorArray dtype is {} but Op requested dtype {dtype}.", self.dtype));
        }
        Ok(())
    }

    fn write(&self, state: &mut State, index: i32, value: Tensor, add: Option<Add>) -> Result<()> {
        let size = state.places.len();
        let at = usize::try_from(index).ok().filter(|&i| i < size || state.is_dynamic).ok_or_else(|| {
            self.wrong(format_args!("Tried to write to index {index} but array is not resizeable and size is: {size}"))
        })?;
        let refuse = |why: String| self.wrong(format_args!("Could not write to TensorArray index {index} {why}"));
        if !state.element_shape.accepts(value.shape()) {
            return Err(refuse(format!(
                "because the value shape is {} which is incompatible with the TensorArray's inferred element shape: {} \
                 (consider setting infer_shape=False).",
                value.shape(),
                state.element_shape
            )));
        }
        grow(state, at + 1)?;
        if self.has_identical_shapes {
            state.element_shape = value.shape().into();
        }
        let place = &mut state.places[at];
        if place.was_read {
            return Err(refuse("because it has already been read.".to_string()));
        }
        match &mut place.value {
            Some(_) if !self.adds_up => return Err(refuse("because it has already been written to.".to_string())),
            Some(sum) => {
                check_sum(self, index, sum.shape(), &value)?;
                let add = add.ok_or_else(|| self.wrong(format_args!("values of {} do not add up", self.dtype)))?;
                add(sum, &value)?;
            }
            empty => {
                if let (true, Some(shape)) = (self.adds_up, &place.shape) {
                    check_sum(self, index, shape, &value)?;
                }
                place.shape = Some(value.shape().clone());
                *empty = Some(value);
            }
        }
        Ok(())
    }

    fn read(&self, state: &mut State, index: i32) -> Result<Tensor> {
        let size = state.places.len();
        let at = usize::try_from(index).ok().filter(|&i| i < size);
        let at = at.ok_or_else(|| invalid!("Tried to read from index {index} but array size is: {size}"))?;
        let place = &mut state.places[at];
        if place.was_cleared {
            return Err(self.wrong(format_args!(
                "Could not read index {index} twice because it was cleared after a previous read (perhaps try setting \
                 clear_after_read = false?)."
            )));
        }
        if place.value.is_none() {
            let shape = place.shape.clone().or_else(|| state.element_shape.known()).ok_or_else(|| {
                self.wrong(format_args!(
                    "Could not read from TensorArray index {index}.  Furthermore, the element shape is not fully \
                     defined: {}.  It was never written to, and zeros take a full element_shape",
                    state.element_shape
                ))
            })?;
            place.value = Some(Tensor::zeros(self.dtype, shape)?);
        }
        place.was_read = true;
        if self.clears_after_read {
            place.was_cleared = true;
            return place.value.take().ok_or_else(|| self.wrong("a value vanished"));
        }
        place.value.clone().ok_or_else(|| self.wrong("a value vanished"))
    }
}

fn check_sum(array: &TensorArray, index: i32, wanted: &Shape, value: &Tensor) -> Result<()> {
    if wanted == value.shape() {
        return Ok(());
    }
    Err(array.wrong(format_args!(
        "Could not aggregate to TensorArray index {index} because the existing shape is {wanted} but the new input \
         shape is {}.",
        value.shape()
    )))
}

/// No array has more tensors than this: an index from outside cannot exhaust memory.
const SIZE_MAX: usize = 1 << 24;

/// Makes room for at least so many tensors.
fn grow(state: &mut State, size: usize) -> Result<()> {
    if size > SIZE_MAX {
        return Err(exhausted!("a TensorArray of {size} tensors is wanted, {SIZE_MAX} are possible"));
    }
    if size > state.places.len() {
        state.places.resize_with(size, Place::default);
    }
    Ok(())
}

/// Numbers the arrays of a step.
#[derive(Default)]
struct Counter(AtomicU64);

impl Resource for Counter {
    const TYPE_NAME: &'static str = "TensorArrayCounter";
}

fn array(ctx: &KernelContext<'_>) -> Result<Arc<TensorArray>> {
    match ctx.input(0).as_handles()? {
        [handle] => ctx.step().resources.resolve(handle),
        other => Err(invalid!("wanted the handle of a TensorArray, found {} handles", other.len())),
    }
}

fn set_handle(ctx: &mut KernelContext<'_>, array: &Arc<TensorArray>) -> Result<()> {
    let device = ctx.device().name().to_string();
    let handle = ctx.step().resources.handle(&device, "", &array.name, Some(array));
    ctx.set_output(0, Tensor::from_handles([], vec![handle])?)
}

struct Make {
    dtype: DType,
    element_shape: PartialShape,
    is_dynamic: bool,
    clears_after_read: bool,
    has_identical_shapes: bool,
    name: String,
}

impl Make {
    fn new(b: &KernelBuild<'_>) -> Result<Make> {
        let name: String = b.attr("tensor_array_name")?;
        Ok(Make {
            dtype: b.attr("dtype")?,
            element_shape: b.attr("element_shape")?,
            is_dynamic: b.attr("dynamic_size")?,
            clears_after_read: b.attr("clear_after_read")?,
            has_identical_shapes: b.attr("identical_element_shapes")?,
            name: if name.is_empty() { b.node.name.clone() } else { name },
        })
    }
}

impl Kernel for Make {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let size = ctx.input(0).item::<i32>()?;
        let size = usize::try_from(size).map_err(|_| invalid!("Size should be >= 0."))?;
        let resources = &ctx.step().resources;
        let counter = resources.lookup_or_create("", "arrays", || Ok(Counter::default()))?;
        let name = format!("{}_{}", self.name, counter.0.fetch_add(1, Ordering::Relaxed));
        let mut state = State {
            is_dynamic: self.is_dynamic,
            is_closed: false,
            element_shape: self.element_shape.clone(),
            places: Vec::new(),
        };
        grow(&mut state, size)?;
        let made = resources.lookup_or_create("", &name, || {
            Ok(TensorArray {
                name: name.clone(),
                dtype: self.dtype,
                clears_after_read: self.clears_after_read,
                has_identical_shapes: self.has_identical_shapes,
                adds_up: false,
                state: Mutex::new(state),
            })
        })?;
        set_handle(ctx, &made)?;
        ctx.set_output(1, Tensor::scalar(0f32))
    }
}

struct MakeGradient {
    source: String,
    /// Whether input 2 says by which dimensions the gradients are larger than the values.
    prepends: bool,
}

impl Kernel for MakeGradient {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let forward = array(ctx)?;
        let before: Vec<usize> = match self.prepends {
            true => Shape::checked(ctx.input(2).to_i64s()?)?.dims().to_vec(),
            false => Vec::new(),
        };
        let larger = |shape: &Shape| Shape::checked(before.iter().chain(shape.dims()).map(|&d| d as i64));
        let name = format!("{}@{}", forward.name, self.source);
        let made = ctx.step().resources.lookup_or_create("", &name, || {
            let mut state = forward.open()?;
            // From now on gradients exist for every place there is; a larger array would have some without.
            state.is_dynamic = false;
            let places = state
                .places
                .iter()
                .map(|p| Ok(Place { shape: p.shape.as_ref().map(larger).transpose()?, ..Place::default() }));
            let element_shape = match state.element_shape.dims() {
                Some(dims) => PartialShape::new(before.iter().map(|&d| Some(d)).chain(dims.iter().copied())),
                None => PartialShape::unknown(),
            };
            let places = places.collect::<Result<_>>()?;
            Ok(TensorArray {
                name: name.clone(),
                dtype: forward.dtype,
                clears_after_read: true,
                has_identical_shapes: forward.has_identical_shapes,
                adds_up: true,
                state: Mutex::new(State { is_dynamic: false, is_closed: false, element_shape, places }),
            })
        })?;
        set_handle(ctx, &made)?;
        // A flow of its own, as in TensorFlow: what came in only says when.
        ctx.set_output(1, Tensor::scalar(0.0f32))
    }
}

/// What of the value goes to which place.
#[derive(Clone, Copy)]
enum Put {
    /// All of it, to one index.
    One,
    /// Its rows, to an index each.
    Rows,
    /// Pieces of given lengths, to the indices from 0.
    Pieces,
}

fn writes(put: Put) -> KernelFn {
    // Types that are not numbers are written as well; only their gradients do not add up.
    Arc::new(move |b| numbers_by(b, "T", Write(put)).or_else(|_| moves_of(b.dtype("T")?, Write(put))))
}

struct Write(Put);

impl NumberKernel for Write {
    fn compute<T: Number>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        write(ctx, self.0, Some(add::<T>))
    }
}

impl MoveKernel for Write {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        write(ctx, self.0, None)
    }
}

fn add<T: Number>(sum: &mut Tensor, value: &Tensor) -> Result<()> {
    for (s, &v) in sum.as_mut_slice::<T>()?.iter_mut().zip(value.as_slice::<T>()?) {
        *s = s.add(v);
    }
    Ok(())
}

fn write(ctx: &mut KernelContext<'_>, put: Put, add: Option<Add>) -> Result<()> {
    let array = array(ctx)?;
    let (value_at, where_at) = if matches!(put, Put::Pieces) { (1, 2) } else { (2, 1) };
    let value = ctx.take(value_at);
    array.check_write(value.dtype())?;
    match put {
        Put::One => {
            let index = ctx.input(where_at).item::<i32>()?;
            array.write(&mut *array.open()?, index, value, add)?;
        }
        Put::Rows => scatter(&array, ctx.input(where_at), &value, add)?,
        Put::Pieces => split(&array, ctx.input(where_at), &value, add)?,
    }
    let flow = ctx.take(3);
    if !flow.shape().is_scalar() {
        return Err(invalid!("flow_in must be a scalar, but it has shape {}", flow.shape()));
    }
    ctx.set_output(0, flow)
}

fn scatter(array: &TensorArray, indices: &Tensor, value: &Tensor, add: Option<Add>) -> Result<()> {
    if indices.shape().rank() != 1 {
        return Err(invalid!("Expected indices to be a vector, but received shape: {}", indices.shape()));
    }
    let rows = *value
        .dims()
        .first()
        .ok_or_else(|| invalid!("Expected value to be at least a vector, but received shape: {}", value.shape()))?;
    if indices.num_elements() != rows {
        return Err(invalid!(
            "Expected len(indices) == values.shape[0], but saw: {} vs. {rows}",
            indices.num_elements()
        ));
    }
    let indices = indices.as_slice::<i32>()?;
    let rows = rows::split(value)?;
    let mut state = array.open()?;
    let largest = indices.iter().copied().max().unwrap_or(-1);
    if !state.is_dynamic && largest >= state.places.len() as i32 {
        return Err(invalid!("Max scatter index must be < array size ({largest} vs. {})", state.places.len()));
    }
    indices.iter().zip(rows).try_for_each(|(&index, row)| array.write(&mut state, index, row, add))
}

fn split(array: &TensorArray, lengths: &Tensor, value: &Tensor, add: Option<Add>) -> Result<()> {
    if lengths.shape().rank() != 1 {
        return Err(invalid!("Expected lengths to be a vector, received shape: {}", lengths.shape()));
    }
    let rows = *value
        .dims()
        .first()
        .ok_or_else(|| invalid!("Expected value to be at least a vector, but received shape: {}", value.shape()))?;
    let lengths = lengths
        .as_slice::<i64>()?
        .iter()
        .map(|&l| usize::try_from(l).map_err(|_| invalid!("Expected lengths to be >= 0, found {l}")));
    let lengths: Vec<usize> = lengths.collect::<Result<_>>()?;
    let sum = lengths.iter().try_fold(0usize, |sum, &l| sum.checked_add(l));
    if sum != Some(rows) {
        return Err(invalid!(
            "Expected sum of lengths to be equal to values.shape[0], but sum of lengths is {} and value's shape is: {}",
            sum.map_or("beyond all bounds".to_string(), |s| s.to_string()),
            value.shape()
        ));
    }
    let pieces = rows::pieces(value, &lengths)?;
    let mut state = array.open()?;
    if state.places.len() != lengths.len() && !(state.is_dynamic && state.places.len() < lengths.len()) {
        return Err(invalid!(
            "TensorArray's size is not equal to the size of lengths ({} vs. {}), and the TensorArray is not marked as \
             dynamically resizeable",
            state.places.len(),
            lengths.len()
        ));
    }
    pieces.into_iter().enumerate().try_for_each(|(i, piece)| array.write(&mut state, i as i32, piece, add))
}

struct Read {
    dtype: DType,
}

impl Kernel for Read {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let array = array(ctx)?;
        array.check_read(self.dtype)?;
        let index = ctx.input(1).item::<i32>()?;
        let value = array.read(&mut *array.open()?, index)?;
        ctx.set_output(0, value)
    }
}

fn read_all(array: &TensorArray, indices: impl IntoIterator<Item = i32>) -> Result<Vec<Tensor>> {
    let mut state = array.open()?;
    indices.into_iter().map(|i| array.read(&mut state, i)).collect()
}

/// The shape of no elements at all.
fn shape_of_none(element: &PartialShape) -> Result<Shape> {
    element.known().ok_or_else(|| {
        unsupported!(
            "TensorArray has size zero, but element shape {element} is not fully defined. Currently only static shapes \
             are supported when packing zero-size TensorArrays."
        )
    })
}

struct Gather {
    dtype: DType,
    element_shape: PartialShape,
}

impl Kernel for Gather {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let array = array(ctx)?;
        array.check_read(self.dtype)?;
        if ctx.input(1).shape().rank() != 1 {
            return Err(invalid!("Expected indices to be a vector, but received shape: {}", ctx.input(1).shape()));
        }
        let values = read_all(&array, ctx.input(1).as_slice::<i32>()?.iter().copied())?;
        let Some(first) = values.first() else {
            let row = shape_of_none(&self.element_shape)?;
            return ctx.set_output(0, Tensor::zeros(self.dtype, rows::prepended(0, &row)?)?);
        };
        if !self.element_shape.accepts(first.shape()) {
            return Err(invalid!(
                "TensorArray was passed element_shape {} which does not match the Tensor at index 0: {}",
                self.element_shape,
                first.shape()
            ));
        }
        if let Some((i, other)) = values.iter().enumerate().find(|(_, v)| v.shape() != first.shape()) {
            return Err(invalid!(
                "TensorArray has inconsistent shapes.  Index 0 has shape: {} but index {i} has shape: {}",
                first.shape(),
                other.shape()
            ));
        }
        ctx.set_output(0, rows::stacked(self.dtype, first.shape(), values.iter())?)
    }
}

struct Concat {
    dtype: DType,
    row_shape: PartialShape,
}

impl Kernel for Concat {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let array = array(ctx)?;
        array.check_read(self.dtype)?;
        let size = array.open()?.places.len() as i32;
        let values = read_all(&array, 0..size)?;
        let mut lengths = Vec::with_capacity(values.len());
        let mut row: Option<Shape> = None;
        for (i, value) in values.iter().enumerate() {
            let (length, inner) = value.dims().split_first().ok_or_else(|| {
                invalid!(
                    "Concat saw a scalar shape at index {i} but requires at least vectors.  Did you mean to call pack?"
                )
            })?;
            lengths.push(*length as i64);
            let wanted = row.get_or_insert_with(|| Shape::from(inner));
            if wanted.dims() != inner || !self.row_shape.accepts(wanted) {
                return Err(invalid!(
                    "TensorArray has inconsistent shapes.  Wanted (excepting dimension 0) shape: {} but index {i} has \
                     (excepting dimension 0) shape: {}",
                    if self.row_shape.accepts(wanted) { wanted.to_string() } else { self.row_shape.to_string() },
                    Shape::from(inner)
                ));
            }
        }
        let row = row.map_or_else(|| shape_of_none(&self.row_shape), Ok)?;
        let total = lengths.iter().sum::<i64>() as usize;
        ctx.set_output(0, rows::joined(self.dtype, rows::prepended(total, &row)?, values.iter())?)?;
        ctx.set_output(1, Tensor::from(lengths))
    }
}

fn size(ctx: &mut KernelContext<'_>) -> Result<()> {
    let size = array(ctx)?.open()?.places.len();
    ctx.set_output(0, Tensor::scalar(size as i32))
}

fn close(ctx: &mut KernelContext<'_>) -> Result<()> {
    let array = array(ctx)?;
    let places = {
        let mut state = array.state.lock();
        state.is_closed = true;
        std::mem::take(&mut state.places)
    };
    drop(places); // after the lock is released
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_flow::testing::Session;
    use framework::gradient::gradients;

    fn make(s: &Scope, size: i32) -> Result<(Output, Output)> {
        let array = s.node("TensorArrayV3").input(s.constant(size)?).attr("dtype", DType::F32);
        let made = array.attr("clear_after_read", false).outputs()?;
        Ok((made[0], made[1]))
    }

    fn read(s: &Scope, handle: Output, index: i32, flow: Output) -> Result<Output> {
        let index = s.constant(index)?;
        s.node("TensorArrayReadV3").inputs(&[handle, index, flow]).attr("dtype", DType::F32).output()
    }

    #[test]
    fn gradients_of_several_reads_add_up() -> Result<()> {
        let session = Session::new();
        let s = &session.s;
        let x = s.constant([[1.0f32, 2.0], [3.0, 4.0]])?;
        let (handle, flow) = make(s, 2)?;
        let flow = s.op("TensorArrayScatterV3", &[handle, s.constant([0i32, 1])?, x, flow])?;
        let (a, b, c) = (read(s, handle, 0, flow)?, read(s, handle, 1, flow)?, read(s, handle, 0, flow)?);
        let y = s.op("AddN", &[s.op("Mul", &[a, s.constant(2.0f32)?])?, s.op("Square", &[b])?, c])?;
        let dx = gradients(s, &[y], &[x], &[None], &[])?[0].expect("y depends on x").dense(s)?;
        assert_eq!(session.fetch(&[dx])?[0], Tensor::from([[3.0f32, 3.0], [6.0, 8.0]]));
        Ok(())
    }

    #[test]
    fn gradients_pass_through_write_and_gather_and_are_zero_where_nothing_is_used() -> Result<()> {
        let session = Session::new();
        let s = &session.s;
        let (x, unused) = (s.constant([1.0f32, 2.0])?, s.constant([5.0f32, 6.0])?);
        let (handle, flow) = make(s, 2)?;
        let flow = s.op("TensorArrayWriteV3", &[handle, s.constant(0i32)?, x, flow])?;
        let flow = s.op("TensorArrayWriteV3", &[handle, s.constant(1i32)?, unused, flow])?;
        let all = s.node("TensorArrayGatherV3").inputs(&[handle, s.constant([0i32])?, flow]);
        let y = s.op("Square", &[all.attr("dtype", DType::F32).output()?])?;
        let grads = gradients(s, &[y], &[x, unused], &[None], &[])?;
        let grads: Vec<Output> = grads.into_iter().map(|g| g.expect("a path").dense(s)).collect::<Result<_>>()?;
        assert_eq!(session.fetch(&grads)?, [Tensor::from([2.0f32, 4.0]), Tensor::from([0.0f32, 0.0])]);
        Ok(())
    }

    #[test]
    fn an_index_beyond_all_bounds_is_refused() -> Result<()> {
        let session = Session::new();
        let s = &session.s;
        let array = s.node("TensorArrayV3").input(s.constant(0i32)?).attr("dtype", DType::F32);
        let made = array.attr("dynamic_size", true).outputs()?;
        for (index, why) in [(-1, "Tried to write to index -1"), (i32::MAX, "2147483648 tensors is wanted")] {
            let index = s.constant(index)?;
            let flow = s.op("TensorArrayWriteV3", &[made[0], index, s.constant(1.0f32)?, made[1]])?;
            let refused = session.fetch(&[flow]).unwrap_err();
            assert!(refused.message.contains(why), "{refused}");
        }
        Ok(())
    }
}
