//! Element types: `DType` at run time, the traits `Element` and `Word` at compile time.

use crate::{Complex, Error, Result, bf16, f16};
use std::fmt;

/// One row per type: variant, wire number, name as attributes print it, bytes per element (0: not plain memory).
macro_rules! dtypes {
    ($($variant:ident = $number:literal, $name:literal, $size:literal;)*) => {
        /// The type of a tensor's elements, numbered as on the wire. Reference types are not element types:
        /// whether an edge carries a reference is said by the op's definition.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[allow(missing_docs, non_camel_case_types)]
        pub enum DType { $($variant = $number,)* }

        impl DType {
            /// Every type there is.
            pub const ALL: &'static [DType] = &[$(DType::$variant,)*];

            /// The type with this wire number.
            pub fn from_number(number: i32) -> Option<DType> {
                match number { $($number => Some(DType::$variant),)* _ => None }
            }

            /// The name used in attributes and messages: `float`, `int32`, …
            pub fn name(self) -> &'static str {
                match self { $(DType::$variant => $name,)* }
            }

            /// Bytes per element; 0 for strings, handles and variants, which are not plain memory.
            pub fn size(self) -> usize {
                match self { $(DType::$variant => $size,)* }
            }
        }
    };
}

dtypes! {
    F32 = 1, "float", 4;
    F64 = 2, "double", 8;
    I32 = 3, "int32", 4;
    U8 = 4, "uint8", 1;
    I16 = 5, "int16", 2;
    I8 = 6, "int8", 1;
    String = 7, "string", 0;
    C64 = 8, "complex64", 8;
    I64 = 9, "int64", 8;
    Bool = 10, "bool", 1;
    QI8 = 11, "qint8", 1;
    QU8 = 12, "quint8", 1;
    QI32 = 13, "qint32", 4;
    BF16 = 14, "bfloat16", 2;
    QI16 = 15, "qint16", 2;
    QU16 = 16, "quint16", 2;
    U16 = 17, "uint16", 2;
    C128 = 18, "complex128", 16;
    F16 = 19, "half", 2;
    Resource = 20, "resource", 0;
    Variant = 21, "variant", 0;
    U32 = 22, "uint32", 4;
    U64 = 23, "uint64", 8;
    F8E5M2 = 24, "float8_e5m2", 1;
    F8E4M3FN = 25, "float8_e4m3fn", 1;
    F8E4M3FNUZ = 26, "float8_e4m3fnuz", 1;
    F8E4M3B11FNUZ = 27, "float8_e4m3b11fnuz", 1;
    F8E5M2FNUZ = 28, "float8_e5m2fnuz", 1;
    I4 = 29, "int4", 1;
    U4 = 30, "uint4", 1;
    I2 = 31, "int2", 1;
    U2 = 32, "uint2", 1;
    F4E2M1FN = 33, "float4_e2m1fn", 1;
}

/// Added to a type's number to say "a reference to it", in attributes and op definitions only.
pub(crate) const REF_OFFSET: i32 = 100;

impl DType {
    /// The number on the wire.
    pub fn number(self) -> i32 {
        self as i32
    }

    /// The type named so in attributes (`float`, `int32`, also `DT_FLOAT`).
    pub fn parse(name: &str) -> Result<DType> {
        let plain = name.strip_prefix("DT_").map(str::to_ascii_lowercase);
        let wanted = plain.as_deref().unwrap_or(name);
        let found = DType::ALL.iter().copied().find(|d| d.name() == wanted);
        found.ok_or_else(|| Error::new(crate::Code::InvalidArgument, format!("unknown element type '{name}'")))
    }

    /// Half, bfloat16, float or double.
    pub fn is_floating(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }

    /// Complex of either width.
    pub fn is_complex(self) -> bool {
        matches!(self, DType::C64 | DType::C128)
    }

    /// A signed or unsigned integer of 8 to 64 bits.
    pub fn is_integer(self) -> bool {
        use DType::*;
        matches!(self, I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64)
    }

    /// Whether elements are plain memory that may be copied as bytes.
    pub fn is_plain(self) -> bool {
        self.size() != 0
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type that a tensor's memory can be viewed as.
///
/// # Safety
/// `Self` is plain memory of `DTYPE.size()` bytes with alignment at most 64, and every bit pattern that a tensor
/// of `DTYPE` can hold is a valid `Self`.
pub unsafe trait Element: Copy + Default + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// The element type this is.
    const DTYPE: DType;
}

/// Lists which Rust type is which element type.
macro_rules! elements {
    ($($t:ty => $d:ident),* $(,)?) => {$(
        // SAFETY: a primitive number of exactly this width, for which every bit pattern is valid; for `bool`
        // tensors hold only 0 and 1, which every way into a tensor checks or normalises.
        unsafe impl Element for $t { const DTYPE: DType = DType::$d; }
    )*};
}
elements! {
    f32 => F32, f64 => F64, f16 => F16, bf16 => BF16, i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64, bool => Bool, Complex<f32> => C64, Complex<f64> => C128,
}

/// A word of 1, 2, 4, 8 or 16 bytes: what an element is to a kernel that only carries elements about.
///
/// # Safety
/// `Self` is plain memory of `size_of::<Self>()` bytes, valid for every bit pattern.
pub unsafe trait Word: Copy + Default + PartialEq + Eq + std::hash::Hash + Send + Sync + 'static {}
// SAFETY: an unsigned integer is valid for every bit pattern.
unsafe impl Word for u8 {}
// SAFETY: as above.
unsafe impl Word for u16 {}
// SAFETY: as above.
unsafe impl Word for u32 {}
// SAFETY: as above.
unsafe impl Word for u64 {}
// SAFETY: as above.
unsafe impl Word for u128 {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_go_both_ways() {
        for &d in DType::ALL {
            assert_eq!(DType::from_number(d.number()), Some(d));
            assert_eq!(DType::parse(d.name()).unwrap(), d);
        }
        assert_eq!(DType::parse("DT_FLOAT").unwrap(), DType::F32);
        assert!(DType::parse("flaot").is_err());
    }
}
