//! `Where`: the coordinates of all elements that are not zero, in order.

use framework::kernel::KernelContext;
use framework::typed::{Number, NumberKernel, wide_numbers_by};
use framework::{BuiltKernel, Kernel, KernelBuild, Op, Output, Scope};
use std::sync::Arc;
use tensor::{DType, Element, PartialShape, Result};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("Where")
            .input("input: T")
            .output("index: int64")
            .attr(
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, \
                 qint16, quint16, uint16, complex128, half, uint32, uint64, bool} = bool",
            )
            .shape(|c| Ok(vec![PartialShape::new([None, c.input(0).rank()])]))
            .kernel(Arc::new(where_kernel)),
    ]
}

/// The coordinates of all elements that are true, a row each.
pub fn non_zero(s: &Scope, x: Output) -> Result<Output> {
    s.op("Where", &[x])
}

fn where_kernel(b: &KernelBuild<'_>) -> Result<BuiltKernel> {
    match b.dtype("T")? {
        DType::Bool => Ok(BuiltKernel::new(WhereTrue)),
        _ => wide_numbers_by(b, "T", WhereNonZero),
    }
}

struct WhereTrue;

impl Kernel for WhereTrue {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        coordinates::<bool>(ctx)
    }
}

struct WhereNonZero;

impl NumberKernel for WhereNonZero {
    fn compute<T: Number>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        coordinates::<T>(ctx)
    }
}

fn coordinates<T: Element>(ctx: &mut KernelContext<'_>) -> Result<()> {
    let x = ctx.input(0);
    let (dims, items) = (x.dims(), x.as_slice::<T>()?);
    let count = items.iter().filter(|v| **v != T::default()).count();

    let mut found = ctx.allocate::<i64>([count, dims.len()])?;
    if let [_] = dims {
        let places = items.iter().enumerate().filter(|(_, v)| **v != T::default()).map(|(i, _)| i as i64);
        found.iter_mut().zip(places).for_each(|(out, place)| *out = place);
    } else if !dims.is_empty() {
        let places = items.iter().enumerate().filter(|(_, v)| **v != T::default());
        for (out, (mut flat, _)) in found.chunks_exact_mut(dims.len()).zip(places) {
            for (out, &dim) in out.iter_mut().zip(dims).rev() {
                *out = (flat % dim) as i64;
                flat /= dim;
            }
        }
    }
    ctx.set_output(0, found)
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::Tensor;

    #[test]
    fn what_is_not_zero_is_found() {
        let found = eval("Where", &[Tensor::from([[true, false], [true, true]])], &[]).unwrap();
        assert_eq!(found, [Tensor::from([[0i64, 0], [1, 0], [1, 1]])]);
        let found = eval("Where", &[Tensor::from([0.0f32, -0.0, f32::NAN, 2.0])], &[]).unwrap();
        assert_eq!(found, [Tensor::from([[2i64], [3]])]);
        assert_eq!(eval("Where", &[Tensor::scalar(true)], &[]).unwrap()[0].dims(), [1, 0]);
        assert_eq!(eval("Where", &[Tensor::from([0i32; 0])], &[]).unwrap()[0].dims(), [0, 1]);
    }
}
