//! Loops over slices: no tensors, no graphs.
//!
//! Everything takes a [`Pool`](parallel::Pool), plain slices and sizes that the caller has checked; what does not fit
//! panics. The hot loops are compiled for AVX2 as well, and chosen when they run.
//!
//! ```
//! use linalg::matmul::{Gemm, GemmShape};
//! use linalg::parallel::Pool;
//!
//! let pool = Pool::new(2);
//! let (a, b, mut c) = ([1.0f32, 2.0, 3.0, 4.0], [1.0, 1.0], [0.0; 2]);
//! f32::gemm(&pool, &GemmShape::new(2, 1, 2), &a, &b, &mut c);
//! assert_eq!(c, [3.0, 7.0]);
//! ```

// Closures over slices, loops over several arrays at once, and the digits of published coefficients are what this crate
// is made of.
#![allow(clippy::type_complexity, clippy::needless_range_loop, clippy::excessive_precision)]

pub mod broadcast;
pub mod conv;
pub mod crowd;
pub mod denormals;
pub mod elementwise;
pub mod fused;
pub mod gather;
mod gemm32;
mod gemm_any;
pub mod matmul;
pub mod number;
pub mod optim;
pub mod parallel;
pub mod pooling;
pub mod random;
pub mod reduce;
mod scratch;
mod simd;
mod skipping;
pub mod softmax;
pub mod special;
#[cfg(test)]
mod testing;
mod tile;
pub mod transpose;
