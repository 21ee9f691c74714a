//! Runs single ops for the tests of this crate.

use framework::interpret::Interpreter;
use framework::{Attr, CpuDevice, DeviceName, NodeId, Output, Pool, Registry, Scope, SystemEnv};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use tensor::{PartialShape, Result, Tensor};

fn registry() -> Arc<Registry> {
    static REGISTRY: OnceLock<Arc<Registry>> = OnceLock::new();
    REGISTRY.get_or_init(|| Arc::new(crate::registry())).clone()
}

fn interpreter() -> Interpreter {
    let device = CpuDevice::new(DeviceName::cpu("localhost", 0, 0), 1, Pool::inline());
    Interpreter::new(Arc::new(device), Arc::new(SystemEnv::default()))
}

/// Builds a graph and fetches what `build` returns.
pub(crate) fn run(build: impl FnOnce(&Scope) -> Result<Vec<Output>>) -> Result<Vec<Tensor>> {
    let s = Scope::new(registry());
    let fetches = build(&s)?;
    s.with_graph(|graph| interpreter().run(graph, &HashMap::new(), &fetches, &[]))
}

/// The outputs of one op, its inputs fed; also checks that what is inferred from constant inputs agrees.
pub(crate) fn eval(op: &str, inputs: &[Tensor], attrs: &[(&str, Attr)]) -> Result<Vec<Tensor>> {
    let s = Scope::new(registry());
    let mut feeds = HashMap::new();
    for input in inputs {
        let x = s.node("Placeholder").attr("dtype", input.dtype()).attr("shape", PartialShape::unknown()).output()?;
        feeds.insert(x, input.clone());
    }
    let mut sources: Vec<Output> = feeds.keys().copied().collect();
    sources.sort();
    let build = |sources: &[Output]| -> Result<(NodeId, Vec<Output>)> {
        let node = attrs.iter().fold(s.node(op).inputs(sources), |n, (k, v)| n.attr(k, v.clone())).build()?;
        let count = s.with_graph(|graph| graph.node(node).outputs.len() as u32);
        Ok((node, (0..count).map(|index| Output { node, index }).collect()))
    };
    let (node, fetches) = build(&sources)?;
    let results = s.with_graph(|graph| interpreter().run(graph, &feeds, &fetches, &[node]));
    let constants: Vec<Output> = inputs.iter().map(|x| s.constant(x)).collect::<Result<_>>()?;
    match (&results, build(&constants)) {
        (Ok(results), Ok((_, outputs))) => {
            for (result, output) in results.iter().zip(outputs) {
                let info = s.info(output)?;
                assert!(info.shape.accepts(result.shape()), "{op}: inferred {}, found {}", info.shape, result.shape());
                assert!(info.value.is_none_or(|v| v == *result), "{op}: another value was inferred");
            }
        }
        (Ok(_), Err(e)) => panic!("{op}: runs, but its shape function refuses: {e}"),
        (Err(_), _) => {}
    }
    results
}
