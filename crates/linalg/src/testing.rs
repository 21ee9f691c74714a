//! Random input for tests, from seeds that failing assertions print.

use crate::number::Number;

/// A generator good enough to test with (splitmix64).
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Numbers {
        Numbers(seed)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.bits() % bound as u64) as usize
    }

    /// Between -1 and 1 for floats, small whole numbers for integers.
    pub(crate) fn number<T: Number>(&mut self) -> T {
        let unit = (self.bits() >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0;
        if T::from_f64(0.5) == T::ZERO { T::from_i64((unit * 100.0) as i64) } else { T::from_f64(unit) }
    }

    pub(crate) fn vec<T: Number>(&mut self, len: usize) -> Vec<T> {
        (0..len).map(|_| self.number()).collect()
    }
}

/// Seeds for the cases of a test, always the same.
pub(crate) fn seeds() -> impl Iterator<Item = u64> {
    (1..).map(|n: u64| n * 1000 + 7)
}
