//! `ComputeAccidentalHits`: the right classes that were drawn as wrong ones by accident.

use framework::kernel::kernel;
use framework::{InferenceContext, Kernel, KernelBuild, KernelContext, Op, Output, Scope};
use std::collections::HashMap;
use tensor::{PartialShape, Result, Tensor, invalid};

/// All ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("ComputeAccidentalHits")
            .input("true_classes: int64")
            .input("sampled_candidates: int64")
            .output("indices: int32")
            .output("ids: int64")
            .output("weights: float")
            .attr("num_true: int")
            .attr("seed: int = 0")
            .attr("seed2: int = 0")
            .shape(shape)
            .kernel(kernel(AccidentalHits::new)),
    ]
}

/// The examples and the places in the sample where a right class was drawn, and the weight that takes each out.
pub fn compute_accidental_hits(s: &Scope, true_classes: Output, sampled: Output, num_true: i64) -> Result<Vec<Output>> {
    s.node("ComputeAccidentalHits").inputs(&[true_classes, sampled]).attr("num_true", num_true).outputs()
}

fn shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    c.require_rank(0, 2)?;
    c.require_rank(1, 1)?;
    Ok(vec![PartialShape::of_rank(1); 3])
}

struct AccidentalHits {
    num_true: i64,
}

impl AccidentalHits {
    fn new(b: &KernelBuild<'_>) -> Result<AccidentalHits> {
        Ok(AccidentalHits { num_true: b.attr("num_true")? })
    }
}

impl Kernel for AccidentalHits {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (classes, sampled) = (ctx.input(0), ctx.input(1));
        let columns = match classes.dims() {
            &[_, columns] if columns as i64 == self.num_true => columns,
            _ => {
                return Err(invalid!(
                    "true_candidates must be a batch_size * num_true matrix with num_true {}, found {}",
                    self.num_true,
                    classes.shape()
                ));
            }
        };
        if sampled.shape().rank() != 1 {
            return Err(invalid!("sampled_candidates must be a vector, found {}", sampled.shape()));
        }

        let places: HashMap<i64, i64> = sampled.as_slice::<i64>()?.iter().copied().zip(0..).collect();
        let (mut indices, mut ids) = (Vec::new(), Vec::new());
        for (i, class) in classes.as_slice::<i64>()?.iter().enumerate() {
            if let Some(&place) = places.get(class) {
                indices.push((i / columns) as i32);
                ids.push(place);
            }
        }
        let weights = vec![f32::MIN; ids.len()];
        ctx.set_output(0, Tensor::from(indices))?;
        ctx.set_output(1, Tensor::from(ids))?;
        ctx.set_output(2, Tensor::from(weights))
    }
}

#[cfg(test)]
mod tests {
    use crate::nn::testing::check;
    use framework::Attr;
    use tensor::Tensor;

    #[test]
    fn a_right_class_in_the_sample_is_found() {
        let classes = Tensor::from_slice([2, 2], &[1i64, 4, 2, 7]).unwrap();
        let sampled = Tensor::from(vec![7i64, 4, 9]);
        let wanted = [Tensor::from(vec![0i32, 1]), Tensor::from(vec![1i64, 0]), Tensor::from(vec![f32::MIN; 2])];
        check("ComputeAccidentalHits", &[("num_true", Attr::Int(2))], &[classes, sampled], &wanted);
    }
}
