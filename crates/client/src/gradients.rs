//! Symbolic gradients of outputs.

use crate::{Graph, Output};
use framework::{GradValue, Scope};
use tensor::{Result, invalid};

/// The gradient of one output: a tensor, or rows of one.
#[derive(Clone, Debug)]
pub enum Gradient {
    /// A tensor of the output's shape.
    Dense(Output),
    /// Only some rows of such a tensor, as a lookup's gradient is.
    Sparse(IndexedSlices),
}

/// Rows of a larger tensor: `values[i]` belongs at row `indices[i]`; rows named twice add up.
#[derive(Clone, Debug)]
pub struct IndexedSlices {
    /// The rows.
    pub values: Output,
    /// Where they belong.
    pub indices: Output,
    /// The shape of the whole, where known.
    pub dense_shape: Option<Output>,
}

/// The gradients of the sum of `ys` by each of `xs`; `None` where an `x` does not influence any `y`.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let x = g.constant(3.0f32);
/// let y = x.square() + &x;
/// let slope = gradients(&[&y], &[&x]).remove(0).expect("y depends on x").dense();
/// assert_eq!(Session::new(&g)?.run(&slope)?.item::<f32>()?, 7.0);
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[track_caller]
pub fn gradients(ys: &[&Output], xs: &[&Output]) -> Vec<Option<Gradient>> {
    gradients_from(ys, xs, &[], &[])
}

/// The same, given the gradients of `ys` (ones where not given); paths through `stop` end there.
#[track_caller]
pub fn gradients_from(
    ys: &[&Output],
    xs: &[&Output],
    grad_ys: &[Option<&Output>],
    stop: &[&Output],
) -> Vec<Option<Gradient>> {
    let Some(first) = ys.first().or(xs.first()) else { return Vec::new() };
    let graph = first.graph();
    graph.here(|| {
        let own_given = |grad: &Option<&Output>| match grad {
            Some(grad) => graph.own_one(grad).map(Some),
            None => Some(None),
        };
        let given: Option<Vec<_>> = grad_ys.iter().map(own_given).collect();
        let given = given.zip(own(graph, stop));
        find(graph, ys, xs, |s, ys, xs| given.map(|(grad_ys, stop)| framework::gradients(s, ys, xs, &grad_ys, &stop)))
    })
}

/// The gradients an optimizer takes: none is given on before those computed beside it are there.
#[track_caller]
pub(crate) fn gated_gradients(y: &Output, xs: &[&Output]) -> Vec<Option<Gradient>> {
    let graph = y.graph();
    graph.here(|| find(graph, &[y], xs, |s, ys, xs| Some(framework::gated_gradients(s, ys, xs))))
}

type Found = Result<Vec<Option<GradValue>>>;

/// Void inputs make the whole void: each gradient stands, so that its absence is not taken for a second mistake.
fn find(
    graph: &Graph,
    ys: &[&Output],
    xs: &[&Output],
    differentiate: impl FnOnce(&Scope, &[framework::Output], &[framework::Output]) -> Option<Found>,
) -> Vec<Option<Gradient>> {
    let found = own(graph, ys).zip(own(graph, xs)).and_then(|(ys, xs)| {
        // Resource variables are differentiated by their handles: their rows are looked up without reading the whole.
        let by: Vec<_> = xs.into_iter().map(|x| graph.handle_behind(x).unwrap_or(x)).collect();
        graph.kept(differentiate(graph.scope(), &ys, &by)?)
    });
    match found {
        Some(found) => found.into_iter().map(|grad| grad.map(|grad| Gradient::new(graph, grad))).collect(),
        None => vec![Some(Gradient::Dense(Output::void(graph))); xs.len()],
    }
}

fn own(graph: &Graph, outputs: &[&Output]) -> Option<Vec<framework::Output>> {
    outputs.iter().map(|o| graph.own_one(o)).collect()
}

impl Gradient {
    pub(crate) fn new(graph: &Graph, value: GradValue) -> Gradient {
        let output = |id| Output::new(graph, Some(id));
        match value {
            GradValue::Dense(id) => Gradient::Dense(output(id)),
            GradValue::Sparse(slices) => Gradient::Sparse(IndexedSlices {
                values: output(slices.values),
                indices: output(slices.indices),
                dense_shape: slices.dense_shape.map(output),
            }),
        }
    }

    /// As a tensor: rows are summed into zeros.
    #[track_caller]
    pub fn dense(&self) -> Output {
        match self {
            Gradient::Dense(output) => output.clone(),
            Gradient::Sparse(slices) => slices.to_dense(),
        }
    }

    /// The tensor, or the rows alone.
    pub fn values(&self) -> &Output {
        match self {
            Gradient::Dense(output) => output,
            Gradient::Sparse(slices) => &slices.values,
        }
    }

    /// The same gradient with its tensor, or its rows, replaced.
    pub fn with_values(&self, values: Output) -> Gradient {
        match self {
            Gradient::Dense(_) => Gradient::Dense(values),
            Gradient::Sparse(slices) => Gradient::Sparse(IndexedSlices { values, ..slices.clone() }),
        }
    }
}

impl IndexedSlices {
    /// The whole tensor.
    #[track_caller]
    pub fn to_dense(&self) -> Output {
        let graph = self.values.graph();
        graph.output([&self.values, &self.indices], |s, [values, indices]| {
            let dense_shape = self.dense_shape.as_ref().and_then(Output::id);
            framework::IndexedSlices { values, indices, dense_shape }.to_dense(s)
        })
    }
}

/// The same rows, each named once: what updates that must not happen twice are given.
pub(crate) fn sum_duplicates(
    s: &Scope,
    values: framework::Output,
    indices: framework::Output,
) -> Result<(framework::Output, framework::Output)> {
    let unique = s.node("Unique").input(indices).outputs()?;
    let [unique, positions] = unique[..] else { return Err(invalid!("Unique gives two outputs")) };
    let shape = s.op("Shape", &[unique])?;
    let scope = s.unique_name("strided_slice");
    let part = |name: &str, value: i32| {
        s.with_absolute_name(&scope, || {
            s.node("Const")
                .name(name)
                .attr("dtype", tensor::DType::I32)
                .attr("value", tensor::Tensor::from([value]))
                .output()
        })
    };
    let parts = [shape, part("stack", 0)?, part("stack_1", 1)?, part("stack_2", 1)?];
    let count = s.node("StridedSlice").name(format!("{scope}/")).inputs(&parts).attr("shrink_axis_mask", 1i64);
    let count = count.output()?;
    Ok((s.op("UnsortedSegmentSum", &[values, positions, count])?, unique))
}
