//! `LinSpace`: evenly spaced numbers from a start to a stop, both included.

use framework::typed::{FloatKernel, floats};
use framework::{Float, KernelContext, Op};
use tensor::{PartialShape, Result, Shape, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("LinSpace")
            .input("start: T")
            .input("stop: T")
            .input("num: Tidx")
            .output("output: T")
            .attr("T: {bfloat16, half, float, double}")
            .attr("Tidx: indextype = int32")
            .not_differentiable()
            .shape(|c| {
                (0..3).try_for_each(|i| c.require_scalar(i))?;
                Ok(vec![match c.input_i64(2) {
                    Some(count) if count <= 0 => return Err(invalid!("Requires num > 0: {count}")),
                    count => PartialShape::new([count.map(|n| n as usize)]),
                }])
            })
            .kernel(floats(|_| Ok(LinSpace))),
    ]
}

struct LinSpace;

impl FloatKernel for LinSpace {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        for (i, name) in ["start", "stop", "num"].into_iter().enumerate() {
            if !ctx.input(i).shape().is_scalar() {
                return Err(invalid!("{name} must be a scalar, not shape {}", ctx.input(i).shape()));
            }
        }
        let (start, stop, count) = (ctx.input(0).item::<T>()?, ctx.input(1).item::<T>()?, ctx.input(2).to_i64()?);
        if count <= 0 {
            return Err(invalid!("Requires num > 0: {count}"));
        }
        let mut out = ctx.allocate::<T>(Shape::checked([count])?)?;
        let step = match count {
            1 => T::ZERO,
            _ => stop.sub(start).div(T::from_i64(count - 1)),
        };
        for (i, out) in out.iter_mut().enumerate() {
            *out = start.add(step.mul(T::from_i64(i as i64)));
        }
        if let (true, Some(last)) = (count > 1, out.last_mut()) {
            *last = stop; // not a rounding beside it
        }
        ctx.set_output(0, out)
    }
}
