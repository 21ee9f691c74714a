//! What a program usually needs: `use ferroflow::prelude::*;`.

pub use crate::initializers;
pub use crate::optimizers::{
    Adadelta, Adagrad, AdagradDA, Adam, Ftrl, GradientDescent, Momentum, Optimizer, ProximalAdagrad,
    ProximalGradientDescent, RMSProp,
};
pub use crate::schedules;
pub use crate::{
    Code, Conv2d, DType, Error, Feeds, Fetch, Gradient, Graph, Operation, Output, Padding, Pool, Result, Shape, Tensor,
    Variable, VariableOptions, concat, feed, gradients, stack,
};
