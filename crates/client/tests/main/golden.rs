//! Reads what TensorFlow computed (testdata/training) and compares.

use ferroflow::{DType, Shape, Tensor};
use serde_json::Value;

/// The cases of one file.
pub fn cases(file: &str) -> Vec<Value> {
    let path = format!("{}/../../testdata/training/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut file: Value = serde_json::from_str(&text).unwrap();
    let Value::Array(cases) = file["cases"].take() else { panic!("{path} has no cases") };
    assert!(!cases.is_empty(), "{path} has no cases");
    cases
}

/// Runs `check` on every case, and reports all that fail, by name.
pub fn check_all(file: &str, check: impl Fn(&Value) -> Result<(), String>) {
    let cases = cases(file);
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| check(case).err().map(|why| format!("{}: {why}", case["name"].as_str().unwrap_or("?"))))
        .collect();
    assert!(failures.is_empty(), "{} of {} cases fail:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

pub fn dtype(value: &Value) -> DType {
    DType::parse(value.as_str().expect("a dtype")).unwrap()
}

pub fn shape(value: &Value) -> Shape {
    value.as_array().expect("a shape").iter().map(|d| d.as_u64().expect("a size") as usize).collect()
}

pub fn numbers(value: &Value) -> Vec<f64> {
    let number = |v: &Value| match v {
        Value::String(text) => text.parse().expect("a number as text"),
        v => v.as_f64().expect("a number"),
    };
    value.as_array().expect("a list of numbers").iter().map(number).collect()
}

pub fn tensor(value: &Value) -> Tensor {
    of(dtype(&value["dtype"]), shape(&value["shape"]), &numbers(&value["values"]))
}

/// A tensor of these numbers.
pub fn of(dtype: DType, shape: Shape, values: &[f64]) -> Tensor {
    match dtype {
        DType::F32 => Tensor::from_vec(shape, values.iter().map(|&v| v as f32).collect()),
        DType::F64 => Tensor::from_vec(shape, values.to_vec()),
        DType::I32 => Tensor::from_vec(shape, values.iter().map(|&v| v as i32).collect()),
        DType::I64 => Tensor::from_vec(shape, values.iter().map(|&v| v as i64).collect()),
        other => panic!("no golden data of {other}"),
    }
    .unwrap()
}

/// The difference, if the values differ by more than rounding.
pub fn compare(what: &str, found: &Tensor, want: &Tensor) -> Result<(), String> {
    if (found.dtype(), found.shape()) != (want.dtype(), want.shape()) {
        let (f, w) = (found, want);
        return Err(format!("{what}: {}{}, wanted {}{}", f.dtype(), f.shape(), w.dtype(), w.shape()));
    }
    let tolerance = match want.dtype() {
        DType::F32 => 1e-5,
        DType::F64 => 1e-9,
        _ => 0.0,
    };
    for (i, (f, w)) in as_f64(found).into_iter().zip(as_f64(want)).enumerate() {
        let near = (f - w).abs() <= tolerance * w.abs().max(0.1);
        if !near && f != w && !(f.is_nan() && w.is_nan()) {
            return Err(format!("{what}: element {i} is {f}, wanted {w}"));
        }
    }
    Ok(())
}

pub fn as_f64(tensor: &Tensor) -> Vec<f64> {
    match tensor.dtype() {
        DType::F32 => tensor.as_slice::<f32>().unwrap().iter().map(|&v| v.into()).collect(),
        DType::F64 => tensor.as_slice::<f64>().unwrap().to_vec(),
        _ => tensor.to_i64s().unwrap().iter().map(|&v| v as f64).collect(),
    }
}
