//! Random numbers: TensorFlow's own for the same seeds, each op under the names TensorFlow gives it.

use crate::nn::{is_drawn, shape_vector};
use crate::{Graph, Output};
use framework::Scope;
use tensor::{DType, Result, Shape, Tensor, invalid};

/// Where random numbers come from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Distribution {
    /// From `[low, high)`.
    Uniform { low: f64, high: f64 },
    /// With this mean and standard deviation.
    Normal { mean: f64, stddev: f64 },
    /// The same, drawn again beyond two standard deviations.
    Truncated { mean: f64, stddev: f64 },
}

impl Graph {
    /// Random numbers from `[low, high)`, other ones in every run.
    #[track_caller]
    pub fn random_uniform(&self, shape: impl Into<Shape>, low: f32, high: f32) -> Output {
        self.drawn(shape.into(), Distribution::Uniform { low: low.into(), high: high.into() })
    }

    /// Normally distributed random numbers, other ones in every run.
    #[track_caller]
    pub fn random_normal(&self, shape: impl Into<Shape>, mean: f32, stddev: f32) -> Output {
        self.drawn(shape.into(), Distribution::Normal { mean: mean.into(), stddev: stddev.into() })
    }

    /// Normally distributed random numbers within two standard deviations, other ones in every run.
    #[track_caller]
    pub fn truncated_normal(&self, shape: impl Into<Shape>, mean: f32, stddev: f32) -> Output {
        self.drawn(shape.into(), Distribution::Truncated { mean: mean.into(), stddev: stddev.into() })
    }

    #[track_caller]
    fn drawn(&self, shape: Shape, from: Distribution) -> Output {
        self.output([], |s, []| draw(s, &shape, DType::F32, from, None))
    }
}

/// The nodes that draw: a standard draw, scaled and moved.
pub(crate) fn draw(
    s: &Scope,
    shape: &Shape,
    dtype: DType,
    from: Distribution,
    seed: Option<i64>,
) -> Result<framework::Output> {
    if !is_drawn(dtype) {
        return Err(invalid!("random numbers are floating numbers, not {dtype}"));
    }
    let (op, name, names, parameters) = match from {
        Distribution::Uniform { low, high } => ("RandomUniform", "random_uniform", ["min", "max"], [low, high]),
        Distribution::Normal { mean, stddev } => {
            ("RandomStandardNormal", "random_normal", ["mean", "stddev"], [mean, stddev])
        }
        Distribution::Truncated { mean, stddev } => {
            ("TruncatedNormal", "truncated_normal", ["mean", "stddev"], [mean, stddev])
        }
    };
    let full = s.unique_name(name);
    let (scaled, moved_by) = s.with_absolute_name(&full, || {
        let constant = |name: &str, value: Tensor| {
            s.node("Const").name(name).attr("dtype", value.dtype()).attr("value", value).output()
        };
        let shape = constant("shape", Tensor::from(shape_vector(shape)?))?;
        let first = constant(names[0], framework::scope::scalar_of(dtype, parameters[0])?)?;
        let second = constant(names[1], framework::scope::scalar_of(dtype, parameters[1])?)?;
        let (seed, seed2) = s.seeds(seed);
        let drawn = s.node(op).input(shape).attr("dtype", dtype).attr("seed", seed).attr("seed2", seed2).output()?;
        let scale = match from {
            Distribution::Uniform { .. } => s.node("Sub").name("sub").inputs(&[second, first]).output()?,
            _ => second,
        };
        let scaled = s.node("Mul").name("mul").inputs(&[drawn, scale]).output()?;
        Ok::<_, tensor::Error>((scaled, first))
    })?;
    s.node("AddV2").name(full + "/").inputs(&[scaled, moved_by]).output()
}
