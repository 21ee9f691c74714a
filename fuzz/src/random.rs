//! Random attributes and tensors: small, of every type, with the values that break things among them.

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use framework::graph::NameAttrList;
use framework::op::AttrDef;
use framework::{Attr, Attrs};
use tensor::{Complex, DType, PartialShape, Shape, Tensor, bf16, f16};

const TYPES: &[DType] = &[
    DType::F32,
    DType::F64,
    DType::I32,
    DType::I64,
    DType::Bool,
    DType::String,
    DType::U8,
    DType::I8,
    DType::I16,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::F16,
    DType::BF16,
    DType::C64,
    DType::C128,
    DType::QI8,
    DType::QU8,
    DType::QI32,
];

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "", "a", "b", "abc", "1", "-1.5", "1e400", "nan", "0x", "%s", "a,b;c", "NHWC", "NCHW", "SAME", "VALID", "constant",
    "SYMMETRIC", "mean", "zlib", "/tmp/no/such", "\u{e4}\u{20ac}", "q",
];

pub fn dtype(u: &mut Unstructured<'_>) -> Result<DType> {
    Ok(*u.choose(TYPES)?)
}

fn int(u: &mut Unstructured<'_>) -> Result<i64> {
    Ok(match u.int_in_range(0..=40u8)? {
        0 => i64::MAX,
        1 => i64::MIN,
        2 => i64::from(i32::MAX),
        3 => i64::from(i32::MIN),
        4 => 1 << 40,
        5 => 12,
        6 => 40,
        7 => u.arbitrary::<i64>()?,
        _ => u.int_in_range(-2..=5)?,
    })
}

fn real(u: &mut Unstructured<'_>) -> Result<f64> {
    Ok(match u.int_in_range(0..=30u8)? {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 => f64::NEG_INFINITY,
        3 => 1e308,
        4 => -1e-320,
        5 => 1e20,
        6 => -0.0,
        _ => f64::from(u.int_in_range(-8..=8i8)?) / 4.0,
    })
}

fn word(u: &mut Unstructured<'_>) -> Result<Bytes> {
    if u.ratio(1, 20)? {
        let raw: [u8; 3] = u.arbitrary()?;
        return Ok(Bytes::copy_from_slice(&raw));
    }
    Ok(Bytes::from_static(u.choose(WORDS)?.as_bytes()))
}

pub fn shape(u: &mut Unstructured<'_>) -> Result<Shape> {
    let rank = match u.int_in_range(0..=20u8)? {
        0 => 6,
        1 => 5,
        n => usize::from(n % 5),
    };
    let mut dims = Vec::new();
    let mut count = 1usize;
    for _ in 0..rank {
        let dim = u.int_in_range(0..=if count > 64 { 1 } else { 5 })?;
        count *= dim.max(1);
        dims.push(dim);
    }
    Ok(Shape::from(dims))
}

/// A tensor of at most a few hundred elements; `None` for types whose values only ops can make.
pub fn tensor(u: &mut Unstructured<'_>, dtype: DType) -> Result<Option<Tensor>> {
    let shape = shape(u)?;
    tensor_of(u, dtype, shape)
}

fn tensor_of(u: &mut Unstructured<'_>, dtype: DType, shape: Shape) -> Result<Option<Tensor>> {
    use DType::*;
    let count = shape.num_elements();
    macro_rules! values {
        ($t:ty, $draw:expr) => {{
            let values = (0..count).map(|_| $draw).collect::<Result<Vec<$t>>>()?;
            Tensor::from_vec(shape, values).ok()
        }};
    }
    Ok(match dtype {
        F32 => values!(f32, real(u).map(|x| x as f32)),
        F64 => values!(f64, real(u)),
        F16 => values!(f16, real(u).map(f16::from_f64)),
        BF16 => values!(bf16, real(u).map(bf16::from_f64)),
        C64 => values!(Complex<f32>, Ok(Complex::new(real(u)? as f32, real(u)? as f32))),
        C128 => values!(Complex<f64>, Ok(Complex::new(real(u)?, real(u)?))),
        I8 => values!(i8, int(u).map(|x| x as i8)),
        I16 => values!(i16, int(u).map(|x| x as i16)),
        I32 => values!(i32, int(u).map(|x| x as i32)),
        I64 => values!(i64, int(u)),
        U8 => values!(u8, int(u).map(|x| x as u8)),
        U16 => values!(u16, int(u).map(|x| x as u16)),
        U32 => values!(u32, int(u).map(|x| x as u32)),
        U64 => values!(u64, int(u).map(|x| x as u64)),
        Bool => values!(bool, u.arbitrary::<bool>()),
        String => {
            let values = (0..count).map(|_| word(u)).collect::<Result<Vec<Bytes>>>()?;
            Tensor::from_strings(shape, values).ok()
        }
        Resource | Variant => None,
        other => Tensor::zeros(other, shape).ok(),
    })
}

/// A value for an attribute, mostly one that the definition allows.
pub fn attr(u: &mut Unstructured<'_>, def: &AttrDef) -> Result<Option<Attr>> {
    if def.default.is_some() && u.ratio(1, 2)? {
        return Ok(None);
    }
    if let Some(kind) = def.kind.strip_prefix("list(").and_then(|k| k.strip_suffix(')')) {
        let count = u.int_in_range(0..=4usize)?;
        return Ok(Some(list(u, kind, def, count)?));
    }
    Ok(Some(match def.kind.as_str() {
        "type" => Attr::Type(one_type(u, def)?),
        "int" => {
            let least = def.minimum.unwrap_or(-2);
            Attr::Int(if u.ratio(1, 20)? { int(u)? } else { u.int_in_range(least..=least.saturating_add(4))? })
        }
        "float" => Attr::Float(real(u)? as f32),
        "bool" => Attr::Bool(u.arbitrary()?),
        "string" => Attr::String(match &def.allowed_strings {
            Some(allowed) => u.choose(allowed)?.clone().into(),
            None => word(u)?,
        }),
        "shape" => Attr::Shape(partial_shape(u)?),
        "tensor" => {
            let dtype = dtype(u)?;
            match tensor(u, dtype)? {
                Some(value) => Attr::Tensor(value),
                None => return Ok(None),
            }
        }
        "func" => Attr::Function(NameAttrList { name: "f".into(), attrs: Attrs::new() }),
        _ => return Ok(None),
    }))
}

fn one_type(u: &mut Unstructured<'_>, def: &AttrDef) -> Result<DType> {
    match &def.allowed_types {
        Some(allowed) => Ok(*u.choose(allowed)?),
        None => dtype(u),
    }
}

fn partial_shape(u: &mut Unstructured<'_>) -> Result<PartialShape> {
    if u.ratio(1, 5)? {
        return Ok(PartialShape::unknown());
    }
    let dims = shape(u)?.dims().to_vec();
    let dims = dims.into_iter().map(|d| Ok(if u.ratio(1, 4)? { None } else { Some(d) })).collect::<Result<Vec<_>>>()?;
    Ok(PartialShape::new(dims))
}

fn list(u: &mut Unstructured<'_>, kind: &str, def: &AttrDef, count: usize) -> Result<Attr> {
    Ok(match kind {
        "type" => (0..count).map(|_| one_type(u, def)).collect::<Result<Vec<_>>>()?.into(),
        "int" => (0..count).map(|_| int(u)).collect::<Result<Vec<_>>>()?.into(),
        "float" => (0..count).map(|_| real(u).map(|x| x as f32)).collect::<Result<Vec<_>>>()?.into(),
        "bool" => (0..count).map(|_| u.arbitrary::<bool>()).collect::<Result<Vec<_>>>()?.into(),
        "string" => (0..count).map(|_| word(u)).collect::<Result<Vec<_>>>()?.into(),
        "shape" => (0..count).map(|_| partial_shape(u)).collect::<Result<Vec<_>>>()?.into(),
        _ => Attr::EmptyList,
    })
}
