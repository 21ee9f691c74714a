//! `CountUpTo`: a counter that ends.

use framework::typed::{IntKernel, index_ints};
use framework::{Int, KernelContext, Op};
use tensor::{PartialShape, Result, Tensor, invalid, out_of_range};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("CountUpTo")
            .input("ref: Ref(T)")
            .output("output: T")
            .attr("limit: int")
            .attr("T: indextype")
            .shape(|c| {
                c.require_scalar(0)?;
                Ok(vec![PartialShape::scalar()])
            })
            .kernel(index_ints(|b| Ok(CountUpTo { limit: b.attr("limit")? }))),
    ]
}

struct CountUpTo {
    limit: i64,
}

impl IntKernel for CountUpTo {
    fn compute<T: Int>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let before = ctx.variable(0)?.update(|value| {
            let shape = value.shape().clone();
            let [count] = value.as_mut_slice::<T>()? else {
                return Err(invalid!("CountUpTo counts in a scalar, the variable has shape {shape}"));
            };
            let before = *count;
            if before.to_i64() >= self.limit {
                return Err(out_of_range!("Reached limit of {}", self.limit));
            }
            *count = before.add(T::ONE);
            Ok(before)
        })?;
        ctx.set_output(0, Tensor::from(before))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use crate::state::{assign, variable};
    use tensor::{Code, DType, PartialShape};

    #[test]
    fn it_gives_each_number_once_and_ends() {
        let b = Bench::new();
        let v = variable(&b.s, "v", DType::I64, PartialShape::scalar()).unwrap();
        let init = assign(&b.s, v, b.s.constant(0i64).unwrap()).unwrap();
        let count = b.s.node("CountUpTo").input(v).attr("limit", 2i64).output().unwrap();
        b.fetch(init).unwrap();
        assert_eq!(b.fetch(count).unwrap(), 0i64.into());
        assert_eq!(b.fetch(count).unwrap(), 1i64.into());
        let error = b.fetch(count).unwrap_err();
        assert_eq!(error.code, Code::OutOfRange);
        assert!(error.message.starts_with("Reached limit of 2"), "{error}");
        assert_eq!(b.fetch(v).unwrap(), 2i64.into());
    }
}
