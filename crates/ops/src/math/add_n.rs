//! `AddN`: the sum of several tensors of one shape.

use framework::gradient::GradValue;
use framework::shapes::merged;
use framework::typed::{NumberKernel, numbers};
use framework::{Grad, KernelContext, Number, Op, Output, Scope};
use linalg::elementwise::{add_n as sum_slices, zip_in_place};
use smallvec::SmallVec;
use tensor::{Result, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("AddN")
            .input("inputs: N*T")
            .output("sum: T")
            .attr("N: int >= 1")
            .attr(
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, \
                 qint16, quint16, uint16, complex128, half, uint32, uint64, variant}",
            )
            .commutative()
            .aggregate()
            .shape(merged)
            .kernel(numbers(|_| Ok(AddN)))
            .gradient(gradient),
    ]
}

/// The sum of tensors of one shape.
pub fn add_n(s: &Scope, inputs: &[Output]) -> Result<Output> {
    s.op("AddN", inputs)
}

fn gradient(_: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    Ok(vec![Some(g.dy[0].into()); g.inputs.len()])
}

struct AddN;
impl NumberKernel for AddN {
    fn compute<T: Number>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let count = ctx.num_inputs();
        for i in 1..count {
            let (first, other) = (ctx.input(0).shape(), ctx.input(i).shape());
            if first != other {
                return Err(invalid!(
                    "Inputs to operation must have the same size and shape: input 0 has shape {first}, input {i} {other}"
                ));
            }
        }
        if count == 1 {
            let only = ctx.take(0);
            return ctx.set_output(0, only);
        }
        if count == 2 {
            let mut sum = ctx.take_input::<T>(0)?;
            let other = ctx.take(1);
            zip_in_place(ctx.pool(), &mut sum, other.as_slice::<T>()?, T::add);
            return ctx.set_output(0, sum);
        }
        let mut sum = ctx.allocate::<T>(ctx.input(0).shape().clone())?;
        let sources: SmallVec<[&[T]; 8]> = (0..count).map(|i| ctx.input(i).as_slice::<T>()).collect::<Result<_>>()?;
        sum_slices(ctx.pool(), &sources, &mut sum);
        drop(sources);
        ctx.set_output(0, sum)
    }
}
