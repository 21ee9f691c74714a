//! `HistogramSummary`: how many values fall into each of some 1500 buckets that grow with the distance from zero.

use super::{serialized, single_tag};
use framework::typed::{RealKernel, wide_reals};
use framework::{KernelContext, Op, Real, shapes};
use proto::{HistogramProto, summary};
use std::sync::Arc;
use tensor::{Result, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("HistogramSummary")
            .input("tag: string")
            .input("values: T")
            .output("summary: string")
            .attr("T: realnumbertype = float")
            .shape(shapes::scalar)
            .not_differentiable()
            .kernel(wide_reals(|_| Ok(HistogramSummary { limits: bucket_limits().into() }))),
    ]
}

struct HistogramSummary {
    limits: Arc<[f64]>,
}

impl RealKernel for HistogramSummary {
    fn compute<T: Real>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let tag = single_tag(ctx.input(0))?;
        let values = ctx.input(1).as_slice::<T>()?;
        let mut histogram = Histogram::new(&self.limits);
        for value in values {
            let value = value.to_f64();
            if !value.is_finite() {
                let what = if value.is_nan() { "Nan" } else { "Infinity" };
                return Err(invalid!("{what} in summary histogram for: {}", ctx.node().name));
            }
            histogram.add(value);
        }
        let value = Some(summary::value::Value::Histo(histogram.message()));
        ctx.set_output(0, serialized(vec![summary::Value { tag, value, ..Default::default() }]))
    }
}

/// The upper ends of the buckets: a tenth larger each, from 1e-12 to 1e20 on both sides of zero, then the largest
/// number there is.
fn bucket_limits() -> Vec<f64> {
    let mut positive = Vec::new();
    let mut limit = 1e-12;
    while limit < 1e20 {
        positive.push(limit);
        limit *= 1.1;
    }
    positive.push(f64::MAX);
    let mut limits: Vec<f64> = positive.iter().rev().map(|l| -l).collect();
    limits.push(0.0);
    limits.extend(positive);
    limits
}

struct Histogram<'a> {
    limits: &'a [f64],
    counts: Vec<f64>,
    min: f64,
    max: f64,
    num: f64,
    sum: f64,
    sum_squares: f64,
}

impl Histogram<'_> {
    fn new(limits: &[f64]) -> Histogram<'_> {
        let counts = vec![0.0; limits.len()];
        Histogram { limits, counts, min: f64::MAX, max: -f64::MAX, num: 0.0, sum: 0.0, sum_squares: 0.0 }
    }

    fn add(&mut self, value: f64) {
        let bucket = self.limits.partition_point(|&limit| limit <= value).min(self.limits.len() - 1);
        self.counts[bucket] += 1.0;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.num += 1.0;
        self.sum += value;
        self.sum_squares += value * value;
    }

    /// The message, in which empty buckets next to each other are one.
    fn message(&self) -> HistogramProto {
        let (mut bucket_limit, mut bucket) = (Vec::new(), Vec::new());
        let mut was_empty = false;
        for (&limit, &count) in self.limits.iter().zip(&self.counts) {
            if count <= 0.0 && was_empty {
                bucket_limit.pop();
                bucket.pop();
            }
            bucket_limit.push(limit);
            bucket.push(count);
            was_empty = count <= 0.0;
        }
        HistogramProto {
            min: self.min,
            max: self.max,
            num: self.num,
            sum: self.sum,
            sum_squares: self.sum_squares,
            bucket_limit,
            bucket,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_and_empty_buckets_joined() {
        let limits = bucket_limits();
        let mut histogram = Histogram::new(&limits);
        [-1.0, 0.0, 1.0, 1.0].into_iter().for_each(|v| histogram.add(v));
        let message = histogram.message();
        assert_eq!((message.min, message.max, message.num, message.sum), (-1.0, 1.0, 4.0, 1.0));
        assert_eq!(message.bucket, [0.0, 1.0, 0.0, 1.0, 0.0, 2.0, 0.0]);
        assert_eq!(message.bucket_limit.last(), Some(&f64::MAX));
        assert!(message.bucket_limit.windows(2).all(|w| w[0] < w[1]));
    }
}
