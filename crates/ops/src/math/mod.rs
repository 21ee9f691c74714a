//! Arithmetic: elementwise functions, comparisons, products of matrices, reductions, segments.

pub mod add_n;
pub mod arg_extreme;
pub mod arithmetic;
pub mod bitwise;
pub mod broadcast;
pub mod bucketize;
pub mod cast;
pub mod check_numerics;
pub mod clip;
pub mod compare;
pub(crate) mod composition;
pub mod cumulative;
pub mod finite;
pub mod functions;
pub mod lin_space;
pub mod matmul;
pub(crate) mod pairs;
pub mod range;
pub mod reduction;
pub mod segment;
pub mod segment_fold;
pub mod select;
pub mod sparse_segment;

use framework::Op;

/// All ops of the family.
pub fn ops() -> Vec<Op> {
    [
        add_n::ops(),
        arg_extreme::ops(),
        arithmetic::ops(),
        bitwise::ops(),
        broadcast::ops(),
        bucketize::ops(),
        cast::ops(),
        check_numerics::ops(),
        clip::ops(),
        compare::ops(),
        composition::ops(),
        cumulative::ops(),
        finite::ops(),
        functions::ops(),
        lin_space::ops(),
        matmul::ops(),
        range::ops(),
        reduction::ops(),
        segment::ops(),
        segment_fold::ops(),
        select::ops(),
        sparse_segment::ops(),
    ]
    .concat()
}
