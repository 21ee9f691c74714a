//! `_FusedElementwise`: a chain of elementwise ops on floats in one pass over memory.
//!
//! The planner puts it in place of several nodes; no client writes it. The steps are given as op names and operands: an
//! operand below `N` is an input, the others are results of earlier steps.

use crate::math::pairs::in_order;
use framework::kernel::kernel;
use framework::{Kernel, KernelBuild, KernelContext, Op};
use linalg::broadcast::BroadcastPlan;
use linalg::fused::{Binary, Input, Program, Unary};
use linalg::parallel::Pool;
use tensor::{PartialShape, Result, Shape, Tensor, broadcast, broadcast_partial, invalid};

/// The fused op.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("_FusedElementwise")
            .input("inputs: N*float")
            .output("y: float")
            .attr("N: int >= 1")
            .attr("steps: list(string) >= 1")
            .attr("operands: list(int) >= 1")
            .shape(shape)
            .kernel(kernel(Fused::build)),
    ]
}

/// Marks an op that can be a step.
pub fn mark(mut op: Op) -> Op {
    op.is_elementwise = step(&op.name).is_some();
    op
}

#[derive(Clone, Copy)]
enum StepOp {
    Unary(Unary),
    Binary(Binary),
}

/// What a step of this op computes.
fn step(op: &str) -> Option<StepOp> {
    use StepOp::{Binary as B, Unary as U};
    Some(match op {
        "Neg" => U(Unary::Neg),
        "Abs" => U(Unary::Abs),
        "Square" => U(Unary::Square),
        "Sqrt" => U(Unary::Sqrt),
        "Rsqrt" => U(Unary::Rsqrt),
        "Reciprocal" => U(Unary::Recip),
        "Exp" => U(Unary::Exp),
        "Log" => U(Unary::Log),
        "Log1p" => U(Unary::Log1p),
        "Tanh" => U(Unary::Tanh),
        "Sigmoid" => U(Unary::Sigmoid),
        "Relu" => U(Unary::Relu),
        "Add" | "AddV2" => B(Binary::Add),
        "Sub" => B(Binary::Sub),
        "Mul" => B(Binary::Mul),
        "RealDiv" | "Div" => B(Binary::Div),
        "Maximum" => B(Binary::Max),
        "Minimum" => B(Binary::Min),
        "SquaredDifference" => B(Binary::SquaredDifference),
        "ReluGrad" => B(Binary::ReluGrad),
        "TanhGrad" => B(Binary::TanhGrad),
        "SigmoidGrad" => B(Binary::SigmoidGrad),
        "SqrtGrad" => B(Binary::SqrtGrad),
        _ => return None,
    })
}

fn shape(c: &framework::InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let mut shape = c.input(0).clone();
    for i in 1..c.num_inputs() {
        shape = broadcast_partial(&shape, c.input(i))?;
    }
    Ok(vec![shape])
}

struct Fused {
    program: Program,
    steps: Vec<(StepOp, Vec<usize>)>,
    /// Whether some step does not stretch its operands: the gradients of functions.
    is_strict: bool,
}

/// Whether a step takes its operands as they are, where arithmetic would stretch one to the other.
fn is_gradient(op: StepOp) -> bool {
    use Binary::{ReluGrad, SigmoidGrad, SqrtGrad, TanhGrad};
    matches!(op, StepOp::Binary(ReluGrad | SigmoidGrad | SqrtGrad | TanhGrad))
}

impl Fused {
    fn build(b: &KernelBuild<'_>) -> Result<Fused> {
        let count: i64 = b.attr("N")?;
        let names: Vec<bytes::Bytes> = b.attr("steps")?;
        let operands: Vec<i64> = b.attr("operands")?;
        let mut program = Program::new(count as usize);
        let mut values: Vec<_> = (0..count as usize).map(|i| program.input(i)).collect();
        let mut steps = Vec::new();
        let mut operands = operands.into_iter();
        for name in &names {
            let name = String::from_utf8_lossy(name);
            let op = step(&name).ok_or_else(|| invalid!("'{name}' cannot be fused"))?;
            let mut operand = || -> Result<usize> {
                let index = operands.next().and_then(|i| usize::try_from(i).ok()).filter(|&i| i < values.len());
                index.ok_or_else(|| invalid!("step '{name}' names an operand that does not exist"))
            };
            let args = match op {
                StepOp::Unary(_) => vec![operand()?],
                StepOp::Binary(_) => vec![operand()?, operand()?],
            };
            let value = match op {
                StepOp::Unary(u) => program.unary(u, values[args[0]]),
                StepOp::Binary(b) => program.binary(b, values[args[0]], values[args[1]]),
            };
            values.push(value);
            steps.push((op, args));
        }
        let is_strict = steps.iter().any(|(op, _)| is_gradient(*op));
        Ok(Fused { program, steps, is_strict })
    }
}

impl Kernel for Fused {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let count = ctx.num_inputs();
        let Some(shape) = self.shape_in_one_pass(ctx) else {
            let inputs = (0..count).map(|i| ctx.take(i)).collect();
            let y = self.step_by_step(ctx.pool(), inputs)?;
            return ctx.set_output(0, y);
        };
        let pool = ctx.pool();
        let mut out = None;
        for i in 0..count {
            if *ctx.input(i).shape() == shape {
                let mut taken = ctx.take(i);
                if taken.is_unique() {
                    out = Some((i, taken.into_owned::<f32>()?));
                    break;
                }
                ctx.put_back(i, taken);
            }
        }
        let (reused, mut out) = match out {
            Some((i, out)) => (Some(i), out),
            None => (None, ctx.allocate::<f32>(shape.clone())?),
        };
        let mut inputs = Vec::with_capacity(count);
        for i in 0..count {
            inputs.push(if reused == Some(i) {
                Input::InPlace
            } else {
                let tensor = ctx.input(i);
                let slice = tensor.as_slice::<f32>()?;
                match slice {
                    [one] if !shape.is_scalar() => Input::Scalar(*one),
                    _ if *tensor.shape() == shape => Input::Full(slice),
                    _ => Input::Row(slice),
                }
            });
        }
        self.program.eval(pool, &inputs, &mut out);
        drop(inputs);
        ctx.set_output(0, out)
    }
}

/// Whether an input is a single value, a row, or of the full shape.
fn is_simple(input: &Shape, full: &Shape) -> bool {
    let dims = input.dims();
    input == full || input.num_elements() == 1 || (!dims.is_empty() && full.dims().ends_with(trim(dims)))
}

/// The sizes without leading ones.
fn trim(dims: &[usize]) -> &[usize] {
    let start = dims.iter().position(|&d| d != 1).unwrap_or(dims.len());
    &dims[start..]
}

impl Fused {
    /// The shape of the result if one pass over memory can compute it.
    fn shape_in_one_pass(&self, ctx: &KernelContext<'_>) -> Option<Shape> {
        let mut inputs = (0..ctx.num_inputs()).map(|i| ctx.input(i).shape());
        let first = inputs.next()?;
        if inputs.clone().all(|other| other == first) {
            return Some(first.clone());
        }
        let shape = inputs.try_fold(first.clone(), |shape, other| broadcast(&shape, other)).ok()?;
        let is_simple = (0..ctx.num_inputs()).all(|i| is_simple(ctx.input(i).shape(), &shape));
        (is_simple && (!self.is_strict || self.gradients_fit(ctx)?)).then_some(shape)
    }

    /// Whether the operands of each strict step have one shape; `None` if some operands do not fit at all.
    fn gradients_fit(&self, ctx: &KernelContext<'_>) -> Option<bool> {
        let mut shapes: Vec<Shape> = (0..ctx.num_inputs()).map(|i| ctx.input(i).shape().clone()).collect();
        for (op, args) in &self.steps {
            let first = &shapes[args[0]];
            let shape = match (is_gradient(*op), args.get(1).map(|&i| &shapes[i])) {
                (_, None) => first.clone(),
                (true, Some(second)) if first != second => return Some(false),
                (_, Some(second)) => broadcast(first, second).ok()?,
            };
            shapes.push(shape);
        }
        Some(true)
    }

    /// For shapes that broadcast in other ways: one step after the other, each in full.
    fn step_by_step(&self, pool: &Pool, inputs: Vec<Tensor>) -> Result<Tensor> {
        let mut values = inputs;
        for (op, args) in &self.steps {
            let result = match op {
                StepOp::Unary(unary) => {
                    let x = &values[args[0]];
                    let mut program = Program::new(1);
                    program.unary(*unary, program.input(0));
                    let mut out = tensor::OwnedTensor::<f32>::new(x.shape())?;
                    program.eval(pool, &[Input::Full(x.as_slice()?)], &mut out);
                    out.into_tensor()
                }
                StepOp::Binary(binary) => {
                    let (a, b) = (&values[args[0]], &values[args[1]]);
                    let (x, y) = match binary {
                        Binary::ReluGrad if a.shape() != b.shape() => {
                            return Err(invalid!(
                                "Inputs to a ReluGrad must have the same size and shape.  Input 0: {} != input 1: {}",
                                a.shape(),
                                b.shape()
                            ));
                        }
                        _ if is_gradient(*op) => (a.clone(), in_order(a, b.clone())?),
                        _ => (spread(pool, a, b)?, spread(pool, b, a)?),
                    };
                    let mut program = Program::new(2);
                    program.binary(*binary, program.input(0), program.input(1));
                    let mut out = tensor::OwnedTensor::<f32>::new(x.shape())?;
                    program.eval(pool, &[Input::Full(x.as_slice()?), Input::Full(y.as_slice()?)], &mut out);
                    out.into_tensor()
                }
            };
            values.push(result);
        }
        values.pop().ok_or_else(|| invalid!("a fused node without steps"))
    }
}

/// A tensor stretched to the shape it has together with another.
fn spread(pool: &Pool, x: &Tensor, other: &Tensor) -> Result<Tensor> {
    let shape = broadcast(x.shape(), other.shape())?;
    if shape == *x.shape() {
        return Ok(x.clone());
    }
    let plan = BroadcastPlan::new(x.dims(), other.dims());
    let plan = plan.ok_or_else(|| invalid!("shapes {} and {} do not broadcast", x.shape(), other.shape()))?;
    let mut out = tensor::OwnedTensor::<f32>::new(shape)?;
    linalg::broadcast::binary(pool, &plan, x.as_slice::<f32>()?, other.as_slice::<f32>()?, &mut out, |a, _| a);
    Ok(out.into_tensor())
}

#[cfg(test)]
mod tests {
    use super::*;
    use framework::interpret::Interpreter;
    use framework::{CpuDevice, DeviceName, Scope, SystemEnv};
    use std::collections::HashMap;
    use std::sync::Arc;

    /// relu(a * b + c), fused.
    fn relu_mul_add(inputs: [Tensor; 3]) -> Tensor {
        eval(&inputs, &["Mul", "AddV2", "Relu"], &[0, 1, 3, 2, 4]).unwrap()
    }

    fn eval(inputs: &[Tensor], steps: &[&'static str], operands: &[i64]) -> Result<Tensor> {
        let s = Scope::new(Arc::new(crate::registry()));
        let unknown = || s.node("Placeholder").attr("dtype", tensor::DType::F32).output().unwrap();
        let feeds: HashMap<_, _> = inputs.iter().map(|t| (unknown(), t.clone())).collect();
        let mut inputs: Vec<_> = feeds.keys().copied().collect();
        inputs.sort();
        let steps: Vec<bytes::Bytes> = steps.iter().copied().map(bytes::Bytes::from).collect();
        let node = s.node("_FusedElementwise").inputs(&inputs).attr("steps", steps);
        let y = node.attr("operands", operands.to_vec()).output().unwrap();
        let device = CpuDevice::new(DeviceName::cpu("localhost", 0, 0), 1, Pool::inline());
        let interpreter = Interpreter::new(Arc::new(device), Arc::new(SystemEnv::default()));
        Ok(s.with_graph(|g| interpreter.run(g, &feeds, &[y], &[]))?.remove(0))
    }

    #[test]
    fn a_gradient_among_the_steps_stretches_nothing() {
        let (y, dy) = (Tensor::from([[0.5f32, 0.0], [2.0, 1.0]]), Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]));
        let tanh_neg = |dy: Tensor| eval(&[y.clone(), dy], &["TanhGrad", "Neg"], &[0, 1, 2]);
        let want = Tensor::from([[-0.75f32, -2.0], [9.0, 0.0]]);
        assert_eq!(tanh_neg(dy.clone()).unwrap(), want);
        // As many elements in another shape are taken in order, as the op by itself does.
        assert_eq!(tanh_neg(Tensor::from([1.0f32, 2.0, 3.0, 4.0])).unwrap(), want);
        for dy in [Tensor::scalar(1.0f32), Tensor::from([1.0f32, 2.0])] {
            let refused = tanh_neg(dy.clone()).unwrap_err();
            assert!(refused.message.contains("same number of elements, got 4 and"), "{refused}");
            let refused = eval(&[dy, y.clone()], &["ReluGrad", "Neg"], &[0, 1, 2]).unwrap_err();
            assert!(refused.message.contains("must have the same size and shape"), "{refused}");
        }
        // What a stretched value leads to may be anything that fits.
        let row = Tensor::from([1.0f32, 2.0]);
        let sum = eval(&[y.clone(), dy, row], &["AddV2", "TanhGrad"], &[1, 2, 0, 3]).unwrap();
        assert_eq!(sum, Tensor::from([[1.5f32, 4.0], [-12.0, 0.0]]));
    }

    #[test]
    fn full_rows_scalars_and_other_shapes_give_the_same() {
        let a = Tensor::from([[1.0f32, -2.0], [3.0, 4.0]]);
        let b = Tensor::from([[2.0f32, 2.0], [-1.0, 0.5]]);
        let want = |c: [f32; 4]| {
            Tensor::from([
                [(2.0 + c[0]).max(0.0), (-4.0 + c[1]).max(0.0)],
                [(-3.0 + c[2]).max(0.0), (2.0 + c[3]).max(0.0)],
            ])
        };
        let cases = [
            (Tensor::from([[1.0f32, 5.0], [4.0, 1.0]]), [1.0, 5.0, 4.0, 1.0]),
            (Tensor::from([1.0f32, 5.0]), [1.0, 5.0, 1.0, 5.0]),
            (Tensor::scalar(7.0f32), [7.0; 4]),
            (Tensor::from([[1.0f32], [5.0]]), [1.0, 1.0, 5.0, 5.0]), // a column: not in one pass
        ];
        for (c, spread) in cases {
            assert_eq!(relu_mul_add([a.clone(), b.clone(), c]), want(spread));
        }
    }
}
