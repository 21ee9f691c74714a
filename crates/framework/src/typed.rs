//! One kernel body for many element types: the only `match dtype` over kernels in the program.
//!
//! A kernel is a plain struct with one generic `compute<T>`. An adapter reads the node's type attribute when the
//! kernel is built and picks the instance. [`moves`] is for kernels that only carry elements about (Gather, Concat,
//! Transpose): it dispatches on the element's size, and serves strings and handles too.

use crate::kernel::{BuiltKernel, Kernel, KernelBuild, KernelContext};
use crate::numbered::numbered;
use crate::op::KernelFn;
use crate::widened::widened;
use bytes::Bytes;
use std::marker::PhantomData;
use std::sync::Arc;
use tensor::{
    Complex, DType, Element, ResourceHandle, Result, Shape, Tensor, Variant, Word, bf16, f16, internal, unsupported,
};

/// Combines `Element` with a numeric trait of `linalg` under the latter's name.
macro_rules! aliases {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        pub trait $name: Element + linalg::number::$name {}
        impl<T: Element + linalg::number::$name> $name for T {}
    )*};
}
aliases! {
    /// An element that can be added and multiplied.
    Number;
    /// An element with an order: integers and floats.
    Real;
    /// An element with roots and exponentials: floats and complex numbers.
    Field;
    /// Half, bfloat16, float, double.
    Float;
    /// The integers of 8 to 64 bits.
    Int;
}

/// Declares a kernel trait and its adapters. Types that come after the bar are computed as the named wider ones.
macro_rules! adapters {
    ($(
        $(#[$doc:meta])* $trait:ident, $bound:ident, $typed:ident {$(
            $(#[$adapter_doc:meta])* $adapter:ident, $by:ident: $($variant:ident => $t:ty),*
                $(, | $($narrow:ident => $wide:ty),*)?;
        )*}
    )*) => {$(
        $(#[$doc])*
        pub trait $trait: Send + Sync + 'static {
            /// Fills the outputs. Must not block.
            fn compute<T: $bound>(&self, ctx: &mut KernelContext<'_>) -> Result<()>;
        }

        struct $typed<K, T>(K, PhantomData<fn() -> T>);
        impl<K: $trait, T: $bound> Kernel for $typed<K, T> {
            fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
                self.0.compute::<T>(ctx)
            }
        }

        $(
            $(#[$adapter_doc])*
            /// The type is that of the op's first type attribute.
            pub fn $adapter<K: $trait>(build: fn(&KernelBuild<'_>) -> Result<K>) -> KernelFn {
                Arc::new(move |b| {
                    let attr = first_type_attr(b)?;
                    $by(b, &attr, build(b)?)
                })
            }

            /// The same, for the type that a given attribute names.
            pub fn $by<K: $trait>(b: &KernelBuild<'_>, attr: &str, kernel: K) -> Result<BuiltKernel> {
                match b.dtype(attr)? {
                    $(DType::$variant => Ok(BuiltKernel::new($typed::<K, $t>(kernel, PhantomData))),)*
                    $($(DType::$narrow => Ok(widened(DType::$narrow, Arc::new($typed::<K, $wide>(kernel, PhantomData)))),)*)?
                    other => Err(no_kernel(b, other)),
                }
            }
        )*
    )*};
}
// A kernel is compiled for every type in a list before the bar. So a kernel that is not worth that takes a `wide` adapter
// if it does one operation on its elements, or only compares and moves them; a `stepwise` one if halves must be rounded
// after each of several operations, as TensorFlow does; and neither if results depend on the width of an integer, or if it
// changes variables.
adapters! {
    /// A kernel for the floating types.
    FloatKernel, Float, FloatTyped {
        /// A kernel for the floating types.
        floats, floats_by: F16 => f16, BF16 => bf16, F32 => f32, F64 => f64;
        /// The same, with halves computed as `float`.
        wide_floats, wide_floats_by: F32 => f32, F64 => f64, | F16 => f32, BF16 => f32;
    }
    /// A kernel for floats and complex numbers.
    FieldKernel, Field, FieldTyped {
        /// A kernel for floats and complex numbers.
        fields, fields_by:
            F16 => f16, BF16 => bf16, F32 => f32, F64 => f64, C64 => Complex<f32>, C128 => Complex<f64>;
        /// The same, with halves computed as `float`.
        wide_fields, wide_fields_by: F32 => f32, F64 => f64, C64 => Complex<f32>, C128 => Complex<f64>,
            | F16 => f32, BF16 => f32;
        /// A kernel for the complex types.
        complexes, complexes_by: C64 => Complex<f32>, C128 => Complex<f64>;
    }
    /// A kernel for integers and floats.
    RealKernel, Real, RealTyped {
        /// A kernel for integers and floats.
        reals, reals_by: F16 => f16, BF16 => bf16, F32 => f32, F64 => f64, I8 => i8, I16 => i16,
            I32 => i32, I64 => i64, U8 => u8, U16 => u16, U32 => u32, U64 => u64;
        /// The same, with halves and narrow integers computed in a wider type.
        wide_reals, wide_reals_by: F32 => f32, F64 => f64, I32 => i32, I64 => i64, U64 => u64,
            | F16 => f32, BF16 => f32, I8 => i32, I16 => i32, U8 => i32, U16 => i32, U32 => i64;
        /// The same, with narrow integers computed in a wider type, and halves as themselves.
        stepwise_reals, stepwise_reals_by: F16 => f16, BF16 => bf16, F32 => f32, F64 => f64, I32 => i32, I64 => i64,
            U64 => u64, | I8 => i32, I16 => i32, U8 => i32, U16 => i32, U32 => i64;
    }
    /// A kernel for integers, floats and complex numbers.
    NumberKernel, Number, NumberTyped {
        /// A kernel for integers, floats and complex numbers.
        numbers, numbers_by: F16 => f16, BF16 => bf16, F32 => f32, F64 => f64, I8 => i8, I16 => i16, I32 => i32,
            I64 => i64, U8 => u8, U16 => u16, U32 => u32, U64 => u64, C64 => Complex<f32>, C128 => Complex<f64>;
        /// The same, with halves and narrow integers computed in a wider type.
        wide_numbers, wide_numbers_by: F32 => f32, F64 => f64, I32 => i32, I64 => i64, U64 => u64,
            C64 => Complex<f32>, C128 => Complex<f64>,
            | F16 => f32, BF16 => f32, I8 => i32, I16 => i32, U8 => i32, U16 => i32, U32 => i64;
        /// The same, with narrow integers computed in a wider type, and halves as themselves.
        stepwise_numbers, stepwise_numbers_by: F16 => f16, BF16 => bf16, F32 => f32, F64 => f64, I32 => i32,
            I64 => i64, U64 => u64, C64 => Complex<f32>, C128 => Complex<f64>,
            | I8 => i32, I16 => i32, U8 => i32, U16 => i32, U32 => i64;
    }
    /// A kernel for integers.
    IntKernel, Int, IntTyped {
        /// A kernel for integers.
        ints, ints_by: I8 => i8, I16 => i16, I32 => i32, I64 => i64, U8 => u8, U16 => u16, U32 => u32, U64 => u64;
        /// The same, with narrow integers computed in a wider type.
        wide_ints, wide_ints_by: I32 => i32, I64 => i64, U64 => u64,
            | I8 => i32, I16 => i32, U8 => i32, U16 => i32, U32 => i64;
        /// A kernel for the two types of indices and counts.
        index_ints, index_ints_by: I32 => i32, I64 => i64;
    }
}

/// An element to a kernel that only carries elements about: a word of its size, a string, a handle.
pub trait Item: Clone + PartialEq + Send + Sync + 'static {
    /// The elements of a tensor.
    fn items(tensor: &Tensor) -> Result<&[Self]>;
    /// A new tensor whose elements `fill` writes; they start as zeros or arbitrary.
    fn build(dtype: DType, shape: Shape, fill: Fill<'_, Self>) -> Result<Tensor>;
    /// The elements of a tensor to write to in place, copied first if somebody else holds them.
    fn items_mut(tensor: &mut Tensor) -> Result<&mut [Self]>;
    /// Zero, or an empty string.
    fn zero() -> Self;
}

/// Writes the elements of a new tensor.
pub type Fill<'a, I> = &'a mut dyn FnMut(&mut [I]) -> Result<()>;

/// The words.
macro_rules! word_items {
    ($($t:ty),*) => {$(
        impl Item for $t {
            fn items(tensor: &Tensor) -> Result<&[$t]> {
                tensor.as_words()
            }
            fn build(dtype: DType, shape: Shape, fill: Fill<'_, $t>) -> Result<Tensor> {
                build_words(dtype, shape, fill)
            }
            fn items_mut(tensor: &mut Tensor) -> Result<&mut [$t]> {
                tensor.as_mut_words()
            }
            fn zero() -> $t {
                0
            }
        }
    )*};
}
word_items!(u8, u16, u32, u64, u128);

fn build_words<W: Word>(dtype: DType, shape: Shape, fill: Fill<'_, W>) -> Result<Tensor> {
    // Booleans must never hold arbitrary memory, whatever `fill` leaves out.
    let mut tensor = if dtype == DType::Bool {
        Tensor::zeros(dtype, shape)?
    } else {
        Tensor::from_filled(dtype, shape, |_| Ok(()))?
    };
    fill(tensor.as_mut_words()?)?;
    Ok(tensor)
}

impl Item for Bytes {
    fn items(tensor: &Tensor) -> Result<&[Bytes]> {
        tensor.as_strings()
    }
    fn build(_: DType, shape: Shape, fill: Fill<'_, Bytes>) -> Result<Tensor> {
        let mut values = vec![Bytes::new(); shape.num_elements()];
        fill(&mut values)?;
        Tensor::from_strings(shape, values)
    }
    fn items_mut(tensor: &mut Tensor) -> Result<&mut [Bytes]> {
        tensor.as_mut_strings()
    }
    fn zero() -> Bytes {
        Bytes::new()
    }
}

impl Item for ResourceHandle {
    fn items(tensor: &Tensor) -> Result<&[ResourceHandle]> {
        tensor.as_handles()
    }
    fn build(_: DType, shape: Shape, fill: Fill<'_, ResourceHandle>) -> Result<Tensor> {
        let mut values = vec![ResourceHandle::default(); shape.num_elements()];
        fill(&mut values)?;
        Tensor::from_handles(shape, values)
    }
    fn items_mut(_: &mut Tensor) -> Result<&mut [ResourceHandle]> {
        Err(unsupported!("handles are not written in place"))
    }
    fn zero() -> ResourceHandle {
        ResourceHandle::default()
    }
}

impl Item for Variant {
    fn items(tensor: &Tensor) -> Result<&[Variant]> {
        tensor.as_variants()
    }
    fn build(_: DType, shape: Shape, fill: Fill<'_, Variant>) -> Result<Tensor> {
        let mut values = vec![Variant::default(); shape.num_elements()];
        fill(&mut values)?;
        Tensor::from_variants(shape, values)
    }
    fn items_mut(_: &mut Tensor) -> Result<&mut [Variant]> {
        Err(unsupported!("variants are not written in place"))
    }
    fn zero() -> Variant {
        Variant::default()
    }
}

/// A kernel that only carries elements about.
pub trait MoveKernel: Send + Sync + 'static {
    /// Fills the outputs. Must not block.
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()>;
}

/// A kernel that only carries elements about, for every type there is. The type is that of the op's first type
/// attribute; handles, variants and `complex128` are carried by number, so that it must take them from its inputs.
pub fn moves<K: MoveKernel>(build: fn(&KernelBuild<'_>) -> Result<K>) -> KernelFn {
    Arc::new(move |b| {
        let attr = first_type_attr(b)?;
        moves_by(b, &attr, build(b)?)
    })
}

/// The same, for the type that a given attribute names.
pub fn moves_by<K: MoveKernel>(b: &KernelBuild<'_>, attr: &str, kernel: K) -> Result<BuiltKernel> {
    match b.dtype(attr)? {
        dtype @ (DType::Resource | DType::Variant | DType::C128) => {
            Ok(numbered(dtype, Arc::new(Moves::<K, u32>(kernel, PhantomData))))
        }
        DType::String => Ok(BuiltKernel::new(Moves::<K, Bytes>(kernel, PhantomData))),
        dtype => moves_words(dtype, kernel),
    }
}

struct Moves<K, I>(K, PhantomData<fn() -> I>);
impl<K: MoveKernel, I: Item> Kernel for Moves<K, I> {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        self.0.compute::<I>(ctx)
    }
}

/// A kernel that only carries elements about, those of variables also, of a given type.
pub fn moves_of<K: MoveKernel>(dtype: DType, kernel: K) -> Result<BuiltKernel> {
    match (dtype, dtype.size()) {
        (DType::String, _) => Ok(BuiltKernel::new(Moves::<K, Bytes>(kernel, PhantomData))),
        (DType::Resource, _) => Ok(BuiltKernel::new(Moves::<K, ResourceHandle>(kernel, PhantomData))),
        (DType::Variant, _) => Ok(BuiltKernel::new(Moves::<K, Variant>(kernel, PhantomData))),
        (_, 16) => Ok(BuiltKernel::new(Moves::<K, u128>(kernel, PhantomData))),
        _ => moves_words(dtype, kernel),
    }
}

fn moves_words<K: MoveKernel>(dtype: DType, kernel: K) -> Result<BuiltKernel> {
    match dtype.size() {
        1 => Ok(BuiltKernel::new(Moves::<K, u8>(kernel, PhantomData))),
        2 => Ok(BuiltKernel::new(Moves::<K, u16>(kernel, PhantomData))),
        4 => Ok(BuiltKernel::new(Moves::<K, u32>(kernel, PhantomData))),
        8 => Ok(BuiltKernel::new(Moves::<K, u64>(kernel, PhantomData))),
        size => Err(internal!("elements of {dtype} have {size} bytes: there is no word of that size")),
    }
}

/// The attribute a kernel's element type is read from: the first of kind `type` in the op's definition.
fn first_type_attr(b: &KernelBuild<'_>) -> Result<String> {
    let found = b.node.op.attrs.iter().find(|a| a.kind == "type");
    found.map(|a| a.name.clone()).ok_or_else(|| tensor::internal!("op {} has no type attribute", b.node.op.name))
}

/// The error for an element type that no kernel serves.
pub fn no_kernel(b: &KernelBuild<'_>, dtype: DType) -> tensor::Error {
    tensor::invalid!("No OpKernel was registered to support Op '{}' with element type {dtype} on CPU", b.node.op.name)
}
