//! Symbolic differentiation: `gradients()` walks the graph backwards and adds the nodes that compute gradients.

use crate::graph::{Graph, NodeId, Output};
use crate::op::{Differentiation, Op};
use crate::scope::Scope;
use std::collections::{BTreeMap, HashMap};
use tensor::{DType, Result, invalid, not_found};

/// The gradient of one output: a tensor, or rows of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GradValue {
    /// A tensor of the output's shape.
    Dense(Output),
    /// Only some rows of such a tensor.
    Sparse(IndexedSlices),
}

/// Rows of a larger tensor: `values[i]` belongs at row `indices[i]`; rows named twice add up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IndexedSlices {
    /// The rows.
    pub values: Output,
    /// Where they belong.
    pub indices: Output,
    /// The shape of the whole, where known.
    pub dense_shape: Option<Output>,
}

/// What a gradient function sees: the node, and the gradients of its outputs.
#[derive(Clone, Copy)]
pub struct Grad<'a> {
    /// The node to differentiate.
    pub node: NodeId,
    /// Its inputs.
    pub inputs: &'a [Output],
    /// Its outputs.
    pub outputs: &'a [Output],
    /// The gradients of its outputs; zeros where an output was not used.
    pub dy: &'a [Output],
    /// Which of the outputs were used at all.
    pub used: &'a [bool],
    /// Which of the inputs lie on a path to what is asked for.
    pub wanted: &'a [bool],
}

impl Grad<'_> {
    /// An attribute of the node.
    pub fn attr<T: crate::FromAttr>(&self, s: &Scope, name: &str) -> Result<T> {
        s.with_graph(|g| g.node(self.node).attr(name))
    }
}

/// Adds the nodes that compute the gradients of a node's inputs; `None` where there is none.
pub type GradFn = fn(&Scope, &Grad<'_>) -> Result<Vec<Option<GradValue>>>;

/// The same from gradients that may be rows of a tensor, which a [`GradFn`] never sees: [`Grad::dy`] is empty. `None` to
/// have them made whole after all.
pub type RowGradFn = fn(&Scope, &Grad<'_>, &[Option<GradValue>]) -> Result<Option<Vec<Option<GradValue>>>>;

impl From<Output> for GradValue {
    fn from(output: Output) -> GradValue {
        GradValue::Dense(output)
    }
}

impl GradValue {
    /// As a tensor: sparse gradients are summed into rows of zeros.
    pub fn dense(self, s: &Scope) -> Result<Output> {
        match self {
            GradValue::Dense(output) => Ok(output),
            GradValue::Sparse(slices) => slices.to_dense(s),
        }
    }
}

impl IndexedSlices {
    /// All rows of a tensor.
    pub fn of_all(s: &Scope, values: Output) -> Result<IndexedSlices> {
        let shape = s.op("Shape", &[values])?;
        let (zero, one) = (s.constant(0i32)?, s.constant(1i32)?);
        let indices = s.op("Range", &[zero, num_rows(s, shape)?, one])?;
        Ok(IndexedSlices { values, indices, dense_shape: Some(shape) })
    }

    /// The whole tensor.
    pub fn to_dense(self, s: &Scope) -> Result<Output> {
        let shape =
            self.dense_shape.ok_or_else(|| invalid!("sparse gradient of unknown shape cannot be made dense"))?;
        s.op("UnsortedSegmentSum", &[self.values, self.indices, num_rows(s, shape)?])
    }
}

/// The first of a tensor's sizes.
fn num_rows(s: &Scope, shape: Output) -> Result<Output> {
    let (zero, one) = (s.constant([0i32])?, s.constant([1i32])?);
    s.node("StridedSlice").inputs(&[shape, zero, one, one]).attr("shrink_axis_mask", 1i64).output()
}

/// Shorthands for the many gradient functions that give dense tensors only.
pub fn dense(outputs: impl IntoIterator<Item = Output>) -> Result<Vec<Option<GradValue>>> {
    Ok(outputs.into_iter().map(|o| Some(GradValue::Dense(o))).collect())
}

/// The gradients of the sum of `ys` by each of `xs`, given the gradients of `ys` (ones where not given).
///
/// `None` where an `x` does not influence any `y`. Nodes that make an output in `stop` are taken as constant: gradients
/// reach them but go no further.
pub fn gradients(
    s: &Scope,
    ys: &[Output],
    xs: &[Output],
    grad_ys: &[Option<Output>],
    stop: &[Output],
) -> Result<Vec<Option<GradValue>>> {
    s.with_name("gradients", || Walk::new(s, ys, xs, stop)?.run(ys, xs, grad_ys))
}

/// The same for an optimizer: none of a node's gradients is given on before all of them are computed.
///
/// TensorFlow's optimizers do this too. Where a variable is updated in place, the update must not overtake whatever
/// else reads the variable: the product by which a matrix is updated does not read it, the one beside it does.
pub fn gated_gradients(s: &Scope, ys: &[Output], xs: &[Output]) -> Result<Vec<Option<GradValue>>> {
    s.with_name("gradients", || Walk { is_gated: true, ..Walk::new(s, ys, xs, &[])? }.run(ys, xs, &[]))
}

struct Walk<'s> {
    s: &'s Scope,
    /// Nodes that lie between some `y` and some `x`.
    between: Vec<bool>,
    /// How many consumers between must still report, for each node.
    pending: Vec<usize>,
    /// What the consumers of each output reported.
    reported: HashMap<Output, Vec<GradValue>>,
    stop: Vec<Output>,
    /// Whether a node's gradients are given on together.
    is_gated: bool,
}

impl<'s> Walk<'s> {
    fn new(s: &'s Scope, ys: &[Output], xs: &[Output], stop: &[Output]) -> Result<Walk<'s>> {
        let (between, pending) = s.with_graph(|graph| {
            let between = nodes_between(graph, ys, xs, stop);
            let mut pending = vec![0; graph.len()];
            for (id, node) in graph.nodes().filter(|(id, _)| between[id.index()]) {
                let _ = id;
                for input in node.inputs.iter().filter(|i| between[i.node.index()]) {
                    pending[input.node.index()] += 1;
                }
            }
            (between, pending)
        });
        Ok(Walk { s, between, pending, reported: HashMap::new(), stop: stop.to_vec(), is_gated: false })
    }

    fn run(mut self, ys: &[Output], xs: &[Output], grad_ys: &[Option<Output>]) -> Result<Vec<Option<GradValue>>> {
        for (i, &y) in ys.iter().enumerate() {
            let info = self.s.info(y)?;
            if !info.dtype.is_floating() && !info.dtype.is_complex() {
                return Err(invalid!(
                    "gradients are taken of floating values, found {} of {}",
                    self.s.node_name(y.node),
                    info.dtype
                ));
            }
            let grad = match grad_ys.get(i).copied().flatten() {
                Some(grad) => grad,
                None => self.s.colocated_with(y.node, || ones(self.s, &format!("grad_ys_{i}"), y, info.dtype))?,
            };
            self.reported.entry(y).or_default().push(grad.into());
        }
        // A node is ready when all its consumers between have reported; the later nodes of the graph first, so that
        // the order in which nodes are added does not depend on a hash.
        let mut ready: BTreeMap<NodeId, ()> =
            ys.iter().map(|y| y.node).filter(|n| self.is_ready(*n)).map(|n| (n, ())).collect();
        let mut results: HashMap<Output, GradValue> = HashMap::new();
        while let Some((node, ())) = ready.pop_last() {
            for next in self.visit(node, xs, &mut results)? {
                if self.is_ready(next) {
                    ready.insert(next, ());
                }
            }
        }
        Ok(xs.iter().map(|x| results.get(x).copied()).collect())
    }

    fn is_ready(&self, node: NodeId) -> bool {
        self.between[node.index()] && self.pending[node.index()] == 0
    }

    /// Differentiates one node whose outputs' gradients are complete; the nodes its gradients were reported to.
    fn visit(&mut self, node: NodeId, xs: &[Output], results: &mut HashMap<Output, GradValue>) -> Result<Vec<NodeId>> {
        let s = self.s;
        let (op, name, inputs, count) = s.with_graph(|g| {
            let n = g.node(node);
            (n.op.clone(), n.name.clone(), n.inputs.clone(), n.outputs.len())
        });
        let outputs: Vec<Output> = (0..count as u32).map(|index| Output { node, index }).collect();
        let mut totals: Vec<Option<GradValue>> = Vec::with_capacity(outputs.len());
        for &output in &outputs {
            let parts = self.reported.remove(&output).unwrap_or_default();
            let total = sum(s, &parts)?;
            if let Some(total) = total
                && xs.contains(&output)
            {
                results.insert(output, total);
            }
            totals.push(total);
        }
        let goes_on = !outputs.iter().any(|o| self.stop.contains(o));
        let wanted: Vec<bool> = inputs.iter().map(|i| goes_on && self.between[i.node.index()]).collect();
        let mut grads: Vec<Option<GradValue>> = vec![None; inputs.len()];
        if totals.iter().any(Option::is_some) && wanted.iter().any(|w| *w) {
            match &op.gradient {
                Differentiation::By(function) => {
                    let used: Vec<bool> = totals.iter().map(Option::is_some).collect();
                    let grad = Grad { node, inputs: &inputs, outputs: &outputs, dy: &[], used: &used, wanted: &wanted };
                    grads = s.with_name(&format!("{}_grad", name.replace(['\\', '>'], "_")), || {
                        s.colocated_with(node, || self.differentiate(&op, *function, &grad, &totals))
                    })?;
                }
                Differentiation::Zero => {}
                Differentiation::Missing => {
                    return Err(not_found!("No gradient defined for operation '{name}' (op type: {})", op.name));
                }
            }
        }
        let mut reached = Vec::new();
        for ((input, grad), wanted) in inputs.into_iter().zip(grads).zip(wanted) {
            if !self.between[input.node.index()] {
                continue;
            }
            if let (Some(grad), true) = (grad, wanted) {
                self.reported.entry(input).or_default().push(grad);
            }
            self.pending[input.node.index()] -= 1;
            reached.push(input.node);
        }
        Ok(reached)
    }

    /// The gradients of a node's inputs from those of its outputs.
    fn differentiate(
        &self,
        op: &Op,
        function: GradFn,
        grad: &Grad<'_>,
        totals: &[Option<GradValue>],
    ) -> Result<Vec<Option<GradValue>>> {
        let has_rows = totals.iter().flatten().any(|total| matches!(total, GradValue::Sparse(_)));
        let by_rows = match op.row_gradient {
            Some(function) if has_rows => function(self.s, grad, totals)?,
            _ => None,
        };
        let mut grads = match by_rows {
            Some(grads) => grads,
            None => function(self.s, &Grad { dy: &whole(self.s, grad, totals)?, ..*grad })?,
        };
        if grads.len() != grad.inputs.len() {
            let (found, wanted) = (grads.len(), grad.inputs.len());
            return Err(invalid!("the gradient of {} gives {found} values for {wanted} inputs", op.name));
        }
        if self.is_gated {
            let wanted = grads.iter_mut().zip(grad.wanted).filter(|(_, wanted)| **wanted);
            gate(self.s, wanted.filter_map(|(grad, _)| grad.as_mut()).collect())?;
        }
        Ok(grads)
    }
}

/// Ones of the shape of `y`.
fn ones(s: &Scope, name: &str, y: Output, dtype: DType) -> Result<Output> {
    let sizes = s.sizes(y)?.name(format!("{name}/Shape")).output()?;
    let one = s.constant_of(dtype, 1.0)?;
    s.node("Fill").name(name).inputs(&[sizes, one]).output()
}

/// The gradients of a node's outputs as tensors.
fn whole(s: &Scope, grad: &Grad<'_>, totals: &[Option<GradValue>]) -> Result<Vec<Output>> {
    let whole = |(total, &output): (&Option<GradValue>, &Output)| match total {
        Some(total) => total.dense(s),
        // An output nobody used has zeros; integers and handles need no gradient at all.
        None if s.dtype(output).is_ok_and(|d| d.is_floating() || d.is_complex()) => s.op("ZerosLike", &[output]),
        None => Ok(output),
    };
    totals.iter().zip(grad.outputs).map(whole).collect()
}

/// The row gradient of ops that treat each row by itself, and all rows alike: their gradient of the rows alone.
pub fn by_rows(s: &Scope, g: &Grad<'_>, totals: &[Option<GradValue>]) -> Result<Option<Vec<Option<GradValue>>>> {
    let [Some(GradValue::Sparse(rows))] = totals else { return Ok(None) };
    let function = match s.with_graph(|graph| graph.node(g.node).op.gradient.clone()) {
        Differentiation::By(function) => function,
        Differentiation::Zero | Differentiation::Missing => return Ok(None),
    };
    let of_rows = |grad| match grad {
        GradValue::Dense(values) => GradValue::Sparse(IndexedSlices { values, ..*rows }),
        rows => rows,
    };
    let grads = function(s, &Grad { dy: &[rows.values], ..*g })?;
    Ok(Some(grads.into_iter().map(|grad| grad.map(of_rows)).collect()))
}

/// The same for arithmetic: as long as no input is stretched that a gradient is wanted of.
pub fn by_rows_unstretched(
    s: &Scope,
    g: &Grad<'_>,
    totals: &[Option<GradValue>],
) -> Result<Option<Vec<Option<GradValue>>>> {
    let whole = s.shape(g.outputs[0])?;
    for (input, _) in g.inputs.iter().zip(g.wanted).filter(|(_, wanted)| **wanted) {
        if whole.known().is_none() || s.shape(*input)? != whole {
            return Ok(None);
        }
    }
    by_rows(s, g, totals)
}

/// Holds gradients back until all of them are there; the nodes are named as TensorFlow names them.
fn gate(s: &Scope, mut grads: Vec<&mut GradValue>) -> Result<()> {
    if grads.len() < 2 {
        return Ok(());
    }
    fn values(grad: &mut GradValue) -> &mut Output {
        match grad {
            GradValue::Dense(output) => output,
            GradValue::Sparse(slices) => &mut slices.values,
        }
    }
    s.with_name("tuple", || {
        let all: Vec<NodeId> = grads.iter_mut().map(|grad| values(grad).node).collect();
        let all = s.with_control(&all, || s.node("NoOp").name("group_deps").build())?;
        for grad in grads {
            let values = values(grad);
            *values =
                s.with_control(&[all], || s.node("Identity").name("control_dependency").input(*values).output())?;
        }
        Ok(())
    })
}

/// Nodes that some `y` depends on and that depend on some `x`, both included.
fn nodes_between(graph: &Graph, ys: &[Output], xs: &[Output], stop: &[Output]) -> Vec<bool> {
    let mut below = vec![false; graph.len()];
    let mut todo: Vec<NodeId> = ys.iter().map(|y| y.node).collect();
    while let Some(node) = todo.pop() {
        let is_stop = stop.iter().any(|o| o.node == node);
        if !std::mem::replace(&mut below[node.index()], true) && !is_stop {
            todo.extend(graph.node(node).inputs.iter().map(|i| i.node));
        }
    }
    let mut consumers: Vec<Vec<NodeId>> = vec![Vec::new(); graph.len()];
    for (id, node) in graph.nodes().filter(|(id, _)| below[id.index()]) {
        for input in node.inputs.iter().filter(|i| below[i.node.index()]) {
            consumers[input.node.index()].push(id);
        }
    }
    let mut between = vec![false; graph.len()];
    let mut todo: Vec<NodeId> = xs.iter().map(|x| x.node).filter(|n| below[n.index()]).collect();
    while let Some(node) = todo.pop() {
        if !std::mem::replace(&mut between[node.index()], true) {
            todo.extend(consumers[node.index()].iter().copied());
        }
    }
    between
}

/// Several paths' gradients added up: sparse ones are concatenated, and made dense where they meet a dense one.
fn sum(s: &Scope, parts: &[GradValue]) -> Result<Option<GradValue>> {
    match parts {
        [] => Ok(None),
        [one] => Ok(Some(*one)),
        many => {
            let slices: Vec<IndexedSlices> = many
                .iter()
                .filter_map(|p| if let GradValue::Sparse(slices) = p { Some(*slices) } else { None })
                .collect();
            if slices.len() == many.len() {
                return concat_slices(s, &slices).map(|v| Some(GradValue::Sparse(v)));
            }
            let dense: Vec<Output> = many.iter().map(|p| p.dense(s)).collect::<Result<_>>()?;
            Ok(Some(s.op("AddN", &dense)?.into()))
        }
    }
}

fn concat_slices(s: &Scope, slices: &[IndexedSlices]) -> Result<IndexedSlices> {
    let axis = s.constant(0i32)?;
    let concat = |parts: Vec<Output>| s.node("ConcatV2").inputs(&parts).input(axis).output();
    let index_type = s.dtype(slices[0].indices)?;
    let indices: Vec<Output> = slices
        .iter()
        .map(|p| {
            if s.dtype(p.indices)? == index_type {
                Ok(p.indices)
            } else {
                s.node("Cast").input(p.indices).attr("DstT", index_type).output()
            }
        })
        .collect::<Result<_>>()?;
    Ok(IndexedSlices {
        values: concat(slices.iter().map(|p| p.values).collect())?,
        indices: concat(indices)?,
        dense_shape: slices[0].dense_shape,
    })
}
