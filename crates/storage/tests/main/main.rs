//! The public face, on files that TensorFlow wrote and on disks that fail.

mod bundles;
mod golden;
