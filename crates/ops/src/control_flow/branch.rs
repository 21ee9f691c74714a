//! `Switch` and `Merge`: where branches part and meet, for values and for references.
//!
//! The executor treats both by itself; the kernels here say the same for whoever runs nodes one by one.

use framework::kernel::function;
use framework::{
    ControlFlow, Grad, GradValue, IndexedSlices, InferenceContext, KernelContext, Op, Output, Scope, Value,
};
use tensor::{DType, PartialShape, Result, Tensor};

pub fn ops() -> Vec<Op> {
    let switch = |name: &str, value: &str| {
        Op::new(name)
            .input(&format!("data: {value}"))
            .input("pred: bool")
            .output(&format!("output_false: {value}"))
            .output(&format!("output_true: {value}"))
            .attr("T: type")
            .control_flow(ControlFlow::Switch)
            .shape(|c| {
                c.require_scalar(1)?;
                Ok(vec![c.input(0).clone(); 2])
            })
            .gradient(switch_gradient)
            .row_gradient(switch_row_gradient)
            .kernel(function(switch_values))
    };
    let merge = |name: &str, value: &str| {
        Op::new(name)
            .input(&format!("inputs: N*{value}"))
            .output(&format!("output: {value}"))
            .output("value_index: int32")
            .attr("T: type")
            .attr("N: int >= 1")
            .control_flow(ControlFlow::Merge)
            .shape(merge_shape)
            .gradient(merge_gradient)
            .row_gradient(merge_row_gradient)
            .kernel(function(merge_values))
    };
    vec![
        switch("Switch", "T"),
        switch("RefSwitch", "Ref(T)").allows_uninitialized_input(),
        merge("Merge", "T"),
        merge("RefMerge", "Ref(T)"),
        // What TensorFlow's master makes of a `Case`. To the executor it is a node some of whose outputs are dead.
        Op::new("_SwitchN")
            .input("data: T")
            .input("output_index: int32")
            .output("outputs: num_outs*T")
            .attr("num_outs: int >= 1")
            .attr("T: type")
            .shape(|c| {
                c.require_scalar(1)?;
                Ok(vec![c.input(0).clone(); c.num_outputs()])
            })
            .kernel(function(switch_among_many)),
    ]
}

/// The value twice: the first lives if `pred` is false, the second if it is true.
pub fn switch(s: &Scope, value: Output, pred: Output) -> Result<(Output, Output)> {
    let node = s.node("Switch").inputs(&[value, pred]).build()?;
    Ok((Output { node, index: 0 }, Output { node, index: 1 }))
}

/// Whichever of the values lives.
pub fn merge(s: &Scope, values: &[Output]) -> Result<Output> {
    s.op("Merge", values)
}

/// What is known of all inputs alike.
fn merge_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let mut shape = c.input(0).clone();
    for i in 1..c.num_inputs() {
        shape = match (shape.dims(), c.input(i).dims()) {
            (Some(a), Some(b)) if a.len() == b.len() => {
                PartialShape::new(a.iter().zip(b).map(|(x, y)| if x == y { *x } else { None }))
            }
            _ => PartialShape::unknown(),
        };
    }
    Ok(vec![shape, PartialShape::scalar()])
}

/// Whichever branch's gradient lives. An output nobody used has zeros that live exactly if its branch was taken.
fn switch_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    Ok(vec![Some(merge(s, &[g.dy[0], g.dy[1]])?.into()), None])
}

/// The gradient goes back the way the value came; the other ways are dead.
fn merge_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let back = |i: usize| {
        let came_here = s.op("Equal", &[g.outputs[1], s.constant(i as i32)?])?;
        Ok(Some(switch(s, g.dy[0], came_here)?.1.into()))
    };
    (0..g.inputs.len()).map(|i| if g.wanted[i] { back(i) } else { Ok(None) }).collect()
}

/// Rows stay rows if one branch has only some: the other, as a whole, has all of them.
fn switch_row_gradient(
    s: &Scope,
    g: &Grad<'_>,
    totals: &[Option<GradValue>],
) -> Result<Option<Vec<Option<GradValue>>>> {
    let rows_of = |i: usize| match totals[i] {
        Some(GradValue::Sparse(rows)) => Ok(rows),
        Some(GradValue::Dense(all)) => IndexedSlices::of_all(s, all),
        None => IndexedSlices::of_all(s, s.op("ZerosLike", &[g.outputs[i]])?),
    };
    let (no, yes) = (rows_of(0)?, rows_of(1)?);
    let shape = match (no.dense_shape, yes.dense_shape) {
        (Some(no), Some(yes)) => Some(merge_numbers(s, no, yes)?),
        _ => None,
    };
    let (values, indices) = (merge(s, &[no.values, yes.values])?, merge_numbers(s, no.indices, yes.indices)?);
    Ok(Some(vec![Some(GradValue::Sparse(IndexedSlices { values, indices, dense_shape: shape })), None]))
}

/// Indices or sizes of either integer type.
fn merge_numbers(s: &Scope, no: Output, yes: Output) -> Result<Output> {
    let wide = |x: Output| s.node("Cast").input(x).attr("DstT", DType::I64).output();
    if s.dtype(no)? == s.dtype(yes)? { merge(s, &[no, yes]) } else { merge(s, &[wide(no)?, wide(yes)?]) }
}

/// All that rows consist of goes back the way the value came.
fn merge_row_gradient(s: &Scope, g: &Grad<'_>, totals: &[Option<GradValue>]) -> Result<Option<Vec<Option<GradValue>>>> {
    let Some(GradValue::Sparse(rows)) = totals[0] else { return Ok(None) };
    let back = |i: usize| -> Result<Option<GradValue>> {
        let came_here = s.op("Equal", &[g.outputs[1], s.constant(i as i32)?])?;
        let part = |x: Output| -> Result<Output> { Ok(switch(s, x, came_here)?.1) };
        Ok(Some(GradValue::Sparse(IndexedSlices {
            values: part(rows.values)?,
            indices: part(rows.indices)?,
            dense_shape: rows.dense_shape.map(part).transpose()?,
        })))
    };
    let grads = (0..g.inputs.len()).map(|i| if g.wanted[i] { back(i) } else { Ok(None) });
    grads.collect::<Result<_>>().map(Some)
}

fn switch_values(ctx: &mut KernelContext<'_>) -> Result<()> {
    let taken = usize::from(ctx.input(1).item::<bool>()?);
    let value = ctx.input_value(0).clone();
    ctx.set_value(taken, value)?;
    ctx.set_value(1 - taken, Value::Dead)
}

/// An index that no output has means the last.
fn switch_among_many(ctx: &mut KernelContext<'_>) -> Result<()> {
    let (index, count) = (ctx.input(1).item::<i32>()?, ctx.node().outputs.len());
    let taken = usize::try_from(index).ok().filter(|taken| *taken < count).unwrap_or(count - 1);
    let value = ctx.input_value(0).clone();
    for output in 0..count {
        ctx.set_value(output, if output == taken { value.clone() } else { Value::Dead })?;
    }
    Ok(())
}

fn merge_values(ctx: &mut KernelContext<'_>) -> Result<()> {
    let alive = (0..ctx.num_inputs()).find(|&i| !matches!(ctx.input_value(i), Value::Dead | Value::Empty));
    let Some(alive) = alive else {
        ctx.set_value(0, Value::Dead)?;
        return ctx.set_value(1, Value::Dead);
    };
    let value = ctx.input_value(alive).clone();
    ctx.set_value(0, value)?;
    ctx.set_output(1, Tensor::scalar(alive as i32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::testing::run;

    #[test]
    fn the_branch_taken_is_the_one_that_meets() {
        for (pred, want) in [(false, 0i32), (true, 1)] {
            let found = run(|s| {
                let (no, yes) = switch(s, s.constant(5.0f32)?, s.constant(pred)?)?;
                let merged = merge(s, &[s.op("Identity", &[no])?, s.op("Identity", &[yes])?])?;
                Ok(vec![merged, Output { node: merged.node, index: 1 }])
            });
            assert_eq!(found.unwrap(), [Tensor::scalar(5.0f32), Tensor::scalar(want)]);
        }
    }

    #[test]
    fn one_of_many_branches_is_taken() {
        for (index, want) in [(0i32, 0i32), (1, 1), (2, 2), (3, 2), (-1, 2)] {
            let found = run(|s| {
                let (value, index) = (s.constant(5.0f32)?, s.constant(index)?);
                let node = s.node("_SwitchN").inputs(&[value, index]).attr("num_outs", 3i64).build()?;
                let branches: Vec<Output> =
                    (0..3).map(|index| s.op("Identity", &[Output { node, index }])).collect::<Result<_>>()?;
                let merged = merge(s, &branches)?;
                Ok(vec![merged, Output { node: merged.node, index: 1 }])
            });
            assert_eq!(found.unwrap(), [Tensor::scalar(5.0f32), Tensor::scalar(want)], "{index}");
        }
    }

    #[test]
    fn gradients_go_through_the_branch_taken() {
        // x if false, x * w if true: w is only used on one side.
        for (pred, by_x, by_w) in [(false, 1.0f32, 0.0f32), (true, 3.0, 5.0)] {
            let found = run(|s| {
                let (x, w, pred) = (s.constant(5.0f32)?, s.constant(3.0f32)?, s.constant(pred)?);
                let ((x_no, x_yes), (_, w_yes)) = (switch(s, x, pred)?, switch(s, w, pred)?);
                let y = merge(s, &[s.op("Identity", &[x_no])?, s.op("Mul", &[x_yes, w_yes])?])?;
                let grads = framework::gradients(s, &[y], &[x, w], &[], &[])?;
                grads.into_iter().flatten().map(|g| g.dense(s)).collect()
            });
            assert_eq!(found.unwrap(), [Tensor::scalar(by_x), Tensor::scalar(by_w)], "{pred}");
        }
    }
}
