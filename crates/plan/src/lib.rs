//! Pure functions from graph to graph: place, prune, fold, partition.
