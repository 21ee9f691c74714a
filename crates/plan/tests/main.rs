//! Passes over graphs in the text notation: what goes in, what comes out.

mod as_tensorflow;
mod execute;
mod inline;
mod optimize;
mod partition;
mod place;
mod prune;
mod support;
