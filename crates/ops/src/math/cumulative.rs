//! `Cumsum` and `Cumprod`: sums and products of all elements up to each one along an axis.

use crate::array::axis_in;
use framework::gradient::GradValue;
use framework::shapes::unchanged;
use framework::typed::{NumberKernel, stepwise_numbers_by};
use framework::{Grad, KernelBuild, KernelContext, Number, Op, Output, Scope};
use std::sync::Arc;
use tensor::{Result, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    let op = |name: &str, multiplies: bool| {
        Op::new(name)
            .input("x: T")
            .input("axis: Tidx")
            .output("out: T")
            .attr("exclusive: bool = false")
            .attr("reverse: bool = false")
            .attr("T: numbertype")
            .attr("Tidx: indextype = int32")
            .shape(|c| {
                c.require_scalar(1)?;
                unchanged(c)
            })
            .kernel(Arc::new(move |b| stepwise_numbers_by(b, "T", Cumulative::new(b, multiplies)?)))
    };
    vec![op("Cumsum", false).gradient(sum_gradient), op("Cumprod", true).gradient(product_gradient)]
}

/// The sums of all elements up to each one along an axis.
pub fn cumsum(s: &Scope, x: Output, axis: Output) -> Result<Output> {
    s.op("Cumsum", &[x, axis])
}

fn build(s: &Scope, x: Output, axis: Output, exclusive: bool, reverse: bool) -> Result<Output> {
    s.node("Cumsum").inputs(&[x, axis]).attr("exclusive", exclusive).attr("reverse", reverse).output()
}

/// Whatever an element was added to has its gradient: the same sum from the other end.
fn sum_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let (exclusive, reverse): (bool, bool) = (g.attr(s, "exclusive")?, g.attr(s, "reverse")?);
    Ok(vec![Some(build(s, g.dy[0], g.inputs[1], exclusive, !reverse)?.into()), None])
}

/// Each product divided by the element, summed from the other end; so TensorFlow does, zeros included.
fn product_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let (exclusive, reverse): (bool, bool) = (g.attr(s, "exclusive")?, g.attr(s, "reverse")?);
    let node = s.node("Cumprod").inputs(&[g.inputs[0], g.inputs[1]]);
    let product = node.attr("exclusive", exclusive).attr("reverse", reverse).output()?;
    let sum = build(s, s.op("Mul", &[product, g.dy[0]])?, g.inputs[1], exclusive, !reverse)?;
    Ok(vec![Some(s.op("DivNoNan", &[sum, g.inputs[0]])?.into()), None])
}

struct Cumulative {
    multiplies: bool,
    /// Whether an element itself is left out.
    exclusive: bool,
    /// Whether to start at the end.
    reverse: bool,
}

impl Cumulative {
    fn new(b: &KernelBuild<'_>, multiplies: bool) -> Result<Cumulative> {
        Ok(Cumulative { multiplies, exclusive: b.attr("exclusive")?, reverse: b.attr("reverse")? })
    }
}

impl NumberKernel for Cumulative {
    fn compute<T: Number>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (x, axis) = (ctx.input(0), ctx.input(1));
        if !axis.shape().is_scalar() {
            return Err(invalid!("ScanOp: axis must be a scalar, not {}", axis.shape()));
        }
        let (axis, rank) = (axis.to_i64()?, x.shape().rank());
        let at = axis_in(axis, rank).ok_or_else(|| {
            invalid!("ScanOp: Expected scan axis in the range [{}, {rank}), but got {axis}", -(rank as i64))
        })?;
        let (count, behind) = (x.dims()[at], x.dims()[at + 1..].iter().product::<usize>());
        let mut y = ctx.take_input::<T>(0)?;
        if y.is_empty() {
            return ctx.set_output(0, y);
        }

        let (start, combine): (T, fn(T, T) -> T) = if self.multiplies { (T::ONE, T::mul) } else { (T::ZERO, T::add) };
        let (exclusive, reverse) = (self.exclusive, self.reverse);
        let block = count * behind;
        let grain = ((1 << 15) / block).max(1);
        ctx.pool().for_each_row(&mut y, block, grain, &|_, part| {
            let mut totals = vec![start; behind];
            for block in part.chunks_exact_mut(block) {
                totals.fill(start);
                for step in 0..count {
                    let at = if reverse { count - 1 - step } else { step };
                    for (y, total) in block[at * behind..][..behind].iter_mut().zip(&mut totals) {
                        let before = *total;
                        *total = combine(before, *y);
                        *y = if exclusive { before } else { *total };
                    }
                }
            }
        });
        ctx.set_output(0, y)
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::Tensor;

    #[test]
    fn sums_run_along_an_axis_from_either_end() {
        let x = Tensor::from([[1i32, 2, 3], [4, 5, 6]]);
        for (axis, exclusive, reverse, want) in [
            (1i32, false, false, [[1, 3, 6], [4, 9, 15]]),
            (-1, true, false, [[0, 1, 3], [0, 4, 9]]),
            (1, false, true, [[6, 5, 3], [15, 11, 6]]),
            (0, true, true, [[4, 5, 6], [0, 0, 0]]),
        ] {
            let attrs = [("exclusive", exclusive.into()), ("reverse", reverse.into())];
            let y = eval("Cumsum", &[x.clone(), Tensor::scalar(axis)], &attrs).unwrap();
            assert_eq!(y[0], Tensor::from(want), "{axis} {exclusive} {reverse}");
        }
        assert!(eval("Cumsum", &[x, Tensor::scalar(2i32)], &[]).is_err());
    }
}
