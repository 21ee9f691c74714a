//! `ClipByValue`: elements held between two bounds.

use framework::typed::{RealKernel, wide_reals};
use framework::{KernelContext, Op, Real, shapes};
use linalg::elementwise::map_in_place;
use tensor::{Result, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("ClipByValue")
            .input("t: T")
            .input("clip_value_min: T")
            .input("clip_value_max: T")
            .output("output: T")
            .attr("T: numbertype")
            .shape(shapes::unchanged)
            .kernel(wide_reals(|_| Ok(Clip))),
    ]
}

struct Clip;

impl RealKernel for Clip {
    fn compute<T: Real>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (low, high) = (ctx.input(1).clone(), ctx.input(2).clone());
        for bound in [&low, &high] {
            if !bound.shape().is_scalar() && bound.shape() != ctx.input(0).shape() {
                return Err(invalid!(
                    "clip_value_min and clip_value_max must be either of the same shape as input, or a scalar. input \
                     shape: {} bound shape: {}",
                    ctx.input(0).shape(),
                    bound.shape()
                ));
            }
        }
        let mut y = ctx.take_input::<T>(0)?;
        let (low, high) = (low.as_slice::<T>()?, high.as_slice::<T>()?);
        if let (&[low], &[high]) = (low, high) {
            map_in_place(ctx.pool(), &mut y, |x: T| T::min(T::max(x, low), high));
        } else {
            let at = |bounds: &[T], i: usize| if bounds.len() == 1 { bounds[0] } else { bounds[i] };
            for (i, y) in y.iter_mut().enumerate() {
                *y = T::min(T::max(*y, at(low, i)), at(high, i));
            }
        }
        ctx.set_output(0, y)
    }
}
