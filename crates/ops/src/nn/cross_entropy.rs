//! The cross entropy of softmax with labels, given as probabilities or as the index of the right class.
//!
//! Both ops compute the gradient by the logits along with the loss, so that differentiation only multiplies.

use framework::typed::{FloatKernel, floats};
use framework::{Float, Grad, GradValue, InferenceContext, KernelContext, Op, Output, Scope};
use linalg::broadcast::{self, BroadcastPlan};
use linalg::softmax::{softmax_cross_entropy, sparse_softmax_cross_entropy};
use tensor::{DType, OwnedTensor, PartialShape, Result, Tensor, broadcast_partial, invalid};

/// All ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("SoftmaxCrossEntropyWithLogits")
            .input("features: T")
            .input("labels: T")
            .output("loss: T")
            .output("backprop: T")
            .attr("T: {half, bfloat16, float, double}")
            .shape(dense_shape)
            .gradient(dense_gradient)
            .kernel(floats(|_| Ok(SoftmaxCrossEntropy))),
        Op::new("SparseSoftmaxCrossEntropyWithLogits")
            .input("features: T")
            .input("labels: Tlabels")
            .output("loss: T")
            .output("backprop: T")
            .attr("T: {half, bfloat16, float, double}")
            .attr("Tlabels: indextype = int64")
            .shape(sparse_shape)
            .gradient(sparse_gradient)
            .kernel(floats(|_| Ok(SparseSoftmaxCrossEntropy))),
    ]
}

/// The loss of each row of logits against a row of label probabilities.
pub fn softmax_cross_entropy_with_logits(s: &Scope, logits: Output, labels: Output) -> Result<Output> {
    s.op("SoftmaxCrossEntropyWithLogits", &[logits, labels])
}

/// The loss of each row of logits against the index of its right class.
pub fn sparse_softmax_cross_entropy_with_logits(s: &Scope, logits: Output, labels: Output) -> Result<Output> {
    s.op("SparseSoftmaxCrossEntropyWithLogits", &[logits, labels])
}

fn dense_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let labels = match g.wanted[1] {
        true => {
            let down = s.op("Neg", &[s.op("LogSoftmax", &[g.inputs[0]])?])?;
            Some(by_row(s, g.dy[0], down)?.into())
        }
        false => None,
    };
    Ok(vec![Some(logits_gradient(s, g)?.into()), labels])
}

fn sparse_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    Ok(vec![Some(logits_gradient(s, g)?.into()), None])
}

/// The loss's gradient times what the op computed along with it; and the gradient of that, where it was used.
fn logits_gradient(s: &Scope, g: &Grad<'_>) -> Result<Output> {
    let first = by_row(s, g.dy[0], g.outputs[1])?;
    if !g.used[1] {
        return Ok(first);
    }
    let softmax = s.op("Softmax", &[g.inputs[0]])?;
    let product = s.op("Mul", &[g.dy[1], softmax])?;
    let sum = s.node("Sum").inputs(&[product, s.constant(-1i32)?]).attr("keep_dims", true).output()?;
    let second = s.op("Mul", &[s.op("Sub", &[g.dy[1], sum])?, softmax])?;
    if g.used[0] { s.op("Add", &[first, second]) } else { Ok(second) }
}

/// Every row of a matrix times its element of a vector.
fn by_row(s: &Scope, vector: Output, matrix: Output) -> Result<Output> {
    let column = s.op("ExpandDims", &[vector, s.constant(-1i32)?])?;
    s.op("Mul", &[column, matrix])
}

fn dense_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let both = broadcast_partial(c.input(0), c.input(1))?;
    let both = both.with_rank(2)?;
    Ok(vec![PartialShape::new([both.dim(0)]), both])
}

fn sparse_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let logits = c.require_rank(0, 2)?;
    let labels = c.require_rank(1, 1)?;
    let rows = PartialShape::new([logits.dim(0)]).merge(&labels)?;
    Ok(vec![rows.clone(), PartialShape::new([rows.dim(0), logits.dim(1)])])
}

struct SoftmaxCrossEntropy;

impl FloatKernel for SoftmaxCrossEntropy {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (mut logits, mut labels) = (ctx.take(0), ctx.take(1));
        let plan = BroadcastPlan::new(logits.dims(), labels.dims()).ok_or_else(|| {
            invalid!(
                "logits and labels must be broadcastable: logits_size={} labels_size={}",
                logits.shape(),
                labels.shape()
            )
        })?;
        let &[rows, classes] = plan.shape() else {
            return Err(invalid!(
                "logits and labels must be either 2-dimensional, or broadcasted to be 2-dimensional: \
                 logits_size={} labels_size={}",
                logits.shape(),
                labels.shape()
            ));
        };
        logits = spread::<T>(ctx, plan.shape(), logits)?;
        labels = spread::<T>(ctx, plan.shape(), labels)?;

        // Rows without classes lose nothing.
        let mut loss = OwnedTensor::<T>::filled([rows], T::ZERO)?;
        let mut backprop = ctx.allocate::<T>([rows, classes])?;

        if classes > 0 {
            let (logits, labels) = (logits.as_slice::<T>()?, labels.as_slice::<T>()?);
            softmax_cross_entropy(ctx.pool(), classes, logits, labels, &mut loss, &mut backprop);
        }
        ctx.set_output(0, loss)?;
        ctx.set_output(1, backprop)
    }
}

/// A tensor repeated to a full shape; itself where it has that already.
fn spread<T: Float>(ctx: &KernelContext<'_>, shape: &[usize], x: Tensor) -> Result<Tensor> {
    if x.dims() == shape {
        return Ok(x);
    }
    let mut full = ctx.allocate::<T>(shape)?;
    let plan = BroadcastPlan::new(x.dims(), shape).ok_or_else(|| invalid!("{} does not spread", x.shape()))?;
    let nothing = vec![(); plan.len()];
    broadcast::binary(ctx.pool(), &plan, x.as_slice::<T>()?, &nothing, &mut full, |x, ()| x);
    Ok(full.into())
}

struct SparseSoftmaxCrossEntropy;

impl FloatKernel for SparseSoftmaxCrossEntropy {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (logits, labels) = (ctx.input(0), ctx.input(1));
        let &[rows, classes] = logits.dims() else {
            return Err(invalid!("logits must be 2-D, but got shape {}", logits.shape()));
        };
        let &[count] = labels.dims() else {
            return Err(invalid!("labels must be 1-D, but got shape {}", labels.shape()));
        };
        if rows != count {
            return Err(invalid!(
                "logits and labels must have the same first dimension, got logits shape {} and labels shape {}",
                logits.shape(),
                labels.shape()
            ));
        }
        if classes == 0 {
            return Err(invalid!("Must have at least one class, but got logits shape {}", logits.shape()));
        }
        check_labels(labels, classes)?;

        let mut loss = ctx.allocate::<T>([rows])?;
        let mut backprop = ctx.allocate::<T>([rows, classes])?;

        let (pool, logits) = (ctx.pool(), logits.as_slice::<T>()?);
        match labels.dtype() {
            DType::I32 => {
                let labels = labels.as_slice::<i32>()?;
                sparse_softmax_cross_entropy(pool, classes, logits, labels, &mut loss, &mut backprop);
            }
            _ => {
                let labels = labels.as_slice::<i64>()?;
                sparse_softmax_cross_entropy(pool, classes, logits, labels, &mut loss, &mut backprop);
            }
        }
        ctx.set_output(0, loss)?;
        ctx.set_output(1, backprop)
    }
}

/// An error that names the first label outside `0..classes`, and shows the labels.
fn check_labels(labels: &Tensor, classes: usize) -> Result<()> {
    let outside = |label: i64| label < 0 || label >= classes as i64;
    let wrong = match labels.dtype() {
        DType::I32 => labels.as_slice::<i32>()?.iter().map(|&l| l as i64).find(|l| outside(*l)),
        _ => labels.as_slice::<i64>()?.iter().copied().find(|l| outside(*l)),
    };
    let Some(wrong) = wrong else { return Ok(()) };
    /// How many labels are worth showing.
    const SHOWN: usize = 64;
    let shown: Vec<String> = labels.to_i64s()?.iter().take(SHOWN).map(i64::to_string).collect();
    let more = if labels.num_elements() > SHOWN { " ..." } else { "" };
    Err(invalid!(
        "Received a label value of {wrong} which is outside the valid range of [0, {classes}).  Label values: {}{more}",
        shown.join(" ")
    ))
}

#[cfg(test)]
mod tests {
    use crate::nn::testing::{check, f32s, refuses};
    use tensor::Tensor;

    #[test]
    fn loss_and_gradient_come_together() {
        let logits = f32s([2, 3], &[1.0, 2.0, 3.0, 0.0, 0.0, 0.0]);
        let labels = f32s([2, 3], &[0.0, 0.0, 1.0, 0.5, 0.5, 0.0]);
        let loss = f32s([2], &[0.40760595, 1.0986123]);
        let grad = [0.09003057, 0.24472848, -0.33475906, -0.16666667, -0.16666667, 0.33333334];
        check("SoftmaxCrossEntropyWithLogits", &[], &[logits.clone(), labels], &[loss, f32s([2, 3], &grad)]);
        let grad = [0.09003057, 0.24472848, -0.33475906, 0.33333334, -0.6666667, 0.33333334];
        let wanted = [f32s([2], &[0.40760595, 1.0986123]), f32s([2, 3], &grad)];
        let labels = Tensor::from_slice([2], &[2i32, 1]).unwrap();
        check("SparseSoftmaxCrossEntropyWithLogits", &[], &[logits, labels], &wanted);
    }

    #[test]
    fn one_row_of_labels_serves_all_rows_of_logits() {
        let logits = f32s([2, 2], &[0.0, 0.0, 0.0, 0.0]);
        let wanted = [f32s([2], &[std::f32::consts::LN_2; 2]), f32s([2, 2], &[0.5, -0.5, 0.5, -0.5])];
        check("SoftmaxCrossEntropyWithLogits", &[], &[logits, f32s([1, 2], &[0.0, 1.0])], &wanted);
    }

    #[test]
    fn a_label_out_of_range_is_named() {
        let logits = f32s([2, 3], &[0.0; 6]);
        for wrong in [3i64, -1] {
            let labels = Tensor::from_slice([2], &[0, wrong]).unwrap();
            let text = format!("label value of {wrong} which is outside the valid range of [0, 3)");
            refuses("SparseSoftmaxCrossEntropyWithLogits", &[], &[logits.clone(), labels], &text);
        }
    }
}
