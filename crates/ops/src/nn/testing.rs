//! Runs one node on given inputs, for the tests of this family.

use framework::interpret::Interpreter;
use framework::{Attr, CpuDevice, DeviceName, Op, Output, Pool, Registry, Scope, SystemEnv, shapes};
use std::collections::HashMap;
use std::sync::Arc;
use tensor::{Code, PartialShape, Result, Tensor};

/// The op that stands for an input in these tests.
fn fed() -> Op {
    Op::new("TestInput").output("value: dtype").attr("dtype: type").attr("shape: shape").shape(shapes::from_shape_attr)
}

pub(crate) fn scope() -> Scope {
    Scope::new(Arc::new(Registry::new(crate::ops().into_iter().chain([fed()]))))
}

pub(crate) fn interpreter() -> Interpreter {
    let device = CpuDevice::new(DeviceName::cpu("localhost", 0, 0), 1, Pool::inline());
    Interpreter::new(Arc::new(device), Arc::new(SystemEnv::default()))
}

/// The outputs of a node over these inputs.
pub(crate) fn run(op: &str, attrs: &[(&str, Attr)], inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let s = scope();
    let mut feeds = HashMap::new();
    let mut node = s.node(op);
    for input in inputs {
        let shape = PartialShape::from(input.shape());
        let fed = s.node("TestInput").attr("dtype", input.dtype()).attr("shape", shape).output()?;
        feeds.insert(fed, input.clone());
        node = node.input(fed);
    }
    for (name, value) in attrs {
        node = node.attr(name, value.clone());
    }
    let outputs: Vec<Output> = node.outputs()?;
    let values = s.with_graph(|g| interpreter().run(g, &feeds, &outputs, &[]))?;
    for (value, output) in values.iter().zip(&outputs) {
        assert!(
            s.shape(*output)?.accepts(value.shape()),
            "{op}: {} inferred, {} made",
            s.shape(*output)?,
            value.shape()
        );
    }
    Ok(values)
}

#[track_caller]
pub(crate) fn check(op: &str, attrs: &[(&str, Attr)], inputs: &[Tensor], wanted: &[Tensor]) {
    let found = run(op, attrs, inputs).unwrap();
    assert_eq!(found.len(), wanted.len(), "number of outputs of {op}");
    for (found, wanted) in found.iter().zip(wanted) {
        assert_close(op, found, wanted);
    }
}

#[track_caller]
pub(crate) fn assert_close(what: &str, found: &Tensor, wanted: &Tensor) {
    assert_eq!((found.dtype(), found.shape()), (wanted.dtype(), wanted.shape()), "{what}");
    match (found.as_slice::<f32>(), wanted.as_slice::<f32>()) {
        (Ok(a), Ok(b)) => {
            for (a, b) in a.iter().zip(b) {
                assert!((a - b).abs() <= 1e-5 * b.abs().max(1e-3), "{what}: wanted {b}, found {a}");
            }
        }
        _ => assert_eq!(found, wanted, "{what}"),
    }
}

#[track_caller]
pub(crate) fn refuses(op: &str, attrs: &[(&str, Attr)], inputs: &[Tensor], text: &str) {
    let error = run(op, attrs, inputs).expect_err("an error");
    assert_eq!(error.code, Code::InvalidArgument, "{error}");
    assert!(error.message.contains(text), "wanted '{text}' in: {error}");
}

pub(crate) fn f32s<const N: usize>(shape: [usize; N], values: &[f32]) -> Tensor {
    Tensor::from_slice(shape, values).unwrap()
}
