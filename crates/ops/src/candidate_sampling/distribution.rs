//! Distributions over classes: how one is drawn, and how likely each is.

use linalg::random::Words;

/// A way to draw classes from `0..range`.
pub(super) enum Distribution {
    /// All equally likely.
    Uniform { range: u64 },
    /// Class c as likely as log((c + 2) / (c + 1)): right for classes in the order of falling frequency.
    LogUniform { range: u64, log_range: f64 },
    /// Each with its own weight.
    Weighted(Weights),
}

/// Classes with weights, arranged so that drawing one takes constant time (Vose's alias method).
pub(super) struct Weights {
    weights: Vec<f32>,
    total: f32,
    /// For each slot the probability that its own class is drawn, and the class that is drawn otherwise.
    slots: Vec<(f32, usize)>,
}

impl Distribution {
    pub(super) fn uniform(range: u64) -> Distribution {
        Distribution::Uniform { range }
    }

    pub(super) fn log_uniform(range: u64) -> Distribution {
        Distribution::LogUniform { range, log_range: (range as f64).ln_1p() }
    }

    /// How many classes can be drawn at all.
    pub(super) fn possible(&self) -> u64 {
        match self {
            Distribution::Uniform { range } | Distribution::LogUniform { range, .. } => *range,
            Distribution::Weighted(w) => w.weights.iter().filter(|w| **w > 0.0).count() as u64,
        }
    }

    pub(super) fn draw(&self, words: &mut Words) -> i64 {
        match self {
            Distribution::Uniform { range } => below_u64(words, *range) as i64,
            Distribution::LogUniform { range, log_range } => {
                let value = (words.next_f64() * log_range).exp() as i64 - 1;
                value % *range as i64
            }
            Distribution::Weighted(w) => {
                let chance = words.next_f32();
                let slot = below_u32(words, w.slots.len() as u32) as usize;
                let (own, other) = w.slots[slot];
                if chance < own { slot as i64 } else { other as i64 }
            }
        }
    }

    pub(super) fn probability(&self, class: i64) -> f32 {
        match self {
            Distribution::Uniform { range } => 1.0 / *range as f32,
            Distribution::LogUniform { log_range, .. } => {
                (((class as f64 + 2.0) / (class as f64 + 1.0)).ln() / log_range) as f32
            }
            Distribution::Weighted(w) => {
                usize::try_from(class).ok().and_then(|c| w.weights.get(c)).map_or(0.0, |weight| weight / w.total)
            }
        }
    }
}

impl Weights {
    pub(super) fn new(weights: Vec<f32>) -> Weights {
        let count = weights.len();
        let sum: f64 = weights.iter().map(|&w| f64::from(w)).sum();
        let mut share: Vec<f64> = weights.iter().map(|&w| f64::from(w * count as f32) / sum).collect();
        let (mut low, mut high): (Vec<usize>, Vec<usize>) = (0..count).partition(|&i| share[i] < 1.0);
        let mut other: Vec<usize> = (0..count).collect();
        // Each slot that falls short of its share of one is filled up from one that has more.
        while let (Some(&small), Some(&large)) = (low.last(), high.last()) {
            low.pop();
            high.pop();
            other[small] = large;
            share[large] -= 1.0 - share[small];
            if share[large] < 1.0 { low.push(large) } else { high.push(large) }
        }
        // What is left differs from one by rounding only.
        for i in low.into_iter().chain(high) {
            share[i] = 1.0;
        }
        let total = weights.iter().sum();
        let slots = share.into_iter().map(|p| p as f32).zip(other).collect();
        Weights { weights, total, slots }
    }

    pub(super) fn len(&self) -> usize {
        self.weights.len()
    }
}

/// A whole number below `n`, all equally likely: words that would favour small ones are drawn again.
fn below_u32(words: &mut Words, n: u32) -> u32 {
    if n.is_power_of_two() {
        return words.next_word() & (n - 1);
    }
    let uneven = (u32::MAX % n.max(1)) + 1;
    loop {
        let word = words.next_word();
        if word >= uneven {
            return word % n.max(1);
        }
    }
}

/// The same, of two words.
fn below_u64(words: &mut Words, n: u64) -> u64 {
    let mut next = || u64::from(words.next_word()) | u64::from(words.next_word()) << 32;
    if n.is_power_of_two() {
        return next() & (n - 1);
    }
    let uneven = (u64::MAX % n.max(1)) + 1;
    loop {
        let word = next();
        if word >= uneven {
            return word % n.max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linalg::random::Philox;

    #[test]
    fn classes_are_drawn_as_often_as_they_are_likely() {
        let weights = Weights::new(vec![1.0, 0.0, 2.0, 5.0]);
        for distribution in [Distribution::uniform(4), Distribution::log_uniform(4), Distribution::Weighted(weights)] {
            let mut words = Philox::new(1, 2).words();
            let mut counts = [0u32; 4];
            for _ in 0..40_000 {
                counts[distribution.draw(&mut words) as usize] += 1;
            }
            for (class, count) in counts.into_iter().enumerate() {
                let (found, wanted) = (count as f32 / 40_000.0, distribution.probability(class as i64));
                assert!((found - wanted).abs() < 0.01, "class {class}: drawn {found}, likely {wanted}");
            }
        }
    }
}
