//! A kernel that only carries elements about, on a node whose elements are rarely met: it carries their numbers.
//!
//! The elements of all inputs are numbered in the order they come in, from one; zero stands for the type's own zero. So a
//! kernel needs no code for handles, variants and complex numbers of double precision.

use crate::kernel::{BuiltKernel, Kernel, KernelContext, Value};
use crate::typed::Item;
use std::sync::Arc;
use tensor::{DType, ResourceHandle, Result, Tensor, Variant, exhausted};

/// A kernel for nodes of this type, from one that carries numbers of 32 bits.
pub(crate) fn numbered(dtype: DType, kernel: Arc<dyn Kernel>) -> BuiltKernel {
    BuiltKernel::new(Numbered { dtype, kernel })
}

struct Numbered {
    dtype: DType,
    kernel: Arc<dyn Kernel>,
}

impl Kernel for Numbered {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        match self.dtype {
            DType::Resource => self.carry::<ResourceHandle>(ctx),
            DType::Variant => self.carry::<Variant>(ctx),
            _ => self.carry::<u128>(ctx),
        }
    }
}

impl Numbered {
    fn carry<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let mut items = vec![I::zero()];
        for index in 0..ctx.num_inputs() {
            if matches!(ctx.input_value(index), Value::Tensor(tensor) if tensor.dtype() == self.dtype) {
                let tensor = ctx.take(index);
                ctx.put_back(index, number_off(&tensor, &mut items)?);
            }
        }
        self.kernel.compute(ctx)?;
        for (index, info) in ctx.node().outputs.iter().enumerate() {
            if info.dtype == self.dtype {
                let numbers = ctx.take_output(index)?;
                ctx.set_output(index, by_number(&numbers, self.dtype, &items)?)?;
            }
        }
        Ok(())
    }
}

/// Elements that tensors of this sort may have.
const ITEMS_MAX: usize = 1 << 28;

/// Appends the elements of a tensor to the items, and gives their numbers.
fn number_off<I: Item>(tensor: &Tensor, items: &mut Vec<I>) -> Result<Tensor> {
    let first = items.len();
    items.extend_from_slice(I::items(tensor)?);
    if items.len() > ITEMS_MAX {
        return Err(exhausted!("{} elements of {} are more than are moved at once", items.len(), tensor.dtype()));
    }
    Tensor::from_vec(tensor.shape().clone(), (first as u32..items.len() as u32).collect())
}

/// The items with these numbers. What a kernel left unwritten may be any number.
fn by_number<I: Item>(numbers: &Tensor, dtype: DType, items: &[I]) -> Result<Tensor> {
    if numbers.num_elements() > ITEMS_MAX {
        return Err(exhausted!("a tensor of {dtype} and shape {} is more than this machine can hold", numbers.shape()));
    }
    let values = numbers.as_slice::<u32>()?;
    I::build(dtype, numbers.shape().clone(), &mut |out| {
        for (out, &number) in out.iter_mut().zip(values) {
            *out = items.get(number as usize).cloned().unwrap_or_else(I::zero);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensor::Complex;

    #[test]
    fn elements_are_found_by_their_numbers() {
        let x = Tensor::from([Complex::new(1.0f64, 2.0), Complex::new(3.0, -4.0)]);
        let mut items = vec![0u128];
        let numbers = number_off(&x, &mut items).unwrap();
        assert_eq!(numbers, Tensor::from([1u32, 2]));
        assert_eq!(number_off(&x, &mut items).unwrap(), Tensor::from([3u32, 4]));
        let picked = by_number(&Tensor::from([4u32, 0, 1, 77]), DType::C128, &items).unwrap();
        let zero = Complex::new(0.0, 0.0);
        assert_eq!(picked, Tensor::from([Complex::new(3.0f64, -4.0), zero, Complex::new(1.0, 2.0), zero]));
    }
}
