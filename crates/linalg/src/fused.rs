//! Evaluates a chain of elementwise single-precision operations in one pass over memory.
//!
//! A `Program` is built step by step; `eval` runs all steps on one small block after another, so that everything in
//! between stays in the first cache. Every step rounds exactly as the separate operations would.

use crate::elementwise::{self, GRAIN_COSTLY};
use crate::number::{Number, Real};
use crate::parallel::Pool;
use crate::simd::vectorized;

/// Elements per block: a handful of blocks fit the first cache.
const BLOCK: usize = 1024;

/// An operation on one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are the usual ones
pub enum Unary {
    Neg,
    Abs,
    Sign,
    Square,
    Sqrt,
    Rsqrt,
    Recip,
    Exp,
    Log,
    Log1p,
    Expm1,
    Tanh,
    Sigmoid,
    Relu,
    Relu6,
    Softplus,
    Elu,
    Floor,
    Ceil,
    Round,
}

/// An operation on two values; the gradients take the output (or for `ReluGrad` the gradient) first, as the ops do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are the usual ones
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    SquaredDifference,
    /// `dy` where the feature is positive, else 0: (dy, feature).
    ReluGrad,
    /// dy (1 - y²): (y, dy).
    TanhGrad,
    /// dy y (1 - y): (y, dy).
    SigmoidGrad,
    /// dy / (2 y): (y, dy).
    SqrtGrad,
}

/// A value within a program: an input or the result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Value(usize);

/// What stands behind an input when a program is evaluated.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// One element per element of the result.
    Full(&'a [f32]),
    /// One element for all.
    Scalar(f32),
    /// A row, repeated; its length divides the result's.
    Row(&'a [f32]),
    /// What the output slice holds when evaluation begins.
    InPlace,
}

/// A sequence of elementwise steps; the last one is the result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    inputs: usize,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Unary(Unary, usize),
    Binary(Binary, usize, usize),
}

impl Program {
    /// A program without steps over this many inputs.
    pub fn new(inputs: usize) -> Program {
        Program { inputs, steps: Vec::new() }
    }

    /// The value of an input; panics if there is no such input.
    pub fn input(&self, index: usize) -> Value {
        assert!(index < self.inputs, "input {index} of {}", self.inputs);
        Value(index)
    }

    /// Adds an operation on one value.
    pub fn unary(&mut self, op: Unary, x: Value) -> Value {
        self.push(Step::Unary(op, x.0))
    }

    /// Adds an operation on two values.
    pub fn binary(&mut self, op: Binary, a: Value, b: Value) -> Value {
        self.push(Step::Binary(op, a.0, b.0))
    }

    /// How many inputs it reads.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// How many steps it has.
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    fn push(&mut self, step: Step) -> Value {
        self.steps.push(step);
        Value(self.inputs + self.steps.len() - 1)
    }

    /// Evaluates into `out`; panics unless there is a step and every input fits.
    pub fn eval(&self, pool: &Pool, inputs: &[Input<'_>], out: &mut [f32]) {
        assert_eq!(inputs.len(), self.inputs, "the program has another number of inputs");
        assert!(!self.steps.is_empty(), "an empty program has no result");
        for input in inputs {
            match input {
                Input::Full(slice) => assert_eq!(slice.len(), out.len(), "an input differs in length"),
                Input::Row(row) => {
                    assert!(out.is_empty() || (!row.is_empty() && out.len().is_multiple_of(row.len())), "a row that does not fit")
                }
                Input::Scalar(_) | Input::InPlace => {}
            }
        }
        let registers = self.assign_registers();
        let block = block_len(inputs);
        let blocks = out.len().div_ceil(block);
        let grain = (2 * GRAIN_COSTLY / block / self.steps.len()).max(4);
        let len = out.len();
        let out = crate::parallel::SharedMut::new(out);
        pool.for_each(blocks, grain, &|range| {
            let elements = range.start * block..(range.end * block).min(len);
            // SAFETY: disjoint ranges of blocks are disjoint ranges of elements.
            let part = unsafe { out.slice(elements.clone()) };
            self.eval_piece(&registers, inputs, elements.start, block, part);
        });
    }

    /// For every step the register of its result, such that no step writes where a later one still reads.
    fn assign_registers(&self) -> Vec<usize> {
        let mut last_use = vec![0; self.inputs + self.steps.len()];
        for (at, step) in self.steps.iter().enumerate() {
            for value in step.reads() {
                last_use[value] = at;
            }
        }
        let mut busy_until: Vec<usize> = Vec::new();
        let mut registers = Vec::with_capacity(self.steps.len());
        for at in 0..self.steps.len() {
            let register = busy_until.iter().position(|&until| until < at).unwrap_or_else(|| {
                busy_until.push(0);
                busy_until.len() - 1
            });
            busy_until[register] = last_use[self.inputs + at].max(at);
            registers.push(register);
        }
        registers
    }

    fn eval_piece(&self, assigned: &[usize], inputs: &[Input<'_>], start: usize, block: usize, out: &mut [f32]) {
        let count = assigned.iter().max().map_or(0, |most| most + 1);
        let mut registers: Vec<Vec<f32>> = vec![vec![0.0; block]; count];
        let mut spread: Vec<Vec<f32>> = inputs.iter().map(|input| spread_once(input, block)).collect();
        let last = self.steps.len() - 1;
        let mut at = start;
        for out in out.chunks_mut(block) {
            let len = out.len();
            for (input, spread) in inputs.iter().zip(&mut spread) {
                match input {
                    Input::InPlace => spread[..len].copy_from_slice(out),
                    Input::Row(row) if !block.is_multiple_of(row.len()) => repeat(row, at, &mut spread[..len]),
                    _ => {}
                }
            }
            for (index, step) in self.steps.iter().enumerate() {
                let mut target = if index == last { Vec::new() } else { std::mem::take(&mut registers[assigned[index]]) };
                let to = if index == last { &mut *out } else { &mut target[..len] };
                let read = |value: usize| match inputs.get(value) {
                    Some(Input::Full(slice)) => &slice[at..at + len],
                    Some(_) => &spread[value][..len],
                    None => &registers[assigned[value - self.inputs]][..len],
                };
                match *step {
                    Step::Unary(op, x) => run_unary(op, read(x), to),
                    Step::Binary(op, a, b) => run_binary(op, read(a), read(b), to),
                }
                if index != last {
                    registers[assigned[index]] = target;
                }
            }
            at += len;
        }
    }
}

impl Step {
    fn reads(&self) -> impl Iterator<Item = usize> {
        let (a, b) = match *self {
            Step::Unary(_, x) => (x, x),
            Step::Binary(_, a, b) => (a, b),
        };
        [a, b].into_iter()
    }
}

/// A block that whole rows fill, if the rows are short and agree: then a row is spread once, not once per block.
fn block_len(inputs: &[Input<'_>]) -> usize {
    let mut rows = inputs.iter().filter_map(|input| if let Input::Row(row) = input { Some(row.len()) } else { None });
    match rows.next() {
        Some(row) if row > 0 && row <= BLOCK && rows.all(|other| other == row) => BLOCK / row * row,
        _ => BLOCK,
    }
}

fn spread_once(input: &Input<'_>, block: usize) -> Vec<f32> {
    match input {
        Input::Full(_) => Vec::new(),
        Input::Scalar(value) => vec![*value; block],
        Input::InPlace => vec![0.0; block],
        Input::Row(row) => {
            let mut spread = vec![0.0; block];
            if !row.is_empty() {
                repeat(row, 0, &mut spread);
            }
            spread
        }
    }
}

/// Fills with the row repeated, beginning at the element `at` of the whole.
fn repeat(row: &[f32], at: usize, mut to: &mut [f32]) {
    let mut from = at % row.len();
    while !to.is_empty() {
        let len = (row.len() - from).min(to.len());
        let (head, tail) = to.split_at_mut(len);
        head.copy_from_slice(&row[from..from + len]);
        (to, from) = (tail, 0);
    }
}

fn run_unary(op: Unary, x: &[f32], to: &mut [f32]) {
    match op {
        Unary::Neg => elementwise::map_slice(x, to, |x: f32| -x),
        Unary::Abs => elementwise::map_slice(x, to, |x: f32| x.abs()),
        Unary::Sign => elementwise::map_slice(x, to, <f32 as Number>::sign),
        Unary::Square => elementwise::map_slice(x, to, |x: f32| x * x),
        Unary::Sqrt => elementwise::sqrt(x, to),
        Unary::Rsqrt => elementwise::rsqrt(x, to),
        Unary::Recip => elementwise::recip(x, to),
        Unary::Exp => elementwise::exp(x, to),
        Unary::Log => elementwise::log(x, to),
        Unary::Log1p => elementwise::log1p(x, to),
        Unary::Expm1 => elementwise::expm1(x, to),
        Unary::Tanh => elementwise::tanh(x, to),
        Unary::Sigmoid => elementwise::sigmoid(x, to),
        Unary::Relu => elementwise::relu(x, to),
        Unary::Relu6 => elementwise::map_slice(x, to, |x: f32| if x < 0.0 { 0.0 } else if x > 6.0 { 6.0 } else { x }),
        Unary::Softplus => elementwise::softplus(x, to),
        Unary::Elu => elementwise::elu(x, to),
        Unary::Floor => elementwise::map_slice(x, to, |x: f32| x.floor()),
        Unary::Ceil => elementwise::map_slice(x, to, |x: f32| x.ceil()),
        Unary::Round => elementwise::map_slice(x, to, |x: f32| x.round_ties_even()),
    }
}

vectorized! {
    fn run_binary[][](op: Binary, a: &[f32], b: &[f32], to: &mut [f32]) = binary_body;
}

#[inline(always)]
fn binary_body<const FMA: bool>(op: Binary, a: &[f32], b: &[f32], to: &mut [f32]) {
    #[inline(always)]
    fn each(a: &[f32], b: &[f32], to: &mut [f32], f: impl Fn(f32, f32) -> f32) {
        for ((to, &a), &b) in to.iter_mut().zip(a).zip(b) {
            *to = f(a, b);
        }
    }
    match op {
        Binary::Add => each(a, b, to, |a, b| a + b),
        Binary::Sub => each(a, b, to, |a, b| a - b),
        Binary::Mul => each(a, b, to, |a, b| a * b),
        Binary::Div => each(a, b, to, |a, b| a / b),
        Binary::Max => each(a, b, to, <f32 as Real>::max),
        Binary::Min => each(a, b, to, <f32 as Real>::min),
        Binary::SquaredDifference => each(a, b, to, |a, b| (a - b) * (a - b)),
        Binary::ReluGrad => each(a, b, to, |dy, x| if x > 0.0 { dy } else { 0.0 }),
        Binary::TanhGrad => each(a, b, to, |y, dy| dy * (1.0 - y * y)),
        Binary::SigmoidGrad => each(a, b, to, |y, dy| dy * y * (1.0 - y)),
        Binary::SqrtGrad => each(a, b, to, |y, dy| dy * 0.5 / y),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Numbers;

    #[test]
    fn a_chain_gives_what_its_steps_give_one_by_one() {
        let pool = Pool::new(3);
        let mut numbers = Numbers::new(11);
        for (len, inner) in [(0, 1), (1, 1), (5, 5), (3000, 10), (100_000, 250), (6 * 1500, 1500), (70_003, 70_003)] {
            let (a, b): (Vec<f32>, Vec<f32>) = (numbers.vec(len), numbers.vec(len));
            let row: Vec<f32> = numbers.vec(inner);
            let mut program = Program::new(4);
            let (x, y, bias, factor) = (program.input(0), program.input(1), program.input(2), program.input(3));
            let product = program.binary(Binary::Mul, x, y);
            let sum = program.binary(Binary::Add, product, bias);
            let scaled = program.binary(Binary::Mul, factor, sum);
            let tanh = program.unary(Unary::Tanh, scaled);
            let grad = program.binary(Binary::TanhGrad, tanh, product);
            let square = program.binary(Binary::Sub, grad, sum);
            program.unary(Unary::Relu, square);
            let mut tanhs = vec![0.0; len];
            let scaled: Vec<f32> = (0..len).map(|i| 3.0 * (a[i] * b[i] + row[i % inner])).collect();
            elementwise::tanh(&scaled, &mut tanhs);
            let want: Vec<f32> = (0..len)
                .map(|i| {
                    let (product, sum) = (a[i] * b[i], a[i] * b[i] + row[i % inner]);
                    (product * (1.0 - tanhs[i] * tanhs[i]) - sum).max(0.0)
                })
                .collect();
            let mut out = vec![9.0; len];
            program.eval(&pool, &[Input::Full(&a), Input::Full(&b), Input::Row(&row), Input::Scalar(3.0)], &mut out);
            assert_eq!(out, want, "len {len} inner {inner}");
            let mut out = a.clone();
            program.eval(&pool, &[Input::InPlace, Input::Full(&b), Input::Row(&row), Input::Scalar(3.0)], &mut out);
            assert_eq!(out, want, "in place, len {len} inner {inner}");
        }
    }

    #[test]
    fn every_operation_agrees_with_its_formula() {
        let pool = Pool::inline();
        let mut numbers = Numbers::new(12);
        let (a, b): (Vec<f32>, Vec<f32>) = (numbers.vec(2000), numbers.vec(2000));
        use Binary::*;
        let binaries: [(Binary, fn(f32, f32) -> f32); 11] = [
            (Add, |a, b| a + b), (Sub, |a, b| a - b), (Mul, |a, b| a * b), (Div, |a, b| a / b), (Max, f32::max),
            (Min, f32::min), (SquaredDifference, |a, b| (a - b).powi(2)), (ReluGrad, |a, b| if b > 0.0 { a } else { 0.0 }),
            (TanhGrad, |a, b| b * (1.0 - a * a)), (SigmoidGrad, |a, b| b * a * (1.0 - a)), (SqrtGrad, |a, b| b * 0.5 / a),
        ];
        for (op, formula) in binaries {
            let mut program = Program::new(2);
            program.binary(op, program.input(0), program.input(1));
            let mut out = vec![0.0; a.len()];
            program.eval(&pool, &[Input::Full(&a), Input::Full(&b)], &mut out);
            assert!((0..a.len()).all(|i| out[i] == formula(a[i], b[i])), "{op:?}");
        }
        let unaries: [(Unary, fn(f32) -> f32); 20] = [
            (Unary::Neg, |x| -x), (Unary::Abs, f32::abs), (Unary::Sign, f32::signum), (Unary::Square, |x| x * x),
            (Unary::Sqrt, f32::sqrt), (Unary::Rsqrt, |x| 1.0 / x.sqrt()), (Unary::Recip, f32::recip),
            (Unary::Exp, f32::exp), (Unary::Log, f32::ln), (Unary::Log1p, f32::ln_1p), (Unary::Expm1, f32::exp_m1),
            (Unary::Tanh, f32::tanh), (Unary::Sigmoid, |x| 1.0 / (1.0 + (-x).exp())), (Unary::Relu, |x| x.max(0.0)),
            (Unary::Relu6, |x| x.clamp(0.0, 6.0)), (Unary::Softplus, |x| x.exp().ln_1p()),
            (Unary::Elu, |x| if x < 0.0 { x.exp_m1() } else { x }), (Unary::Floor, f32::floor), (Unary::Ceil, f32::ceil),
            (Unary::Round, f32::round_ties_even),
        ];
        for (op, formula) in unaries {
            let mut program = Program::new(1);
            program.unary(op, program.input(0));
            let src: Vec<f32> = a.iter().map(|x| x.abs() * 7.0 + 1e-3).collect();
            let mut out = vec![0.0; a.len()];
            program.eval(&pool, &[Input::Full(&src)], &mut out);
            for (x, y) in src.iter().zip(&out) {
                assert!((y - formula(*x)).abs() <= 2e-6 * formula(*x).abs(), "{op:?}({x}) = {y}");
            }
        }
    }
}
