//! A kernel of a wide element type on a node of a narrow one: the inputs are widened, the outputs rounded or cut off.
//!
//! It saves a kernel's code for types that are rarely met. `half` and `bfloat16` are computed as `float`, integers of 8
//! and 16 bits as `int32`, `uint32` as `int64`: each holds all values of the narrow type, and the low bits of sums,
//! differences and products are the same in both.

use crate::kernel::{BuiltKernel, Kernel, KernelContext, Value};
use linalg::elementwise::map;
use linalg::parallel::Pool;
use std::sync::Arc;
use tensor::{DType, Element, OwnedTensor, Result, Tensor, bf16, f16, internal};

/// A kernel for nodes of a narrow type, from one for the type it is computed as.
pub(crate) fn widened(narrow: DType, kernel: Arc<dyn Kernel>) -> BuiltKernel {
    BuiltKernel::new(Widened { narrow, kernel })
}

struct Widened {
    narrow: DType,
    kernel: Arc<dyn Kernel>,
}

impl Kernel for Widened {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        for index in 0..ctx.num_inputs() {
            if matches!(ctx.input_value(index), Value::Tensor(tensor) if tensor.dtype() == self.narrow) {
                let tensor = ctx.take(index);
                ctx.put_back(index, widen(ctx.pool(), &tensor)?);
            }
        }
        self.kernel.compute(ctx)?;
        for (index, info) in ctx.node().outputs.iter().enumerate() {
            if info.dtype == self.narrow {
                let tensor = ctx.take_output(index)?;
                let tensor =
                    if tensor.dtype() == self.narrow { tensor } else { narrowed(ctx.pool(), &tensor, self.narrow)? };
                ctx.set_output(index, tensor)?;
            }
        }
        Ok(())
    }
}

fn widen(pool: &Pool, x: &Tensor) -> Result<Tensor> {
    match x.dtype() {
        DType::F16 => converted(pool, x, f16::to_f32),
        DType::BF16 => converted(pool, x, bf16::to_f32),
        DType::I8 => converted(pool, x, <i32 as From<i8>>::from),
        DType::I16 => converted(pool, x, <i32 as From<i16>>::from),
        DType::U8 => converted(pool, x, <i32 as From<u8>>::from),
        DType::U16 => converted(pool, x, <i32 as From<u16>>::from),
        DType::U32 => converted(pool, x, <i64 as From<u32>>::from),
        other => Err(internal!("elements of type {other} are not computed in a wider one")),
    }
}

fn narrowed(pool: &Pool, x: &Tensor, to: DType) -> Result<Tensor> {
    match to {
        DType::F16 => converted(pool, x, f16::from_f32),
        DType::BF16 => converted(pool, x, bf16::from_f32),
        DType::I8 => converted(pool, x, |x: i32| x as i8),
        DType::I16 => converted(pool, x, |x: i32| x as i16),
        DType::U8 => converted(pool, x, |x: i32| x as u8),
        DType::U16 => converted(pool, x, |x: i32| x as u16),
        DType::U32 => converted(pool, x, |x: i64| x as u32),
        other => Err(internal!("elements of type {other} are not computed in a wider one")),
    }
}

fn converted<S: Element, D: Element>(pool: &Pool, x: &Tensor, convert: impl Fn(S) -> D + Sync) -> Result<Tensor> {
    let mut y = OwnedTensor::<D>::new(x.shape())?;
    map(pool, x.as_slice::<S>()?, &mut y, convert);
    Ok(y.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_narrow_value_comes_back() {
        let pool = Pool::inline();
        let bits: Vec<u16> = (0..=u16::MAX).collect();
        let (bytes, halves) = ((0..=u8::MAX).collect::<Vec<u8>>(), bits.iter().map(|&b| f16::from_bits(b)));
        let rounds: Vec<bf16> = bits.iter().map(|&b| bf16::from_bits(b)).filter(|x| !x.is_nan()).collect();
        for narrow in [
            Tensor::from(halves.filter(|x| !x.is_nan()).collect::<Vec<f16>>()),
            Tensor::from(rounds),
            Tensor::from(bytes.iter().map(|&b| b as i8).collect::<Vec<i8>>()),
            Tensor::from(bytes),
            Tensor::from(bits.iter().map(|&b| b as i16).collect::<Vec<i16>>()),
            Tensor::from(bits),
            Tensor::from(vec![0u32, 1, u32::MAX / 2 + 1, u32::MAX]),
        ] {
            let wide = widen(&pool, &narrow).unwrap();
            assert!(wide.dtype().size() > narrow.dtype().size());
            assert_eq!(narrowed(&pool, &wide, narrow.dtype()).unwrap(), narrow);
        }
        assert!(widen(&pool, &Tensor::from([1.0f32])).is_err());
    }
}
