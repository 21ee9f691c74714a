//! One line per node: what is printed is read again.

use crate::support::{assert_error, registry};
use bytes::Bytes;
use framework::graph::{export, text};
use framework::{Attr, Scope};
use tensor::{Code, DType, Tensor};

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
         name = Const {dtype: string, value: string[] \"a\"}
         axis = Const {dtype: int32, value: int32[] 0}
         split = Split(axis, y, ^log) {num_split: 2}
         sum = AddN(split, split:1)
         yes = Const {dtype: bool, value: bool[] true}
         q = FIFOQueueV2 {capacity: 3, component_types: [float, int32], shapes: [shape[2], shape[]]}",
    );
}

/// Pieces that have a meaning somewhere in the notation, bytes that are no text, and some that are.
const PIECES: [&[u8]; 24] = [
    b"a",
    b" ",
    b"  ",
    b"\"",
    b"'",
    b"\\",
    b"\n",
    b"\r\n",
    b"\t",
    b"\0",
    b"\xff",
    b"\xc3",
    b"{",
    b"}",
    b"[",
    b"]",
    b"(",
    b")",
    b",",
    b":",
    b"=",
    b" @ ",
    b"#",
    "\u{e4}\u{85}\u{2028}".as_bytes(),
];

/// A small generator of numbers, so that a failure can be repeated from the seed it prints.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }

    fn string(&mut self) -> Bytes {
        let pieces = (0..self.below(8)).map(|_| PIECES[self.below(PIECES.len())]);
        pieces.collect::<Vec<_>>().concat().into()
    }

    fn strings(&mut self) -> Vec<Bytes> {
        (0..self.below(4)).map(|_| self.string()).collect()
    }
}

#[test]
fn any_string_anywhere_comes_back() {
    for seed in 0..2000 {
        let mut numbers = Numbers(seed);
        let scope = Scope::new(registry());
        let strings = |values: Vec<Bytes>| Tensor::from_strings([values.len()], values).unwrap();
        let constant = |value: Tensor| scope.node("Const").attr("dtype", DType::String).attr("value", value);
        let device = String::from_utf8_lossy(&numbers.string()).into_owned();
        let list = constant(strings(numbers.strings())).device(device).output().unwrap();
        constant(strings(vec![numbers.string()]).reshaped([]).unwrap()).build().unwrap();
        let joined = scope.node("StringJoin").inputs(&[list, list]).attr("separator", Attr::String(numbers.string()));
        joined.attr("_class", Attr::from(numbers.strings())).build().unwrap();
        let printed = scope.with_graph(text::print);
        let read = text::parse(&printed, &registry()).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{printed}"));
        let (was, is) = (scope.with_graph(export::export), export::export(&read));
        assert_eq!(is, was, "seed {seed}:\n{printed}");
    }
}

#[test]
fn tensors_of_every_number_come_back() {
    round_trip(
        "a = Const {dtype: half, value: half[2] [1.5 -0.25]}
         b = Const {dtype: bfloat16, value: bfloat16[] NaN}
         c = Const {dtype: complex64, value: complex64[2] [1+2i -0.5-1i]}
         d = Const {dtype: uint64, value: uint64[] 18446744073709551615}
         e = Const {dtype: int8, value: int8[0] []}
         f = Const {dtype: float, value: float[2] [inf 0.00001]}",
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
        ("x = NoOp {} /cpu:0", Code::InvalidArgument, "wanted '@ device', found '/cpu:0'"),
        ("x = NoOp @ \"/cpu:0", Code::InvalidArgument, "wanted '@ device'"),
        ("x = Const {dtype: string, value: string[] a}", Code::InvalidArgument, "'string[] a' is not a tensor"),
        ("x = NoOp\nx = NoOp", Code::InvalidArgument, "'x' already exists"),
    ] {
        assert_error(text::parse(notation, &registry()), code, &[says, "in '"]);
    }
}
