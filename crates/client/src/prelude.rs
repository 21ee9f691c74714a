//! What a program usually needs: `use ferroflow::prelude::*;`.

pub use crate::initializers;
pub use crate::optimizers::{
    Adadelta, Adagrad, AdagradDA, Adam, Ftrl, GradientDescent, Momentum, Optimizer, ProximalAdagrad,
    ProximalGradientDescent, RMSProp,
};
pub use crate::schedules;
#[cfg(feature = "flags")]
pub use crate::train::ClusterFlags;
pub use crate::train::hooks::{Every, LoggingTensor, StopAtStep};
pub use crate::train::{Coordinator, Hook, MonitoredSession, MonitoredTrainingSession, Scaffold, Supervisor};
pub use crate::train::{Saver, SyncReplicas, replica_device_setter};
pub use crate::{
    ClusterSpec, Code, Conv2d, DType, Error, ExponentialMovingAverage, Feeds, Fetch, Gradient, Graph, Operation,
    Output, Padding, Pool, Result, RunOptions, Server, Session, Shape, Tensor, Variable, VariableOptions, concat, cond,
    feed, gradients, stack, while_loop,
};
pub use crate::{FileWriter, FileWriterOptions, SessionEvent};
