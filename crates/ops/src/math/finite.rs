//! `IsNan`, `IsInf`, `IsFinite`: what kind of number each element is.

use framework::typed::{FloatKernel, wide_floats_by};
use framework::{Float, KernelContext, Op, shapes};
use linalg::elementwise::map;
use std::sync::Arc;
use tensor::Result;

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    [("IsNan", Kind::Nan), ("IsInf", Kind::Infinite), ("IsFinite", Kind::Finite)]
        .into_iter()
        .map(|(name, kind)| {
            Op::new(name)
                .input("x: T")
                .output("y: bool")
                .attr("T: {bfloat16, half, float, double}")
                .shape(shapes::unchanged)
                .kernel(Arc::new(move |b| wide_floats_by(b, "T", Is(kind))))
        })
        .collect()
}

#[derive(Clone, Copy)]
enum Kind {
    Nan,
    Infinite,
    Finite,
}

struct Is(Kind);

impl FloatKernel for Is {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let x = ctx.input(0).as_slice::<T>()?;
        let mut y = ctx.allocate::<bool>(ctx.input(0).shape())?;
        match self.0 {
            Kind::Nan => map(ctx.pool(), x, &mut y, |x: T| x.is_nan()),
            Kind::Infinite => map(ctx.pool(), x, &mut y, |x: T| x.is_infinite()),
            Kind::Finite => map(ctx.pool(), x, &mut y, |x: T| x.is_finite()),
        }
        ctx.set_output(0, y)
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::Tensor;

    #[test]
    fn each_element_is_one_kind() {
        let x = Tensor::from([1.0f32, f32::NAN, f32::INFINITY, f32::NEG_INFINITY]);
        for (op, want) in [
            ("IsNan", [false, true, false, false]),
            ("IsInf", [false, false, true, true]),
            ("IsFinite", [true, false, false, false]),
        ] {
            assert_eq!(eval(op, std::slice::from_ref(&x), &[]).unwrap()[0], Tensor::from(want), "{op}");
        }
    }
}
