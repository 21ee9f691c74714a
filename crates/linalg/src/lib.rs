//! Loops over slices: no tensors, no graphs.

pub mod broadcast;
pub mod conv;
pub mod elementwise;
pub mod fused;
pub mod gather;
mod gemm32;
pub mod matmul;
pub mod number;
pub mod optim;
pub mod parallel;
pub mod pooling;
pub mod random;
pub mod reduce;
mod scratch;
mod simd;
pub mod softmax;
pub mod special;
mod tile;
pub mod transpose;
#[cfg(test)]
mod testing;
