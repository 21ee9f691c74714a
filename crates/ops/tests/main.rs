//! Ops against TensorFlow: the values, errors and gradients in `testdata/ops`, and the definitions themselves.

mod coverage;
mod functions;
mod golden;
mod support;
