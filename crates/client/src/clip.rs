//! Clipping gradients: by value, by their own norm, by the norm of all together.

use crate::math::all_axes;
use crate::operators::Operand;
use crate::{Gradient, IndexedSlices, Output, stack};

impl Gradient {
    /// Each element, or the nearer end of the range.
    #[track_caller]
    pub fn clip_by_value(&self, least: impl Operand, greatest: impl Operand) -> Gradient {
        self.with_values(self.values().clip_by_value(least, greatest))
    }

    /// Scaled down, if need be, so that the root of the sum of squares is at most `norm`.
    #[track_caller]
    pub fn clip_by_norm(&self, norm: impl Operand) -> Gradient {
        self.with_values(clip_by_norm(self.values(), norm))
    }
}

impl From<Output> for Gradient {
    fn from(output: Output) -> Gradient {
        Gradient::Dense(output)
    }
}

impl From<&Output> for Gradient {
    fn from(output: &Output) -> Gradient {
        Gradient::Dense(output.clone())
    }
}

impl From<IndexedSlices> for Gradient {
    fn from(slices: IndexedSlices) -> Gradient {
        Gradient::Sparse(slices)
    }
}

/// Scaled down, if need be, so that the root of the sum of squares is at most `norm`.
#[track_caller]
pub fn clip_by_norm(x: &Output, norm: impl Operand) -> Output {
    clip_along(x, norm, None)
}

/// The same along some dimensions only: each of the others for itself.
#[track_caller]
pub fn clip_by_norm_axes(x: &Output, norm: impl Operand, axes: &[i32]) -> Output {
    clip_along(x, norm, Some(axes))
}

#[track_caller]
fn clip_along(x: &Output, norm: impl Operand, axes: Option<&[i32]>) -> Output {
    scoped(x, "clip_by_norm", || {
        let norm = norm.output_like(x, "norm");
        let squares = x * x;
        let sum = match axes {
            Some(axes) => squares.sum_axes(axes, true),
            None => x.graph().output([&squares], |s, [squares]| {
                let axes = all_axes(s, squares)?;
                s.node("Sum").inputs(&[squares, axes]).attr("keep_dims", true).output()
            }),
        };
        // The root's gradient at zero is infinite: there, one is taken instead, and its root not used.
        let positive = sum.greater(0.0);
        let root = positive.select(&positive.select(&sum, &sum.ones_like()).sqrt(), &sum);
        (x * &norm / root.maximum(&norm)).identity()
    })
}

/// Scaled down, if need be, so that the norm over the number of elements is at most `norm`.
#[track_caller]
pub fn clip_by_average_norm(x: &Output, norm: impl Operand) -> Output {
    scoped(x, "clip_by_average_norm", || {
        let norm = norm.output_like(x, "norm");
        let count = x.size().cast_to(x.dtype());
        let inverse = (x * x).sum().rsqrt();
        (x * &norm * (inverse * count).minimum(1.0 / &norm)).identity()
    })
}

/// The root of the sum of squares of all tensors together; of sparse gradients, the rows count.
#[track_caller]
pub fn global_norm(gradients: &[Gradient]) -> Output {
    let Some(first) = gradients.first() else { return stack(&[], 0) };
    scoped(first.values(), "global_norm", || {
        let halves: Vec<Output> = gradients.iter().map(|gradient| gradient.values().l2_loss()).collect();
        let halves: Vec<&Output> = halves.iter().collect();
        (stack(&halves, 0).sum() * 2.0).sqrt()
    })
}

/// All scaled down alike, if need be, so that the global norm is at most `norm`; and the norm they had before.
///
/// A norm that is not finite makes all gradients NaN, so that it is noticed.
#[track_caller]
pub fn clip_by_global_norm(gradients: &[Gradient], norm: impl Operand) -> (Vec<Gradient>, Output) {
    let global = global_norm(gradients);
    let clipped = scoped(&global, "clip_by_global_norm", || {
        let norm = norm.output_like(&global, "norm");
        let scale = &norm * (1.0 / &global).minimum(1.0 / &norm);
        #[allow(clippy::eq_op)] // zero, but NaN for a norm that is not finite
        let scale = scale + (&global - &global);
        let clip = |g: &Gradient| g.with_values((g.values() * scale.cast_to(g.values().dtype())).identity());
        gradients.iter().map(clip).collect()
    });
    (clipped, global)
}

#[track_caller]
fn scoped<R>(x: &Output, name: &str, build: impl FnOnce() -> R) -> R {
    let graph = x.graph().clone();
    graph.here(|| graph.name_scope(name, build))
}
