//! The face as a user meets it: building, mistakes, control flow, and training held to TensorFlow's numbers.

mod averages;
mod building;
mod clipping;
mod control_flow;
mod embedding;
mod examples;
mod golden;
mod guide;
mod hooks;
mod initial_values;
mod liveness;
mod mistakes;
mod network;
mod optimizers;
mod partitions;
mod programs;
mod replay;
mod replicas;
mod savers;
mod saving;
mod schedules;
mod servers;
mod sessions;
mod sync_replicas;
mod trainer;
