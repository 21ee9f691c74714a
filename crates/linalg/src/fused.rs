//! Evaluates a chain of elementwise single-precision operations in one pass over memory.
//!
//! A `Program` is built step by step; `eval` runs all steps on one small block after another, so that everything in
//! between stays in the first cache. Every step rounds exactly as the separate operations would.

use crate::elementwise::{self, GRAIN_COSTLY};
use crate::number::{Number, Real};
use crate::parallel::Pool;
use crate::scratch::Scratch;
use crate::simd::vectorized;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;

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
    compiled: Compiled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Unary(Unary, usize),
    Binary(Binary, usize, usize),
}

impl Program {
    /// A program without steps over this many inputs.
    pub fn new(inputs: usize) -> Program {
        Program { inputs, steps: Vec::new(), compiled: Compiled::default() }
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
        self.compiled = Compiled::default();
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
                    assert!(
                        out.is_empty() || (!row.is_empty() && out.len().is_multiple_of(row.len())),
                        "a row that does not fit"
                    )
                }
                Input::Scalar(_) | Input::InPlace => {}
            }
        }
        let code = self.compiled.0.get_or_init(|| Code::new(self.inputs, &self.steps));
        let block = block_len(inputs).min(out.len().max(1));
        let blocks = out.len().div_ceil(block);
        let grain = (2 * GRAIN_COSTLY / block / self.steps.len()).max(4);
        let len = out.len();
        let out = crate::parallel::SharedMut::new(out);
        pool.for_each(blocks, grain, &|range| {
            let elements = range.start * block..(range.end * block).min(len);
            // SAFETY: disjoint ranges of blocks are disjoint ranges of elements.
            let part = unsafe { out.slice(elements.clone()) };
            code.eval(inputs, elements.start, block, part);
        });
    }
}

/// The code of a program, made when it is first evaluated; programs are compared by their steps alone.
#[derive(Debug, Default)]
struct Compiled(OnceLock<Code>);

impl Clone for Compiled {
    fn clone(&self) -> Compiled {
        Compiled::default()
    }
}

impl PartialEq for Compiled {
    fn eq(&self, _: &Compiled) -> bool {
        true
    }
}

impl Eq for Compiled {}

impl Hash for Compiled {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// Steps joined where one loop can do several, each with the register of its result.
#[derive(Debug)]
struct Code {
    instructions: Vec<Instruction>,
    registers: usize,
}

#[derive(Clone, Copy, Debug)]
struct Instruction {
    step: Joined,
    /// The step whose value it makes.
    value: usize,
    register: usize,
}

#[derive(Clone, Copy, Debug)]
enum Joined {
    Alone(Step),
    /// One arithmetic operation after another, then perhaps `Relu`.
    Arithmetic {
        first: Arithmetic,
        a: usize,
        b: usize,
        second: Option<(Arithmetic, usize)>,
        relu: bool,
    },
}

/// An operation that can be joined with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arithmetic {
    Add,
    Sub,
    /// The second operand less the first.
    SubFrom,
    Mul,
}

impl Arithmetic {
    fn of(op: Binary) -> Option<Arithmetic> {
        match op {
            Binary::Add => Some(Arithmetic::Add),
            Binary::Sub => Some(Arithmetic::Sub),
            Binary::Mul => Some(Arithmetic::Mul),
            _ => None,
        }
    }
}

impl Joined {
    fn reads(&self) -> [usize; 3] {
        match *self {
            Joined::Alone(Step::Unary(_, x)) => [x, x, x],
            Joined::Alone(Step::Binary(_, a, b)) => [a, b, b],
            Joined::Arithmetic { a, b, second, .. } => [a, b, second.map_or(b, |(_, c)| c)],
        }
    }

    /// This step with the next one joined to it, if that reads it and one loop can do both.
    fn then(&self, value: usize, next: &Step) -> Option<Joined> {
        let (first, a, b, second, relu) = match *self {
            Joined::Alone(Step::Binary(op, a, b)) => (Arithmetic::of(op)?, a, b, None, false),
            Joined::Arithmetic { first, a, b, second, relu } => (first, a, b, second, relu),
            _ => return None,
        };
        if relu {
            return None;
        }
        match *next {
            Step::Unary(Unary::Relu, x) if x == value => Some(Joined::Arithmetic { first, a, b, second, relu: true }),
            Step::Binary(op, x, y) if second.is_none() && (x == value) != (y == value) => {
                let op = match (Arithmetic::of(op)?, y == value) {
                    (Arithmetic::Sub, true) => Arithmetic::SubFrom,
                    (op, _) => op,
                };
                let other = if x == value { y } else { x };
                Some(Joined::Arithmetic { first, a, b, second: Some((op, other)), relu: false })
            }
            _ => None,
        }
    }
}

impl Code {
    fn new(inputs: usize, steps: &[Step]) -> Code {
        let mut uses = vec![0; inputs + steps.len()];
        for value in steps.iter().flat_map(Step::reads) {
            uses[value] += 1;
        }
        let mut instructions: Vec<Instruction> = Vec::with_capacity(steps.len());
        for (index, step) in steps.iter().enumerate() {
            let value = inputs + index;
            // Only a value that nobody else reads can stay inside a loop.
            if let Some(last) = instructions.last_mut()
                && uses[last.value] == 1
                && let Some(joined) = last.step.then(last.value, step)
            {
                (last.step, last.value) = (joined, value);
                continue;
            }
            instructions.push(Instruction { step: Joined::Alone(*step), value, register: 0 });
        }
        let registers = assign_registers(inputs + steps.len(), &mut instructions);
        Code { instructions, registers }
    }

    fn eval(&self, inputs: &[Input<'_>], start: usize, block: usize, out: &mut [f32]) {
        let mut registers: Vec<Scratch> = (0..self.registers).map(|_| Scratch::take(block)).collect();
        let mut spread: Vec<Option<Scratch>> = inputs.iter().map(|input| spread_once(input, block)).collect();
        let mut holders = vec![usize::MAX; self.instructions.last().map_or(0, |last| last.value + 1)];
        let (last, instructions) = self.instructions.split_last().expect("a program has a step");
        let mut at = start;
        for out in out.chunks_mut(block) {
            let len = out.len();
            for (input, spread) in inputs.iter().zip(&mut spread) {
                match (input, spread) {
                    (Input::InPlace, Some(spread)) => spread[..len].copy_from_slice(out),
                    (Input::Row(row), Some(spread)) if !block.is_multiple_of(row.len()) => {
                        repeat(row, at, &mut spread[..len]);
                    }
                    _ => {}
                }
            }
            for instruction in instructions {
                let mut target = std::mem::take(&mut registers[instruction.register]);
                let operands = instruction.step.reads().map(|value| match inputs.get(value) {
                    Some(Input::Full(slice)) => &slice[at..at + len],
                    Some(_) => &spread[value].as_deref().expect("a block stands for this input")[..len],
                    None => &registers[holders[value]][..len],
                });
                run(&instruction.step, operands, &mut target[..len]);
                registers[instruction.register] = target;
                holders[instruction.value] = instruction.register;
            }
            let operands = last.step.reads().map(|value| match inputs.get(value) {
                Some(Input::Full(slice)) => &slice[at..at + len],
                Some(_) => &spread[value].as_deref().expect("a block stands for this input")[..len],
                None => &registers[holders[value]][..len],
            });
            run(&last.step, operands, out);
            at += len;
        }
    }
}

/// Gives every instruction but the last a register that no later one still reads; returns how many there are.
fn assign_registers(values: usize, instructions: &mut [Instruction]) -> usize {
    let mut last_use = vec![0; values];
    for (at, instruction) in instructions.iter().enumerate() {
        for value in instruction.step.reads() {
            last_use[value] = at;
        }
    }
    let mut busy_until: Vec<usize> = Vec::new();
    let count = instructions.len();
    for (at, instruction) in instructions[..count - 1].iter_mut().enumerate() {
        let register = busy_until.iter().position(|&until| until < at).unwrap_or_else(|| {
            busy_until.push(0);
            busy_until.len() - 1
        });
        busy_until[register] = last_use[instruction.value].max(at);
        instruction.register = register;
    }
    busy_until.len()
}

fn run(step: &Joined, [a, b, c]: [&[f32]; 3], to: &mut [f32]) {
    match *step {
        Joined::Alone(Step::Unary(op, _)) => run_unary(op, a, to),
        Joined::Alone(Step::Binary(op, ..)) => run_binary(op, a, b, to),
        Joined::Arithmetic { first, second, relu, .. } => {
            run_arithmetic(first, second.map(|(op, _)| op), relu, a, b, c, to);
        }
    }
}

impl Step {
    fn reads(&self) -> impl Iterator<Item = usize> + use<> {
        let (a, b) = match *self {
            Step::Unary(_, x) => (x, None),
            Step::Binary(_, a, b) => (a, Some(b)),
        };
        std::iter::once(a).chain(b)
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

/// A block that holds an input's elements, unless they are read where they are.
fn spread_once(input: &Input<'_>, block: usize) -> Option<Scratch> {
    if let Input::Full(_) = input {
        return None;
    }
    let mut spread = Scratch::take(block);
    match input {
        Input::Scalar(value) => spread.fill(*value),
        Input::Row(row) if !row.is_empty() => repeat(row, 0, &mut spread),
        _ => {}
    }
    Some(spread)
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
        Unary::Relu6 => elementwise::map_slice(x, to, |x: f32| x.clamp(0.0, 6.0)),
        Unary::Softplus => elementwise::softplus(x, to),
        Unary::Elu => elementwise::elu(x, to),
        Unary::Floor => elementwise::map_slice(x, to, |x: f32| x.floor()),
        Unary::Ceil => elementwise::map_slice(x, to, |x: f32| x.ceil()),
        Unary::Round => elementwise::map_slice(x, to, |x: f32| x.round_ties_even()),
    }
}

vectorized! {
    fn run_arithmetic[][](
        first: Arithmetic, second: Option<Arithmetic>, relu: bool, a: &[f32], b: &[f32], c: &[f32], to: &mut [f32],
    ) = arithmetic_body;
}

#[inline(always)]
fn arithmetic_body<const FMA: bool>(
    first: Arithmetic,
    second: Option<Arithmetic>,
    relu: bool,
    a: &[f32],
    b: &[f32],
    c: &[f32],
    to: &mut [f32],
) {
    #[inline(always)]
    fn with_second(
        second: Option<Arithmetic>,
        relu: bool,
        [a, b, c]: [&[f32]; 3],
        to: &mut [f32],
        f: impl Fn(f32, f32) -> f32,
    ) {
        match second {
            None => with_relu(relu, [a, b, c], to, |a, b, _| f(a, b)),
            Some(Arithmetic::Add) => with_relu(relu, [a, b, c], to, |a, b, c| f(a, b) + c),
            Some(Arithmetic::Sub) => with_relu(relu, [a, b, c], to, |a, b, c| f(a, b) - c),
            Some(Arithmetic::SubFrom) => with_relu(relu, [a, b, c], to, |a, b, c| c - f(a, b)),
            Some(Arithmetic::Mul) => with_relu(relu, [a, b, c], to, |a, b, c| f(a, b) * c),
        }
    }
    #[inline(always)]
    fn with_relu(relu: bool, operands: [&[f32]; 3], to: &mut [f32], f: impl Fn(f32, f32, f32) -> f32) {
        if relu {
            each(operands, to, |a, b, c| {
                let x = f(a, b, c);
                if x < 0.0 { 0.0 } else { x }
            });
        } else {
            each(operands, to, f);
        }
    }
    #[inline(always)]
    fn each([a, b, c]: [&[f32]; 3], to: &mut [f32], f: impl Fn(f32, f32, f32) -> f32) {
        for (((to, &a), &b), &c) in to.iter_mut().zip(a).zip(b).zip(c) {
            *to = f(a, b, c);
        }
    }
    match first {
        Arithmetic::Add => with_second(second, relu, [a, b, c], to, |a, b| a + b),
        Arithmetic::Mul => with_second(second, relu, [a, b, c], to, |a, b| a * b),
        Arithmetic::Sub | Arithmetic::SubFrom => with_second(second, relu, [a, b, c], to, |a, b| a - b),
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
    fn joined_steps_give_what_they_give_apart() {
        use Binary::{Add, Mul, Sub};
        let pool = Pool::inline();
        let mut numbers = Numbers::new(13);
        let (a, b, c): (Vec<f32>, Vec<f32>, Vec<f32>) = (numbers.vec(1500), numbers.vec(1500), numbers.vec(1500));
        let one = |op: Binary, a: f32, b: f32| match op {
            Add => a + b,
            Sub => a - b,
            _ => a * b,
        };
        for first in [Add, Sub, Mul] {
            for second in [Add, Sub, Mul] {
                for (swapped, relu) in [(false, false), (false, true), (true, false), (true, true)] {
                    let mut program = Program::new(3);
                    let (x, y, z) = (program.input(0), program.input(1), program.input(2));
                    let inner = program.binary(first, x, y);
                    let outer =
                        if swapped { program.binary(second, z, inner) } else { program.binary(second, inner, z) };
                    if relu {
                        program.unary(Unary::Relu, outer);
                    }
                    let mut out = vec![0.0; a.len()];
                    program.eval(&pool, &[Input::Full(&a), Input::Full(&b), Input::Full(&c)], &mut out);
                    for i in 0..a.len() {
                        let inner = one(first, a[i], b[i]);
                        let outer = if swapped { one(second, c[i], inner) } else { one(second, inner, c[i]) };
                        let want = if relu { outer.max(0.0) } else { outer };
                        assert_eq!(out[i], want, "{first:?} {second:?} {swapped} {relu}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_operation_agrees_with_its_formula() {
        let pool = Pool::inline();
        let mut numbers = Numbers::new(12);
        let (a, b): (Vec<f32>, Vec<f32>) = (numbers.vec(2000), numbers.vec(2000));
        use Binary::*;
        let binaries: [(Binary, fn(f32, f32) -> f32); 11] = [
            (Add, |a, b| a + b),
            (Sub, |a, b| a - b),
            (Mul, |a, b| a * b),
            (Div, |a, b| a / b),
            (Max, f32::max),
            (Min, f32::min),
            (SquaredDifference, |a, b| (a - b).powi(2)),
            (ReluGrad, |a, b| if b > 0.0 { a } else { 0.0 }),
            (TanhGrad, |a, b| b * (1.0 - a * a)),
            (SigmoidGrad, |a, b| b * a * (1.0 - a)),
            (SqrtGrad, |a, b| b * 0.5 / a),
        ];
        for (op, formula) in binaries {
            let mut program = Program::new(2);
            program.binary(op, program.input(0), program.input(1));
            let mut out = vec![0.0; a.len()];
            program.eval(&pool, &[Input::Full(&a), Input::Full(&b)], &mut out);
            assert!((0..a.len()).all(|i| out[i] == formula(a[i], b[i])), "{op:?}");
        }
        let unaries: [(Unary, fn(f32) -> f32); 20] = [
            (Unary::Neg, |x| -x),
            (Unary::Abs, f32::abs),
            (Unary::Sign, f32::signum),
            (Unary::Square, |x| x * x),
            (Unary::Sqrt, f32::sqrt),
            (Unary::Rsqrt, |x| 1.0 / x.sqrt()),
            (Unary::Recip, f32::recip),
            (Unary::Exp, f32::exp),
            (Unary::Log, f32::ln),
            (Unary::Log1p, f32::ln_1p),
            (Unary::Expm1, f32::exp_m1),
            (Unary::Tanh, f32::tanh),
            (Unary::Sigmoid, |x| 1.0 / (1.0 + (-x).exp())),
            (Unary::Relu, |x| x.max(0.0)),
            (Unary::Relu6, |x| x.clamp(0.0, 6.0)),
            (Unary::Softplus, |x| x.exp().ln_1p()),
            (Unary::Elu, |x| if x < 0.0 { x.exp_m1() } else { x }),
            (Unary::Floor, f32::floor),
            (Unary::Ceil, f32::ceil),
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
