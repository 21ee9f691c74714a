//! `RandomShuffle`: the slices along dimension 0, in another order.

use super::Stream;
use framework::typed::{MoveKernel, moves};
use framework::{Item, KernelBuild, KernelContext, Op, Output, Scope, shapes};
use linalg::random::shuffle;
use tensor::Result;

/// All ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("RandomShuffle")
            .input("value: T")
            .output("output: T")
            .attr("seed: int = 0")
            .attr("seed2: int = 0")
            .attr("T: type")
            .stateful()
            .shape(shapes::unchanged)
            .not_differentiable()
            .kernel(moves(RandomShuffle::new)),
    ]
}

/// The slices of `value` along dimension 0, in another order.
pub fn random_shuffle(s: &Scope, value: Output, seed: Option<i64>) -> Result<Output> {
    let (seed, seed2) = s.seeds(seed);
    s.node("RandomShuffle").input(value).attr("seed", seed).attr("seed2", seed2).output()
}

struct RandomShuffle {
    stream: Stream,
}

impl RandomShuffle {
    fn new(b: &KernelBuild<'_>) -> Result<RandomShuffle> {
        Ok(RandomShuffle { stream: Stream::new(b)? })
    }
}

impl MoveKernel for RandomShuffle {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let value = ctx.take(0);
        let rows = value.dims().first().copied().unwrap_or(1);
        if rows <= 1 || value.num_elements() <= 1 {
            return ctx.set_output(0, value);
        }

        let mut order: Vec<usize> = (0..rows).collect();
        shuffle(self.stream.for_words(rows as u64 - 1), &mut order);

        let items = I::items(&value)?;
        let row = items.len() / rows;
        let shuffled = I::build(value.dtype(), value.shape().clone(), &mut |out| {
            for (to, from) in out.chunks_exact_mut(row).zip(&order) {
                to.clone_from_slice(&items[from * row..][..row]);
            }
            Ok(())
        })?;
        ctx.set_output(0, shuffled)
    }
}

#[cfg(test)]
mod tests {
    use crate::nn::testing::check;
    use framework::Attr;
    use tensor::Tensor;

    #[test]
    fn seeds_give_tensorflows_order() {
        // tf.set_random_seed(42); tf.random_shuffle(tf.range(10), seed=8)
        let seeds = [("seed", Attr::Int(42)), ("seed2", Attr::Int(8))];
        let order = [8i32, 2, 3, 0, 7, 6, 1, 5, 9, 4];
        let ten: Vec<i32> = (0..10).collect();
        check("RandomShuffle", &seeds, &[Tensor::from(ten)], &[Tensor::from(order.to_vec())]);
        let rows: Vec<i32> = (0..20).collect();
        let rows = Tensor::from_vec([10, 2], rows).unwrap();
        let wanted = order.iter().flat_map(|&r| [2 * r, 2 * r + 1]).collect();
        check("RandomShuffle", &seeds, &[rows], &[Tensor::from_vec([10, 2], wanted).unwrap()]);
    }
}
