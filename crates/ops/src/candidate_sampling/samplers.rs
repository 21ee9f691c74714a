//! `UniformCandidateSampler`, `LogUniformCandidateSampler`, `FixedUnigramCandidateSampler`.

use super::distribution::{Distribution, Weights};
use crate::random::Stream;
use framework::kernel::kernel;
use framework::{InferenceContext, Kernel, KernelBuild, KernelContext, Op, Output, Scope};
use std::collections::HashSet;
use std::path::Path;
use storage::{Files, LocalFiles};
use tensor::{PartialShape, Result, Shape, invalid};

/// All ops of this file.
pub fn ops() -> Vec<Op> {
    let op = |name: &str| {
        Op::new(name)
            .input("true_classes: int64")
            .output("sampled_candidates: int64")
            .output("true_expected_count: float")
            .output("sampled_expected_count: float")
            .attr("num_true: int >= 1")
            .attr("num_sampled: int >= 1")
            .attr("unique: bool")
            .attr("range_max: int >= 1")
            .stateful()
            .shape(shape)
    };
    let seeds = |op: Op| op.attr("seed: int = 0").attr("seed2: int = 0");
    vec![
        seeds(op("UniformCandidateSampler")).kernel(kernel(|b| Sampler::new(b, Distribution::uniform(range_max(b)?)))),
        seeds(op("LogUniformCandidateSampler"))
            .kernel(kernel(|b| Sampler::new(b, Distribution::log_uniform(range_max(b)?)))),
        seeds(
            op("FixedUnigramCandidateSampler")
                .attr("vocab_file: string = ''")
                .attr("distortion: float = 1.0")
                .attr("num_reserved_ids: int = 0")
                .attr("num_shards: int >= 1 = 1")
                .attr("shard: int >= 0 = 0")
                .attr("unigrams: list(float) = []"),
        )
        .kernel(kernel(|b| Sampler::new(b, Distribution::Weighted(weights(b)?)))),
    ]
}

/// What a sampler is asked for.
#[derive(Clone, Copy, Debug)]
pub struct SamplerOptions {
    /// Right classes of each example.
    pub num_true: i64,
    /// Classes to draw.
    pub num_sampled: i64,
    /// Whether no class is drawn twice.
    pub unique: bool,
    /// The number of classes.
    pub range_max: i64,
    /// The op's seed.
    pub seed: Option<i64>,
}

/// What a sampler gives.
#[derive(Clone, Copy, Debug)]
pub struct Candidates {
    /// The classes drawn.
    pub sampled: Output,
    /// How often each right class was to be expected among them.
    pub true_expected_count: Output,
    /// How often each class drawn was to be expected among them.
    pub sampled_expected_count: Output,
}

/// Draws classes that are all equally likely.
pub fn uniform_candidate_sampler(s: &Scope, true_classes: Output, options: SamplerOptions) -> Result<Candidates> {
    build(s, "UniformCandidateSampler", true_classes, options)
}

/// Draws classes that are the less likely the higher their number.
pub fn log_uniform_candidate_sampler(s: &Scope, true_classes: Output, options: SamplerOptions) -> Result<Candidates> {
    build(s, "LogUniformCandidateSampler", true_classes, options)
}

fn build(s: &Scope, op: &str, true_classes: Output, options: SamplerOptions) -> Result<Candidates> {
    let (seed, seed2) = s.seeds(options.seed);
    let node = s
        .node(op)
        .input(true_classes)
        .attr("num_true", options.num_true)
        .attr("num_sampled", options.num_sampled)
        .attr("unique", options.unique)
        .attr("range_max", options.range_max)
        .attr("seed", seed)
        .attr("seed2", seed2)
        .build()?;
    let output = |index| Output { node, index };
    Ok(Candidates { sampled: output(0), true_expected_count: output(1), sampled_expected_count: output(2) })
}

fn shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let num_true = usize::try_from(c.attr::<i64>("num_true")?).ok();
    let num_sampled = usize::try_from(c.attr::<i64>("num_sampled")?).ok();
    let classes = c.require_rank(0, 2)?;
    let sampled = PartialShape::new([num_sampled]);
    Ok(vec![sampled.clone(), PartialShape::new([classes.dim(0), num_true]), sampled])
}

fn range_max(b: &KernelBuild<'_>) -> Result<u64> {
    let range: i64 = b.attr("range_max")?;
    u64::try_from(range).ok().filter(|r| *r > 0).ok_or_else(|| invalid!("range_max must be positive, found {range}"))
}

/// The weights that the node's attributes or its vocabulary file give, the reserved classes first, this shard's only.
fn weights(b: &KernelBuild<'_>) -> Result<Weights> {
    let (file, given) = (b.attr::<String>("vocab_file")?, b.attr::<Vec<f32>>("unigrams")?);
    let read = match (file.is_empty(), given.is_empty()) {
        (true, true) => return Err(invalid!("Must provide either vocab_file or unigrams.")),
        (false, false) => return Err(invalid!("Must only provide one of vocab_file and unigrams.")),
        (true, false) => given,
        (false, true) => read_vocabulary(&file)?,
    };
    let distortion: f32 = b.attr("distortion")?;
    let reserved = usize::try_from(b.attr::<i64>("num_reserved_ids")?)
        .map_err(|_| invalid!("num_reserved_ids must not be negative"))?;
    let (shards, shard) = (b.attr::<i64>("num_shards")?, b.attr::<i64>("shard")?);
    if shards < 1 || shard < 0 || shard >= shards {
        return Err(invalid!("shard {shard} is not in [0, {shards})"));
    }
    let range = range_max(b)?;
    if reserved as u64 > range.saturating_mul(shards as u64) {
        return Err(invalid!("{reserved} reserved classes are more than range_max {range}"));
    }
    let reserved = (0..reserved as i64).filter(|id| id % shards == shard).map(|_| 0.0);
    let mut weights: Vec<f32> = reserved.collect();
    let first = weights.len() as i64;
    for (id, weight) in (first..).zip(read) {
        if id % shards == shard {
            weights.push(if distortion == 1.0 { weight } else { f64::from(weight).powf(distortion.into()) as f32 });
        }
    }
    let weights = Weights::new(weights);
    if weights.len() as u64 != range {
        return Err(invalid!("range_max is {range}, but there are {} weights", weights.len()));
    }
    Ok(weights)
}

/// The last column of each line of a file.
fn read_vocabulary(path: &str) -> Result<Vec<f32>> {
    let file = LocalFiles.open_read(Path::new(path))?;
    let mut bytes = vec![0; usize::try_from(file.size()?).map_err(|_| invalid!("{path} is too large"))?];
    file.read_exact_at(0, &mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    text.lines()
        .map(|line| {
            let last = line.rsplit(',').next().unwrap_or(line).trim();
            last.parse().map_err(|_| invalid!("{path}: wanted a weight in the last column, found '{line}'"))
        })
        .collect()
}

struct Sampler {
    stream: Stream,
    distribution: Distribution,
    num_true: usize,
    num_sampled: usize,
    unique: bool,
}

impl Sampler {
    fn new(b: &KernelBuild<'_>, distribution: Distribution) -> Result<Sampler> {
        let sampled = Shape::checked([b.attr::<i64>("num_sampled")?])?;
        let num_true: i64 = b.attr("num_true")?;
        Ok(Sampler {
            stream: Stream::new(b)?,
            distribution,
            num_true: usize::try_from(num_true).map_err(|_| invalid!("num_true is {num_true}"))?,
            num_sampled: sampled.num_elements(),
            unique: b.attr("unique")?,
        })
    }

    /// Draws the classes; the number of tries it took.
    fn draw(&self, out: &mut [i64]) -> Result<u32> {
        /// How many words a run may use before the next run's begin, for each class drawn.
        const WORDS_PER_SAMPLE: u64 = 2048;
        let mut words = self.stream.for_words(WORDS_PER_SAMPLE.saturating_mul(out.len() as u64)).words();
        if !self.unique {
            out.iter_mut().for_each(|class| *class = self.distribution.draw(&mut words));
            return Ok(out.len() as u32);
        }
        let mut drawn = HashSet::with_capacity(out.len());
        let mut tries = 0u32;
        for class in out {
            loop {
                tries = tries
                    .checked_add(1)
                    .filter(|t| *t < i32::MAX as u32)
                    .ok_or_else(|| invalid!("no {} different classes were drawn in {tries} tries", self.num_sampled))?;
                *class = self.distribution.draw(&mut words);
                if drawn.insert(*class) {
                    break;
                }
            }
        }
        Ok(tries)
    }

    /// How often a class is to be expected in the sample; with `unique`, how likely it is to be in it.
    fn expected_count(&self, class: i64, tries: u32) -> f32 {
        let probability = self.distribution.probability(class);
        if tries as usize == self.num_sampled {
            return probability * tries as f32;
        }
        -(tries as f32 * (-probability).ln_1p()).exp_m1()
    }
}

impl Kernel for Sampler {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let classes = ctx.input(0);
        match classes.dims() {
            [_, columns] if *columns == self.num_true => {}
            [_, columns] => {
                return Err(invalid!(
                    "true_classes must have num_true columns, expected: {} was: {columns}",
                    self.num_true
                ));
            }
            _ => return Err(invalid!("true_classes must be a matrix, found {}", classes.shape())),
        }
        if self.unique && self.num_sampled as u64 > self.distribution.possible() {
            return Err(invalid!(
                "Sampler's range is too small: {} different classes wanted of {}",
                self.num_sampled,
                self.distribution.possible()
            ));
        }

        let mut sampled = ctx.allocate::<i64>([self.num_sampled])?;
        let mut true_count = ctx.allocate::<f32>(classes.shape().clone())?;
        let mut sampled_count = ctx.allocate::<f32>([self.num_sampled])?;

        let tries = self.draw(&mut sampled)?;
        for (count, class) in sampled_count.iter_mut().zip(sampled.iter()) {
            *count = self.expected_count(*class, tries);
        }
        for (count, class) in true_count.iter_mut().zip(classes.as_slice::<i64>()?) {
            *count = self.expected_count(*class, tries);
        }
        ctx.set_output(0, sampled)?;
        ctx.set_output(1, true_count)?;
        ctx.set_output(2, sampled_count)
    }
}

#[cfg(test)]
mod tests {
    use crate::nn::testing::{check, f32s, refuses};
    use framework::Attr;
    use tensor::Tensor;

    fn attrs(num_sampled: i64, range: i64, unique: bool) -> Vec<(&'static str, Attr)> {
        vec![
            ("num_true", Attr::Int(2)),
            ("num_sampled", Attr::Int(num_sampled)),
            ("unique", Attr::Bool(unique)),
            ("range_max", Attr::Int(range)),
            ("seed", Attr::Int(11)),
            ("seed2", Attr::Int(12)),
        ]
    }

    #[test]
    fn seeds_give_tensorflows_classes() {
        let classes = Tensor::from_slice([2, 2], &[1i64, 4, 2, 19]).unwrap();
        let wanted = [Tensor::from(vec![17i64, 4, 19, 11, 6, 14]), f32s([2, 2], &[0.3; 4]), f32s([6], &[0.3; 6])];
        check("UniformCandidateSampler", &attrs(6, 20, true), &[classes], &wanted);
    }

    #[test]
    fn more_different_classes_than_there_are_is_refused() {
        let classes = Tensor::from_slice([1, 2], &[1i64, 0]).unwrap();
        refuses("LogUniformCandidateSampler", &attrs(6, 5, true), std::slice::from_ref(&classes), "range is too small");
        let mut unigrams = attrs(3, 3, true);
        unigrams.push(("unigrams", Attr::Floats(vec![1.0, 0.0, 3.0])));
        refuses("FixedUnigramCandidateSampler", &unigrams, &[classes], "range is too small");
    }
}
