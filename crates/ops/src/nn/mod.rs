//! Ops of neural networks: activations, losses, convolutions, pooling, normalisation.

mod activations;
mod batch_norm;
mod bias_add;
mod convolution;
mod cross_entropy;
mod fused;
mod in_top_k;
mod l2_loss;
mod pooling;
mod sliding;
mod softmax;
#[cfg(test)]
pub(crate) mod testing;

pub use activations::{elu, leaky_relu, relu, relu6, selu, softplus};
pub use batch_norm::{BatchNormOptions, fused_batch_norm};
pub use bias_add::{bias_add, bias_add_nchw};
pub use convolution::{ConvOptions, conv2d, depthwise_conv2d};
pub use cross_entropy::{softmax_cross_entropy_with_logits, sparse_softmax_cross_entropy_with_logits};
pub use in_top_k::in_top_k;
pub use l2_loss::l2_loss;
pub use pooling::{PoolOptions, avg_pool_2d, max_pool_2d};
pub use softmax::{log_softmax, softmax};

use framework::Op;

/// All ops of the family.
pub fn ops() -> Vec<Op> {
    [
        activations::ops(),
        batch_norm::ops(),
        bias_add::ops(),
        convolution::ops(),
        cross_entropy::ops(),
        fused::ops(),
        in_top_k::ops(),
        l2_loss::ops(),
        pooling::ops(),
        softmax::ops(),
    ]
    .concat()
}
