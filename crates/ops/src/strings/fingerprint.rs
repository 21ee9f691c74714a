//! FarmHash's 64-bit fingerprint: the hash by which strings fall into buckets.
//!
//! It is the same on every machine and in every version, so feature columns made elsewhere keep their meaning.

/// The fingerprint of some bytes.
pub(crate) fn fingerprint64(s: &[u8]) -> u64 {
    match s.len() {
        0..=16 => up_to_16(s),
        17..=32 => up_to_32(s),
        33..=64 => up_to_64(s),
        _ => beyond_64(s),
    }
}

const K0: u64 = 0xc3a5_c85c_97cb_3127;
const K1: u64 = 0xb492_b66f_be98_f273;
const K2: u64 = 0x9ae1_6a3b_2f90_404f;

/// A word of the bytes that starts at `at`.
fn word(s: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(s[at..at + 8].try_into().expect("eight bytes"))
}

fn half_word(s: &[u8], at: usize) -> u64 {
    u32::from_le_bytes(s[at..at + 4].try_into().expect("four bytes")).into()
}

fn shift_mix(v: u64) -> u64 {
    v ^ (v >> 47)
}

fn mix(u: u64, v: u64, mul: u64) -> u64 {
    let a = shift_mix((u ^ v).wrapping_mul(mul));
    shift_mix((v ^ a).wrapping_mul(mul)).wrapping_mul(mul)
}

/// The multiplier of short strings.
fn multiplier(s: &[u8]) -> u64 {
    K2.wrapping_add(s.len() as u64 * 2)
}

fn up_to_16(s: &[u8]) -> u64 {
    let len = s.len();
    match len {
        8.. => {
            let mul = multiplier(s);
            let a = word(s, 0).wrapping_add(K2);
            let b = word(s, len - 8);
            let c = b.rotate_right(37).wrapping_mul(mul).wrapping_add(a);
            let d = a.rotate_right(25).wrapping_add(b).wrapping_mul(mul);
            mix(c, d, mul)
        }
        4.. => mix((len as u64).wrapping_add(half_word(s, 0) << 3), half_word(s, len - 4), multiplier(s)),
        1.. => {
            let [a, b, c] = [s[0], s[len / 2], s[len - 1]].map(u64::from);
            let (y, z) = (a + (b << 8), len as u64 + (c << 2));
            shift_mix(y.wrapping_mul(K2) ^ z.wrapping_mul(K0)).wrapping_mul(K2)
        }
        0 => K2,
    }
}

fn up_to_32(s: &[u8]) -> u64 {
    let (len, mul) = (s.len(), multiplier(s));
    let a = word(s, 0).wrapping_mul(K1);
    let b = word(s, 8);
    let c = word(s, len - 8).wrapping_mul(mul);
    let d = word(s, len - 16).wrapping_mul(K2);
    let u = a.wrapping_add(b).rotate_right(43).wrapping_add(c.rotate_right(30)).wrapping_add(d);
    let v = a.wrapping_add(b.wrapping_add(K2).rotate_right(18)).wrapping_add(c);
    mix(u, v, mul)
}

fn up_to_64(s: &[u8]) -> u64 {
    let (len, mul) = (s.len(), multiplier(s));
    let a = word(s, 0).wrapping_mul(K2);
    let b = word(s, 8);
    let c = word(s, len - 8).wrapping_mul(mul);
    let d = word(s, len - 16).wrapping_mul(K2);
    let y = a.wrapping_add(b).rotate_right(43).wrapping_add(c.rotate_right(30)).wrapping_add(d);
    let z = mix(y, a.wrapping_add(b.wrapping_add(K2).rotate_right(18)).wrapping_add(c), mul);
    let e = word(s, 16).wrapping_mul(mul);
    let f = word(s, 24);
    let g = y.wrapping_add(word(s, len - 32)).wrapping_mul(mul);
    let h = z.wrapping_add(word(s, len - 24)).wrapping_mul(mul);
    let u = e.wrapping_add(f).rotate_right(43).wrapping_add(g.rotate_right(30)).wrapping_add(h);
    let v = e.wrapping_add(f.wrapping_add(a).rotate_right(18)).wrapping_add(g);
    mix(u, v, mul)
}

/// What is known after some blocks of 64 bytes.
struct State {
    x: u64,
    y: u64,
    z: u64,
    v: (u64, u64),
    w: (u64, u64),
}

impl State {
    /// Takes in the block of 64 bytes at `at`; the last one is weighted otherwise.
    fn block(&mut self, s: &[u8], at: usize, mul: u64, weight: u64) {
        let State { x, y, z, v, w } = self;
        *x = x.wrapping_add(*y).wrapping_add(v.0).wrapping_add(word(s, at + 8)).rotate_right(37).wrapping_mul(mul);
        *y = y.wrapping_add(v.1).wrapping_add(word(s, at + 48)).rotate_right(42).wrapping_mul(mul);
        *x ^= w.1.wrapping_mul(weight);
        *y = y.wrapping_add(v.0.wrapping_mul(weight)).wrapping_add(word(s, at + 40));
        *z = z.wrapping_add(w.0).rotate_right(33).wrapping_mul(mul);
        *v = weak(s, at, v.1.wrapping_mul(mul), x.wrapping_add(w.0));
        *w = weak(s, at + 32, z.wrapping_add(w.1), y.wrapping_add(word(s, at + 16)));
        std::mem::swap(z, x);
    }
}

/// Two words of 32 bytes and two seeds.
fn weak(s: &[u8], at: usize, a: u64, b: u64) -> (u64, u64) {
    let last = word(s, at + 24);
    let a = a.wrapping_add(word(s, at));
    let b = b.wrapping_add(a).wrapping_add(last).rotate_right(21);
    let sum = a.wrapping_add(word(s, at + 8)).wrapping_add(word(s, at + 16));
    (sum.wrapping_add(last), b.wrapping_add(sum.rotate_right(44)).wrapping_add(a))
}

fn beyond_64(s: &[u8]) -> u64 {
    const SEED: u64 = 81;
    let y = SEED.wrapping_mul(K1).wrapping_add(113);
    let z = shift_mix(y.wrapping_mul(K2).wrapping_add(113)).wrapping_mul(K2);
    let x = SEED.wrapping_mul(K2).wrapping_add(word(s, 0));
    let mut state = State { x, y, z, v: (0, 0), w: (0, 0) };
    // The last block is taken from the end: it overlaps the one before unless the length is a multiple of 64.
    let blocks = (s.len() - 1) / 64;
    (0..blocks).for_each(|block| state.block(s, block * 64, K1, 1));
    let mul = K1.wrapping_add((state.z & 0xff) << 1);
    state.w.0 = state.w.0.wrapping_add((s.len() as u64 - 1) & 63);
    state.v.0 = state.v.0.wrapping_add(state.w.0);
    state.w.0 = state.w.0.wrapping_add(state.v.0);
    state.block(s, s.len() - 64, mul, 9);
    let State { x, y, z, v, w } = state;
    let first = mix(v.0, w.0, mul).wrapping_add(shift_mix(y).wrapping_mul(K0)).wrapping_add(z);
    mix(first, mix(v.1, w.1, mul).wrapping_add(x), mul)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_tensorflows() {
        // From `StringToHashBucketFast` with 2^62 buckets.
        let cases: &[(u8, usize, u64)] = &[
            (b'a', 0, 1936946117179621455),
            (b'a', 1, 3694432073954588131),
            (b'x', 15, 1773838639343418510),
            (b'y', 16, 4369335550805201834),
            (b'z', 17, 2963606906321231264),
            (b'v', 33, 52503723650048192),
            (b't', 64, 4380170427535189554),
            (b'r', 65, 3513611017891479274),
            (b's', 127, 2560570070721445853),
            (b'p', 128, 3503296012327032161),
            (b'o', 200, 3962721746670327979),
        ];
        for &(letter, len, want) in cases {
            assert_eq!(fingerprint64(&vec![letter; len]) % (1 << 62), want, "{len} times {}", letter as char);
        }
    }
}
