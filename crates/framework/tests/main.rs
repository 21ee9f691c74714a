//! Graphs in and out, in both notations, and their gradients; with the real ops.

mod gradients;
mod messages;
mod notation;
mod support;
