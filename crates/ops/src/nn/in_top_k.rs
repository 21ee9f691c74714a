//! `InTopK`, `InTopKV2`: whether the target is among a row's k largest predictions.

use framework::kernel::{function, kernel};
use framework::{InferenceContext, Kernel, KernelBuild, KernelContext, Op, Output, Scope};
use tensor::{PartialShape, Result, invalid};

/// All ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("InTopK")
            .input("predictions: float")
            .input("targets: T")
            .output("precision: bool")
            .attr("k: int")
            .attr("T: indextype = int32")
            .shape(shape)
            .kernel(kernel(InTopK::new)),
        Op::new("InTopKV2")
            .input("predictions: float")
            .input("targets: T")
            .input("k: T")
            .output("precision: bool")
            .attr("T: indextype = int32")
            .shape(shape)
            .kernel(function(|ctx| {
                let k = ctx.input(2);
                if k.num_elements() != 1 || k.shape().rank() != 0 {
                    return Err(invalid!("k must be 0-D, got shape {}", k.shape()));
                }
                in_top(ctx, k.to_i64()?)
            })),
    ]
}

/// Whether each row's target is among its `k` largest predictions.
pub fn in_top_k(s: &Scope, predictions: Output, targets: Output, k: Output) -> Result<Output> {
    s.op("InTopKV2", &[predictions, targets, k])
}

fn shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let predictions = c.require_rank(0, 2)?;
    let targets = c.require_rank(1, 1)?;
    Ok(vec![PartialShape::new([predictions.dim(0)]).merge(&targets)?])
}

struct InTopK {
    k: i64,
}

impl InTopK {
    fn new(b: &KernelBuild<'_>) -> Result<InTopK> {
        Ok(InTopK { k: b.attr("k")? })
    }
}

impl Kernel for InTopK {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        in_top(ctx, self.k)
    }
}

/// A target is in if fewer than k predictions of its row are larger; ties are in. Out of range, or in a row with a
/// prediction that is not finite, it is not.
fn in_top(ctx: &mut KernelContext<'_>, k: i64) -> Result<()> {
    let (predictions, targets) = (ctx.input(0), ctx.input(1));
    let &[rows, classes] = predictions.dims() else {
        return Err(invalid!("predictions must be 2-dimensional, found {}", predictions.shape()));
    };
    if targets.dims() != [rows] {
        return Err(invalid!(
            "First dimension of predictions {rows} must match length of targets, found {}",
            targets.shape()
        ));
    }

    let targets = targets.to_i64s()?;
    let values = predictions.as_slice::<f32>()?;
    let mut precision = ctx.allocate::<bool>([rows])?;

    for (row, (target, hit)) in targets.into_iter().zip(precision.iter_mut()).enumerate() {
        let row = &values[row * classes..][..classes];
        let target = usize::try_from(target).ok().and_then(|t| row.get(t));
        *hit = target.is_some_and(|target| {
            let larger = row.iter().filter(|p| **p > *target).count();
            target.is_finite() && row.iter().all(|p| p.is_finite()) && (larger as i64) < k
        });
    }
    ctx.set_output(0, precision)
}

#[cfg(test)]
mod tests {
    use crate::nn::testing::{check, f32s};
    use framework::Attr;
    use tensor::Tensor;

    #[test]
    fn ties_are_in_and_what_is_out_of_range_is_not() {
        let p = f32s([4, 3], &[0.1, 0.5, 0.4, 0.3, 0.3, 0.4, 0.9, 0.1, 0.2, 1.0, f32::INFINITY, 0.0]);
        let t = Tensor::from_slice([4], &[2i32, 0, 3, 0]).unwrap();
        let wanted = Tensor::from_slice([4], &[true, true, false, false]).unwrap();
        check("InTopK", &[("k", Attr::Int(2))], &[p.clone(), t.clone()], std::slice::from_ref(&wanted));
        check("InTopKV2", &[], &[p, t, Tensor::scalar(2i32)], &[wanted]);
    }
}
