//! One line per node: what is printed is read again.

use crate::support::{assert_error, registry};
use framework::graph::text;
use tensor::Code;

#[track_caller]
fn round_trip(notation: &str) {
    let lines: Vec<&str> = notation.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let once = text::print(&text::parse(notation, &registry()).unwrap());
    assert_eq!(once.lines().collect::<Vec<_>>(), lines);
    assert_eq!(text::print(&text::parse(&once, &registry()).unwrap()), once);
}

#[test]
fn what_is_printed_is_read_again() {
    round_trip(
        "x = Placeholder {dtype: float, shape: shape[?,2]}
         w = Const {dtype: float, value: float[2,2] [[1 2] [3 4]]}
         y = MatMul(x, w) {transpose_b: true} @ /job:ps/task:0
         log = NoOp(^y)
         name = Const {dtype: string, value: string[] a}
         axis = Const {dtype: int32, value: int32[] 0}
         split = Split(axis, y, ^log) {num_split: 2}
         sum = AddN(split, split:1)
         yes = Const {dtype: bool, value: bool[] true}
         q = FIFOQueueV2 {capacity: 3, component_types: [float, int32], shapes: [shape[2], shape[]]}",
    );
}

#[test]
fn loops_are_written_with_their_way_back() {
    round_trip(
        "zero = Const {dtype: int32, value: int32[] 0}
         in = Enter(zero) {frame_name: \"loop\"}
         i = Merge(in, next)
         yes = Const {dtype: bool, value: bool[] true}
         go_on = LoopCond(yes)
         switch = Switch(i, go_on)
         next = NextIteration(switch:1)
         out = Exit(switch)",
    );
}

#[test]
fn a_mistake_names_the_line() {
    for (notation, code, says) in [
        ("x", Code::InvalidArgument, "wanted 'name = Op(inputs)'"),
        ("x = Nope", Code::NotFound, "Op type not registered 'Nope'"),
        ("x = Neg(y)", Code::InvalidArgument, "unknown input 'y'"),
        ("x = NoOp(^y)", Code::InvalidArgument, "unknown control input 'y'"),
        ("x = NoOp {a: 1}", Code::InvalidArgument, "NoOp has no attribute 'a'"),
        ("x = Placeholder {dtype: flat}", Code::InvalidArgument, "'flat' is not a type"),
        ("x = Placeholder {dtype: float", Code::InvalidArgument, "not closed"),
        ("x = NoOp(", Code::InvalidArgument, "not closed"),
        ("x = NoOp\nx = NoOp", Code::InvalidArgument, "'x' already exists"),
    ] {
        assert_error(text::parse(notation, &registry()), code, &[says, "in '"]);
    }
}
