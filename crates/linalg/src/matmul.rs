//! Matrix products of row-major matrices.

use crate::parallel::Pool;
use half::{bf16, f16};
use num_complex::Complex;

/// What a product looks like: `c[m×n] = a[m×k] · b[k×n]`, all row-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmShape {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// The length of the sums.
    pub k: usize,
    /// `a` is stored as k×m.
    pub transpose_a: bool,
    /// `b` is stored as n×k.
    pub transpose_b: bool,
    /// The product is added to `c` rather than stored over it.
    pub accumulate: bool,
}

/// An element whose matrices can be multiplied.
pub trait Gemm: Copy {
    /// Multiplies `a` by `b` into `c`; panics unless the slices have exactly the sizes of the shape.
    fn gemm(pool: &Pool, shape: &GemmShape, a: &[Self], b: &[Self], c: &mut [Self]);
}

impl GemmShape {
    /// A plain product of an m×k and a k×n matrix.
    pub fn new(m: usize, n: usize, k: usize) -> GemmShape {
        GemmShape { m, n, k, transpose_a: false, transpose_b: false, accumulate: false }
    }

    /// The distances in `a` between rows and between columns.
    pub(crate) fn strides_a(&self) -> (usize, usize) {
        if self.transpose_a { (1, self.m) } else { (self.k, 1) }
    }

    /// The distances in `b` between rows and between columns.
    pub(crate) fn strides_b(&self) -> (usize, usize) {
        if self.transpose_b { (1, self.k) } else { (self.n, 1) }
    }

    fn check(&self, a: usize, b: usize, c: usize) {
        assert_eq!(a, self.m * self.k, "the left matrix has another size than {self:?}");
        assert_eq!(b, self.k * self.n, "the right matrix has another size than {self:?}");
        assert_eq!(c, self.m * self.n, "the result has another size than {self:?}");
    }
}

impl Gemm for f32 {
    fn gemm(pool: &Pool, shape: &GemmShape, a: &[f32], b: &[f32], c: &mut [f32]) {
        shape.check(a.len(), b.len(), c.len());
        crate::gemm32::gemm(pool, shape, a, b, c);
    }
}

macro_rules! by_f32 {
    ($($t:ty),*) => {$(
        impl Gemm for $t {
            fn gemm(pool: &Pool, shape: &GemmShape, a: &[Self], b: &[Self], c: &mut [Self]) {
                shape.check(a.len(), b.len(), c.len());
                let widen = |from: &[$t]| {
                    let mut wide = vec![0.0f32; from.len()];
                    pool.for_each_mut(&mut wide, 1 << 14, &|start, part| {
                        for (to, from) in part.iter_mut().zip(&from[start..]) {
                            *to = from.to_f32();
                        }
                    });
                    wide
                };
                let mut wide = if shape.accumulate { widen(c) } else { vec![0.0; c.len()] };
                f32::gemm(pool, shape, &widen(a), &widen(b), &mut wide);
                pool.for_each_mut(c, 1 << 14, &|start, part| {
                    for (to, from) in part.iter_mut().zip(&wide[start..]) {
                        *to = <$t>::from_f32(*from);
                    }
                });
            }
        }
    )*};
}

by_f32!(f16, bf16);

macro_rules! by_any {
    ($($t:ty),*) => {$(
        impl Gemm for $t {
            fn gemm(pool: &Pool, shape: &GemmShape, a: &[Self], b: &[Self], c: &mut [Self]) {
                shape.check(a.len(), b.len(), c.len());
                crate::gemm_any::gemm(pool, shape, a, b, c);
            }
        }
    )*};
}

by_any!(f64, Complex<f32>, Complex<f64>, i8, i16, i32, i64, u8, u16, u32, u64);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::Number;
    use crate::testing::{Numbers, seeds};

    fn slow<T: Number>(shape: &GemmShape, a: &[T], b: &[T], c: &[T]) -> Vec<T> {
        let ((a_row, a_col), (b_row, b_col)) = (shape.strides_a(), shape.strides_b());
        let mut out = c.to_vec();
        for i in 0..shape.m {
            for j in 0..shape.n {
                let mut sum = if shape.accumulate { c[i * shape.n + j] } else { T::ZERO };
                for p in 0..shape.k {
                    sum = sum.add(a[i * a_row + p * a_col].mul(b[p * b_row + j * b_col]));
                }
                out[i * shape.n + j] = sum;
            }
        }
        out
    }

    #[test]
    fn few_columns_are_exact_and_infinities_stay_where_they_are() {
        let pool = Pool::inline();
        // Odd halves, small and never zero: every sum is exact, in whatever order.
        let half = |i: usize| ((i * 7 + i / 5) % 9) as f32 - 4.5;
        for (m, n, k) in (2..14).flat_map(|m| (1..22).flat_map(move |n| [1, 2, 3, 8, 41].map(|k| (m, n, k)))) {
            for transpose_a in [false, true] {
                let shape = GemmShape { transpose_a, ..GemmShape::new(m, n, k) };
                let mut a: Vec<f32> = (0..m * k).map(half).collect();
                a[m * k - 1] = f32::INFINITY; // the last row's last step
                let b: Vec<f32> = (0..k * n).map(|i| half(i + 3)).collect();
                let mut c = vec![f32::NAN; m * n];
                f32::gemm(&pool, &shape, &a, &b, &mut c);
                assert_eq!(c, slow(&shape, &a, &b, &c), "{shape:?}");
            }
        }
    }

    fn check<T: Number>(tolerance: f64) {
        let pool = Pool::new(3);
        let sizes = [
            (0, 3, 2),
            (3, 0, 2),
            (3, 2, 0),
            (1, 1, 1),
            (1, 17, 5),
            (17, 1, 5),
            (5, 1, 300),
            (6, 16, 64),
            (7, 33, 9),
            (13, 50, 300),
            (100, 10, 100),
            (64, 96, 70),
            (129, 257, 65),
            (200, 31, 520),
            (20, 700, 400),
            (10, 30, 1500),
            (260, 800, 33),
            (2, 16, 3),
            (97, 48, 600),
            (100, 100, 784),
            (128, 127, 40),
            (128, 255, 40),
        ];
        for (seed, (m, n, k)) in seeds().zip(sizes) {
            let mut numbers = Numbers::new(seed);
            for mask in 0..8 {
                let shape = GemmShape {
                    m,
                    n,
                    k,
                    transpose_a: mask & 1 != 0,
                    transpose_b: mask & 2 != 0,
                    accumulate: mask & 4 != 0,
                };
                let (a, b): (Vec<T>, Vec<T>) = (numbers.vec(m * k), numbers.vec(k * n));
                let mut c: Vec<T> = numbers.vec(m * n);
                let want = slow(&shape, &a, &b, &c);
                T::gemm(&pool, &shape, &a, &b, &mut c);
                for (got, want) in c.iter().zip(&want) {
                    let distance = got.sub(*want).abs().to_f64();
                    assert!(
                        distance <= tolerance * (1.0 + k as f64).sqrt(),
                        "{shape:?} seed {seed}: {got} is not {want}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_number_of_threads_makes_no_difference() {
        let sizes = [
            (100, 100, 784),
            (128, 127, 1000),
            (128, 90, 700),
            (129, 100, 900),
            (300, 90, 400),
            // The columns are divided, and on some numbers of threads the last tile is alone.
            (128, 144, 700),
            (128, 200, 700),
            (128, 272, 700),
            (100, 400, 500),
            (300, 1040, 100),
            (500, 848, 90),
        ];
        for (seed, (m, n, k)) in seeds().zip(sizes) {
            let mut numbers = Numbers::new(seed);
            let (a, b): (Vec<f32>, Vec<f32>) = (numbers.vec(m * k), numbers.vec(k * n));
            let product = |pool: &Pool| {
                let mut c = vec![0f32; m * n];
                f32::gemm(pool, &GemmShape::new(m, n, k), &a, &b, &mut c);
                c
            };
            let alone = product(&Pool::inline());
            for threads in 2..=4 {
                assert!(product(&Pool::new(threads)) == alone, "{m}x{k} by {k}x{n} on {threads} threads");
            }
        }
    }

    #[test]
    fn products_of_floats_agree_with_the_plain_loop() {
        check::<f32>(2e-6);
        check::<f64>(1e-14);
    }

    #[test]
    fn products_of_complex_numbers_agree_with_the_plain_loop() {
        check::<Complex<f32>>(4e-6);
        check::<Complex<f64>>(1e-14);
    }

    #[test]
    fn products_of_integers_are_exact_and_wrap() {
        check::<i8>(0.0);
        check::<u16>(0.0);
        check::<i32>(0.0);
        check::<i64>(0.0);
    }

    #[test]
    fn products_of_halves_are_summed_in_single_precision() {
        let pool = Pool::inline();
        let ones = vec![f16::from_f32(1.0); 4096];
        let mut c = [f16::ZERO];
        f16::gemm(&pool, &GemmShape::new(1, 1, 4096), &ones, &ones, &mut c);
        assert_eq!(c[0].to_f32(), 4096.0);
        let ones = vec![bf16::from_f32(1.0); 4096];
        let mut c = [bf16::ZERO];
        bf16::gemm(&pool, &GemmShape::new(1, 1, 4096), &ones, &ones, &mut c);
        assert_eq!(c[0].to_f32(), 4096.0);
    }
}
