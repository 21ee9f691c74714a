//! Cases as JSON: tensors, attributes, status codes.

use bytes::Bytes;
use framework::Attr;
use serde_json::Value;
use std::path::PathBuf;
use tensor::{Code, Complex, DType, PartialShape, Shape, Tensor, bf16, f16};

/// The folder of the data.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/ops")
}

/// A data file.
pub fn read(name: &str) -> Value {
    let path = folder().join(name);
    let text = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The cases of a data file.
pub fn cases(name: &str) -> Vec<Value> {
    match read(name)["cases"].take() {
        Value::Array(cases) => cases,
        _ => panic!("{name} has no cases"),
    }
}

/// A member that must be a list.
pub fn list<'a>(v: &'a Value, name: &str) -> &'a [Value] {
    v[name].as_array().map_or(&[], Vec::as_slice)
}

/// A member that must be a string.
pub fn text<'a>(v: &'a Value, name: &str) -> &'a str {
    v[name].as_str().unwrap_or_else(|| panic!("no string '{name}' in {v}"))
}

/// `{"dtype": .., "shape": .., "values": ..}`.
pub fn tensor(v: &Value) -> Tensor {
    let dtype = DType::parse(text(v, "dtype")).unwrap();
    let shape: Shape = list(v, "shape").iter().map(|d| d.as_u64().unwrap() as usize).collect();
    let values = list(v, "values");
    if dtype == DType::String {
        return Tensor::from_strings(shape, values.iter().map(string).collect()).unwrap();
    }
    let mut bytes = Vec::new();
    for value in values {
        match dtype {
            DType::F32 => bytes.extend((real(value) as f32).to_le_bytes()),
            DType::F64 => bytes.extend(real(value).to_le_bytes()),
            DType::F16 => bytes.extend(f16::from_f64(real(value)).to_le_bytes()),
            DType::BF16 => bytes.extend(bf16::from_f64(real(value)).to_le_bytes()),
            DType::C64 | DType::C128 => {
                let c = Complex::new(real(&value[0]), real(&value[1]));
                if dtype == DType::C64 {
                    bytes.extend((c.re as f32).to_le_bytes());
                    bytes.extend((c.im as f32).to_le_bytes());
                } else {
                    bytes.extend(c.re.to_le_bytes());
                    bytes.extend(c.im.to_le_bytes());
                }
            }
            DType::Bool => bytes.push(value.as_bool().unwrap() as u8),
            DType::F8E5M2 | DType::F8E4M3FN | DType::F4E2M1FN => bytes.push(small_float_code(dtype, real(value))),
            DType::I4 | DType::U4 => bytes.push(integer(value) as u8 & 0xf),
            DType::I2 | DType::U2 => bytes.push(integer(value) as u8 & 0x3),
            _ => bytes.extend(&integer(value).to_le_bytes()[..dtype.size()]),
        }
    }
    Tensor::from_bytes(dtype, shape, &bytes).unwrap()
}

/// A number, or one of the words for what JSON has no number for.
pub fn real(v: &Value) -> f64 {
    match v.as_str() {
        Some("nan") => f64::NAN,
        Some("inf") => f64::INFINITY,
        Some("-inf") => f64::NEG_INFINITY,
        _ => v.as_f64().unwrap_or_else(|| panic!("{v} is not a number")),
    }
}

/// An integer; those beyond 2^53 are written as strings.
pub fn integer(v: &Value) -> i128 {
    match v {
        Value::String(s) => s.parse().unwrap_or_else(|_| panic!("{v} is not an integer")),
        _ => v.as_i64().map_or_else(|| v.as_u64().unwrap_or_else(|| panic!("{v} is no integer")) as i128, i128::from),
    }
}

/// A string, or `{"b64": ..}`.
pub fn string(v: &Value) -> Bytes {
    match v.as_str() {
        Some(s) => Bytes::copy_from_slice(s.as_bytes()),
        None => base64(text(v, "b64")).into(),
    }
}

fn base64(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("'{}' in base64", c as char),
    };
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for c in text.bytes().filter(|&c| c != b'=') {
        bits = bits << 6 | digit(c) as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

/// What a code of one of the smallest float types stands for.
pub fn small_float(dtype: DType, code: u8) -> f64 {
    let (exponent_bits, mantissa_bits, bias) = match dtype {
        DType::F8E5M2 => return f16::from_bits((code as u16) << 8).to_f64(),
        DType::F8E4M3FN => (4u32, 3u32, 7),
        _ => (2, 1, 1),
    };
    let magnitude = code & ((1 << (exponent_bits + mantissa_bits)) - 1);
    if dtype == DType::F8E4M3FN && magnitude == 0x7f {
        return f64::NAN;
    }
    let exponent = (magnitude >> mantissa_bits) as i32;
    let fraction = (magnitude & ((1 << mantissa_bits) - 1)) as f64 / f64::from(1u32 << mantissa_bits);
    let value =
        if exponent == 0 { fraction * 2f64.powi(1 - bias) } else { (1.0 + fraction) * 2f64.powi(exponent - bias) };
    if code >> (exponent_bits + mantissa_bits) & 1 == 1 { -value } else { value }
}

fn small_float_code(dtype: DType, value: f64) -> u8 {
    let last = if dtype == DType::F4E2M1FN { 15 } else { 255 };
    let same = |code: &u8| {
        let found = small_float(dtype, *code);
        found.to_bits() == value.to_bits() || (found.is_nan() && value.is_nan())
    };
    (0..=last).find(same).unwrap_or_else(|| panic!("{value} is not a {dtype}"))
}

/// An attribute, such as `{"li": [1, 2]}`.
pub fn attr(v: &Value) -> Attr {
    let (kind, value) = v.as_object().and_then(|o| o.iter().next()).unwrap_or_else(|| panic!("attribute {v}"));
    let items = || value.as_array().unwrap_or_else(|| panic!("a list in {v}"));
    match kind.as_str() {
        "type" => Attr::Type(dtype(value)),
        "i" => Attr::Int(integer(value) as i64),
        "b" => Attr::Bool(value.as_bool().unwrap()),
        "s" => Attr::String(string(value)),
        "f" => Attr::Float(real(value) as f32),
        "shape" => Attr::Shape(shape(value)),
        "tensor" => Attr::Tensor(tensor(value)),
        "li" => items().iter().map(|i| integer(i) as i64).collect::<Vec<_>>().into(),
        "lb" => items().iter().map(|b| b.as_bool().unwrap()).collect::<Vec<_>>().into(),
        "lf" => items().iter().map(|f| real(f) as f32).collect::<Vec<_>>().into(),
        "ls" => items().iter().map(string).collect::<Vec<_>>().into(),
        "ltype" => items().iter().map(dtype).collect::<Vec<_>>().into(),
        "lshape" => items().iter().map(shape).collect::<Vec<_>>().into(),
        other => panic!("an attribute of kind {other}"),
    }
}

/// An element type by name.
pub fn dtype(v: &Value) -> DType {
    DType::parse(v.as_str().unwrap_or_else(|| panic!("{v} is not a type"))).unwrap()
}

fn shape(v: &Value) -> PartialShape {
    match v.as_array() {
        None => PartialShape::unknown(),
        Some(dims) => PartialShape::new(dims.iter().map(|d| usize::try_from(d.as_i64().unwrap()).ok())),
    }
}

/// A status code by its upper-case name.
pub fn code(name: &str) -> Code {
    let found = (1..=16).filter_map(Code::from_i32).find(|c| {
        let words = format!("{c:?}");
        words.eq_ignore_ascii_case(&name.replace('_', ""))
    });
    found.unwrap_or_else(|| panic!("no status code {name}"))
}
