//! Tensor lists: lists of tensors that are values, held by a variant. Every op makes a new list, in the memory of the old
//! one when nobody else holds it.

use super::rows;
use framework::kernel::{function, kernel};
use framework::{InferenceContext, Kernel, KernelBuild, KernelContext, Op, shapes};
use prost::Message;
use std::sync::Arc;
use tensor::{
    DType, PartialShape, Result, Shape, Tensor, Variant, VariantValue, dtype_from_proto, exhausted, invalid,
    shape_from_proto, shape_to_proto,
};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    let list_in = |name: &str| Op::new(name).input("input_handle: variant");
    let of = |op: Op| op.attr("element_dtype: type");
    let shaped = |op: Op| op.attr("shape_type: indextype");
    vec![
        shaped(of(Op::new("EmptyTensorList")
            .input("element_shape: shape_type")
            .input("max_num_elements: int32")
            .output("handle: variant")))
        .shape(shapes::scalar)
        .kernel(kernel(|b| Ok(Make { dtype: b.attr("element_dtype")?, reserves: false }))),
        shaped(of(Op::new("TensorListReserve")
            .input("element_shape: shape_type")
            .input("num_elements: int32")
            .output("handle: variant")))
        .shape(shapes::scalar)
        .kernel(kernel(|b| Ok(Make { dtype: b.attr("element_dtype")?, reserves: true }))),
        of(list_in("TensorListPushBack").input("tensor: element_dtype").output("output_handle: variant"))
            .shape(shapes::scalar)
            .kernel(function(push_back)),
        of(list_in("TensorListPopBack")
            .input("element_shape: int32")
            .output("output_handle: variant")
            .output("tensor: element_dtype"))
        .shape(|c| Ok(vec![PartialShape::scalar(), described(c, 1)]))
        .kernel(function(pop_back)),
        of(list_in("TensorListSetItem")
            .input("index: int32")
            .input("item: element_dtype")
            .output("output_handle: variant"))
        .attr("resize_if_index_out_of_bounds: bool = false")
        .shape(shapes::scalar)
        .kernel(kernel(|b| Ok(SetItem { grows: b.attr("resize_if_index_out_of_bounds")? }))),
        of(list_in("TensorListGetItem")
            .input("index: int32")
            .input("element_shape: Tshape")
            .output("item: element_dtype"))
        .attr("Tshape: indextype = int32")
        .shape(|c| Ok(vec![described(c, 2)]))
        .kernel(function(get_item)),
        of(list_in("TensorListStack").input("element_shape: int32").output("tensor: element_dtype"))
            .attr("num_elements: int = -1")
            .shape(stack_shape)
            .kernel(kernel(|b| Ok(Stack { count: b.attr("num_elements")? }))),
        shaped(of(Op::new("TensorListFromTensor")
            .input("tensor: element_dtype")
            .input("element_shape: shape_type")
            .output("output_handle: variant")))
        .shape(shapes::scalar)
        .kernel(function(from_tensor)),
        list_in("TensorListLength").output("length: int32").not_differentiable().shape(shapes::scalar).kernel(
            function(|ctx| {
                let length = list(ctx, 0)?.elements.len() as i32;
                ctx.set_output(0, Tensor::scalar(length))
            }),
        ),
        shaped(list_in("TensorListElementShape").output("element_shape: shape_type"))
            .not_differentiable()
            .shape(shapes::unknown)
            .kernel(kernel(|b: &KernelBuild<'_>| Ok(ElementShape { dtype: b.attr("shape_type")? }))),
        list_in("TensorListResize")
            .input("size: int32")
            .output("output_handle: variant")
            .shape(shapes::scalar)
            .kernel(function(resize)),
        of(list_in("TensorListGather")
            .input("indices: int32")
            .input("element_shape: int32")
            .output("values: element_dtype"))
        .shape(shapes::unknown)
        .kernel(function(gather)),
        shaped(of(Op::new("TensorListScatterV2")
            .input("tensor: element_dtype")
            .input("indices: int32")
            .input("element_shape: shape_type")
            .input("num_elements: int32")
            .output("output_handle: variant")))
        .shape(shapes::scalar)
        .kernel(function(scatter)),
        shaped(of(list_in("TensorListConcatV2")
            .input("element_shape: shape_type")
            .input("leading_dims: int64")
            .output("tensor: element_dtype")
            .output("lengths: int64")))
        .shape(|_| Ok(vec![PartialShape::unknown(), PartialShape::of_rank(1)]))
        .kernel(function(concat)),
        shaped(of(Op::new("TensorListSplit")
            .input("tensor: element_dtype")
            .input("element_shape: shape_type")
            .input("lengths: int64")
            .output("output_handle: variant")))
        .shape(shapes::scalar)
        .kernel(function(split)),
    ]
}

/// The shape that an input's value describes, as far as it is known.
fn described(c: &InferenceContext<'_>, index: usize) -> PartialShape {
    c.input_value(index).and_then(|value| shape_in(value).ok()).unwrap_or_else(PartialShape::unknown)
}

fn stack_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let element = described(c, 1);
    let count = usize::try_from(c.attr::<i64>("num_elements")?).ok();
    Ok(vec![match element.dims() {
        Some(dims) => PartialShape::new(std::iter::once(count).chain(dims.iter().copied())),
        None => PartialShape::unknown(),
    }])
}

/// A list of tensors; those never set are `None`.
#[derive(Clone)]
pub(crate) struct TensorList {
    dtype: DType,
    element_shape: PartialShape,
    max_size: Option<usize>,
    elements: Vec<Option<Tensor>>,
}

/// The name under which lists travel.
const TYPE_NAME: &str = "tensorflow::TensorList";

/// No list has more tensors than this: a number from outside cannot exhaust memory.
const SIZE_MAX: usize = 1 << 24;

impl VariantValue for TensorList {
    fn type_name(&self) -> &str {
        TYPE_NAME
    }

    /// The tensors that were set; and in the metadata how many were not and which, the type, the greatest size, the shape.
    fn to_message(&self) -> proto::VariantTensorDataProto {
        let mut metadata = Vec::new();
        let unset: Vec<u64> =
            self.elements.iter().enumerate().filter(|(_, e)| e.is_none()).map(|(i, _)| i as u64).collect();
        let numbers = std::iter::once(unset.len() as u64).chain(unset);
        let limit = self.max_size.map_or(u64::MAX, |max| max as u64);
        for number in numbers.chain([self.dtype.number() as u64, limit]) {
            prost::encoding::encode_varint(number, &mut metadata);
        }
        metadata.extend(shape_to_proto(&self.element_shape).encode_to_vec());
        proto::VariantTensorDataProto {
            type_name: TYPE_NAME.into(),
            metadata: metadata.into(),
            tensors: self.elements.iter().flatten().map(Tensor::to_proto).collect(),
        }
    }
}

impl TensorList {
    fn from_message(message: &proto::VariantTensorDataProto) -> Result<TensorList> {
        let broken = || invalid!("a tensor list came in a message that cannot be read");
        if message.type_name != TYPE_NAME {
            return Err(invalid!("Input handle is not a list. Saw: '{}'", message.type_name));
        }
        let mut rest = message.metadata.clone();
        let mut number = || prost::encoding::decode_varint(&mut rest).map_err(|_| broken());
        let unset = usize::try_from(number()?).ok().filter(|&n| n <= SIZE_MAX).ok_or_else(broken)?;
        let mut indices = Vec::new();
        for _ in 0..unset {
            indices.push(number()?);
        }
        let (dtype, max_size) = (number()?, number()?);
        let (dtype, _) = dtype_from_proto(i32::try_from(dtype).map_err(|_| broken())?)?;
        let shape = proto::TensorShapeProto::decode(rest).map_err(|_| broken())?;
        let mut set = message.tensors.iter();
        let mut unset = indices.into_iter().peekable();
        let mut elements = Vec::new();
        while unset.peek().is_some() || set.len() > 0 {
            if unset.next_if_eq(&(elements.len() as u64)).is_some() {
                elements.push(None);
            } else {
                elements.push(Some(Tensor::from_proto(set.next().ok_or_else(broken)?)?));
            }
        }
        let max_size = usize::try_from(max_size as i64).ok();
        Ok(TensorList { dtype, element_shape: shape_from_proto(&shape)?, max_size, elements })
    }

    /// The list that a variant holds.
    pub(crate) fn of(variant: Variant) -> Result<TensorList> {
        match variant {
            Variant::Message(message) => TensorList::from_message(&message),
            Variant::Value(_) => match variant.into_value::<TensorList>() {
                Some(list) => Ok(Arc::unwrap_or_clone(list)),
                None => Err(invalid!("Input handle is not a list.")),
            },
        }
    }

    /// A list of zeros like these.
    pub(crate) fn zeros_like(mut self) -> Result<TensorList> {
        for element in self.elements.iter_mut().flatten() {
            *element = Tensor::zeros(element.dtype(), element.shape().clone())?;
        }
        Ok(self)
    }

    /// The sums of the elements of two lists, by `add`.
    pub(crate) fn plus(
        mut self,
        other: TensorList,
        add: impl Fn(Tensor, Tensor) -> Result<Tensor>,
    ) -> Result<TensorList> {
        if (self.dtype, self.elements.len()) != (other.dtype, other.elements.len()) {
            return Err(invalid!(
                "Trying to add two lists of tensors of different types or lengths: {} of {} and {} of {}",
                self.elements.len(),
                self.dtype,
                other.elements.len(),
                other.dtype
            ));
        }
        self.element_shape = self.element_shape.merge(&other.element_shape)?;
        for (element, other) in self.elements.iter_mut().zip(other.elements) {
            *element = match (element.take(), other) {
                (Some(a), Some(b)) => Some(add(a, b)?),
                (a, b) => a.or(b),
            };
        }
        Ok(self)
    }

    /// The shape of elements that were never set: all that is known must make a whole.
    fn zeros_shape(&self, wanted: &PartialShape, what: &str) -> Result<Shape> {
        let shape = self.merged(wanted)?;
        let shape = self.elements.iter().flatten().try_fold(shape, |shape, e| shape.merge(&e.shape().into()))?;
        shape.known().ok_or_else(|| invalid!("{what} non-fully-defined element_shape: {shape}"))
    }

    fn merged(&self, wanted: &PartialShape) -> Result<PartialShape> {
        self.element_shape
            .merge(wanted)
            .map_err(|_| invalid!("Incompatible shapes during merge: {} vs. {wanted}", self.element_shape))
    }

    fn check(&self, tensor: &Tensor) -> Result<()> {
        if tensor.dtype() != self.dtype {
            return Err(invalid!(
                "Invalid data types; list elements {} but tried to append {}",
                self.dtype,
                tensor.dtype()
            ));
        }
        if !self.element_shape.accepts(tensor.shape()) {
            return Err(invalid!(
                "Tried to append a tensor with incompatible shape to a list. Op element shape: {} list shape: {}",
                tensor.shape(),
                self.element_shape
            ));
        }
        Ok(())
    }

    /// All elements, zeros for those never set; of one shape.
    fn whole(&self, wanted: &PartialShape) -> Result<(Shape, Vec<Tensor>)> {
        let shape = self.zeros_shape(wanted, "Tried to stack elements of a list with")?;
        let element = |e: &Option<Tensor>| match e {
            Some(tensor) => Ok(tensor.clone()),
            None => Tensor::zeros(self.dtype, shape.clone()),
        };
        let elements = self.elements.iter().map(element).collect::<Result<_>>()?;
        Ok((shape, elements))
    }
}

/// The shape that a tensor describes: -1 is unknown, and so is all of it if that is all there is.
fn shape_in(tensor: &Tensor) -> Result<PartialShape> {
    let dims = tensor.to_i64s()?;
    if tensor.shape().is_scalar() {
        return match dims.as_slice() {
            [-1] => Ok(PartialShape::unknown()),
            _ => Err(invalid!("The only valid scalar shape tensor is the fully unknown shape specified as -1.")),
        };
    }
    if tensor.shape().rank() != 1 {
        return Err(invalid!("a shape is a vector, found shape {}", tensor.shape()));
    }
    let dim = |&d: &i64| match d {
        -1 => Ok(None),
        d => usize::try_from(d).map(Some).map_err(|_| invalid!("a shape has a dimension of size {d}")),
    };
    let dims: Vec<Option<usize>> = dims.iter().map(dim).collect::<Result<_>>()?;
    Shape::checked(dims.iter().map(|d| d.unwrap_or(1) as i64))?;
    Ok(PartialShape::new(dims))
}

/// The list in an input, taken away.
fn list(ctx: &mut KernelContext<'_>, index: usize) -> Result<TensorList> {
    let mut variants = ctx.take(index).into_variants()?;
    match (variants.pop(), variants.is_empty()) {
        (Some(variant), true) => TensorList::of(variant),
        _ => Err(invalid!("Input list must be a scalar")),
    }
}

fn set_list(ctx: &mut KernelContext<'_>, list: TensorList) -> Result<()> {
    ctx.set_output(0, Tensor::from_variants([], vec![Variant::new(list)])?)
}

fn number(ctx: &KernelContext<'_>, index: usize) -> Result<i32> {
    match ctx.input(index).num_elements() {
        1 => ctx.input(index).item::<i32>(),
        _ => Err(invalid!("wanted a scalar, found shape {}", ctx.input(index).shape())),
    }
}

fn size(value: i32, what: &str) -> Result<usize> {
    let size = usize::try_from(value).map_err(|_| invalid!("{what} must be a non negative number, but got {value}"))?;
    if size > SIZE_MAX {
        return Err(exhausted!("a list of {size} tensors is wanted, {SIZE_MAX} are possible"));
    }
    Ok(size)
}

struct Make {
    dtype: DType,
    /// Whether input 1 is the size; else it is the greatest size.
    reserves: bool,
}

impl Kernel for Make {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let element_shape = shape_in(ctx.input(0))?;
        let count = number(ctx, 1)?;
        let (max_size, size) = match self.reserves {
            true => (None, size(count, "The num_elements to reserve")?),
            false => (usize::try_from(count).ok(), 0),
        };
        set_list(ctx, TensorList { dtype: self.dtype, element_shape, max_size, elements: vec![None; size] })
    }
}

fn push_back(ctx: &mut KernelContext<'_>) -> Result<()> {
    let mut list = list(ctx, 0)?;
    let tensor = ctx.take(1);
    list.check(&tensor)?;
    let length = list.elements.len();
    if list.max_size.is_some_and(|max| length >= max) {
        return Err(invalid!("Tried to push item into a full list list size: {length} max_num_elements: {length}"));
    }
    list.elements.push(Some(tensor));
    set_list(ctx, list)
}

fn pop_back(ctx: &mut KernelContext<'_>) -> Result<()> {
    let mut list = list(ctx, 0)?;
    let wanted = shape_in(ctx.input(1))?;
    let top = list.elements.pop().ok_or_else(|| invalid!("Trying to pop from an empty list."))?;
    let top = element(&list, top, &wanted)?;
    set_list(ctx, list)?;
    ctx.set_output(1, top)
}

/// An element; zeros if it was never set.
fn element(list: &TensorList, element: Option<Tensor>, wanted: &PartialShape) -> Result<Tensor> {
    match element {
        Some(tensor) => Ok(tensor),
        None => {
            let shape = list.zeros_shape(
                wanted,
                "Trying to read an uninitialized tensor but element_shape is not fully defined:",
            )?;
            Tensor::zeros(list.dtype, shape)
        }
    }
}

struct SetItem {
    /// Whether an index beyond the end makes the list longer.
    grows: bool,
}

impl Kernel for SetItem {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let mut list = list(ctx, 0)?;
        let index = number(ctx, 1)?;
        let item = ctx.take(2);
        list.check(&item)?;
        let length = list.elements.len();
        let at = usize::try_from(index).ok().filter(|&i| i < length || self.grows);
        let at = at.ok_or_else(|| invalid!("Trying to modify element {index} in a list with {length} elements."))?;
        if at >= length {
            list.elements.resize(size(index, "The index")? + 1, None);
        }
        list.elements[at] = Some(item);
        set_list(ctx, list)
    }
}

fn get_item(ctx: &mut KernelContext<'_>) -> Result<()> {
    let list = list(ctx, 0)?;
    let index = number(ctx, 1)?;
    let wanted = shape_in(ctx.input(2))?;
    let length = list.elements.len();
    let found = usize::try_from(index).ok().and_then(|i| list.elements.get(i)).cloned();
    let found = found.ok_or_else(|| invalid!("Trying to access element {index} in a list with {length} elements."))?;
    let found = element(&list, found, &wanted)?;
    ctx.set_output(0, found)
}

struct Stack {
    /// How many elements there must be; negative if any.
    count: i64,
}

impl Kernel for Stack {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let list = list(ctx, 0)?;
        let length = list.elements.len();
        if self.count >= 0 && self.count != length as i64 {
            return Err(invalid!(
                "Operation expected a list with {} elements but got a list with {length} elements.",
                self.count
            ));
        }
        let (shape, elements) = list.whole(&shape_in(ctx.input(1))?)?;
        ctx.set_output(0, rows::stacked(list.dtype, &shape, elements.iter())?)
    }
}

fn from_tensor(ctx: &mut KernelContext<'_>) -> Result<()> {
    let element_shape = shape_in(ctx.input(1))?;
    let tensor = ctx.input(0);
    if tensor.shape().is_scalar() {
        return Err(invalid!("Tensor must be at least a vector, but saw shape: {}", tensor.shape()));
    }
    if !element_shape.accepts(&Shape::from(&tensor.dims()[1..])) {
        return Err(invalid!(
            "Specified a list with shape {element_shape} from a tensor with shape {}",
            tensor.shape()
        ));
    }
    let elements = rows::split(tensor)?.into_iter().map(Some).collect();
    let list = TensorList { dtype: tensor.dtype(), element_shape, max_size: None, elements };
    set_list(ctx, list)
}

struct ElementShape {
    dtype: DType,
}

impl Kernel for ElementShape {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let shape = list(ctx, 0)?.element_shape;
        let (dims, rank): (Vec<i64>, Vec<usize>) = match shape.dims() {
            Some(dims) => (dims.iter().map(|d| d.map_or(-1, |d| d as i64)).collect(), vec![dims.len()]),
            None => (vec![-1], vec![]),
        };
        ctx.set_output(0, crate::array::index_tensor(self.dtype, rank, &dims)?)
    }
}

fn resize(ctx: &mut KernelContext<'_>) -> Result<()> {
    let mut list = list(ctx, 0)?;
    let size = size(number(ctx, 1)?, "TensorListSlice expects size to be, which")?;
    list.elements.resize(size, None);
    set_list(ctx, list)
}

fn gather(ctx: &mut KernelContext<'_>) -> Result<()> {
    let mut list = list(ctx, 0)?;
    let wanted = shape_in(ctx.input(2))?;
    let length = list.elements.len();
    let chosen = ctx.input(1).as_slice::<i32>()?.iter().map(|&index| {
        let found = usize::try_from(index).ok().and_then(|i| list.elements.get(i)).cloned();
        found.ok_or_else(|| invalid!("Trying to gather element {index} in a list with {length} elements."))
    });
    list.elements = chosen.collect::<Result<_>>()?;
    let (shape, elements) = list.whole(&wanted)?;
    ctx.set_output(0, rows::stacked(list.dtype, &shape, elements.iter())?)
}

fn scatter(ctx: &mut KernelContext<'_>) -> Result<()> {
    let element_shape = shape_in(ctx.input(2))?;
    let (tensor, indices) = (ctx.input(0), ctx.input(1).as_slice::<i32>()?);
    let rows = rows::split(tensor)?;
    if rows.len() != indices.len() {
        return Err(invalid!("Specified a list of {} indices, but the tensor has {} rows", indices.len(), rows.len()));
    }
    let largest =
        indices.iter().max().map_or(Ok(0), |&i| size(i, "Indices in TensorListScatter, which").map(|i| i + 1))?;
    let length = match number(ctx, 3)? {
        -1 => largest,
        given => size(given, "num_elements")?,
    };
    let mut elements = vec![None; length];
    for (&index, row) in indices.iter().zip(rows) {
        let place = usize::try_from(index).ok().and_then(|i| elements.get_mut(i));
        *place.ok_or_else(|| {
            invalid!("TensorListScatter: Trying to scatter at index {index} in list with size {length}")
        })? = Some(row);
    }
    let list = TensorList { dtype: tensor.dtype(), element_shape, max_size: None, elements };
    set_list(ctx, list)
}

fn concat(ctx: &mut KernelContext<'_>) -> Result<()> {
    let list = list(ctx, 0)?;
    let wanted = shape_in(ctx.input(1))?;
    let leading = ctx.input(2).as_slice::<i64>()?.to_vec();
    let mut parts = Vec::with_capacity(list.elements.len());
    for (i, element) in list.elements.iter().enumerate() {
        parts.push(match element {
            Some(tensor) if tensor.shape().is_scalar() => {
                return Err(invalid!("Concat saw a scalar shape at index {i} but requires at least vectors."));
            }
            Some(tensor) => tensor.clone(),
            None => {
                let rows = leading.get(i).copied();
                let rows =
                    rows.ok_or_else(|| invalid!("Concat requires leading_dims for uninitialized element {i}"))?;
                let behind = list.merged(&wanted)?;
                let behind = behind.dims().and_then(|d| d.get(1..)).map(|d| PartialShape::new(d.iter().copied()));
                let behind = behind.and_then(|b| b.known());
                let behind = behind.ok_or_else(|| invalid!("All except the first dimension must be fully defined"))?;
                let dims = std::iter::once(rows).chain(behind.to_i64s());
                Tensor::zeros(list.dtype, Shape::checked(dims)?)?
            }
        });
    }
    let lengths: Vec<i64> = parts.iter().map(|p| p.dims()[0] as i64).collect();
    let behind: Shape = match parts.first() {
        Some(first) => Shape::from(&first.dims()[1..]),
        None => {
            let merged = list.merged(&wanted)?;
            let behind = merged.dims().and_then(|d| d.get(1..)).map(|d| PartialShape::new(d.iter().copied()));
            behind.and_then(|b| b.known()).ok_or_else(|| {
                invalid!("All except the first dimension must be fully defined when concating an empty tensor list. element_shape: {merged}")
            })?
        }
    };
    if let Some(other) = parts.iter().find(|p| p.dims()[1..] != *behind.dims()) {
        return Err(invalid!("tensors of shapes [?,{behind}] and {} cannot be concatenated", other.shape()));
    }
    let rows = lengths.iter().sum::<i64>();
    let shape = Shape::checked(std::iter::once(rows).chain(behind.to_i64s()))?;
    ctx.set_output(0, rows::joined(list.dtype, shape, parts.iter())?)?;
    ctx.set_output(1, Tensor::from(lengths))
}

fn split(ctx: &mut KernelContext<'_>) -> Result<()> {
    let element_shape = shape_in(ctx.input(1))?;
    let (tensor, lengths) = (ctx.input(0), ctx.input(2));
    if tensor.shape().is_scalar() {
        return Err(invalid!("Tensor must be at least a vector, but saw shape: {}", tensor.shape()));
    }
    let lengths = lengths
        .as_slice::<i64>()?
        .iter()
        .map(|&length| usize::try_from(length).map_err(|_| invalid!("Invalid value in lengths: {length}")));
    let lengths: Vec<usize> = lengths.collect::<Result<_>>()?;
    let total = lengths.iter().fold(0usize, |sum, &length| sum.saturating_add(length));
    if total != tensor.dims()[0] {
        return Err(invalid!("Unused values in tensor. Length of tensor: {} Values used: {total}", tensor.dims()[0]));
    }
    let elements: Vec<Option<Tensor>> = rows::pieces(tensor, &lengths)?.into_iter().map(Some).collect();
    let list = TensorList { dtype: tensor.dtype(), element_shape, max_size: None, elements };
    list.elements.iter().flatten().try_for_each(|e| list.check(e))?;
    set_list(ctx, list)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What TensorFlow 2.21 writes for a list of three of which only the second was set.
    const MESSAGE: &[u8] = b"\n\x16tensorflow::TensorList\x12\x1f\x02\x00\x02\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x12\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x12\x02\x08\x02\x1a\x16\x08\x01\x12\x08\x12\x02\x08\x01\x12\x02\x08\x02*\x08\x00\x00\x80?\x00\x00\x00@";

    #[test]
    fn lists_travel_as_tensorflow_writes_them() {
        let message = proto::VariantTensorDataProto::decode(MESSAGE).unwrap();
        let list = TensorList::of(Variant::from(message.clone())).unwrap();
        assert_eq!(list.element_shape, PartialShape::new([None, Some(2)]));
        assert_eq!(list.elements, [None, Some(Tensor::from([[1.0f32, 2.0]])), None]);
        let written = Variant::new(list).to_message();
        assert_eq!(written.metadata, message.metadata);
        let again = TensorList::of(Variant::from(written)).unwrap();
        assert_eq!(again.elements[1], Some(Tensor::from([[1.0f32, 2.0]])));
    }

    #[test]
    fn broken_messages_are_refused() {
        let message = proto::VariantTensorDataProto::decode(MESSAGE).unwrap();
        for length in 0..message.metadata.len() - 1 {
            let cut = proto::VariantTensorDataProto { metadata: message.metadata.slice(..length), ..message.clone() };
            let _ = TensorList::of(Variant::from(cut)); // an error or a smaller shape, never a panic
        }
        let none = proto::VariantTensorDataProto { tensors: vec![], ..message };
        assert!(TensorList::of(Variant::from(none)).is_err());
    }
}
