//! The graphs to measure.

use crate::training;
use framework::graph::export;
use framework::{NodeId, Output, Scope};
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Tensor};

/// How a workload's time is told.
pub enum Unit {
    /// Work per second in billions.
    Rate(&'static str),
    /// Time per repetition.
    Nanos,
    /// Time per repetition.
    Micros,
}

/// A graph to run, and what one run does.
pub struct Workload {
    pub name: &'static str,
    pub graph: proto::GraphDef,
    pub init: Option<String>,
    pub target: String,
    pub feeds: Vec<(String, Tensor)>,
    /// How often the thing measured stands in the graph.
    pub repeats: usize,
    /// The work of one repetition.
    pub work: f64,
    pub unit: Unit,
    /// The ratio to TensorFlow's speed that is wanted, or the limit.
    pub wanted: &'static str,
    pub optimized: bool,
    pub optimized_there: bool,
}

/// A graph under construction, with its variables.
struct Build {
    s: Scope,
    inits: Vec<NodeId>,
}

impl Build {
    fn new() -> Build {
        Build { s: Scope::new(Arc::new(ops::registry())), inits: Vec::new() }
    }

    /// A reference variable with values between -1 and 1.
    fn variable(&mut self, dims: &[usize]) -> Result<Output> {
        let count: usize = dims.iter().product();
        if count <= 16 {
            let start = self.s.constant(Tensor::from_vec(dims.to_vec(), vec![0.5f32; count])?)?;
            return self.variable_from(start, dims);
        }
        let shape = self.s.constant(Tensor::from(dims.iter().map(|&d| d as i32).collect::<Vec<_>>()))?;
        let random = self.s.node("RandomUniform").input(shape).attr("dtype", DType::F32).attr("seed", 1i64).output()?;
        let start = self.s.op("Sub", &[random, self.s.constant(0.5f32)?])?;
        self.variable_from(start, dims)
    }

    fn variable_from(&mut self, start: Output, dims: &[usize]) -> Result<Output> {
        let shape = PartialShape::new(dims.iter().map(|&d| Some(d)));
        let dtype = self.s.dtype(start)?;
        let variable = self.s.node("VariableV2").attr("shape", shape).attr("dtype", dtype).output()?;
        self.inits.push(self.s.node("Assign").inputs(&[variable, start]).build()?);
        Ok(variable)
    }

    fn read(&self, variable: Output) -> Result<Output> {
        self.s.op("Identity", &[variable])
    }

    /// `repeats` copies of what `op` builds, each waiting for the one before.
    fn repeat(&self, repeats: usize, mut op: impl FnMut(&Scope) -> Result<Output>) -> Result<NodeId> {
        let mut before: Option<NodeId> = None;
        for _ in 0..repeats {
            let s = &self.s;
            let made = match before {
                Some(node) => s.with_control(&[node], || op(s)),
                None => op(s),
            }?;
            before = Some(made.node);
        }
        Ok(before.expect("at least one copy"))
    }

    fn finish(
        self,
        name: &'static str,
        target: NodeId,
        repeats: usize,
        work: f64,
        unit: Unit,
        wanted: &'static str,
    ) -> Result<Workload> {
        let init = if self.inits.is_empty() {
            None
        } else {
            let node = self.inits.iter().fold(self.s.node("NoOp").name("init"), |n, &i| n.control(i)).build()?;
            Some(self.s.node_name(node))
        };
        let target = self.s.node("NoOp").name("target").control(target).build()?;
        Ok(Workload {
            name,
            graph: self.s.with_graph(export::export),
            init,
            target: self.s.node_name(target),
            feeds: Vec::new(),
            repeats,
            work,
            unit,
            wanted,
            optimized: true,
            optimized_there: false,
        })
    }
}

/// A workload's name, and how to build it.
pub type Recipe = (&'static str, Box<dyn Fn() -> Result<Workload>>);

/// Every workload, in the order of the table.
pub fn all() -> Vec<Recipe> {
    fn recipe(name: &'static str, build: impl Fn(&'static str) -> Result<Workload> + 'static) -> Recipe {
        (name, Box::new(move || build(name)))
    }
    vec![
        recipe("null run", null_run),
        recipe("1000 dependent scalar adds", chain_of_adds),
        recipe("1000 independent scalar adds", independent_adds),
        recipe("while_loop, 10000 iterations", while_loop),
        recipe("matmul 100x784x100", |name| matmul(name, [100, 784, 100], 50, "1.3")),
        recipe("matmul 256x256x256", |name| matmul(name, [256, 256, 256], 25, "1.0")),
        recipe("matmul 1024x1024x1024", |name| matmul(name, [1024, 1024, 1024], 2, "1.0")),
        recipe("matmul 2048x2048x2048", |name| matmul(name, [2048, 2048, 2048], 1, "0.9")),
        recipe("relu(a*b+c) 1M", relu_mul_add),
        recipe("softmax cross-entropy 1024x1000", softmax_cross_entropy),
        recipe("random normal 1M", random_normal),
        recipe("conv 5x5 28x28x32->64", |name| conv(name, [32, 28, 32, 64, 5], Conv::Forward)),
        recipe("conv 5x5 28x28x32->64 d input", |name| conv(name, [32, 28, 32, 64, 5], Conv::GradInput)),
        recipe("conv 5x5 28x28x32->64 d filter", |name| conv(name, [32, 28, 32, 64, 5], Conv::GradFilter)),
        recipe("conv 3x3 56x56x64->64", |name| conv(name, [32, 56, 64, 64, 3], Conv::Forward)),
        recipe("conv 3x3 56x56x64->64 d input", |name| conv(name, [32, 56, 64, 64, 3], Conv::GradInput)),
        recipe("conv 3x3 56x56x64->64 d filter", |name| conv(name, [32, 56, 64, 64, 3], Conv::GradFilter)),
        recipe("max pool 2x2 32x28x28x64", |name| max_pool(name, false)),
        recipe("max pool 2x2 gradient", |name| max_pool(name, true)),
        recipe("SGD apply 10M", apply_sgd),
        recipe("Adam apply 10M", apply_adam),
        recipe("tanh 1M", |name| unary(name, "Tanh", &[1 << 20])),
        recipe("softmax 1024x1000", |name| unary(name, "Softmax", &[1024, 1000])),
        recipe("reduce_sum axis 0 1024x1024", reduce_sum),
        recipe("transpose 1024x1024", transpose),
        recipe("MNIST MLP step, batch 100", training::mnist_mlp),
        recipe("MNIST CNN step, batch 50", training::mnist_cnn),
    ]
}

/// Which of a convolution's three computations.
#[derive(Clone, Copy)]
enum Conv {
    Forward,
    GradInput,
    GradFilter,
}

fn null_run(name: &'static str) -> Result<Workload> {
    let b = Build::new();
    let node = b.s.node("NoOp").name("nothing").build()?;
    b.finish(name, node, 1, 1.0, Unit::Micros, "10 µs")
}

fn chain_of_adds(name: &'static str) -> Result<Workload> {
    let mut b = Build::new();
    let (x, one) = (b.variable(&[])?, b.variable(&[])?);
    let (mut y, one) = (b.read(x)?, b.read(one)?);
    for _ in 0..1000 {
        y = b.s.op("AddV2", &[y, one])?;
    }
    let mut workload = b.finish(name, y.node, 1000, 1.0, Unit::Nanos, "120 ns")?;
    workload.optimized = false;
    Ok(workload)
}

fn independent_adds(name: &'static str) -> Result<Workload> {
    let mut b = Build::new();
    let (x, one) = (b.variable(&[])?, b.variable(&[])?);
    let (x, one) = (b.read(x)?, b.read(one)?);
    let mut all = b.s.node("NoOp").name("all");
    for _ in 0..1000 {
        all = all.control(b.s.op("AddV2", &[x, one])?.node);
    }
    let node = all.build()?;
    let mut workload = b.finish(name, node, 1000, 1.0, Unit::Nanos, "200 ns")?;
    workload.optimized = false;
    Ok(workload)
}

/// Counts to 10,000 with a second loop variable beside the counter.
fn while_loop(name: &'static str) -> Result<Workload> {
    const COUNT: i32 = 10_000;
    let b = Build::new();
    let s = &b.s;
    let enter = |value: Output, constant: bool| {
        s.node("Enter")
            .input(value)
            .attr("frame_name", "loop")
            .attr("is_constant", constant)
            .attr("parallel_iterations", 10i64)
            .output()
    };
    let (i, x) = (enter(s.constant(0i32)?, false)?, enter(s.constant(0.0f32)?, false)?);
    let merge = |v: Output| s.node("Merge").inputs(&[v, v]).output();
    let (i, x) = (merge(i)?, merge(x)?);
    let limit = s.with_control(&[i.node], || s.constant(COUNT))?;
    let condition = s.op("LoopCond", &[s.op("Less", &[i, limit])?])?;
    let switch = |v: Output| s.node("Switch").inputs(&[v, condition]).build();
    let (switch_i, switch_x) = (switch(i)?, switch(x)?);
    let taken = |node: NodeId| s.op("Identity", &[Output { node, index: 1 }]);
    let (body_i, body_x) = (taken(switch_i)?, taken(switch_x)?);
    let (one, step) =
        s.with_control(&[body_i.node], || Ok::<_, tensor::Error>((s.constant(1i32)?, s.constant(1.0f32)?)))?;
    let next_i = s.op("NextIteration", &[s.op("AddV2", &[body_i, one])?])?;
    let next_x = s.op("NextIteration", &[s.op("AddV2", &[body_x, step])?])?;
    s.edit_graph(|g| g.set_input(i.node, 1, next_i).and_then(|()| g.set_input(x.node, 1, next_x)))?;
    let (exit, other) = (s.op("Exit", &[switch_i.into()])?, s.op("Exit", &[switch_x.into()])?);
    let node = s.node("NoOp").name("done").control(exit.node).control(other.node).build()?;
    b.finish(name, node, COUNT as usize, 1.0, Unit::Nanos, "1000 ns")
}

fn matmul(name: &'static str, [m, k, n]: [usize; 3], repeats: usize, wanted: &'static str) -> Result<Workload> {
    let mut b = Build::new();
    let (x, y) = (b.variable(&[m, k])?, b.variable(&[k, n])?);
    let (x, y) = (b.read(x)?, b.read(y)?);
    let node = b.repeat(repeats, |s| s.op("MatMul", &[x, y]))?;
    b.finish(name, node, repeats, 2.0 * (m * k * n) as f64, Unit::Rate("GFLOP/s"), wanted)
}

fn relu_mul_add(name: &'static str) -> Result<Workload> {
    const N: usize = 1 << 20;
    let mut b = Build::new();
    let (x, y, z) = (b.variable(&[N])?, b.variable(&[N])?, b.variable(&[N])?);
    let (x, y, z) = (b.read(x)?, b.read(y)?, b.read(z)?);
    let node = b.repeat(10, |s| s.op("Relu", &[s.op("AddV2", &[s.op("Mul", &[x, y])?, z])?]))?;
    b.finish(name, node, 10, N as f64, Unit::Rate("Gelem/s"), "2.0")
}

fn softmax_cross_entropy(name: &'static str) -> Result<Workload> {
    let mut b = Build::new();
    let logits = b.variable(&[1024, 1000])?;
    let labels = b.s.constant(Tensor::from_vec([1, 1000], vec![0.001f32; 1000])?)?;
    let labels = b.s.op("Tile", &[labels, b.s.constant([1024i32, 1])?])?;
    let labels = b.variable_from(labels, &[1024, 1000])?;
    let (logits, labels) = (b.read(logits)?, b.read(labels)?);
    let node = b.repeat(5, |s| s.op("SoftmaxCrossEntropyWithLogits", &[logits, labels]))?;
    b.finish(name, node, 5, 1024e3, Unit::Rate("Gelem/s"), "2.0")
}

fn random_normal(name: &'static str) -> Result<Workload> {
    const N: i32 = 1 << 20;
    let b = Build::new();
    let shape = b.s.constant([N])?;
    let node = b.repeat(5, |s| s.node("RandomStandardNormal").input(shape).attr("dtype", DType::F32).output())?;
    b.finish(name, node, 5, N as f64, Unit::Rate("Gelem/s"), "2.0")
}

fn conv(name: &'static str, [batch, size, from, to, kernel]: [usize; 5], kind: Conv) -> Result<Workload> {
    let mut b = Build::new();
    let (x, w) = (b.variable(&[batch, size, size, from])?, b.variable(&[kernel, kernel, from, to])?);
    let dy = b.variable(&[batch, size, size, to])?;
    let (x, w, dy) = (b.read(x)?, b.read(w)?, b.read(dy)?);
    let sizes = |d: [usize; 4]| b.s.constant(d.map(|d| d as i32));
    let (x_sizes, w_sizes) = (sizes([batch, size, size, from])?, sizes([kernel, kernel, from, to])?);
    let node = b.repeat(1, |s| {
        let node = match kind {
            Conv::Forward => s.node("Conv2D").inputs(&[x, w]),
            Conv::GradInput => s.node("Conv2DBackpropInput").inputs(&[x_sizes, w, dy]),
            Conv::GradFilter => s.node("Conv2DBackpropFilter").inputs(&[x, w_sizes, dy]),
        };
        node.attr("strides", vec![1i64; 4]).attr("padding", "SAME").output()
    })?;
    let work = 2.0 * (batch * size * size * from * to * kernel * kernel) as f64;
    b.finish(name, node, 1, work, Unit::Rate("GFLOP/s"), "0.8")
}

fn max_pool(name: &'static str, gradient: bool) -> Result<Workload> {
    let mut b = Build::new();
    let (x, dy) = (b.variable(&[32, 28, 28, 64])?, b.variable(&[32, 14, 14, 64])?);
    let (x, dy) = (b.read(x)?, b.read(dy)?);
    let pooling = |n: framework::scope::NodeBuilder<'_>| {
        n.attr("ksize", vec![1i64, 2, 2, 1]).attr("strides", vec![1i64, 2, 2, 1]).attr("padding", "SAME").output()
    };
    let node = if gradient {
        let y = pooling(b.s.node("MaxPool").input(x))?;
        b.repeat(4, |s| pooling(s.node("MaxPoolGrad").inputs(&[x, y, dy])))?
    } else {
        b.repeat(4, |s| pooling(s.node("MaxPool").input(x)))?
    };
    b.finish(name, node, 4, (32 * 28 * 28 * 64) as f64, Unit::Rate("Gelem/s"), "1.0")
}

const PARAMETERS: usize = 10_000_000;

fn zeros(b: &mut Build) -> Result<Output> {
    let start = b.s.op("Fill", &[b.s.constant([PARAMETERS as i32])?, b.s.constant(0.0f32)?])?;
    b.variable_from(start, &[PARAMETERS])
}

fn apply_sgd(name: &'static str) -> Result<Workload> {
    let mut b = Build::new();
    let (v, g) = (zeros(&mut b)?, zeros(&mut b)?);
    let (g, rate) = (b.read(g)?, b.s.constant(0.01f32)?);
    let node = b.repeat(2, |s| s.op("ApplyGradientDescent", &[v, rate, g]))?;
    b.finish(name, node, 2, PARAMETERS as f64, Unit::Rate("Gparam/s"), "1.0")
}

fn apply_adam(name: &'static str) -> Result<Workload> {
    let mut b = Build::new();
    let (v, m, u, g) = (zeros(&mut b)?, zeros(&mut b)?, zeros(&mut b)?, zeros(&mut b)?);
    let g = b.read(g)?;
    let scalars = [0.9f32, 0.999, 0.001, 0.9, 0.999, 1e-8].map(|x| b.s.constant(x));
    let scalars: Vec<Output> = scalars.into_iter().collect::<Result<_>>()?;
    let node = b.repeat(2, |s| s.node("ApplyAdam").inputs(&[v, m, u]).inputs(&scalars).input(g).output())?;
    b.finish(name, node, 2, PARAMETERS as f64, Unit::Rate("Gparam/s"), "1.0")
}

fn unary(name: &'static str, op: &str, dims: &[usize]) -> Result<Workload> {
    let mut b = Build::new();
    let x = b.variable(dims)?;
    let x = b.read(x)?;
    let node = b.repeat(10, |s| s.op(op, &[x]))?;
    b.finish(name, node, 10, dims.iter().product::<usize>() as f64, Unit::Rate("Gelem/s"), "-")
}

fn reduce_sum(name: &'static str) -> Result<Workload> {
    let mut b = Build::new();
    let x = b.variable(&[1024, 1024])?;
    let (x, axes) = (b.read(x)?, b.s.constant([0i32])?);
    let node = b.repeat(10, |s| s.op("Sum", &[x, axes]))?;
    b.finish(name, node, 10, (1 << 20) as f64, Unit::Rate("Gelem/s"), "-")
}

fn transpose(name: &'static str) -> Result<Workload> {
    let mut b = Build::new();
    let x = b.variable(&[1024, 1024])?;
    let (x, order) = (b.read(x)?, b.s.constant([1i32, 0])?);
    let node = b.repeat(10, |s| s.op("Transpose", &[x, order]))?;
    b.finish(name, node, 10, (1 << 20) as f64, Unit::Rate("Gelem/s"), "-")
}
