//! Running one graph in one process.
