//! `Bucketize`: which of some intervals each number lies in.

use framework::shapes::unchanged;
use framework::typed::{RealKernel, wide_reals};
use framework::{KernelContext, Op, Output, Real, Scope};
use linalg::elementwise::map;
use tensor::{Result, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("Bucketize")
            .input("input: T")
            .output("output: int32")
            .attr("T: {int32, int64, float, double}")
            .attr("boundaries: list(float)")
            .shape(unchanged)
            .kernel(wide_reals(|b| Bucketize::new(b.attr("boundaries")?))),
    ]
}

/// For each element, how many of the boundaries it has reached.
pub fn bucketize(s: &Scope, x: Output, boundaries: Vec<f32>) -> Result<Output> {
    s.node("Bucketize").input(x).attr("boundaries", boundaries).output()
}

struct Bucketize {
    boundaries: Vec<f64>,
}

impl Bucketize {
    fn new(boundaries: Vec<f32>) -> Result<Bucketize> {
        if !boundaries.is_sorted() {
            return Err(invalid!("Expected sorted boundaries, found {boundaries:?}"));
        }
        Ok(Bucketize { boundaries: boundaries.into_iter().map(f64::from).collect() })
    }
}

impl RealKernel for Bucketize {
    fn compute<T: Real>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let x = ctx.input(0);
        let mut y = ctx.allocate::<i32>(x.shape())?;
        let bucket = |x: T| {
            let x = x.to_f64();
            self.boundaries.partition_point(|&boundary| boundary <= x || x.is_nan()) as i32
        };
        map(ctx.pool(), x.as_slice::<T>()?, &mut y, bucket);
        ctx.set_output(0, y)
    }
}
