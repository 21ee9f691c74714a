//! Random numbers from the counter-based generator Philox4x32-10, in the streams TensorFlow's seeded ops draw.
//!
//! A stream is a key and a 128-bit counter; every counter value gives four 32-bit words, so any place of the stream
//! is reached at once and a fill does not depend on how many threads share it. How words become numbers, and how many
//! words a number uses, was learned from TensorFlow's outputs (the tests hold some of them).

use crate::elementwise::log_one;
use crate::number::Number;
use crate::parallel::Pool;
use crate::simd::{fma, vectorized};
use half::{bf16, f16};

/// A place in a stream of random words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Philox {
    key: [u32; 2],
    counter: [u32; 4],
}

impl Philox {
    /// The stream that an op with these two seed attributes draws from.
    pub fn new(seed: u64, seed2: u64) -> Philox {
        Philox { key: [seed as u32, (seed >> 32) as u32], counter: [0, 0, seed2 as u32, (seed2 >> 32) as u32] }
    }

    /// The stream of a stateless op with this pair of seeds, which are scrambled first.
    pub fn stateless(seed: [i64; 2]) -> Philox {
        let words = [seed[0] as u32, (seed[0] >> 32) as u32, seed[1] as u32, (seed[1] >> 32) as u32];
        let mixed = Philox { key: [0x3ec8_f720, 0x0246_1e29], counter: words }.block();
        Philox { key: [mixed[0], mixed[1]], counter: [0, 0, mixed[2], mixed[3]] }
    }

    /// A stream at a place given outright.
    pub fn from_parts(key: [u32; 2], counter: [u32; 4]) -> Philox {
        Philox { key, counter }
    }

    /// The key and the counter.
    pub fn parts(&self) -> ([u32; 2], [u32; 4]) {
        (self.key, self.counter)
    }

    /// Moves on by this many counter values, of four words each.
    pub fn skip(&mut self, count: u64) {
        let [a, b, c, d] = self.counter.map(u128::from);
        let counter = (a | b << 32 | c << 64 | d << 96).wrapping_add(count.into());
        self.counter = [counter as u32, (counter >> 32) as u32, (counter >> 64) as u32, (counter >> 96) as u32];
    }

    /// The stream from here, for an op that fills `outputs` numbers; moves on past all it may use.
    pub fn reserve_outputs(&mut self, outputs: u64) -> Philox {
        self.reserve_blocks(outputs.wrapping_mul(WORDS_PER_OUTPUT))
    }

    /// The stream from here; moves on by as many counter values as give this many words.
    pub fn reserve_words(&mut self, words: u64) -> Philox {
        self.reserve_blocks(words.div_ceil(4))
    }

    /// The stream from here; moves on by this many counter values.
    pub fn reserve_blocks(&mut self, blocks: u64) -> Philox {
        let here = *self;
        self.skip(blocks);
        here
    }

    /// The next four words; moves on by one counter value.
    pub fn next_block(&mut self) -> [u32; 4] {
        let block = self.block();
        self.skip(1);
        block
    }

    /// The words of the stream one by one.
    pub fn words(self) -> Words {
        Words { philox: self, block: [0; 4], used: 4 }
    }

    /// The four words of this place.
    pub fn block(&self) -> [u32; 4] {
        let (mut c, mut k) = (self.counter, self.key);
        for _ in 0..ROUNDS {
            let (p, q) = (u64::from(c[0]) * u64::from(MULTIPLIER[0]), u64::from(c[2]) * u64::from(MULTIPLIER[1]));
            c = [(q >> 32) as u32 ^ c[1] ^ k[0], q as u32, (p >> 32) as u32 ^ c[3] ^ k[1], p as u32];
            k = [k[0].wrapping_add(KEY_STEP[0]), k[1].wrapping_add(KEY_STEP[1])];
        }
        c
    }

    fn at(mut self, blocks: u64) -> Philox {
        self.skip(blocks);
        self
    }
}

/// How far the stream moves for every number an op makes, whatever the number used; in counter values.
const WORDS_PER_OUTPUT: u64 = 256;
const ROUNDS: usize = 10;
const MULTIPLIER: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const KEY_STEP: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];

/// A stream read word by word.
#[derive(Clone, Debug)]
pub struct Words {
    philox: Philox,
    block: [u32; 4],
    used: usize,
}

impl Words {
    /// The next word.
    pub fn next_word(&mut self) -> u32 {
        if self.used == 4 {
            self.block = self.philox.next_block();
            self.used = 0;
        }
        self.used += 1;
        self.block[self.used - 1]
    }

    /// A number from 0 up to 1, of one word.
    pub fn next_f32(&mut self) -> f32 {
        unit_f32(self.next_word())
    }

    /// A number from 0 up to 1, of two words.
    pub fn next_f64(&mut self) -> f64 {
        let high = self.next_word();
        unit_f64(high, self.next_word())
    }
}

impl Iterator for Words {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        Some(self.next_word())
    }
}

/// A floating-point type that TensorFlow's random ops make.
pub trait RandomFloat: Number {
    /// How many numbers four words make.
    const GROUP: usize;
    /// Fills with numbers from 0 up to 1, from the counter value of the slice's first group on.
    fn uniform(philox: Philox, out: &mut [Self]);
    /// Fills with numbers of the standard normal distribution, from the counter value of the first group on.
    fn normal(philox: Philox, out: &mut [Self]);
    /// Fills with normal numbers between -2 and 2; the group `n` begins `n * GROUP * 64` counter values on.
    fn truncated_normal(philox: Philox, out: &mut [Self]);
}

/// Fills with numbers from 0 up to 1, in parallel.
pub fn fill_uniform<T: RandomFloat>(pool: &Pool, philox: Philox, out: &mut [T]) {
    for_each_group(pool, T::GROUP, out, &|group, part| T::uniform(philox.at(group), part));
}

/// Fills with numbers of the standard normal distribution, in parallel.
pub fn fill_normal<T: RandomFloat>(pool: &Pool, philox: Philox, out: &mut [T]) {
    for_each_group(pool, T::GROUP, out, &|group, part| T::normal(philox.at(group), part));
}

/// Fills with numbers of the normal distribution, those beyond two deviations drawn again, in parallel.
pub fn fill_truncated_normal<T: RandomFloat>(pool: &Pool, philox: Philox, out: &mut [T]) {
    let step = T::GROUP as u64 * WORDS_PER_OUTPUT / 4;
    for_each_group(pool, T::GROUP, out, &|group, part| T::truncated_normal(philox.at(group * step), part));
}

/// Fills with whole numbers from `low` up to, not including, `high`, in parallel; panics unless there are any.
pub fn fill_uniform_i32(pool: &Pool, philox: Philox, low: i32, high: i32, out: &mut [i32]) {
    assert!(low < high, "no number from {low} up to {high}");
    let range = (high as u32).wrapping_sub(low as u32);
    for_each_group(pool, 4, out, &|group, part| {
        let mut words = philox.at(group).words();
        for to in part {
            *to = low.wrapping_add((words.next_word() % range) as i32);
        }
    });
}

/// Fills with whole numbers from `low` up to, not including, `high`, in parallel; panics unless there are any.
pub fn fill_uniform_i64(pool: &Pool, philox: Philox, low: i64, high: i64, out: &mut [i64]) {
    assert!(low < high, "no number from {low} up to {high}");
    let range = (high as u64).wrapping_sub(low as u64);
    for_each_group(pool, 2, out, &|group, part| {
        let mut words = philox.at(group).words();
        for to in part {
            let bits = u64::from(words.next_word()) | u64::from(words.next_word()) << 32;
            *to = low.wrapping_add((bits % range) as i64);
        }
    });
}

/// Fills with raw words, in parallel.
pub fn fill_u32(pool: &Pool, philox: Philox, out: &mut [u32]) {
    for_each_group(pool, 4, out, &|group, part| {
        for (to, word) in part.iter_mut().zip(philox.at(group).words()) {
            *to = word;
        }
    });
}

/// Shuffles in place as TensorFlow's RandomShuffle does; the stream is one `reserve_words(len - 1)`.
pub fn shuffle<T>(philox: Philox, data: &mut [T]) {
    let mut words = philox.words();
    for i in 0..data.len().saturating_sub(1) {
        let rest = (data.len() - i) as u32;
        data.swap(i, i + (words.next_word() % rest) as usize);
    }
}

fn for_each_group<T: Send>(pool: &Pool, group: usize, out: &mut [T], body: &(dyn Fn(u64, &mut [T]) + Sync)) {
    let len = out.len();
    let out = crate::parallel::SharedMut::new(out);
    pool.for_each(len.div_ceil(group * LANES), 8, &|range| {
        let elements = range.start * group * LANES..(range.end * group * LANES).min(len);
        // SAFETY: disjoint ranges of groups are disjoint ranges of elements.
        body((range.start * LANES) as u64, unsafe { out.slice(elements) });
    });
}

/// The mantissa of a number between one and two, less one.
#[inline(always)]
fn unit_f32(word: u32) -> f32 {
    f32::from_bits(0x3f80_0000 | word & 0x007f_ffff) - 1.0
}

#[inline(always)]
fn unit_f64(high: u32, low: u32) -> f64 {
    f64::from_bits(0x3ff << 52 | u64::from(high & 0x000f_ffff) << 32 | u64::from(low)) - 1.0
}

#[inline(always)]
fn unit_f16(word: u32) -> f16 {
    f16::from_f32(f16::from_bits(0x3c00 | word as u16 & 0x03ff).to_f32() - 1.0)
}

#[inline(always)]
fn unit_bf16(word: u32) -> bf16 {
    bf16::from_f32(bf16::from_bits(0x3f80 | word as u16 & 0x007f).to_f32() - 1.0)
}

/// Two independent normal numbers from two words (Box and Muller).
#[inline(always)]
fn pair_f32<const FMA: bool>(x: u32, y: u32) -> (f32, f32) {
    let u = unit_f32(x);
    // Not zero, whose logarithm is infinite.
    let u = if u < 1.0e-7 { 1.0e-7 } else { u };
    // The angle is rounded once, from double precision, as TensorFlow's is.
    let (sin, cos) = sin_cos::<FMA>((std::f64::consts::TAU * f64::from(unit_f32(y))) as f32);
    let radius = (-2.0 * log_one::<FMA>(u)).sqrt();
    (sin * radius, cos * radius)
}

/// Sine and cosine of an angle between zero and 2π.
#[inline(always)]
fn sin_cos<const FMA: bool>(angle: f32) -> (f32, f32) {
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds to a whole number
    let shifted = fma::<FMA>(angle, std::f32::consts::FRAC_2_PI, ROUND);
    let (quadrant, n) = (shifted.to_bits(), shifted - ROUND);
    // π/2 in three parts, the first two with few bits: n times them is exact, so angles near a zero keep their digits.
    let r = angle - n * 1.570_312_5;
    let r = r - n * 4.837_513e-4;
    let r = fma::<FMA>(n, -7.549_79e-8, r);
    let z = r * r;
    let s = fma::<FMA>(z, -1.951_529_6e-4, 8.332_161e-3);
    let s = fma::<FMA>(s, z, -1.666_665_5e-1);
    let s = fma::<FMA>(s * z, r, r);
    let c = fma::<FMA>(z, 2.443_315_7e-5, -1.388_731_6e-3);
    let c = fma::<FMA>(c, z, 4.166_664_6e-2);
    let c = fma::<FMA>(c * z, z, fma::<FMA>(z, -0.5, 1.0));
    let (sin, cos) = if quadrant & 1 == 0 { (s, c) } else { (c, s) };
    let sin = f32::from_bits(sin.to_bits() ^ (quadrant & 2) << 30);
    let cos = f32::from_bits(cos.to_bits() ^ (quadrant.wrapping_add(1) & 2) << 30);
    (sin, cos)
}

fn pair_f64(words: [u32; 4]) -> [f64; 2] {
    let u = unit_f64(words[0], words[1]).max(1.0e-7);
    let (sin, cos) = (2.0 * std::f64::consts::PI * unit_f64(words[2], words[3])).sin_cos();
    let radius = (-2.0 * u.ln()).sqrt();
    [sin * radius, cos * radius]
}

/// Counter values worked on at once: enough for loops that the compiler turns into vectors.
const LANES: usize = 64;

/// The words of `LANES` counter values that lie `step` apart, word by word; written in place, since so many are copied as
/// slowly as they are made.
#[inline(always)]
fn blocks<const FMA: bool>(philox: &Philox, step: u64, c: &mut [[u32; LANES]; 4]) {
    let near = place(philox, step, c);
    #[cfg(target_arch = "x86_64")]
    if crate::simd::has_avx512() {
        // SAFETY: the machine has AVX-512.
        return unsafe { avx512::rounds(philox, near, c) };
    }
    #[cfg(target_arch = "x86_64")]
    if FMA {
        // SAFETY: the constant says that the machine has AVX2.
        return unsafe { avx2::rounds(philox, near, c) };
    }
    plain_rounds(philox, near, c);
}

/// The step, if no counter's first word overflows; else the other words differ as well, and all are written down.
#[inline(always)]
fn place(philox: &Philox, step: u64, c: &mut [[u32; LANES]; 4]) -> Option<u32> {
    let near = philox.counter[0].checked_add((LANES as u64 * step) as u32).map(|_| step as u32);
    if near.is_none() {
        for lane in 0..LANES {
            let at = philox.at(lane as u64 * step).counter;
            for word in 0..4 {
                c[word][lane] = at[word];
            }
        }
    }
    near
}

/// As the `rounds!` of vectors, on every machine.
#[inline(always)]
fn plain_rounds(philox: &Philox, near: Option<u32>, c: &mut [[u32; LANES]; 4]) {
    if let Some(step) = near {
        for lane in 0..LANES {
            c[0][lane] = philox.counter[0] + lane as u32 * step;
            for word in 1..4 {
                c[word][lane] = philox.counter[word];
            }
        }
    }
    let mut k = philox.key;
    for _ in 0..ROUNDS {
        let mut next = [[0u32; LANES]; 4];
        for lane in 0..LANES {
            let p = u64::from(c[0][lane]) * u64::from(MULTIPLIER[0]);
            let q = u64::from(c[2][lane]) * u64::from(MULTIPLIER[1]);
            next[0][lane] = (q >> 32) as u32 ^ c[1][lane] ^ k[0];
            next[1][lane] = q as u32;
            next[2][lane] = (p >> 32) as u32 ^ c[3][lane] ^ k[1];
            next[3][lane] = p as u32;
        }
        *c = next;
        k = [k[0].wrapping_add(KEY_STEP[0]), k[1].wrapping_add(KEY_STEP[1])];
    }
}

/// Turns counters into words, a vector of them at once. The counters lie `near` one another, a step apart from the stream's
/// place on, or stand where the words go.
///
/// The instruction that multiplies does so with every second lane, and does not look at the others. So the even and the odd
/// lanes go their own ways until the end, with anything at all in between.
#[cfg(target_arch = "x86_64")]
macro_rules! rounds {
    (
        $feature:literal, $vector:ident, $width:literal,
        $load:ident, $store:ident, $all:ident, $add:ident, $mul:ident, $high:ident, $low:ident, $xor3:expr, $interleave:expr
    ) => {
        use super::{KEY_STEP, LANES, MULTIPLIER, Philox, ROUNDS};
        use std::arch::x86_64::*;

        #[target_feature(enable = $feature)]
        pub(super) fn rounds(philox: &Philox, near: Option<u32>, words: &mut [[u32; LANES]; 4]) {
            let multiplier = MULTIPLIER.map(|m| $all(m as i32));
            let keys: [_; ROUNDS] = std::array::from_fn(|round| {
                let key = |i: usize| philox.key[i].wrapping_add(KEY_STEP[i].wrapping_mul(round as u32));
                [$all(key(0) as i32), $all(key(1) as i32)]
            });
            let round = |c: [$vector; 4], keys: &[$vector; 2]| {
                let (p, q) = ($mul(c[0], multiplier[0]), $mul(c[2], multiplier[1]));
                [$xor3($high::<32>(q), c[1], keys[0]), q, $xor3($high::<32>(p), c[3], keys[1]), p]
            };
            let mut counters = philox.counter.map(|word| $all(word as i32));
            let steps: [u32; $width] = std::array::from_fn(|lane| lane as u32 * near.unwrap_or(0));
            // SAFETY: there are so many steps.
            counters[0] = $add(counters[0], unsafe { $load(steps.as_ptr().cast()) });
            let next = $all((near.unwrap_or(0) * $width) as i32);
            for lane in (0..LANES).step_by($width) {
                let c = match near {
                    Some(_) => counters,
                    // SAFETY: as many words as a vector has, from a multiple of them on, lie within a row.
                    None => [0, 1, 2, 3].map(|i: usize| unsafe { $load(words[i][lane..].as_ptr().cast()) }),
                };
                let (mut even, mut odd) = (c, c.map(|c| $high::<32>(c)));
                for keys in &keys {
                    (even, odd) = (round(even, keys), round(odd, keys));
                }
                for (words, (even, odd)) in words.iter_mut().zip(even.into_iter().zip(odd)) {
                    let both = $interleave(even, $low::<32>(odd));
                    // SAFETY: as above.
                    unsafe { $store(words[lane..].as_mut_ptr().cast(), both) };
                }
                counters[0] = $add(counters[0], next);
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    rounds! {
        "avx2", __m256i, 8,
        _mm256_loadu_si256, _mm256_storeu_si256, _mm256_set1_epi32, _mm256_add_epi32, _mm256_mul_epu32, _mm256_srli_epi64,
        _mm256_slli_epi64, |a, b, c| _mm256_xor_si256(_mm256_xor_si256(a, b), c), _mm256_blend_epi32::<0xaa>
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    rounds! {
        "avx512f", __m512i, 16,
        _mm512_loadu_si512, _mm512_storeu_si512, _mm512_set1_epi32, _mm512_add_epi32, _mm512_mul_epu32, _mm512_srli_epi64,
        _mm512_slli_epi64, _mm512_ternarylogic_epi32::<0x96>, |even, odd| _mm512_mask_blend_epi32(0xaaaa, even, odd)
    }
}

/// Converts numbers given word by word, and writes them group by group.
#[inline(always)]
fn write_groups<S: Copy, T: Copy>(values: &[[S; LANES]; 4], out: &mut [T], convert: impl Fn(S) -> T) {
    let [a, b, c, d] = values;
    let (groups, rest) = out.as_chunks_mut::<4>();
    let whole = groups.len();
    for ((((to, a), b), c), d) in groups.iter_mut().zip(a).zip(b).zip(c).zip(d) {
        *to = [convert(*a), convert(*b), convert(*c), convert(*d)];
    }
    for (i, to) in rest.iter_mut().enumerate() {
        *to = convert(values[i][whole]);
    }
}

/// `LANES` groups of four normal numbers.
#[inline(always)]
fn normals<const FMA: bool>(words: &[[u32; LANES]; 4]) -> [[f32; LANES]; 4] {
    let mut values = [[0.0; LANES]; 4];
    let [a, b, c, d] = &mut values;
    for i in 0..LANES {
        (a[i], b[i]) = pair_f32::<FMA>(words[0][i], words[1][i]);
    }
    for i in 0..LANES {
        (c[i], d[i]) = pair_f32::<FMA>(words[2][i], words[3][i]);
    }
    values
}

vectorized! {
    fn uniform_words[T, F][T: Copy, F: Fn(u32) -> T](philox: Philox, out: &mut [T], convert: F) = uniform_body;
}
vectorized! {
    fn normal_words[T, F][T: Copy, F: Fn(f32) -> T](philox: Philox, out: &mut [T], convert: F) = normal_body;
}
vectorized! {
    fn truncated_words[T, F][T: Copy, F: Fn(f32) -> T](philox: Philox, out: &mut [T], convert: F) = truncated_body;
}

#[inline(always)]
fn uniform_body<T: Copy, F: Fn(u32) -> T, const FMA: bool>(mut philox: Philox, out: &mut [T], convert: F) {
    let mut words = [[0; LANES]; 4];
    for out in out.chunks_mut(4 * LANES) {
        blocks::<FMA>(&philox, 1, &mut words);
        write_groups(&words, out, &convert);
        philox.skip(LANES as u64);
    }
}

#[inline(always)]
fn normal_body<T: Copy, F: Fn(f32) -> T, const FMA: bool>(mut philox: Philox, out: &mut [T], convert: F) {
    let mut words = [[0; LANES]; 4];
    for out in out.chunks_mut(4 * LANES) {
        blocks::<FMA>(&philox, 1, &mut words);
        write_groups(&normals::<FMA>(&words), out, &convert);
        philox.skip(LANES as u64);
    }
}

#[inline(always)]
fn truncated_body<T: Copy, F: Fn(f32) -> T, const FMA: bool>(mut philox: Philox, out: &mut [T], convert: F) {
    let mut words = [[0; LANES]; 4];
    for out in out.chunks_mut(4 * LANES) {
        blocks::<FMA>(&philox, WORDS_PER_OUTPUT, &mut words);
        let first = normals::<FMA>(&words);
        for (lane, out) in out.chunks_mut(4).enumerate() {
            let group = [first[0][lane], first[1][lane], first[2][lane], first[3][lane]];
            let group = if group.iter().all(|x| x.abs() < 2.0) {
                group
            } else {
                redraw::<FMA>(philox.at(lane as u64 * WORDS_PER_OUTPUT))
            };
            for (to, x) in out.iter_mut().zip(group) {
                *to = convert(x);
            }
        }
        philox.skip(LANES as u64 * WORDS_PER_OUTPUT);
    }
}

/// Four normal numbers within two deviations, drawn until there are enough.
#[inline(never)]
fn redraw<const FMA: bool>(philox: Philox) -> [f32; 4] {
    let (mut words, mut kept, mut count) = (philox.words(), [0.0; 4], 0);
    loop {
        let x = words.next_word();
        let (a, b) = pair_f32::<FMA>(x, words.next_word());
        for value in [a, b] {
            if value.abs() < 2.0 {
                kept[count] = value;
                count += 1;
                if count == 4 {
                    return kept;
                }
            }
        }
    }
}

macro_rules! by_words {
    ($($t:ty, $unit:expr, $convert:expr;)*) => {$(
        impl RandomFloat for $t {
            const GROUP: usize = 4;
            fn uniform(philox: Philox, out: &mut [Self]) {
                uniform_words(philox, out, $unit);
            }
            fn normal(philox: Philox, out: &mut [Self]) {
                normal_words(philox, out, $convert);
            }
            fn truncated_normal(philox: Philox, out: &mut [Self]) {
                truncated_words(philox, out, $convert);
            }
        }
    )*};
}

by_words! {
    f32, unit_f32, std::convert::identity;
    f16, unit_f16, f16::from_f32;
    bf16, unit_bf16, bf16::from_f32;
}

impl RandomFloat for f64 {
    const GROUP: usize = 2;

    fn uniform(mut philox: Philox, out: &mut [f64]) {
        for out in out.chunks_mut(2) {
            let words = philox.next_block();
            for (to, pair) in out.iter_mut().zip(words.chunks_exact(2)) {
                *to = unit_f64(pair[0], pair[1]);
            }
        }
    }

    fn normal(mut philox: Philox, out: &mut [f64]) {
        for out in out.chunks_mut(2) {
            let pair = pair_f64(philox.next_block());
            out.copy_from_slice(&pair[..out.len()]);
        }
    }

    fn truncated_normal(mut philox: Philox, out: &mut [f64]) {
        for out in out.chunks_mut(2) {
            let (mut group, mut count) = (philox, 0);
            let mut kept = [0.0; 2];
            while count < 2 {
                for value in pair_f64(group.next_block()) {
                    if value.abs() < 2.0 && count < 2 {
                        kept[count] = value;
                        count += 1;
                    }
                }
            }
            out.copy_from_slice(&kept[..out.len()]);
            philox.skip(WORDS_PER_OUTPUT / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares two runs of one op, seeds 87654321 and 5, with TensorFlow's numbers.
    #[track_caller]
    fn check<T: RandomFloat>(fill: fn(&Pool, Philox, &mut [T]), tolerance: f64, first: &[f64], second: &[f64]) {
        let pool = Pool::inline();
        let mut stream = Philox::new(87_654_321, 5);
        for want in [first, second] {
            let mut out = vec![T::ZERO; want.len()];
            fill(&pool, stream.reserve_outputs(want.len() as u64), &mut out);
            for (got, want) in out.iter().zip(want) {
                assert!((got.to_f64() - want).abs() <= tolerance * want.abs(), "{got} is not {want}");
            }
        }
    }

    #[test]
    fn short_streams_are_those_of_tensorflow() {
        check::<f32>(fill_uniform, 2e-7, &[0.38831127, 0.6636828, 0.19191074], &[0.052741528, 0.0710547, 0.80581987]);
        check::<f64>(
            fill_uniform,
            1e-15,
            &[0.10649075668991137, 0.5352865750082818, 0.7054680331168384],
            &[0.4219329451602971, 0.4465596235137119, 0.2907530296618206],
        );
        check::<f16>(fill_uniform, 1e-7, &[0.045898438, 0.88964844, 0.1328125], &[0.05859375, 0.080078125, 0.2763672]);
        check::<bf16>(fill_uniform, 1e-7, &[0.3671875, 0.1171875, 0.0625], &[0.46875, 0.640625, 0.2109375]);
        check::<f32>(fill_normal, 1e-6, &[-1.1780828, -0.7099414, -1.748158], &[1.0473957, 2.1880736, 0.55879724]);
        check::<f64>(
            fill_normal,
            1e-13,
            &[-0.46540936664254984, -2.0646521014272525, -0.7490927202357748],
            &[0.4328676888372711, -1.2403399995779065, -1.0192750789479164],
        );
        check::<f16>(fill_normal, 1e-3, &[-1.1777344, -0.70996094, -1.7480469], &[1.0478516, 2.1875, 0.55859375]);
        check::<bf16>(fill_normal, 8e-3, &[-1.1796875, -0.7109375, -1.75], &[1.046875, 2.1875, 0.55859375]);
        check::<f32>(
            fill_truncated_normal,
            1e-6,
            &[-1.1780828, -0.7099414, -1.748158],
            &[1.0473957, 0.55879724, -0.34573942],
        );
        check::<f64>(
            fill_truncated_normal,
            1e-13,
            &[-0.46540936664254984, -0.7490927202357748, -0.49661495908212616],
            &[0.4328676888372711, -1.2403399995779065, 0.6318399708456744],
        );
        check::<f16>(
            fill_truncated_normal,
            1e-3,
            &[-1.1777344, -0.70996094, -1.7480469],
            &[1.0478516, 0.55859375, -0.34570312],
        );
        check::<bf16>(
            fill_truncated_normal,
            8e-3,
            &[-1.1796875, -0.7109375, -1.75],
            &[1.046875, 0.55859375, -0.34570312],
        );
        check::<f32>(
            fill_uniform,
            2e-7,
            &[0.38831127, 0.6636828, 0.19191074, 0.70605266, 0.9631834, 0.32628322],
            &[0.3939141, 0.17481244, 0.04366064, 0.60109115, 0.17595041, 0.076981425],
        );
        check::<f64>(
            fill_uniform,
            1e-15,
            &[
                0.10649075668991137,
                0.5352865750082818,
                0.7054680331168384,
                0.6770410754680747,
                0.06823822776504307,
                0.5746246957179197,
            ],
            &[
                0.1513131618030601,
                0.3492853689959108,
                0.4076034856531423,
                0.3236218879391073,
                0.04218509822424865,
                0.623753528013165,
            ],
        );
        check::<f16>(
            fill_uniform,
            1e-7,
            &[0.045898438, 0.88964844, 0.1328125, 0.98339844, 0.3984375, 0.9121094],
            &[0.94433594, 0.06347656, 0.66796875, 0.13867188, 0.3857422, 0.63183594],
        );
        check::<bf16>(
            fill_uniform,
            1e-7,
            &[0.3671875, 0.1171875, 0.0625, 0.8671875, 0.1875, 0.296875],
            &[0.5546875, 0.5078125, 0.34375, 0.109375, 0.0859375, 0.0546875],
        );
        check::<f32>(
            fill_normal,
            1e-6,
            &[-1.1780828, -0.7099414, -1.748158, -0.49537227, 0.24303888, -0.12631302],
            &[1.2154992, 0.62113327, -1.484791, -2.0144508, 0.8669252, 1.6503173],
        );
        check::<f64>(
            fill_normal,
            1e-13,
            &[
                -0.46540936664254984,
                -2.0646521014272525,
                -0.7490927202357748,
                -0.36965894530492355,
                -1.0471234980003954,
                -2.067131605254701,
            ],
            &[
                1.5773576668181952,
                -1.135231312119488,
                1.1989447537996463,
                -0.5978731716456386,
                -1.7652490205581342,
                -1.7931180611772695,
            ],
        );
        check::<f16>(
            fill_normal,
            1e-3,
            &[-1.1777344, -0.70996094, -1.7480469, -0.49536133, 0.24304199, -0.12634277],
            &[1.2158203, 0.62109375, -1.484375, -2.0136719, 0.8666992, 1.6503906],
        );
        check::<bf16>(
            fill_normal,
            8e-3,
            &[-1.1796875, -0.7109375, -1.75, -0.49609375, 0.24316406, -0.12597656],
            &[1.21875, 0.62109375, -1.484375, -2.015625, 0.8671875, 1.6484375],
        );
        check::<f32>(
            fill_truncated_normal,
            1e-6,
            &[-1.1780828, -0.7099414, -1.748158, -0.49537227, -0.86415327, 1.245701],
            &[1.2154992, 0.62113327, -1.484791, 0.8669252, -1.537821, -0.1840263],
        );
        check::<f64>(
            fill_truncated_normal,
            1e-13,
            &[
                -0.46540936664254984,
                -0.7490927202357748,
                -0.49661495908212616,
                0.8547184961461154,
                0.09091473149702428,
                -1.114846296191401,
            ],
            &[
                1.5773576668181952,
                -1.135231312119488,
                0.07451444630657963,
                -0.3894146910156523,
                -1.022406428672274,
                0.8560200845240074,
            ],
        );
        check::<f16>(
            fill_truncated_normal,
            1e-3,
            &[-1.1777344, -0.70996094, -1.7480469, -0.49536133, -0.8642578, 1.2460938],
            &[1.2158203, 0.62109375, -1.484375, 0.8666992, -1.5380859, -0.18408203],
        );
        check::<bf16>(
            fill_truncated_normal,
            8e-3,
            &[-1.1796875, -0.7109375, -1.75, -0.49609375, -0.86328125, 1.2421875],
            &[1.21875, 0.62109375, -1.484375, 0.8671875, -1.5390625, -0.18359375],
        );
    }

    #[test]
    fn whole_numbers_are_those_of_tensorflow() {
        let pool = Pool::inline();
        let mut stream = Philox::new(87_654_321, 5);
        for want in [[568415742, 798973804, 476249189], [241956391, 263764513, 432823046]] {
            let mut out = [0; 3];
            fill_uniform_i32(&pool, stream.reserve_outputs(3), -7, 1_000_000_007, &mut out);
            assert_eq!(out, want);
        }
        let mut stream = Philox::new(87_654_321, 5);
        for want in
            [[267799074213941, 668432531417799, 496595216485771], [308216684964807, 925334956796366, 497366349349947]]
        {
            let mut out = [0; 3];
            fill_uniform_i64(&pool, stream.reserve_outputs(3), -7, 1 << 50, &mut out);
            assert_eq!(out, want);
        }
        let mut stream = Philox::new(87_654_321, 5);
        for want in [
            [568415742, 798973804, 476249189, 816106444, 507884917, 643392885],
            [602017174, 503027244, 545625765, 95561337, 35030404, 998890112],
        ] {
            let mut out = [0; 6];
            fill_uniform_i32(&pool, stream.reserve_outputs(6), -7, 1_000_000_007, &mut out);
            assert_eq!(out, want);
        }
        let mut stream = Philox::new(87_654_321, 5);
        for want in [
            [267799074213941, 668432531417799, 496595216485771, 828885308197622, 395682964792795, 371172864165824],
            [668785844539133, 264493221618784, 521748367154518, 982879713946802, 7637382999712, 365527760913435],
        ] {
            let mut out = [0; 6];
            fill_uniform_i64(&pool, stream.reserve_outputs(6), -7, 1 << 50, &mut out);
            assert_eq!(out, want);
        }
    }

    /// Elements of a fill of 100000, seeds 1 and 2, at some places; whatever the number of threads.
    #[track_caller]
    fn check_long<T: RandomFloat>(fill: fn(&Pool, Philox, &mut [T]), tolerance: f64, first: &[f64], second: &[f64]) {
        let places = [0, 1, 2, 3, 511, 512, 1000, 1023, 1024, 1025, 5000, 99_998, 99_999];
        for pool in [Pool::inline(), Pool::new(3)] {
            let mut stream = Philox::new(1, 2);
            for want in [first, second] {
                let mut out = vec![T::ZERO; 100_000];
                fill(&pool, stream.reserve_outputs(100_000), &mut out);
                for (place, want) in places.iter().zip(want) {
                    let got = out[*place].to_f64();
                    assert!((got - want).abs() <= tolerance * want.abs(), "{got} is not {want} at {place}");
                }
            }
        }
    }

    #[test]
    fn long_streams_are_those_of_tensorflow() {
        check_long::<f32>(
            fill_normal,
            1e-6,
            &[
                -1.0467793,
                0.8397046,
                1.2358364,
                2.0637853,
                -2.1415548,
                0.86571926,
                -0.90560436,
                0.9174338,
                0.38869092,
                1.2367047,
                -0.9382693,
                -1.0962213,
                0.84670585,
            ],
            &[
                0.072969474,
                -0.087858416,
                0.4080519,
                -1.132049,
                0.41939053,
                1.6006116,
                0.25397986,
                -0.20241468,
                1.2749311,
                1.3428432,
                1.2551302,
                -0.66588724,
                -0.23715854,
            ],
        );
        check_long::<f64>(
            fill_normal,
            1e-13,
            &[
                0.58105877128258,
                -1.557429113677359,
                1.555896998265924,
                -0.07539950171215416,
                0.36637528962075344,
                -1.1279218571369347,
                0.5827804817662015,
                0.1197309040911577,
                0.599694180334906,
                0.10393473627965567,
                0.014370339908699114,
                -0.9139591876127519,
                -0.7683846094425583,
            ],
            &[
                -0.22611619803141808,
                0.2359709249176911,
                0.8317471735013573,
                1.036054080646165,
                -2.4962054467149426,
                0.5831986631577244,
                -2.515137722252921,
                -0.0728374317558475,
                -0.49364797093383583,
                -2.024578541742287,
                -1.2388762256949142,
                0.40494032503473454,
                -2.0344347244153296,
            ],
        );
        check_long::<f32>(
            fill_truncated_normal,
            1e-6,
            &[
                -1.0467793,
                0.8397046,
                1.2358364,
                0.3037427,
                -0.7211884,
                0.93410915,
                -0.42833388,
                -0.8252018,
                -0.40719527,
                0.7120491,
                -0.025036482,
                0.34201342,
                -0.26120776,
            ],
            &[
                0.072969474,
                -0.087858416,
                0.4080519,
                -1.132049,
                0.6333744,
                0.2207289,
                0.4107677,
                -0.91689205,
                -0.83013684,
                -0.4164758,
                0.512205,
                -0.36022443,
                0.049597465,
            ],
        );
        check_long::<f64>(
            fill_truncated_normal,
            1e-13,
            &[
                0.58105877128258,
                -1.557429113677359,
                -1.1295845092323191,
                -0.5156530039692888,
                1.729742248207032,
                1.5621876592221375,
                -0.22601411491129542,
                0.6714425704497511,
                -0.3690601384370107,
                -0.7319545905168319,
                -1.809570184950357,
                -1.0178673971365257,
                0.5644138668751196,
            ],
            &[
                -0.22611619803141808,
                0.2359709249176911,
                0.11759544692436337,
                -0.05302080555975564,
                -0.7342959476827454,
                1.3637794990310506,
                -1.4953724821278178,
                0.762422280007189,
                -0.43923303558402865,
                1.7471297148971978,
                -0.909016692674109,
                0.33533498023063824,
                -1.4487873446530968,
            ],
        );
    }

    #[test]
    fn a_shuffle_is_tensorflows() {
        let mut stream = Philox::new(3, 4);
        for want in [[1, 5, 3, 8, 0, 4, 7, 6, 9, 2], [6, 5, 9, 3, 2, 7, 8, 1, 4, 0]] {
            let mut data: Vec<usize> = (0..10).collect();
            shuffle(stream.reserve_words(9), &mut data);
            assert_eq!(data, want);
        }
    }

    #[test]
    fn a_stateless_stream_is_tensorflows() {
        let mut out = [0.0f32; 5];
        fill_uniform(&Pool::inline(), Philox::stateless([3, 4]), &mut out);
        assert_eq!(out, [0.24328744, 0.9835063, 0.22041726, 0.46792018, 0.77385795]);
    }

    #[test]
    fn sines_and_cosines_keep_their_digits_near_their_zeros() {
        for bits in (0..1u32 << 23).step_by(7) {
            let angle = (std::f64::consts::TAU * f64::from(unit_f32(bits))) as f32;
            for (sin, cos) in [sin_cos::<true>(angle), sin_cos::<false>(angle)] {
                let (want_sin, want_cos) = (angle as f64).sin_cos();
                assert!(
                    (sin as f64 - want_sin).abs() <= 4e-7 * want_sin.abs() + 1e-12,
                    "sin {angle} = {sin}, not {want_sin}"
                );
                assert!(
                    (cos as f64 - want_cos).abs() <= 4e-7 * want_cos.abs() + 1e-12,
                    "cos {angle} = {cos}, not {want_cos}"
                );
            }
        }
    }

    #[test]
    fn vectors_of_every_width_make_the_words_of_single_counters() {
        for (first, step) in [(0, 1), (7, 64), (u32::MAX - 64, 1), (u32::MAX - 63, 1), (u32::MAX - 9, 5)] {
            let philox = Philox { key: [0x1234_5678, u32::MAX], counter: [first, u32::MAX, 3, u32::MAX - 1] };
            for way in 0..3 {
                let mut words = [[0; LANES]; 4];
                let near = place(&philox, step, &mut words);
                match way {
                    0 => plain_rounds(&philox, near, &mut words),
                    // SAFETY: the machine has AVX2.
                    #[cfg(target_arch = "x86_64")]
                    1 if crate::simd::has_avx2() => unsafe { avx2::rounds(&philox, near, &mut words) },
                    // SAFETY: the machine has AVX-512.
                    #[cfg(target_arch = "x86_64")]
                    2 if crate::simd::has_avx512() => unsafe { avx512::rounds(&philox, near, &mut words) },
                    _ => continue,
                }
                for lane in 0..LANES {
                    let want = philox.at(lane as u64 * step).block();
                    assert_eq!(words.map(|word| word[lane]), want, "way {way}, lane {lane}, from {first} by {step}");
                }
            }
        }
    }

    #[test]
    fn skipping_carries_through_the_whole_counter() {
        let mut philox = Philox::from_parts([1, 2], [u32::MAX, u32::MAX, 7, 0]);
        philox.skip(1);
        assert_eq!(philox.parts().1, [0, 0, 8, 0]);
        assert_eq!(Philox::new(1, 2).at(5).block(), {
            let mut words = Philox::new(1, 2).words();
            (0..20).for_each(|_| _ = words.next_word());
            [words.next_word(), words.next_word(), words.next_word(), words.next_word()]
        });
    }
}
