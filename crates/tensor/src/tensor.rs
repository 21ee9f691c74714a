//! `Tensor`: a shared, immutable, contiguous block of elements; `OwnedTensor`: one that nobody else holds yet.

use crate::buffer::{Buffer, bytes_of};
use crate::{DType, Element, Error, PartialShape, Result, Shape, Word, internal, invalid};
use bytes::Bytes;
use std::any::Any;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};

/// A shared and immutable tensor: a single pointer, since tensors are handed from node to node all the time; `clone`
/// counts a reference.
#[derive(Clone)]
pub struct Tensor(Arc<Contents>);

struct Contents {
    dtype: DType,
    shape: Shape,
    data: Storage,
}

/// What the elements are made of.
pub(crate) enum Storage {
    Plain(Buffer),
    Strings(Vec<Bytes>),
    Handles(Vec<ResourceHandle>),
    Variants(Vec<Variant>),
    /// The elements of another tensor, seen under another shape or type; that one has elements of its own.
    View(Tensor),
}

/// Names a resource (a variable, a queue) on the device that holds it.
#[derive(Clone, Default)]
pub struct ResourceHandle {
    /// The device that holds the resource.
    pub device: String,
    /// The container within that device.
    pub container: String,
    /// The name within that container.
    pub name: String,
    /// The maker's private hash of the type, passed through unchanged.
    pub hash_code: u64,
    /// The maker's name of the type.
    pub type_name: String,
    /// What the resource holds, where known.
    pub holds: Vec<(DType, PartialShape)>,
    /// A short cut to the resource in the process that made the handle; it does not keep the resource alive.
    pub resource: Option<Weak<dyn Any + Send + Sync>>,
}

impl PartialEq for ResourceHandle {
    fn eq(&self, other: &ResourceHandle) -> bool {
        (&self.device, &self.container, &self.name, self.hash_code, &self.type_name)
            == (&other.device, &other.container, &other.name, other.hash_code, &other.type_name)
    }
}

impl std::fmt::Debug for ResourceHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}@{}", self.container, self.name, self.device)
    }
}

/// An opaque value that some op made and another understands.
#[derive(Clone)]
pub enum Variant {
    /// As a message carries it.
    Message(Arc<::proto::VariantTensorDataProto>),
    /// As the op that made it left it.
    Value(Arc<dyn VariantValue>),
}

/// What can be held by a [`Variant`].
pub trait VariantValue: Any + Send + Sync {
    /// The type's name as messages carry it.
    fn type_name(&self) -> &str;
    /// The whole of it as a message; one that only names the type if it cannot leave the process.
    fn to_message(&self) -> ::proto::VariantTensorDataProto {
        ::proto::VariantTensorDataProto { type_name: self.type_name().into(), ..Default::default() }
    }
}

impl Variant {
    /// A variant that holds this.
    pub fn new(value: impl VariantValue) -> Variant {
        Variant::Value(Arc::new(value))
    }

    /// What is held, if it is of this type and has not come in a message.
    pub fn get<T: VariantValue>(&self) -> Option<Arc<T>> {
        match self {
            Variant::Value(value) => (value.clone() as Arc<dyn Any + Send + Sync>).downcast().ok(),
            Variant::Message(_) => None,
        }
    }

    /// The same, given up by this variant.
    pub fn into_value<T: VariantValue>(self) -> Option<Arc<T>> {
        match self {
            Variant::Value(value) => (value as Arc<dyn Any + Send + Sync>).downcast().ok(),
            Variant::Message(_) => None,
        }
    }

    /// The message that carries it.
    pub fn to_message(&self) -> ::proto::VariantTensorDataProto {
        match self {
            Variant::Message(message) => (**message).clone(),
            Variant::Value(value) => value.to_message(),
        }
    }
}

impl From<::proto::VariantTensorDataProto> for Variant {
    fn from(message: ::proto::VariantTensorDataProto) -> Variant {
        Variant::Message(Arc::new(message))
    }
}

impl Default for Variant {
    fn default() -> Variant {
        Variant::from(::proto::VariantTensorDataProto::default())
    }
}

impl PartialEq for Variant {
    fn eq(&self, other: &Variant) -> bool {
        match (self, other) {
            (Variant::Message(a), Variant::Message(b)) => a == b,
            (Variant::Value(a), Variant::Value(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl std::fmt::Debug for Variant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Variant::Message(message) => write!(f, "Variant({})", message.type_name),
            Variant::Value(value) => write!(f, "Variant({})", value.type_name()),
        }
    }
}

impl Tensor {
    /// A tensor of these values; their number must be that of the shape.
    pub fn from_vec<T: Element>(shape: impl Into<Shape>, values: Vec<T>) -> Result<Tensor> {
        Tensor::from_slice(shape, &values)
    }

    /// A tensor with a copy of these values; their number must be that of the shape.
    pub fn from_slice<T: Element>(shape: impl Into<Shape>, values: &[T]) -> Result<Tensor> {
        let shape = shape.into();
        check_count(&shape, values.len())?;
        Tensor::copied(T::DTYPE, shape, bytes_of(values))
    }

    fn copied(dtype: DType, shape: Shape, bytes: &[u8]) -> Result<Tensor> {
        let mut buffer = Buffer::new(bytes.len())?;
        buffer.as_bytes_mut().copy_from_slice(bytes);
        Ok(Tensor::from_storage(dtype, shape, Storage::Plain(buffer)))
    }

    /// A tensor of a single value.
    #[inline]
    pub fn scalar<T: Element>(value: T) -> Tensor {
        Tensor::from_slice(Shape::scalar(), &[value]).expect("a scalar lives inline")
    }

    /// A tensor of strings.
    pub fn from_strings(shape: impl Into<Shape>, values: Vec<Bytes>) -> Result<Tensor> {
        let shape = shape.into();
        check_count(&shape, values.len())?;
        Ok(Tensor::from_storage(DType::String, shape, Storage::Strings(values)))
    }

    /// A tensor of a single string.
    pub fn string(value: impl Into<Bytes>) -> Tensor {
        Tensor::from_storage(DType::String, Shape::scalar(), Storage::Strings(vec![value.into()]))
    }

    /// A tensor of resource handles.
    pub fn from_handles(shape: impl Into<Shape>, values: Vec<ResourceHandle>) -> Result<Tensor> {
        let shape = shape.into();
        check_count(&shape, values.len())?;
        Ok(Tensor::from_storage(DType::Resource, shape, Storage::Handles(values)))
    }

    /// A tensor of variants.
    pub fn from_variants(shape: impl Into<Shape>, values: Vec<Variant>) -> Result<Tensor> {
        let shape = shape.into();
        check_count(&shape, values.len())?;
        Ok(Tensor::from_storage(DType::Variant, shape, Storage::Variants(values)))
    }

    /// A tensor of zeros (false, empty strings) of any type but handles and variants.
    pub fn zeros(dtype: DType, shape: impl Into<Shape>) -> Result<Tensor> {
        let shape = shape.into();
        let count = shape.num_elements();
        let data = match dtype {
            DType::String => Storage::Strings(vec![Bytes::new(); count]),
            DType::Resource => Storage::Handles(vec![ResourceHandle::default(); count]),
            DType::Variant => Storage::Variants(vec![Variant::default(); count]),
            _ => Storage::Plain(Buffer::zeroed(byte_count(dtype, &shape)?)?),
        };
        Ok(Tensor::from_storage(dtype, shape, data))
    }

    /// A tensor of a plain type from its bytes, as they stand in memory. Booleans are normalised to 0 and 1.
    pub fn from_bytes(dtype: DType, shape: impl Into<Shape>, bytes: &[u8]) -> Result<Tensor> {
        let shape = shape.into();
        Tensor::from_filled(dtype, shape, |buffer| {
            if buffer.len() != bytes.len() {
                return Err(invalid!("a tensor takes {} bytes, found {}", buffer.len(), bytes.len()));
            }
            buffer.copy_from_slice(bytes);
            Ok(())
        })
    }

    /// A tensor of a plain type whose bytes `fill` writes: the way in from files and sockets without a further copy.
    pub fn from_filled(
        dtype: DType,
        shape: impl Into<Shape>,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<Tensor> {
        let shape = shape.into();
        let mut buffer = Tensor::unfilled(dtype, &shape)?;
        fill(buffer.as_bytes_mut())?;
        Ok(Tensor::filled(dtype, shape, buffer))
    }

    /// Memory that holds arbitrary elements; booleans, which must not be arbitrary, are false.
    fn unwritten(dtype: DType, shape: Shape) -> Result<Tensor> {
        let mut buffer = Buffer::new(byte_count(dtype, &shape)?)?;
        if dtype == DType::Bool {
            buffer.as_bytes_mut().fill(0);
        }
        Ok(Tensor::from_storage(dtype, shape, Storage::Plain(buffer)))
    }

    fn unfilled(dtype: DType, shape: &Shape) -> Result<Buffer> {
        if !dtype.is_plain() {
            return Err(invalid!("a tensor of {dtype} cannot be made from bytes"));
        }
        Buffer::new(byte_count(dtype, shape)?)
    }

    fn filled(dtype: DType, shape: Shape, mut buffer: Buffer) -> Tensor {
        if dtype == DType::Bool {
            buffer.as_bytes_mut().iter_mut().for_each(|b| *b = (*b != 0) as u8);
        }
        Tensor::from_storage(dtype, shape, Storage::Plain(buffer))
    }

    #[inline]
    pub(crate) fn from_storage(dtype: DType, shape: Shape, data: Storage) -> Tensor {
        Tensor(Arc::new(Contents { dtype, shape, data }))
    }

    /// What the elements are made of, be they this tensor's own or another's.
    #[inline]
    fn storage(&self) -> &Storage {
        &self.owner().0.data
    }

    /// The tensor whose own the elements are.
    #[inline]
    fn owner(&self) -> &Tensor {
        match &self.0.data {
            Storage::View(owner) => owner,
            _ => self,
        }
    }

    /// The type of the elements.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// The sizes of the dimensions.
    #[inline]
    pub fn shape(&self) -> &Shape {
        &self.0.shape
    }

    /// The sizes of the dimensions, as a slice.
    #[inline]
    pub fn dims(&self) -> &[usize] {
        self.0.shape.dims()
    }

    /// The number of elements.
    #[inline]
    pub fn num_elements(&self) -> usize {
        self.0.shape.num_elements()
    }

    /// The memory the elements take (for strings, the bytes of their contents and handles).
    pub fn num_bytes(&self) -> usize {
        match self.storage() {
            Storage::View(owner) => owner.num_bytes(),
            Storage::Plain(buffer) => buffer.len(),
            Storage::Strings(values) => values.iter().map(|v| v.len() + size_of::<Bytes>()).sum(),
            Storage::Handles(values) => values.len() * size_of::<ResourceHandle>(),
            Storage::Variants(values) => values.len() * size_of::<Variant>(),
        }
    }

    /// The elements, if they are of this type.
    #[inline]
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        match self.storage() {
            Storage::Plain(buffer) if self.dtype() == T::DTYPE => Ok(buffer.as_elements()),
            _ => Err(self.wrong_type(T::DTYPE)),
        }
    }

    /// The elements in a vector of their own.
    pub fn into_vec<T: Element>(self) -> Result<Vec<T>> {
        self.as_slice::<T>().map(<[T]>::to_vec)
    }

    /// The single element of a tensor that has just one.
    #[inline]
    pub fn item<T: Element>(&self) -> Result<T> {
        match self.as_slice::<T>()? {
            [value] => Ok(*value),
            _ => Err(invalid!("wanted a single {}, found shape {}", T::DTYPE, self.shape())),
        }
    }

    /// The strings, if it is a tensor of strings.
    pub fn as_strings(&self) -> Result<&[Bytes]> {
        match self.storage() {
            Storage::Strings(values) => Ok(values),
            _ => Err(self.wrong_type(DType::String)),
        }
    }

    /// The single string of a tensor that has just one.
    pub fn string_item(&self) -> Result<&Bytes> {
        match self.as_strings()? {
            [value] => Ok(value),
            _ => Err(invalid!("wanted a single string, found shape {}", self.shape())),
        }
    }

    /// The resource handles, if it is a tensor of them.
    pub fn as_handles(&self) -> Result<&[ResourceHandle]> {
        match self.storage() {
            Storage::Handles(values) => Ok(values),
            _ => Err(self.wrong_type(DType::Resource)),
        }
    }

    /// The variants, if it is a tensor of them.
    pub fn as_variants(&self) -> Result<&[Variant]> {
        match self.storage() {
            Storage::Variants(values) => Ok(values),
            _ => Err(self.wrong_type(DType::Variant)),
        }
    }

    /// The variants in a vector of their own; moved there if nobody else holds them.
    pub fn into_variants(mut self) -> Result<Vec<Variant>> {
        if let Some(Storage::Variants(values)) = self.unique_storage() {
            return Ok(std::mem::take(values));
        }
        self.as_variants().map(<[Variant]>::to_vec)
    }

    /// The elements' memory, if the type is plain.
    pub fn as_bytes(&self) -> Result<&[u8]> {
        match self.storage() {
            Storage::Plain(buffer) => Ok(buffer.as_bytes()),
            _ => Err(invalid!("a tensor of {} is not plain memory", self.dtype())),
        }
    }

    /// The elements as words of their size, if the type is plain and of that size.
    pub fn as_words<W: Word>(&self) -> Result<&[W]> {
        match self.storage() {
            Storage::Plain(buffer) if self.dtype().size() == size_of::<W>() => Ok(buffer.as_words()),
            _ => Err(internal!("a tensor of {} was read as words of {} bytes", self.dtype(), size_of::<W>())),
        }
    }

    /// An index or size tensor (int32 or int64, also the smaller integers) as `i64`s.
    pub fn to_i64s(&self) -> Result<Vec<i64>> {
        Ok(match self.dtype() {
            DType::I64 => self.as_slice::<i64>()?.to_vec(),
            DType::I32 => self.as_slice::<i32>()?.iter().map(|&v| v as i64).collect(),
            DType::I16 => self.as_slice::<i16>()?.iter().map(|&v| v as i64).collect(),
            DType::U16 => self.as_slice::<u16>()?.iter().map(|&v| v as i64).collect(),
            DType::I8 => self.as_slice::<i8>()?.iter().map(|&v| v as i64).collect(),
            DType::U8 => self.as_slice::<u8>()?.iter().map(|&v| v as i64).collect(),
            _ => return Err(invalid!("wanted int32 or int64, found {}", self.dtype())),
        })
    }

    /// The single integer of an int32 or int64 tensor that has just one.
    pub fn to_i64(&self) -> Result<i64> {
        match self.to_i64s()?.as_slice() {
            [value] => Ok(*value),
            _ => Err(invalid!("wanted a single integer, found shape {}", self.shape())),
        }
    }

    /// The same elements under another shape of equally many.
    pub fn reshaped(mut self, shape: impl Into<Shape>) -> Result<Tensor> {
        let shape = shape.into();
        if shape.num_elements() != self.num_elements() {
            return Err(invalid!("a tensor of shape {} cannot take shape {shape}", self.shape()));
        }
        match self.unique_contents() {
            Some(contents) => contents.shape = shape,
            None => self = Tensor::from_storage(self.dtype(), shape, Storage::View(self.owner().clone())),
        }
        Ok(self)
    }

    /// The same bits read as another plain type of the same size.
    pub fn bitcast(mut self, dtype: DType) -> Result<Tensor> {
        if dtype.size() != self.dtype().size() || !dtype.is_plain() || dtype == DType::Bool {
            return Err(invalid!("{} cannot be read as {dtype}", self.dtype()));
        }
        match self.unique_contents() {
            Some(contents) => contents.dtype = dtype,
            None => self = Tensor::from_storage(dtype, self.shape().clone(), Storage::View(self.owner().clone())),
        }
        Ok(self)
    }

    /// Whether nobody else holds this memory, so that taking it costs no copy.
    #[inline]
    pub fn is_unique(&mut self) -> bool {
        self.unique_storage().is_some()
    }

    /// The storage to write to, if nobody else holds it.
    #[inline]
    fn unique_storage(&mut self) -> Option<&mut Storage> {
        match &mut self.unique_contents()?.data {
            Storage::View(owner) => owner.unique_contents().map(|contents| &mut contents.data),
            own => Some(own),
        }
    }

    /// What the pointer points to, if this is the only one.
    #[inline]
    fn unique_contents(&mut self) -> Option<&mut Contents> {
        if Arc::strong_count(&self.0) != 1 {
            return None;
        }
        // What another holder read before it let go happened before what is written now.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        // SAFETY: the count is one, `self` is borrowed uniquely, and no weak reference to a tensor's contents is ever
        // made, so nobody else can reach it. This is `Arc::get_mut` without its lock on weak references.
        Some(unsafe { &mut *Arc::as_ptr(&self.0).cast_mut() })
    }

    /// Whether both are the same memory.
    pub fn shares_memory_with(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.owner().0, &other.owner().0)
    }

    /// The elements to write to: this very memory if nobody else holds it, a copy otherwise.
    #[inline]
    pub fn into_owned<T: Element>(mut self) -> Result<OwnedTensor<T>> {
        if self.dtype() != T::DTYPE {
            return Err(self.wrong_type(T::DTYPE));
        }
        self.make_unique()?;
        Ok(OwnedTensor { tensor: self, elements: PhantomData })
    }

    /// The elements to write to in place, copied first if somebody else holds them.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        if self.dtype() != T::DTYPE {
            return Err(self.wrong_type(T::DTYPE));
        }
        self.make_unique()?;
        let dtype = self.dtype();
        match self.unique_storage() {
            Some(Storage::Plain(buffer)) => Ok(buffer.as_elements_mut()),
            _ => Err(internal!("a tensor of {dtype} has no plain memory")),
        }
    }

    /// The elements as words to write to in place, copied first if somebody else holds them.
    pub fn as_mut_words<W: Word>(&mut self) -> Result<&mut [W]> {
        if self.dtype().size() != size_of::<W>() {
            return Err(internal!("a tensor of {} was written as words of {} bytes", self.dtype(), size_of::<W>()));
        }
        self.make_unique()?;
        let dtype = self.dtype();
        match self.unique_storage() {
            Some(Storage::Plain(buffer)) => Ok(buffer.as_words_mut()),
            _ => Err(internal!("a tensor of {dtype} has no plain memory")),
        }
    }

    /// The strings to write to in place, copied first if somebody else holds them.
    pub fn as_mut_strings(&mut self) -> Result<&mut [Bytes]> {
        let wrong = self.wrong_type(DType::String);
        if !self.is_unique() {
            let copy = Storage::Strings(self.as_strings()?.to_vec());
            *self = Tensor::from_storage(DType::String, self.shape().clone(), copy);
        }
        match self.unique_storage() {
            Some(Storage::Strings(values)) => Ok(values),
            _ => Err(wrong),
        }
    }

    /// Copies plain memory that somebody else holds too.
    #[inline]
    fn make_unique(&mut self) -> Result<()> {
        if self.is_unique() { Ok(()) } else { self.copy_storage() }
    }

    fn copy_storage(&mut self) -> Result<()> {
        *self = Tensor::copied(self.dtype(), self.shape().clone(), self.as_bytes()?)?;
        Ok(())
    }

    fn wrong_type(&self, wanted: DType) -> Error {
        invalid!("wanted a tensor of {wanted}, found {} of shape {}", self.dtype(), self.shape())
    }
}

impl PartialEq for Tensor {
    /// Equal types, shapes and elements; NaN differs from itself, as floats do.
    fn eq(&self, other: &Tensor) -> bool {
        if self.dtype() != other.dtype() || self.shape() != other.shape() {
            return false;
        }
        match (self.storage(), other.storage()) {
            (Storage::Plain(a), Storage::Plain(b)) => match self.dtype() {
                DType::F32 => a.as_elements::<f32>() == b.as_elements::<f32>(),
                DType::F64 => a.as_elements::<f64>() == b.as_elements::<f64>(),
                DType::F16 => a.as_elements::<half::f16>() == b.as_elements::<half::f16>(),
                DType::BF16 => a.as_elements::<half::bf16>() == b.as_elements::<half::bf16>(),
                _ => a.as_bytes() == b.as_bytes(),
            },
            (Storage::Strings(a), Storage::Strings(b)) => a == b,
            (Storage::Handles(a), Storage::Handles(b)) => a == b,
            (Storage::Variants(a), Storage::Variants(b)) => a == b,
            _ => false,
        }
    }
}

/// A tensor that nobody else holds: its elements may be written. Becomes a [`Tensor`] without copying.
pub struct OwnedTensor<T: Element> {
    tensor: Tensor,
    elements: PhantomData<T>,
}

impl<T: Element> OwnedTensor<T> {
    /// Memory for a tensor of this shape; what it holds is arbitrary until written.
    pub fn new(shape: impl Into<Shape>) -> Result<OwnedTensor<T>> {
        Ok(OwnedTensor { tensor: Tensor::unwritten(T::DTYPE, shape.into())?, elements: PhantomData })
    }

    /// A tensor with every element this value.
    pub fn filled(shape: impl Into<Shape>, value: T) -> Result<OwnedTensor<T>> {
        let mut owned = OwnedTensor::new(shape)?;
        owned.fill(value);
        Ok(owned)
    }

    /// The sizes of the dimensions.
    #[inline]
    pub fn shape(&self) -> &Shape {
        self.tensor.shape()
    }

    /// The first elements alone, under a shape of at most as many. The memory of the others stays with them.
    pub fn shortened(mut self, shape: impl Into<Shape>) -> Result<OwnedTensor<T>> {
        let shape = shape.into();
        if shape.num_elements() > self.len() {
            return Err(invalid!("a tensor of shape {} cannot be shortened to shape {shape}", self.shape()));
        }
        match self.tensor.unique_storage() {
            Some(Storage::Plain(buffer)) => buffer.truncate(shape.num_elements() * size_of::<T>()),
            _ => unreachable!("an owned tensor is plain memory that nobody else holds"),
        }
        self.tensor.unique_contents().expect("an owned tensor is held by nobody else").shape = shape;
        Ok(self)
    }

    /// Shared from now on.
    #[inline]
    pub fn into_tensor(self) -> Tensor {
        self.tensor
    }
}

impl<T: Element> From<OwnedTensor<T>> for Tensor {
    #[inline]
    fn from(owned: OwnedTensor<T>) -> Tensor {
        owned.tensor
    }
}

impl<T: Element> Deref for OwnedTensor<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        match self.tensor.storage() {
            Storage::Plain(buffer) => buffer.as_elements(),
            _ => unreachable!("an owned tensor is plain memory"),
        }
    }
}

impl<T: Element> DerefMut for OwnedTensor<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match self.tensor.unique_storage() {
            Some(Storage::Plain(buffer)) => buffer.as_elements_mut(),
            _ => unreachable!("an owned tensor is plain memory that nobody else holds"),
        }
    }
}

impl<T: Element> From<T> for Tensor {
    #[inline]
    fn from(value: T) -> Tensor {
        Tensor::scalar(value)
    }
}
impl From<&str> for Tensor {
    fn from(value: &str) -> Tensor {
        Tensor::string(Bytes::copy_from_slice(value.as_bytes()))
    }
}
impl From<String> for Tensor {
    fn from(value: String) -> Tensor {
        Tensor::string(value)
    }
}
impl<T: Element> From<Vec<T>> for Tensor {
    fn from(values: Vec<T>) -> Tensor {
        Tensor::from_slice([values.len()], &values).expect("values that exist fit in memory once more")
    }
}
impl<T: Element, const N: usize> From<[T; N]> for Tensor {
    fn from(values: [T; N]) -> Tensor {
        Tensor::from_slice([N], &values).expect("values that exist fit in memory once more")
    }
}
impl<T: Element, const N: usize, const M: usize> From<[[T; M]; N]> for Tensor {
    fn from(values: [[T; M]; N]) -> Tensor {
        Tensor::from_slice([N, M], values.as_flattened()).expect("values that exist fit in memory once more")
    }
}
impl From<Vec<String>> for Tensor {
    fn from(values: Vec<String>) -> Tensor {
        let shape = Shape::from([values.len()]);
        Tensor::from_storage(DType::String, shape, Storage::Strings(values.into_iter().map(Bytes::from).collect()))
    }
}
impl<const N: usize> From<[&str; N]> for Tensor {
    fn from(values: [&str; N]) -> Tensor {
        Tensor::from(values.map(String::from).to_vec())
    }
}
impl From<&Tensor> for Tensor {
    fn from(tensor: &Tensor) -> Tensor {
        tensor.clone()
    }
}

/// Keeps a tensor's memory alive for a `Bytes` that points into it.
pub(crate) struct PlainBytes(pub(crate) Tensor);
impl AsRef<[u8]> for PlainBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes().unwrap_or_default()
    }
}

/// The bytes a tensor of a plain type takes; refused if that cannot be addressed.
pub(crate) fn byte_count(dtype: DType, shape: &Shape) -> Result<usize> {
    let bytes =
        shape.dims().iter().try_fold(dtype.size(), |n, &d| n.checked_mul(d)).filter(|&n| n <= isize::MAX as usize);
    bytes.ok_or_else(|| invalid!("a tensor of {dtype} and shape {shape} is larger than can be addressed"))
}

fn check_count(shape: &Shape, count: usize) -> Result<()> {
    if shape.num_elements() != count {
        return Err(invalid!("shape {shape} takes {} elements, found {count}", shape.num_elements()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taking_memory_copies_only_what_is_shared() {
        let a = Tensor::from_vec([1000], vec![1.0f32; 1000]).unwrap();
        let address = a.as_slice::<f32>().unwrap().as_ptr();
        let mut owned = a.into_owned::<f32>().unwrap();
        assert_eq!(owned.as_ptr(), address, "nobody else held it");
        owned[0] = 2.0;
        let shared = owned.into_tensor();
        let copy = shared.clone().into_owned::<f32>().unwrap();
        assert_ne!(copy.as_ptr(), address, "somebody else still holds it");
        assert_eq!(&*copy, shared.as_slice::<f32>().unwrap());
    }

    #[test]
    fn a_tensor_under_another_shape_or_type_is_the_same_memory() {
        let a = Tensor::from_vec([2, 3], vec![1.0f32; 6]).unwrap();
        let address = a.as_slice::<f32>().unwrap().as_ptr();
        let flat = a.clone().reshaped([6]).unwrap();
        let mut bits = flat.clone().bitcast(DType::I32).unwrap().reshaped([3, 2]).unwrap();
        assert_eq!((a.dims(), flat.dims(), bits.dims()), (&[2, 3][..], &[6][..], &[3, 2][..]));
        assert_eq!((flat.dtype(), bits.dtype()), (DType::F32, DType::I32));
        assert_eq!(bits.as_slice::<i32>().unwrap().as_ptr(), address.cast());
        assert!(a.shares_memory_with(&bits) && bits.shares_memory_with(&flat));
        assert_eq!(bits.num_bytes(), 24);

        assert!(!bits.is_unique(), "two others hold it");
        let written = bits.clone().into_owned::<i32>().unwrap();
        assert_ne!(written.as_ptr(), address.cast(), "so it is copied");
        drop((a, flat));
        assert!(bits.is_unique(), "the last holder");
        bits.as_mut_slice::<i32>().unwrap()[0] = 7;
        assert_eq!(bits.as_slice::<i32>().unwrap().as_ptr(), address.cast());
        assert_eq!(bits.reshaped([6]).unwrap().as_slice::<i32>().unwrap()[0], 7);
    }

    #[test]
    fn what_is_shortened_keeps_its_first_elements_where_they_are() {
        for len in [6, 6000] {
            let a = Tensor::from_vec([2, len / 2], (0..len as i32).collect()).unwrap();
            let view = a.clone().reshaped([len]).unwrap();
            drop(a);
            let owned = view.into_owned::<i32>().unwrap();
            let address = owned.as_ptr();
            let mut short = owned.shortened([2, 2]).unwrap();
            short[3] = 7;
            let short = short.into_tensor();
            assert_eq!(short, Tensor::from([[0, 1], [2, 7]]));
            assert_eq!((short.num_bytes(), short.as_bytes().unwrap().len()), (16, 16));
            assert_eq!(short.as_slice::<i32>().unwrap().as_ptr(), address);
            let whole = short.into_owned::<i32>().unwrap();
            assert!(whole.shortened([5]).is_err(), "what was let go of is gone");
        }
    }

    #[test]
    fn a_wrong_type_or_count_is_an_error() {
        let t = Tensor::scalar(1i32);
        assert!(t.as_slice::<f32>().is_err());
        assert!(t.as_strings().is_err());
        assert!(Tensor::from_vec([3], vec![1u8]).is_err());
        assert!(Tensor::from_bytes(DType::I32, [1], &[0; 3]).is_err());
        assert!(t.reshaped([2]).is_err());
    }

    #[test]
    fn booleans_from_bytes_are_normalised() {
        let t = Tensor::from_bytes(DType::Bool, [3], &[0, 7, 255]).unwrap();
        assert_eq!(t.as_slice::<bool>().unwrap(), &[false, true, true]);
    }
}
