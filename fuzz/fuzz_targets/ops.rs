//! Draws an op, attributes and inputs, builds the node, runs its kernel, then its gradient: all may fail, none may
//! panic or hang.

#![no_main]

use arbitrary::{Result, Unstructured};
use framework::graph::{export, import};
use framework::interpret::Interpreter;
use framework::op::{ArgType, ControlFlow, Op};
use framework::{Attrs, CpuDevice, DeviceName, NodeId, Output, Pool, Scope, SystemEnv};
use fuzz::random;
use libfuzzer_sys::fuzz_target;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use tensor::{DType, PartialShape, Tensor};

fuzz_target!(|bytes: &[u8]| {
    fuzz::limit_memory();
    // Input that is too short is no finding.
    let _ = run(&mut Unstructured::new(bytes));
});

/// The ops with kernels, in the order of their names, so that an input means the same op tomorrow.
fn runnable() -> &'static [Arc<Op>] {
    static OPS: OnceLock<Vec<Arc<Op>>> = OnceLock::new();
    OPS.get_or_init(|| {
        let registry = fuzz::registry();
        let mut ops: Vec<Arc<Op>> = registry.iter().filter(|op| op.kernel.is_some()).cloned().collect();
        ops.retain(|op| op.control_flow == ControlFlow::None);
        ops.sort_by(|a, b| a.name.cmp(&b.name));
        ops
    })
}

struct Bench {
    scope: Scope,
    feeds: HashMap<Output, Tensor>,
    setup: Vec<NodeId>,
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let op = &runnable()[usize::from(u.arbitrary::<u16>()?) % runnable().len()];
    let mut bench = Bench { scope: Scope::new(fuzz::registry()), feeds: HashMap::new(), setup: Vec::new() };
    let mut attrs = Attrs::new();
    for def in &op.attrs {
        if let Some(attr) = random::attr(u, def)? {
            attrs.insert(def.name.clone(), attr);
        }
    }
    let mut inputs = Vec::new();
    for (dtype, is_ref) in input_types(u, op, &mut attrs)? {
        match bench.input(u, dtype, is_ref)? {
            Some(input) => inputs.push(input),
            None => return Ok(()),
        }
    }
    let mut builder = bench.scope.node(&op.name).name("subject").inputs(&inputs);
    for (name, attr) in attrs {
        builder = builder.attr(&name, attr);
    }
    let Ok(outputs) = builder.outputs() else { return Ok(()) };
    bench.check(&inputs, &outputs);
    Ok(())
}

/// The types of the inputs; counts and types that only the inputs tell are drawn here.
fn input_types(u: &mut Unstructured<'_>, op: &Op, attrs: &mut Attrs) -> Result<Vec<(DType, bool)>> {
    use framework::{Attr, FromAttr};
    let mut types = Vec::new();
    let value = |attrs: &Attrs, name: &str| {
        attrs.get(name).cloned().or_else(|| op.attr_def(name).and_then(|d| d.default.clone()))
    };
    for arg in &op.inputs {
        let count = match &arg.number {
            None => 1,
            Some(number) => {
                let count = u.int_in_range(0..=4i64)?;
                attrs.insert(number.clone(), Attr::Int(count));
                count
            }
        };
        match &arg.ty {
            ArgType::Fixed(dtype) => types.extend((0..count).map(|_| (*dtype, arg.is_ref))),
            ArgType::Attr(name) => {
                let dtype = value(attrs, name).as_ref().and_then(DType::from_attr).unwrap_or(DType::F32);
                types.extend((0..count).map(|_| (dtype, arg.is_ref)));
            }
            ArgType::List(name) => {
                let list = value(attrs, name).as_ref().and_then(Vec::<DType>::from_attr).unwrap_or_default();
                types.extend(list.into_iter().map(|dtype| (dtype, arg.is_ref)));
            }
        }
    }
    Ok(types)
}

impl Bench {
    /// A constant, a feed, a variable, or a resource of some kind.
    fn input(&mut self, u: &mut Unstructured<'_>, dtype: DType, is_ref: bool) -> Result<Option<Output>> {
        let s = &self.scope;
        if is_ref || dtype == DType::Resource {
            return self.stateful(u, dtype, is_ref);
        }
        let Some(value) = random::tensor(u, dtype)? else { return Ok(None) };
        if u.arbitrary()? {
            return Ok(s.constant(value).ok());
        }
        let shape = if u.arbitrary()? { value.shape().into() } else { PartialShape::unknown() };
        let Ok(x) = s.node("Placeholder").attr("dtype", dtype).attr("shape", shape).output() else { return Ok(None) };
        self.feeds.insert(x, value);
        Ok(Some(x))
    }

    fn stateful(&mut self, u: &mut Unstructured<'_>, dtype: DType, is_ref: bool) -> Result<Option<Output>> {
        let s = &self.scope;
        let holds = if is_ref { dtype } else { random::dtype(u)? };
        let types = vec![holds];
        if !is_ref && u.ratio(1, 3)? {
            let made = match u.int_in_range(0..=5u8)? {
                0 => s.node("FIFOQueueV2").attr("component_types", types).output(),
                1 => s.node("RandomShuffleQueueV2").attr("component_types", types).output(),
                2 => s.node("HashTableV2").attr("key_dtype", DType::String).attr("value_dtype", DType::I64).output(),
                3 => s.node("MutableHashTableV2").attr("key_dtype", DType::I64).attr("value_dtype", holds).output(),
                4 => s.constant(3i32).and_then(|n| s.node("TensorArrayV3").attr("dtype", holds).input(n).output()),
                _ => s.node("Stack").attr("elem_type", holds).output(),
            };
            return Ok(made.ok());
        }
        let Some(value) = random::tensor(u, holds)? else { return Ok(None) };
        let shape: PartialShape = if u.ratio(1, 4)? { PartialShape::unknown() } else { value.shape().into() };
        let is_set = !u.ratio(1, 10)?;
        let Ok(first) = s.constant(value) else { return Ok(None) };
        let (make, set) = if is_ref { ("VariableV2", "Assign") } else { ("VarHandleOp", "AssignVariableOp") };
        let Ok(variable) = s.node(make).attr("dtype", holds).attr("shape", shape).output() else { return Ok(None) };
        if is_set && let Ok(node) = s.node(set).inputs(&[variable, first]).build() {
            self.setup.push(node);
        }
        Ok(Some(variable))
    }

    fn check(&self, inputs: &[Output], outputs: &[Output]) {
        let device = CpuDevice::new(DeviceName::cpu("localhost", 0, 0), 1, Pool::inline());
        let interpreter = Interpreter::new(Arc::new(device), Arc::new(SystemEnv::default()));
        let run = |fetches: &[Output], targets: &[NodeId]| {
            self.scope.with_graph(|graph| interpreter.run(graph, &self.feeds, fetches, targets))
        };
        let _ = run(&[], &self.setup);
        let subject: Vec<NodeId> = self.scope.with_graph(|g| g.find("subject")).into_iter().collect();
        let first = run(outputs, &subject);
        if let Ok(values) = &first {
            self.check_inferred(outputs, values);
        }
        // What goes out comes in again.
        self.scope.with_graph(|graph| {
            let message = export::export(graph);
            import::import(&message, &fuzz::registry()).expect("an exported graph can be imported");
        });
        let floats: Vec<Output> = outputs
            .iter()
            .copied()
            .filter(|o| self.scope.dtype(*o).is_ok_and(|d| d.is_floating() || d.is_complex()))
            .collect();
        if floats.is_empty() {
            return;
        }
        if let Ok(grads) = framework::gradients(&self.scope, &floats, inputs, &[], &[]) {
            for grad in grads.into_iter().flatten() {
                if let framework::GradValue::Dense(grad) = grad {
                    let _ = run(&[grad], &[]);
                }
            }
        }
    }

    /// What was inferred while building holds for what was computed.
    fn check_inferred(&self, outputs: &[Output], values: &[Tensor]) {
        for (output, value) in outputs.iter().zip(values) {
            let info = self.scope.info(*output).expect("an output of this graph");
            assert_eq!(info.dtype, value.dtype(), "output {} has another type than inferred", output.index);
            let (inferred, found) = (&info.shape, value.shape());
            assert!(inferred.accepts(found), "output {}: inferred {inferred}, computed {found}", output.index);
        }
    }
}
