//! Passes over graphs in the text notation: what goes in, what comes out.

mod execute;
mod inline;
mod optimize;
mod partition;
mod place;
mod prune;
mod support;
