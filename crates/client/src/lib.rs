//! ferroflow: the distributed TensorFlow runtime, rebuilt in Rust.
