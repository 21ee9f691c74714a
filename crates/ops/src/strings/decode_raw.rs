//! `DecodeRaw`: the bytes of strings read as numbers.

use framework::kernel::kernel;
use framework::{Kernel, KernelBuild, KernelContext, Op};
use tensor::{DType, PartialShape, Result, Tensor, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("DecodeRaw")
            .input("bytes: string")
            .output("output: out_type")
            .attr(
                "out_type: {half, float, double, int32, uint16, uint8, int16, int8, int64, complex64, complex128, \
                 bool, bfloat16}",
            )
            .attr("little_endian: bool = true")
            .shape(|c| {
                Ok(vec![match c.input(0).dims() {
                    Some(dims) => PartialShape::new(dims.iter().copied().chain([None])),
                    None => PartialShape::unknown(),
                }])
            })
            .not_differentiable()
            .kernel(kernel(DecodeRaw::new)),
    ]
}

struct DecodeRaw {
    dtype: DType,
    /// The size of the numbers whose bytes stand in the other order than in memory; 1 if none do.
    swapped: usize,
}

impl DecodeRaw {
    fn new(b: &KernelBuild<'_>) -> Result<DecodeRaw> {
        let dtype = b.dtype("out_type")?;
        let is_pair = matches!(dtype, DType::C64 | DType::C128);
        let is_swapped = b.attr::<bool>("little_endian")? != cfg!(target_endian = "little");
        let swapped = if is_swapped { dtype.size() / if is_pair { 2 } else { 1 } } else { 1 };
        Ok(DecodeRaw { dtype, swapped })
    }
}

impl Kernel for DecodeRaw {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let strings = ctx.input(0).as_strings()?;
        let length = strings.first().map_or(0, |s| s.len());
        if let Some((i, other)) = strings.iter().enumerate().find(|(_, s)| s.len() != length) {
            return Err(invalid!(
                "DecodeRaw requires input strings to all be the same size, but element {i} has size {} != {length}",
                other.len()
            ));
        }
        if length % self.dtype.size() != 0 {
            return Err(invalid!(
                "Input to DecodeRaw has length {length} that is not a multiple of {}, the size of {}",
                self.dtype.size(),
                self.dtype
            ));
        }

        let shape = ctx.input(0).shape().clone().with_dim(length / self.dtype.size());
        let decoded = Tensor::from_filled(self.dtype, shape, |into| {
            for (into, text) in into.chunks_exact_mut(length.max(1)).zip(strings) {
                into.copy_from_slice(text);
            }
            into.chunks_exact_mut(self.swapped).for_each(<[u8]>::reverse);
            Ok(())
        })?;
        ctx.set_output(0, decoded)
    }
}
