//! Bitwise ops on integers: `BitwiseAnd`, `BitwiseOr`, `BitwiseXor`, `LeftShift`, `RightShift`, `Invert`.

use super::pairs::{map_each, map_pairs};
use framework::typed::{IntKernel, ints_by};
use framework::{Int, KernelContext, Op, shapes};
use std::sync::Arc;
use tensor::Result;

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    const TYPES: &str = "T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}";
    let binary = |name: &str, kind: Kind| {
        let op = Op::new(name).input("x: T").input("y: T").output("z: T").attr(TYPES).not_differentiable();
        let op = op.shape(shapes::broadcast).kernel(Arc::new(move |b| ints_by(b, "T", Bitwise(kind))));
        if matches!(kind, Kind::And | Kind::Or | Kind::Xor) { op.commutative() } else { op }
    };
    vec![
        binary("BitwiseAnd", Kind::And),
        binary("BitwiseOr", Kind::Or),
        binary("BitwiseXor", Kind::Xor),
        binary("LeftShift", Kind::Left),
        binary("RightShift", Kind::Right),
        Op::new("Invert")
            .input("x: T")
            .output("y: T")
            .attr(TYPES)
            .not_differentiable()
            .shape(shapes::unchanged)
            .kernel(Arc::new(|b| ints_by(b, "T", Invert))),
    ]
}

#[derive(Clone, Copy)]
enum Kind {
    And,
    Or,
    Xor,
    Left,
    Right,
}

struct Bitwise(Kind);

impl IntKernel for Bitwise {
    fn compute<T: Int>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let f: fn(T, T) -> T = match self.0 {
            Kind::And => T::bitand,
            Kind::Or => T::bitor,
            Kind::Xor => T::bitxor,
            Kind::Left => T::shl,
            Kind::Right => T::shr,
        };
        map_pairs(ctx, f)
    }
}

struct Invert;

impl IntKernel for Invert {
    fn compute<T: Int>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        map_each(ctx, T::bitnot)
    }
}
