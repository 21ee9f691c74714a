//! `Unique` and `UniqueWithCounts`: the different elements of a vector, in the order they first occur.

use super::{build, index_tensor};
use framework::kernel::KernelContext;
use framework::typed::{Item, MoveKernel, moves_of};
use framework::{BuiltKernel, KernelBuild, Op};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Tensor, bf16, f16, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("Unique")
            .input("x: T")
            .output("y: T")
            .output("idx: out_idx")
            .attr("T: type")
            .attr("out_idx: indextype = int32")
            .shape(|c| Ok(vec![PartialShape::of_rank(1), c.require_rank(0, 1)?]))
            .kernel(Arc::new(unique_kernel)),
        Op::new("UniqueWithCounts")
            .input("x: T")
            .output("y: T")
            .output("idx: out_idx")
            .output("count: out_idx")
            .attr("T: type")
            .attr("out_idx: indextype = int32")
            .shape(|c| Ok(vec![PartialShape::of_rank(1), c.require_rank(0, 1)?, PartialShape::of_rank(1)]))
            .kernel(Arc::new(unique_kernel)),
    ]
}

fn unique_kernel(b: &KernelBuild<'_>) -> Result<BuiltKernel> {
    let dtype = b.dtype("T")?;
    match dtype {
        DType::Resource | DType::Variant | DType::C64 | DType::C128 => Err(framework::typed::no_kernel(b, dtype)),
        _ => moves_of(dtype, Unique { index_type: b.dtype("out_idx")? }),
    }
}

struct Unique {
    index_type: DType,
}

impl MoveKernel for Unique {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let x = ctx.input(0);
        if x.shape().rank() != 1 {
            return Err(invalid!("unique expects a 1D vector."));
        }
        let (firsts, ids) = numbered(x)?;

        let items = I::items(x)?;
        let y: Tensor = build::<I>(x.dtype(), [firsts.len()].into(), |out| {
            for (out, &first) in out.iter_mut().zip(&firsts) {
                *out = items[first].clone();
            }
            Ok(())
        })?;
        if ctx.num_outputs() == 3 {
            let mut counts = vec![0i64; firsts.len()];
            ids.iter().for_each(|&id| counts[id as usize] += 1);
            ctx.set_output(2, index_tensor(self.index_type, [counts.len()], &counts)?)?;
        }
        let ids = index_tensor(self.index_type, [ids.len()], &ids)?;
        ctx.set_output(0, y)?;
        ctx.set_output(1, ids)
    }
}

/// Where each different element first occurs, and for each element the number of the different one it equals.
fn numbered(x: &Tensor) -> Result<(Vec<usize>, Vec<i64>)> {
    Ok(match x.dtype() {
        DType::String => number_off(x.as_strings()?.iter().map(Some)),
        DType::F16 => number_off(x.as_slice::<f16>()?.iter().map(|v| float_key(v.to_f64()))),
        DType::BF16 => number_off(x.as_slice::<bf16>()?.iter().map(|v| float_key(v.to_f64()))),
        DType::F32 => number_off(x.as_slice::<f32>()?.iter().map(|&v| float_key(f64::from(v)))),
        DType::F64 => number_off(x.as_slice::<f64>()?.iter().map(|&v| float_key(v))),
        other => match other.size() {
            1 => number_off(x.as_words::<u8>()?.iter().map(|&v| Some(u64::from(v)))),
            2 => number_off(x.as_words::<u16>()?.iter().map(|&v| Some(u64::from(v)))),
            4 => number_off(x.as_words::<u32>()?.iter().map(|&v| Some(u64::from(v)))),
            _ => number_off(x.as_words::<u64>()?.iter().map(|&v| Some(v))),
        },
    })
}

/// Both zeros are one value; what is not a number equals nothing, itself included.
fn float_key(value: f64) -> Option<u64> {
    if value.is_nan() { None } else { Some((value + 0.0).to_bits()) }
}

/// Where each different key first occurs, and for each element the number of its key; `None` is always new.
fn number_off<K: Hash + Eq>(keys: impl Iterator<Item = Option<K>>) -> (Vec<usize>, Vec<i64>) {
    /// Of more elements, most may well be the same.
    const EXPECTED_MAX: usize = 1 << 16;
    let len = keys.size_hint().0;
    let expected = len.min(EXPECTED_MAX);
    let mut numbers =
        HashMap::<K, i64, BuildHasherDefault<Mixer>>::with_capacity_and_hasher(expected, Default::default());
    let (mut firsts, mut ids) = (Vec::with_capacity(expected), Vec::with_capacity(len));
    for (i, key) in keys.enumerate() {
        let new = firsts.len() as i64;
        let id = match key {
            Some(key) => *numbers.entry(key).or_insert(new),
            None => new,
        };
        if id == new {
            firsts.push(i);
        }
        ids.push(id);
    }
    (firsts, ids)
}

/// A quick hash whose every bit depends on all bits of what was written.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let mut x = (self.0 ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.0 = x ^ (x >> 31);
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(u64::from(byte));
    }

    fn write_usize(&mut self, size: usize) {
        self.write_u64(size as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::{DType, Tensor};

    #[test]
    fn first_occurrences_keep_their_order() {
        let found = eval("Unique", &[Tensor::from([7i64, 3, 7, -1, 3])], &[]).unwrap();
        assert_eq!(found, [Tensor::from([7i64, 3, -1]), Tensor::from([0i32, 1, 0, 2, 1])]);
        let found = eval("Unique", &[Tensor::from(["b", "a", "b"])], &[("out_idx", DType::I64.into())]).unwrap();
        assert_eq!(found, [Tensor::from(["b", "a"]), Tensor::from([0i64, 1, 0])]);
        let found = eval("Unique", &[Tensor::from([0.0f32, -0.0, f32::NAN, f32::NAN])], &[]).unwrap();
        assert_eq!(found[1], Tensor::from([0i32, 0, 1, 2]));
        assert!(eval("Unique", &[Tensor::scalar(1i32)], &[]).is_err());
    }
}
