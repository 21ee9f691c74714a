//! `Range`: numbers from a start up to a limit, a fixed distance apart.

use framework::typed::{Real, RealKernel, stepwise_reals};
use framework::{InferenceContext, KernelContext, Op, Output, Scope};
use tensor::{DType, PartialShape, Result, Tensor, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("Range")
            .input("start: Tidx")
            .input("limit: Tidx")
            .input("delta: Tidx")
            .output("output: Tidx")
            .attr("Tidx: {bfloat16, half, float, double, int8, int16, int32, int64, uint16, uint32, uint64} = int32")
            .shape(shape)
            .value(value)
            .kernel(stepwise_reals(|_| Ok(Range)))
            .not_differentiable(),
    ]
}

/// The numbers from `start` up to, but not, `limit`.
pub fn range(s: &Scope, start: Output, limit: Output, delta: Output) -> Result<Output> {
    s.op("Range", &[start, limit, delta])
}

fn shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    (0..3).try_for_each(|i| c.require_scalar(i))?;
    if let (Some(start), Some(limit), Some(delta)) = (c.input_value(0), c.input_value(1), c.input_value(2)) {
        let count = match start.dtype() {
            DType::F32 => count(start.item::<f32>()?, limit.item::<f32>()?, delta.item::<f32>()?)?,
            DType::F64 => count(start.item::<f64>()?, limit.item::<f64>()?, delta.item::<f64>()?)?,
            DType::I64 | DType::I32 => count(start.to_i64()?, limit.to_i64()?, delta.to_i64()?)?,
            _ => return Ok(vec![PartialShape::of_rank(1)]),
        };
        return Ok(vec![[count].into()]);
    }
    Ok(vec![PartialShape::of_rank(1)])
}

fn value(c: &InferenceContext<'_>) -> Option<Vec<Option<Tensor>>> {
    const SMALL: usize = 64;
    let (start, limit, delta) = (c.input_i64(0)?, c.input_i64(1)?, c.input_i64(2)?);
    let count = count(start, limit, delta).ok().filter(|&count| count <= SMALL)?;
    let values = (0..count as i64).map(|i| start + i * delta);
    Some(vec![match c.input_dtype(0) {
        DType::I64 => Some(Tensor::from(values.collect::<Vec<_>>())),
        DType::I32 => Some(Tensor::from(values.map(|v| v as i32).collect::<Vec<_>>())),
        _ => None,
    }])
}

/// How many numbers there are.
fn count<T: Real>(start: T, limit: T, delta: T) -> Result<usize> {
    let zero = T::ZERO;
    if delta == zero || delta.is_nan() {
        return Err(invalid!("Requires delta != 0: {delta}"));
    }
    if delta > zero && start > limit {
        return Err(invalid!("Requires start <= limit when delta > 0: {start}/{limit}"));
    }
    if delta < zero && start < limit {
        return Err(invalid!("Requires start >= limit when delta < 0: {start}/{limit}"));
    }
    let count = if T::DTYPE.is_integer() {
        let (span, step) = (whole(limit) - whole(start), whole(delta));
        let count = (span.abs() + step.abs() - 1) / step.abs();
        usize::try_from(count).ok()
    } else {
        let count = limit.sub(start).div(delta).abs().to_f64().ceil();
        (count < i64::MAX as f64).then_some(count as usize)
    };
    count.ok_or_else(|| invalid!("a range from {start} to {limit} by {delta} has too many elements"))
}

fn whole<T: Real>(x: T) -> i128 {
    // Unsigned 64-bit numbers beyond the signed ones are exact neither way; they are taken from their halves.
    let low = x.to_i64();
    if low == i64::MAX { i128::from(low) + i128::from(x.sub(T::from_i64(low)).to_i64()) } else { i128::from(low) }
}

struct Range;
impl RealKernel for Range {
    fn compute<T: Real>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let scalar = |i: usize, name: &str| {
            let x = ctx.input(i);
            if x.num_elements() != 1 || x.shape().rank() > 1 {
                return Err(invalid!("{name} must be a scalar, not shape {}", x.shape()));
            }
            x.item::<T>()
        };
        let (start, limit, delta) = (scalar(0, "start")?, scalar(1, "limit")?, scalar(2, "delta")?);
        let mut y = ctx.allocate::<T>([count(start, limit, delta)?])?;

        for (i, to) in y.iter_mut().enumerate() {
            *to = start.add(T::from_i64(i as i64).mul(delta));
        }
        ctx.set_output(0, y)
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::{Code, Tensor};

    #[test]
    fn a_range_ends_before_its_limit() {
        let range = |a: i32, b: i32, c: i32| eval("Range", &[a.into(), b.into(), c.into()], &[]);
        assert_eq!(range(3, 10, 3).unwrap()[0], Tensor::from([3i32, 6, 9]));
        assert_eq!(range(3, 0, -2).unwrap()[0], Tensor::from([3i32, 1]));
        assert_eq!(range(1, 0, 1).unwrap_err().code, Code::InvalidArgument);
        assert!(range(0, 5, 0).unwrap_err().message.contains("delta != 0"));
        let huge = eval("Range", &[0i64.into(), i64::MAX.into(), 1i64.into()], &[]);
        assert!(matches!(huge.unwrap_err().code, Code::ResourceExhausted | Code::InvalidArgument));
    }
}
