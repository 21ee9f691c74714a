//! Learning rates that change with the steps; each is computed from the count of steps and given to an optimizer.
//!
//! ```
//! use ferroflow::prelude::*;
//!
//! let g = Graph::new();
//! let step = g.global_step();
//! let rate = schedules::exponential_decay(0.1, &step, 1000, 0.96);
//! let w = g.variable("w", 1.0f32);
//! let train = GradientDescent::new(&rate).minimize(&w.square()).increment(&step);
//! # g.check()?;
//! # let _ = train;
//! # Ok::<(), ferroflow::Error>(())
//! ```

use crate::Output;

/// `rate * decay_rate ^ (step / decay_steps)`.
#[track_caller]
pub fn exponential_decay(rate: f64, step: &Output, decay_steps: i64, decay_rate: f64) -> Output {
    scoped(step, "ExponentialDecay", || exponential(rate, &periods(step, decay_steps), decay_rate))
}

/// The same, falling once at the end of every period.
#[track_caller]
pub fn exponential_decay_staircase(rate: f64, step: &Output, decay_steps: i64, decay_rate: f64) -> Output {
    scoped(step, "ExponentialDecay", || exponential(rate, &periods(step, decay_steps).floor(), decay_rate))
}

/// `rate * e ^ (-decay_rate * step / decay_steps)`.
#[track_caller]
pub fn natural_exp_decay(rate: f64, step: &Output, decay_steps: i64, decay_rate: f64) -> Output {
    scoped(step, "NaturalExpDecay", || natural(rate, &periods(step, decay_steps), decay_rate))
}

/// The same, falling once at the end of every period.
#[track_caller]
pub fn natural_exp_decay_staircase(rate: f64, step: &Output, decay_steps: i64, decay_rate: f64) -> Output {
    scoped(step, "NaturalExpDecay", || natural(rate, &periods(step, decay_steps).floor(), decay_rate))
}

/// `rate / (1 + decay_rate * step / decay_steps)`.
#[track_caller]
pub fn inverse_time_decay(rate: f64, step: &Output, decay_steps: i64, decay_rate: f64) -> Output {
    scoped(step, "InverseTimeDecay", || inverse(rate, &periods(step, decay_steps), decay_rate))
}

/// The same, falling once at the end of every period.
#[track_caller]
pub fn inverse_time_decay_staircase(rate: f64, step: &Output, decay_steps: i64, decay_rate: f64) -> Output {
    scoped(step, "InverseTimeDecay", || inverse(rate, &periods(step, decay_steps).floor(), decay_rate))
}

/// `values[0]` until step `boundaries[0]`, then `values[1]` until step `boundaries[1]`, and so on: one more value than
/// there are boundaries.
#[track_caller]
pub fn piecewise_constant(step: &Output, boundaries: &[i64], values: &[f64]) -> Output {
    let graph = step.graph();
    let [first, rest @ ..] = values else {
        graph.keep(tensor::invalid!("piecewise_constant: there are no values"));
        return Output::void(graph);
    };
    if rest.len() != boundaries.len() {
        graph.keep(tensor::invalid!(
            "The length of boundaries should be 1 less than the length of values, found {} and {}",
            boundaries.len(),
            values.len()
        ));
        return Output::void(graph);
    }
    scoped(step, "PiecewiseConstant", || {
        let step = step.cast::<i64>();
        boundaries.iter().zip(rest).fold(graph.constant(*first as f32), |before, (&boundary, &value)| {
            step.greater(boundary).select(&graph.constant(value as f32), &before)
        })
    })
}

/// How [`polynomial_decay`] goes: `Polynomial { power: 2.0, ..Polynomial::to(0.01) }`.
#[derive(Clone, Copy, Debug)]
pub struct Polynomial {
    /// The rate at the end.
    pub end: f64,
    /// 1 is a straight line.
    pub power: f64,
    /// Whether to start over, over a longer time, when the end is reached.
    pub cycle: bool,
}

impl Polynomial {
    /// A straight line to this rate.
    pub fn to(end: f64) -> Polynomial {
        Polynomial { end, power: 1.0, cycle: false }
    }
}

/// From `rate` to `how.end` in `decay_steps` steps: `(rate - end) * (1 - step / decay_steps) ^ power + end`.
#[track_caller]
pub fn polynomial_decay(rate: f64, step: &Output, decay_steps: i64, how: Polynomial) -> Output {
    scoped(step, "PolynomialDecay", || {
        let (step, steps) = (step.cast::<f32>(), step.graph().constant(decay_steps as f32));
        let (step, steps) = if how.cycle {
            // At step 0 the first cycle runs, though no part of one has passed.
            let cycles = step.equal(0.0).select(&step.ones_like(), &(&step / decay_steps).ceil());
            (step, steps * cycles)
        } else {
            (step.minimum(decay_steps), steps)
        };
        let left = 1.0 - step / steps;
        (rate - how.end) * left.pow(how.power) + how.end
    })
}

/// Along a cosine from `rate` to `alpha * rate` in `decay_steps` steps.
#[track_caller]
pub fn cosine_decay(rate: f64, step: &Output, decay_steps: i64, alpha: f64) -> Output {
    scoped(step, "CosineDecay", || {
        let passed = step.cast::<f32>().minimum(decay_steps) / decay_steps;
        rate * (cosine(&passed) * (1.0 - alpha) + alpha)
    })
}

/// How [`cosine_decay_restarts`] starts over.
#[derive(Clone, Copy, Debug)]
pub struct Restarts {
    /// How much longer each period is than the one before.
    pub longer: f64,
    /// How much each period's first rate is of that of the one before.
    pub lower: f64,
    /// The least rate, as a part of the first.
    pub alpha: f64,
}

impl Default for Restarts {
    fn default() -> Restarts {
        Restarts { longer: 2.0, lower: 1.0, alpha: 0.0 }
    }
}

/// Along a cosine in `first_decay_steps` steps, then over again in longer and lower periods.
#[track_caller]
pub fn cosine_decay_restarts(rate: f64, step: &Output, first_decay_steps: i64, how: Restarts) -> Output {
    scoped(step, "SGDRDecay", || {
        let passed = step.cast::<f32>() / first_decay_steps;
        let (restarts, passed) = if how.longer == 1.0 {
            let restarts = passed.floor();
            let passed = &passed - &restarts;
            (restarts, passed)
        } else {
            // The periods' lengths are a geometric series: its sum tells which one this step is in.
            let growth = how.longer;
            let inside = (1.0 - &passed * (1.0 - growth)).log() / growth.ln();
            let restarts = inside.floor();
            let ratio = step.graph().constant(growth as f32).pow(&restarts);
            let before = (1.0 - &ratio) / (1.0 - growth);
            (restarts, (&passed - before) / ratio)
        };
        let lower = step.graph().constant(how.lower as f32).pow(&restarts);
        rate * (lower * cosine(&passed) * (1.0 - how.alpha) + how.alpha)
    })
}

/// How [`linear_cosine_decay`] goes.
#[derive(Clone, Copy, Debug)]
pub struct LinearCosine {
    /// How many half waves there are.
    pub periods: f64,
    /// Added to the line.
    pub alpha: f64,
    /// Added at the end.
    pub beta: f64,
}

impl Default for LinearCosine {
    fn default() -> LinearCosine {
        LinearCosine { periods: 0.5, alpha: 0.0, beta: 0.001 }
    }
}

/// A line times a cosine, from `rate` in `decay_steps` steps.
#[track_caller]
pub fn linear_cosine_decay(rate: f64, step: &Output, decay_steps: i64, how: LinearCosine) -> Output {
    scoped(step, "LinearCosineDecay", || {
        let step = step.cast::<f32>().minimum(decay_steps);
        let line = (decay_steps as f64 - &step) / decay_steps;
        let wave = 0.5 * (1.0 + ((2.0 * how.periods) * std::f64::consts::PI * (step / decay_steps)).cos());
        rate * ((how.alpha + line) * wave + how.beta)
    })
}

#[track_caller]
fn periods(step: &Output, decay_steps: i64) -> Output {
    step.cast::<f32>() / decay_steps
}

#[track_caller]
fn exponential(rate: f64, periods: &Output, decay_rate: f64) -> Output {
    rate * periods.graph().constant(decay_rate as f32).pow(periods)
}

#[track_caller]
fn natural(rate: f64, periods: &Output, decay_rate: f64) -> Output {
    rate * (-decay_rate * periods).exp()
}

#[track_caller]
fn inverse(rate: f64, periods: &Output, decay_rate: f64) -> Output {
    rate / (1.0 + decay_rate * periods)
}

/// From 1 to 0 as `passed` goes from 0 to 1.
#[track_caller]
fn cosine(passed: &Output) -> Output {
    0.5 * (1.0 + (std::f64::consts::PI * passed).cos())
}

#[track_caller]
fn scoped(step: &Output, name: &str, build: impl FnOnce() -> Output) -> Output {
    let graph = step.graph().clone();
    graph.here(|| graph.name_scope(name, build))
}
