//! Loops over slices: no tensors, no graphs.

pub mod broadcast;
pub mod elementwise;
pub mod fused;
pub mod gather;
pub mod matmul;
pub mod number;
pub mod optim;
pub mod parallel;
pub mod random;
pub mod reduce;
mod simd;
pub mod softmax;
pub mod special;
pub mod transpose;
#[cfg(test)]
mod testing;
