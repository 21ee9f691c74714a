//! ferroflow: the distributed TensorFlow runtime, rebuilt in Rust.
//!
//! A program builds a [`Graph`] and asks a [`Session`] to run parts of it.
//!
//! ```
//! use ferroflow::prelude::*;
//!
//! let g = Graph::new();
//! let x = g.placeholder::<f32>([None]);
//! let target = g.placeholder::<f32>([None]);
//! let w = g.variable("w", 0.0f32);
//! let loss = (&x * &w - &target).square().mean();
//! let train = GradientDescent::new(0.1).minimize(&loss);
//! let init = g.initialize_all();
//!
//! let session = Session::new(&g)?;
//! session.run(&init)?;
//! for _ in 0..20 {
//!     session.run_with(&train, feed! { x => [1.0f32, 2.0], target => [3.0f32, 6.0] })?;
//! }
//! assert!((session.run(&w)?.item::<f32>()? - 3.0).abs() < 1e-3);
//! # Ok::<(), ferroflow::Error>(())
//! ```
//!
//! Building never needs `?`: a mistake is kept with the file and line where it was made and returned by
//! [`Graph::check`], `Session::connect` or the first run.

mod array;
mod clip;
mod control_flow;
pub mod data;
mod feed;
mod fetch;
mod gradients;
mod graph;
mod graph_file;
#[cfg(doctest)]
mod guide;
pub mod initializers;
pub mod inspect;
mod math;
mod moving_average;
mod nn;
mod operators;
pub mod optimizers;
mod output;
mod partitioned;
pub mod prelude;
mod queue;
mod random;
pub mod schedules;
mod server;
mod session;
mod summary;
mod summary_writer;
pub mod train;
mod variable;

pub use array::{concat, stack};
pub use clip::{clip_by_average_norm, clip_by_global_norm, clip_by_norm, clip_by_norm_axes, global_norm};
pub use control_flow::{Carried, WhileOptions, cond, while_loop, while_loop_with};
pub use distributed::{ClusterSpec, TaskName};
pub use feed::Feeds;
pub use fetch::{Fetch, FetchList};
pub use framework::scope::DeviceQuery;
pub use gradients::{Gradient, IndexedSlices, gradients, gradients_from};
pub(crate) use graph::registry;
pub use graph::{Device, Graph};
pub use moving_average::ExponentialMovingAverage;
pub use nn::{Conv2d, Padding, Pool};
pub use operators::Operand;
pub use optimizers::Optimizer;
pub use output::{Operation, Output};
pub use partitioned::{
    PartitionStrategy, PartitionedVariable, Partitioner, embedding_lookup, fixed_size_partitioner,
    min_max_variable_partitioner, variable_axis_size_partitioner,
};
pub use queue::{Queue, QueueBuilder};
pub use server::{Server, ServerBuilder};
pub use session::{PartialRun, RunMetadata, RunOptions, Session, SessionOptions};
pub use summary_writer::{FileWriter, FileWriterOptions, SessionEvent};
pub use tensor::{Code, DType, Error, PartialShape, Result, Shape, Tensor};
pub use variable::{Initial, Variable, VariableOptions};
