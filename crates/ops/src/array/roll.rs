//! `Roll`: elements moved along axes, those that leave at one end coming in at the other.

use super::{axis_in, build, indices};
use framework::Op;
use framework::gradient::GradValue;
use framework::kernel::KernelContext;
use framework::shapes::unchanged;
use framework::typed::{Item, MoveKernel, moves};
use tensor::{Result, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("Roll")
            .input("input: T")
            .input("shift: Tshift")
            .input("axis: Taxis")
            .output("output: T")
            .attr("T: type")
            .attr("Tshift: indextype")
            .attr("Taxis: indextype")
            .shape(|c| {
                c.input(0).with_rank_at_least(1)?;
                unchanged(c)
            })
            .gradient(|s, g| {
                let back: GradValue = s.op("Roll", &[g.dy[0], s.op("Neg", &[g.inputs[1]])?, g.inputs[2]])?.into();
                Ok(vec![Some(back), None, None])
            })
            .kernel(moves(|_| Ok(Roll))),
    ]
}

struct Roll;

impl MoveKernel for Roll {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (x, shift, axis) = (ctx.input(0), ctx.input(1), ctx.input(2));
        if x.shape().rank() == 0 {
            return Err(invalid!("input must be 1-D or higher"));
        }
        if shift.shape() != axis.shape() || shift.shape().rank() > 1 {
            return Err(invalid!(
                "shift and axis must have the same size, and be scalars or vectors: found {} and {}",
                shift.shape(),
                axis.shape()
            ));
        }
        let rank = x.shape().rank();
        let mut shifts = vec![0i64; rank];
        for (shift, axis) in indices(shift)?.into_iter().zip(indices(axis)?) {
            let at = axis_in(axis, rank).ok_or_else(|| invalid!("axis {axis} is out of range"))?;
            let dim = x.dims()[at].max(1) as i64;
            shifts[at] = (shifts[at] + shift.rem_euclid(dim)).rem_euclid(dim);
        }
        let (dims, items) = (x.dims(), I::items(x)?);
        let y = build::<I>(x.dtype(), x.shape().clone(), |out| {
            for (at, out) in out.iter_mut().enumerate() {
                let (mut rest, mut from, mut stride) = (at, 0, 1);
                for (&dim, &shift) in dims.iter().zip(&shifts).rev() {
                    from += (rest % dim + dim - shift as usize) % dim * stride;
                    rest /= dim;
                    stride *= dim;
                }
                out.clone_from(&items[from]);
            }
            Ok(())
        })?;
        ctx.set_output(0, y)
    }
}
