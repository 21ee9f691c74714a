//! `MatrixBandPart`: matrices with zeros outside a band around the diagonal.

use super::index;
use framework::Op;
use framework::gradient::GradValue;
use framework::kernel::KernelContext;
use framework::shapes::unchanged;
use framework::typed::{Item, MoveKernel, moves};
use tensor::{Result, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("MatrixBandPart")
            .input("input: T")
            .input("num_lower: Tindex")
            .input("num_upper: Tindex")
            .output("band: T")
            .attr("T: type")
            .attr("Tindex: indextype = int64")
            .shape(|c| {
                c.input(0).with_rank_at_least(2)?;
                unchanged(c)
            })
            .gradient(|s, g| {
                let back: GradValue = s.op("MatrixBandPart", &[g.dy[0], g.inputs[1], g.inputs[2]])?.into();
                Ok(vec![Some(back), None, None])
            })
            .kernel(moves(|_| Ok(BandPart))),
    ]
}

struct BandPart;

impl MoveKernel for BandPart {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (lower, upper) = (index(ctx.input(1), "num_lower")?, index(ctx.input(2), "num_upper")?);
        let x = ctx.input(0);
        let &[.., rows, columns] = x.dims() else {
            return Err(invalid!("input must be at least 2-dim, received shape: {}", x.shape()));
        };
        for (name, value, most) in [("num_lower", lower, rows), ("num_upper", upper, columns)] {
            if value > most as i64 {
                return Err(invalid!(
                    "{name} must be negative or less or equal to number of rows or columns ({most}) got: {value}"
                ));
            }
        }
        let (dtype, shape) = (x.dtype(), x.shape().clone());
        let items = I::items(x)?;
        let y = super::build::<I>(dtype, shape, |out| {
            for (at, (out, item)) in out.iter_mut().zip(items).enumerate() {
                let below = (at / columns % rows) as i64 - (at % columns) as i64;
                let is_inside = (lower < 0 || below <= lower) && (upper < 0 || -below <= upper);
                *out = if is_inside { item.clone() } else { I::zero() };
            }
            Ok(())
        })?;
        ctx.set_output(0, y)
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::Tensor;

    #[test]
    fn what_is_outside_the_band_is_zero() {
        let x = Tensor::from([[1i32, 2, 3], [4, 5, 6], [7, 8, 9]]);
        for (lower, upper, want) in [
            (0i64, 0i64, [[1, 0, 0], [0, 5, 0], [0, 0, 9]]),
            (-1, 0, [[1, 0, 0], [4, 5, 0], [7, 8, 9]]),
            (1, -1, [[1, 2, 3], [4, 5, 6], [0, 8, 9]]),
        ] {
            let y = eval("MatrixBandPart", &[x.clone(), Tensor::scalar(lower), Tensor::scalar(upper)], &[]).unwrap();
            assert_eq!(y[0], Tensor::from(want), "{lower} {upper}");
        }
    }
}
