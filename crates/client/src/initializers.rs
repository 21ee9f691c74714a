//! What variables start as: `g.variable("w", zeros([784, 100]))`.
//!
//! Random initial values are TensorFlow's own for the same seeds.

use crate::nn::shape_vector;
use crate::random::{Distribution, draw};
use framework::{Env, Pool, Scope, SystemEnv};
use linalg::random::{Philox, RandomFloat, fill_normal};
use tensor::{DType, Element, Result, Shape, Tensor, invalid};

/// A rule for initial values; `f32` unless told otherwise.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let w = g.variable("w", initializers::glorot_uniform([784, 100]).seed(7));
/// let b = g.variable("b", initializers::zeros([100]).dtype(DType::F64));
/// assert_eq!((w.dtype(), b.dtype()), (DType::F32, DType::F64));
/// # g.check()?;
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Initializer {
    rule: Rule,
    shape: Shape,
    dtype: DType,
    seed: Option<i64>,
}

#[derive(Clone, Debug)]
enum Rule {
    Filled { name: &'static str, value: f64 },
    Drawn(Distribution),
    Orthogonal { gain: f64 },
}

/// Which of a layer's connections count in [`variance_scaling`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fan {
    /// Those coming in.
    In,
    /// Those going out.
    Out,
    /// The mean of both.
    Average,
}

/// How [`variance_scaling`] distributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Evenly.
    Uniform,
    /// Normally.
    Normal,
    /// Normally, within two standard deviations.
    TruncatedNormal,
}

fn initializer(rule: Rule, shape: Shape) -> Initializer {
    Initializer { rule, shape, dtype: DType::F32, seed: None }
}

/// Zeros.
pub fn zeros(shape: impl Into<Shape>) -> Initializer {
    initializer(Rule::Filled { name: "zeros", value: 0.0 }, shape.into())
}

/// Ones.
pub fn ones(shape: impl Into<Shape>) -> Initializer {
    initializer(Rule::Filled { name: "ones", value: 1.0 }, shape.into())
}

/// One value everywhere.
pub fn constant(value: f64, shape: impl Into<Shape>) -> Initializer {
    initializer(Rule::Filled { name: "Const", value }, shape.into())
}

/// Random numbers from `[low, high)`.
pub fn random_uniform(low: f64, high: f64, shape: impl Into<Shape>) -> Initializer {
    initializer(Rule::Drawn(Distribution::Uniform { low, high }), shape.into())
}

/// Normally distributed random numbers.
pub fn random_normal(mean: f64, stddev: f64, shape: impl Into<Shape>) -> Initializer {
    initializer(Rule::Drawn(Distribution::Normal { mean, stddev }), shape.into())
}

/// Normally distributed random numbers within two standard deviations.
pub fn truncated_normal(mean: f64, stddev: f64, shape: impl Into<Shape>) -> Initializer {
    initializer(Rule::Drawn(Distribution::Truncated { mean, stddev }), shape.into())
}

/// Random numbers whose variance is `scale` over the number of a layer's connections.
pub fn variance_scaling(scale: f64, fan: Fan, spread: Spread, shape: impl Into<Shape>) -> Initializer {
    /// What cutting a normal distribution off at two standard deviations leaves of its standard deviation.
    const TRUNCATED_STDDEV: f64 = 0.879_625_661_034_239_8;
    let shape = shape.into();
    let (fan_in, fan_out) = fans(&shape);
    let count = match fan {
        Fan::In => fan_in,
        Fan::Out => fan_out,
        Fan::Average => (fan_in + fan_out) / 2.0,
    };
    let variance = scale / count.max(1.0);
    let distribution = match spread {
        Spread::Uniform => {
            let limit = (3.0 * variance).sqrt();
            Distribution::Uniform { low: -limit, high: limit }
        }
        Spread::Normal => Distribution::Normal { mean: 0.0, stddev: variance.sqrt() },
        Spread::TruncatedNormal => Distribution::Truncated { mean: 0.0, stddev: variance.sqrt() / TRUNCATED_STDDEV },
    };
    initializer(Rule::Drawn(distribution), shape)
}

/// Glorot's (Xavier's) uniform distribution.
pub fn glorot_uniform(shape: impl Into<Shape>) -> Initializer {
    variance_scaling(1.0, Fan::Average, Spread::Uniform, shape)
}

/// Glorot's (Xavier's) normal distribution.
pub fn glorot_normal(shape: impl Into<Shape>) -> Initializer {
    variance_scaling(1.0, Fan::Average, Spread::TruncatedNormal, shape)
}

/// He's uniform distribution, for layers under a relu.
pub fn he_uniform(shape: impl Into<Shape>) -> Initializer {
    variance_scaling(2.0, Fan::In, Spread::Uniform, shape)
}

/// He's normal distribution, for layers under a relu.
pub fn he_normal(shape: impl Into<Shape>) -> Initializer {
    variance_scaling(2.0, Fan::In, Spread::TruncatedNormal, shape)
}

/// LeCun's uniform distribution.
pub fn lecun_uniform(shape: impl Into<Shape>) -> Initializer {
    variance_scaling(1.0, Fan::In, Spread::Uniform, shape)
}

/// LeCun's normal distribution.
pub fn lecun_normal(shape: impl Into<Shape>) -> Initializer {
    variance_scaling(1.0, Fan::In, Spread::TruncatedNormal, shape)
}

/// A random orthogonal matrix, times `gain`: its rows or its columns are orthonormal. The last dimension is the
/// columns, all others together are the rows.
pub fn orthogonal(gain: f64, shape: impl Into<Shape>) -> Initializer {
    initializer(Rule::Orthogonal { gain }, shape.into())
}

impl Initializer {
    /// The seed of random values.
    pub fn seed(mut self, seed: i64) -> Initializer {
        self.seed = Some(seed);
        self
    }

    /// The type of the values.
    pub fn dtype(mut self, dtype: DType) -> Initializer {
        self.dtype = dtype;
        self
    }

    /// The same rule for a part of what it was for: what depends on the shape of the whole still does.
    pub(crate) fn with_shape(mut self, shape: Shape) -> Initializer {
        self.shape = shape;
        self
    }

    /// The type and shape of the values.
    pub(crate) fn kind(&self) -> (DType, Shape) {
        (self.dtype, self.shape.clone())
    }

    /// Adds the nodes that compute the initial value.
    pub(crate) fn build(&self, s: &Scope) -> Result<framework::Output> {
        match self.rule {
            Rule::Filled { name, value } => filled(s, name, &self.shape, self.dtype, value),
            Rule::Drawn(distribution) => draw(s, &self.shape, self.dtype, distribution, self.seed),
            Rule::Orthogonal { gain } => {
                let value = orthogonal_matrix(&self.shape, self.dtype, gain, s.seeds(self.seed))?;
                s.constant(value)
            }
        }
    }
}

/// One value everywhere: as a constant where that is small, computed where it is large.
pub(crate) fn filled(s: &Scope, name: &str, shape: &Shape, dtype: DType, value: f64) -> Result<framework::Output> {
    /// From this many elements on TensorFlow fills at run time.
    const LARGE: usize = 1000;
    let value = framework::scope::scalar_of(dtype, value)?;
    if shape.num_elements() < LARGE {
        let size = value.as_bytes()?.to_vec();
        let value = Tensor::from_bytes(dtype, shape, &size.repeat(shape.num_elements()))?;
        return s.node("Const").name(name).attr("dtype", dtype).attr("value", value).output();
    }
    let full = s.unique_name(name);
    let parts = s.with_absolute_name(&full, || {
        let sizes = Tensor::from(shape_vector(shape)?);
        let sizes = s.node("Const").name("shape_as_tensor").attr("dtype", DType::I32).attr("value", sizes).output()?;
        Ok::<_, tensor::Error>([sizes, s.constant(value)?])
    })?;
    s.node("Fill").name(full + "/").inputs(&parts).output()
}

/// How many connections come in and go out of a layer with weights of this shape.
fn fans(shape: &Shape) -> (f64, f64) {
    match shape.dims() {
        [] => (1.0, 1.0),
        [n] => (*n as f64, *n as f64),
        [receptive @ .., fan_in, fan_out] => {
            let receptive = receptive.iter().product::<usize>() as f64;
            (*fan_in as f64 * receptive, *fan_out as f64 * receptive)
        }
    }
}

/// Decomposes normally distributed numbers into Q and R, with R's diagonal positive, and takes Q: that makes it
/// unique, whatever the algorithm. Worked out while building, since it is needed once in a variable's life.
fn orthogonal_matrix(shape: &Shape, dtype: DType, gain: f64, seeds: (i64, i64)) -> Result<Tensor> {
    let [leading @ .., columns] = shape.dims() else {
        return Err(invalid!("The tensor to initialize must be at least two-dimensional, found shape {shape}"));
    };
    if leading.is_empty() {
        return Err(invalid!("The tensor to initialize must be at least two-dimensional, found shape {shape}"));
    }
    let rows = leading.iter().product::<usize>();
    let (tall, wide) = (rows.max(*columns), rows.min(*columns));
    let philox = match seeds {
        (0, 0) => {
            let env = SystemEnv::default();
            Philox::new(env.random_u64(), env.random_u64())
        }
        (seed, seed2) => Philox::new(seed as u64, seed2 as u64),
    };
    let drawn = match dtype {
        DType::F32 => normals::<f32>(philox, tall * wide),
        DType::F64 => normals::<f64>(philox, tall * wide),
        other => return Err(invalid!("an orthogonal matrix is made of float or double, not {other}")),
    };
    let q = orthonormal_columns(drawn, tall, wide);
    let transposed = rows < *columns;
    let at = |row: usize, column: usize| if transposed { q[row * tall + column] } else { q[column * tall + row] };
    let values = (0..rows).flat_map(|r| (0..*columns).map(move |c| (r, c))).map(|(r, c)| gain * at(r, c));
    match dtype {
        DType::F32 => Tensor::from_vec(shape, values.map(|v| v as f32).collect()),
        _ => Tensor::from_vec(shape, values.collect::<Vec<f64>>()),
    }
}

fn normals<T: RandomFloat + Element + Into<f64>>(philox: Philox, count: usize) -> Vec<f64> {
    let mut values = vec![T::default(); count];
    fill_normal(&Pool::inline(), philox, &mut values);
    values.into_iter().map(Into::into).collect()
}

/// Gram and Schmidt's method, each column twice so that rounding does not add up. Takes rows, gives columns.
fn orthonormal_columns(rows: Vec<f64>, tall: usize, wide: usize) -> Vec<f64> {
    let mut columns = vec![0.0; tall * wide];
    for c in 0..wide {
        let (done, rest) = columns.split_at_mut(c * tall);
        let column = &mut rest[..tall];
        for (r, value) in column.iter_mut().enumerate() {
            *value = rows[r * wide + c];
        }
        for _ in 0..2 {
            for other in done.chunks_exact(tall) {
                let along: f64 = other.iter().zip(&*column).map(|(a, b)| a * b).sum();
                column.iter_mut().zip(other).for_each(|(value, o)| *value -= along * o);
            }
        }
        let length = column.iter().map(|v| v * v).sum::<f64>().sqrt();
        column.iter_mut().for_each(|v| *v /= length);
    }
    columns
}
