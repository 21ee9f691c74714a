//! What all optimizers share: the four ops of each, checks, locks, and the walk over elements or rows.
//!
//! An optimizer says what its ops are called, which inputs they have, and how a stretch of the variable and its slots
//! changes by a stretch of the gradient. `Apply…` walks over everything in parallel, `SparseApply…` over the rows that
//! its indices name, in their order.

use crate::state::variable_shape;
use framework::op::KernelFn;
use framework::typed::{FieldKernel, FloatKernel, complexes_by, fields_by, floats_by, wide_floats_by};
use framework::{Field, Float, InferenceContext, Int, KernelBuild, KernelContext, Number, Op, Pool, Value, Variable};
use linalg::gather::{AHEAD, prefetch};
use parking_lot::Mutex;
use std::array;
use std::ops::Range;
use std::sync::Arc;
use tensor::{DType, Error, PartialShape, Result, Tensor, internal, invalid};

/// An optimizer of `V` variables (the one that is trained, and its slots) and `S` settings.
pub(super) trait Optimizer<const V: usize, const S: usize>: Send + Sync + Sized + 'static {
    /// What its ops' names end in.
    const NAME: &'static str;
    /// The names of the slots.
    const SLOTS: &'static [&'static str];
    /// The inputs after the slots, in order: settings, and among them the gradient, called `grad` or `delta`.
    const INPUTS: &'static [&'static str];
    /// Attributes besides the element type and `use_locking`.
    const ATTRS: &'static [&'static str] = &[];

    /// Reads the attributes.
    fn new(b: &KernelBuild<'_>) -> Result<Self>;

    /// An error if the settings make no sense.
    fn check(&self, settings: [f64; S], is_sparse: bool) -> Result<()> {
        let _ = (settings, is_sparse);
        Ok(())
    }

    /// One step, given the settings in the order of the inputs.
    fn step<T: Float>(&self, settings: [T; S], work: Work<'_, T, V>);
}

/// An optimizer of complex numbers too.
pub(super) trait FieldOptimizer<const V: usize, const S: usize>: Optimizer<V, S> {
    /// One step, for any numbers: slower than [`step`](Optimizer::step).
    fn step_by_element<T: Field>(&self, settings: [T; S], work: Work<'_, T, V>);
}

/// The ops of an optimizer of real numbers.
pub(super) fn ops<O: Optimizer<V, S>, const V: usize, const S: usize>() -> Vec<Op> {
    let kernel: KernelFn = Arc::new(|b| floats_by(b, "T", Apply::<O, V, S>::new(b)?));
    forms::<O, V, S>(&kernel)
}

/// The ops of an optimizer of real and complex numbers; complex ones go element by element.
pub(super) fn field_ops<O: FieldOptimizer<V, S>, const V: usize, const S: usize>() -> Vec<Op> {
    let kernel: KernelFn = Arc::new(|b| {
        let apply = Apply::<O, V, S>::new(b)?;
        match b.dtype("T")?.is_complex() {
            true => complexes_by(b, "T", ApplyByElement(apply)),
            false => floats_by(b, "T", apply),
        }
    });
    forms::<O, V, S>(&kernel)
}

/// The same for one that goes element by element also where only TensorFlow's own order of rounding will do: for halves,
/// which show it, and rows.
pub(super) fn ordered_field_ops<O: FieldOptimizer<V, S>, const V: usize, const S: usize>() -> Vec<Op> {
    let kernel: KernelFn = Arc::new(|b| {
        let apply = Apply::<O, V, S>::new(b)?;
        match (b.dtype("T")?, apply.is_sparse) {
            (DType::F32 | DType::F64, false) => wide_floats_by(b, "T", apply),
            _ => fields_by(b, "T", ApplyByElement(apply)),
        }
    });
    forms::<O, V, S>(&kernel)
}

fn forms<O: Optimizer<V, S>, const V: usize, const S: usize>(kernel: &KernelFn) -> Vec<Op> {
    assert!(O::SLOTS.len() + 1 == V && O::INPUTS.len() == S + 1, "{}: variables or settings miscounted", O::NAME);
    let mut ops = Vec::new();
    for (is_resource, is_sparse) in [(false, false), (true, false), (false, true), (true, true)] {
        let prefix = if is_resource { "Resource" } else { "" };
        let sparse = if is_sparse { "Sparse" } else { "" };
        let mut op = Op::new(format!("{prefix}{sparse}Apply{}", O::NAME));
        for name in std::iter::once(&"var").chain(O::SLOTS) {
            op = op.input(&if is_resource { format!("{name}: resource") } else { format!("{name}: Ref(T)") });
        }
        for &name in O::INPUTS {
            op = match name {
                "grad" | "delta" if is_sparse => op.input("grad: T").input("indices: Tindices"),
                "global_step" => op.input("global_step: int64"),
                _ => op.input(&format!("{name}: T")),
            };
        }
        op = op.attr("T: numbertype");
        if is_sparse {
            op = op.attr("Tindices: indextype");
        }
        op = op.attr("use_locking: bool = false");
        for attr in O::ATTRS {
            op = op.attr(attr);
        }
        op = if is_resource { op.stateful() } else { op.output("out: Ref(T)") };
        op = if is_sparse { op.shape(sparse_shape::<O, V, S>) } else { op.shape(dense_shape::<O, V, S>) };
        ops.push(op.kernel(kernel.clone()));
    }
    ops
}

/// Where the gradient stands among the inputs.
fn gradient_index<O: Optimizer<V, S>, const V: usize, const S: usize>() -> usize {
    V + O::INPUTS.iter().position(|&n| n == "grad" || n == "delta").expect("every optimizer has a gradient")
}

/// The variable's shape: that of its slots, and of the gradient.
fn dense_shape<O: Optimizer<V, S>, const V: usize, const S: usize>(
    c: &InferenceContext<'_>,
) -> Result<Vec<PartialShape>> {
    let gradient = gradient_index::<O, V, S>();
    for index in (V..c.num_inputs()).filter(|&i| i != gradient) {
        c.require_scalar(index)?;
    }
    let shape = slots_shape::<V>(c)?.merge(c.input(gradient))?;
    Ok(vec![shape; c.num_outputs()])
}

/// The variable's shape: that of its slots; and one row of gradient for each index.
fn sparse_shape<O: Optimizer<V, S>, const V: usize, const S: usize>(
    c: &InferenceContext<'_>,
) -> Result<Vec<PartialShape>> {
    let gradient = gradient_index::<O, V, S>();
    for index in (V..c.num_inputs()).filter(|&i| i != gradient && i != gradient + 1) {
        c.require_scalar(index)?;
    }
    let shape = slots_shape::<V>(c)?;
    let indices = c.require_rank(gradient + 1, 1)?;
    if let Some([_, row @ ..]) = shape.dims() {
        PartialShape::new([&[indices.dim(0)], row].concat()).merge(c.input(gradient))?;
    }
    Ok(vec![shape; c.num_outputs()])
}

fn slots_shape<const V: usize>(c: &InferenceContext<'_>) -> Result<PartialShape> {
    let mut shape = variable_shape(c, 0);
    for slot in 1..V {
        shape = shape.merge(&variable_shape(c, slot))?;
    }
    Ok(shape)
}

/// The kernel of all ops of an optimizer.
struct Apply<O, const V: usize, const S: usize> {
    optimizer: O,
    gradient: usize,
    is_sparse: bool,
}

struct ApplyByElement<O, const V: usize, const S: usize>(Apply<O, V, S>);

impl<O: Optimizer<V, S>, const V: usize, const S: usize> FloatKernel for Apply<O, V, S> {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        self.run::<T>(ctx, &|settings, work| self.optimizer.step(settings, work))
    }
}

impl<O: FieldOptimizer<V, S>, const V: usize, const S: usize> FieldKernel for ApplyByElement<O, V, S> {
    fn compute<T: Field>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        self.0.run::<T>(ctx, &|settings, work| self.0.optimizer.step_by_element(settings, work))
    }
}

impl<O: Optimizer<V, S>, const V: usize, const S: usize> Apply<O, V, S> {
    fn new(b: &KernelBuild<'_>) -> Result<Apply<O, V, S>> {
        let is_sparse = b.node.attrs.contains_key("Tindices");
        Ok(Apply { optimizer: O::new(b)?, gradient: gradient_index::<O, V, S>(), is_sparse })
    }

    fn run<T: Number>(&self, ctx: &mut KernelContext<'_>, step: Step<'_, T, V, S>) -> Result<()> {
        let inputs = Inputs { gradient: self.gradient, is_sparse: self.is_sparse, slots: O::SLOTS };
        inputs.apply(ctx, &|settings| self.optimizer.check(settings, self.is_sparse), step)
    }
}

/// A step of an optimizer, given its settings.
type Step<'a, T, const V: usize, const S: usize> = &'a dyn Fn([T; S], Work<'_, T, V>);

/// Which inputs an op of an optimizer has: all that need be known of it to prepare its step, which is therefore compiled
/// for each number of them and not for each optimizer.
struct Inputs {
    gradient: usize,
    is_sparse: bool,
    slots: &'static [&'static str],
}

impl Inputs {
    fn apply<T: Number, const V: usize, const S: usize>(
        &self,
        ctx: &mut KernelContext<'_>,
        check: &dyn Fn([f64; S]) -> Result<()>,
        step: Step<'_, T, V, S>,
    ) -> Result<()> {
        let variables = variables::<V>(ctx)?;
        let settings = self.settings::<T, V, S>(ctx)?;
        check(settings.map(|s| s.to_f64()))?;
        let (gradient, pool) = (ctx.input(self.gradient), ctx.pool());

        lock_all(&variables, &mut |tensors| {
            let rows = self.check_shapes(ctx, &tensors)?;
            let mut failed = None;
            let state = tensors.map(|t| {
                t.as_mut_slice::<T>().unwrap_or_else(|e| {
                    failed = Some(e);
                    &mut []
                })
            });
            if let Some(error) = failed {
                return Err(error);
            }
            step(settings, Work { pool, state, gradient: gradient.as_slice()?, rows });
            Ok(())
        })?;

        if ctx.num_outputs() == 1 {
            ctx.set_value(0, Value::Ref(variables[0].clone()))?;
        }
        Ok(())
    }

    fn settings<T: Number, const V: usize, const S: usize>(&self, ctx: &KernelContext<'_>) -> Result<[T; S]> {
        let mut settings = [T::ZERO; S];
        let others =
            (V..ctx.num_inputs()).filter(|&i| i != self.gradient && !(self.is_sparse && i == self.gradient + 1));
        for (setting, index) in settings.iter_mut().zip(others) {
            let input = ctx.input(index);
            if !input.dims().is_empty() {
                return Err(not_a_scalar(ctx, index));
            }
            *setting = if input.dtype() == T::DTYPE { input.item()? } else { T::from_i64(input.item::<i64>()?) };
        }
        Ok(settings)
    }

    /// The rows to change and the length of each, if only some are, once everything is seen to fit together.
    fn check_shapes<'c>(
        &self,
        ctx: &'c KernelContext<'_>,
        tensors: &[&mut Tensor],
    ) -> Result<Option<(&'c Tensor, usize)>> {
        let var = &*tensors[0];
        for (slot, name) in tensors[1..].iter().zip(self.slots) {
            if slot.shape() != var.shape() {
                return Err(invalid!("var and {name} do not have the same shape{} {}", var.shape(), slot.shape()));
            }
        }
        let gradient = ctx.input(self.gradient);
        if self.is_sparse {
            let indices = ctx.input(self.gradient + 1);
            check_rows(var, gradient, indices)?;
            return Ok(Some((indices, var.dims()[1..].iter().product())));
        }
        if var.shape() != gradient.shape() {
            let name = &ctx.node().op.inputs[self.gradient].name;
            return Err(invalid!("var and {name} do not have the same shape{} {}", var.shape(), gradient.shape()));
        }
        Ok(None)
    }
}

fn not_a_scalar(ctx: &KernelContext<'_>, index: usize) -> Error {
    let what = match ctx.node().op.inputs[index].name.as_str() {
        name @ ("l1" | "l2") => format!("{name} regularization strength"),
        "l2_shrinkage" => "l2 shrinkage regularization strength".to_string(),
        name => name.to_string(),
    };
    invalid!("{what} is not a scalar: {}", ctx.input(index).shape())
}

/// The variable and its slots.
fn variables<const V: usize>(ctx: &KernelContext<'_>) -> Result<[Arc<Variable>; V]> {
    let find = |index: usize| match ctx.input_value(index) {
        Value::Ref(variable) => Ok(variable.clone()),
        // TensorFlow's optimizers call this an internal error, where reading is a failed precondition.
        _ => ctx.any_variable(index).map_err(|e| internal!("Invalid variable reference. {}", e.message)),
    };
    let first = find(0)?;
    let mut variables = array::from_fn(|_| first.clone());
    for (index, variable) in variables.iter_mut().enumerate().skip(1) {
        *variable = find(index)?;
    }
    Ok(variables)
}

/// Holds all variables' values at once. They are locked in the order of their addresses, so that two steps over the
/// same variables cannot wait for each other.
fn lock_all<const V: usize>(
    variables: &[Arc<Variable>; V],
    work: &mut dyn FnMut([&mut Tensor; V]) -> Result<()>,
) -> Result<()> {
    fn lock_next<const V: usize>(
        variables: &[Arc<Variable>; V],
        order: &[usize],
        held: [Option<&mut Tensor>; V],
        work: &mut dyn FnMut([&mut Tensor; V]) -> Result<()>,
    ) -> Result<()> {
        let Some((&next, rest)) = order.split_first() else {
            return work(held.map(|tensor| tensor.expect("every variable has been locked")));
        };
        variables[next].update(|tensor| {
            let mut held: [Option<&mut Tensor>; V] = held;
            held[next] = Some(tensor);
            lock_next(variables, rest, held, work)
        })
    }

    let mut order: [usize; V] = array::from_fn(|i| i);
    order.sort_unstable_by_key(|&i| Arc::as_ptr(&variables[i]).addr());
    if order.windows(2).any(|pair| Arc::ptr_eq(&variables[pair[0]], &variables[pair[1]])) {
        return Err(invalid!("the variable and its slots must be different variables"));
    }
    lock_next(variables, &order, array::from_fn(|_| None), work)
}

/// Whether there is one row of gradient for each index, and a row of the variable.
fn check_rows(var: &Tensor, gradient: &Tensor, indices: &Tensor) -> Result<()> {
    if var.dims().is_empty() {
        return Err(invalid!("var must be at least 1 dimensional"));
    }
    if indices.dims().len() != 1 {
        return Err(invalid!("indices must be one-dimensional, found shape {}", indices.shape()));
    }
    if gradient.dims().first() != indices.dims().first() {
        return Err(invalid!(
            "grad must be the same size as indices in the first dimension. grad has shape {}, indices {}",
            gradient.shape(),
            indices.shape()
        ));
    }
    let (row, found) = (&var.dims()[1..], &gradient.dims()[1..]);
    if row != found {
        let differs = row.iter().zip(found).position(|(a, b)| a != b).unwrap_or(row.len().min(found.len())) + 1;
        return Err(invalid!(
            "var and grad must match in dimension {differs}: {} and {}",
            var.shape(),
            gradient.shape()
        ));
    }
    let limit = var.dims()[0];
    let bad = match indices.dtype() {
        DType::I32 => linalg::gather::check(indices.as_slice::<i32>()?, limit),
        _ => linalg::gather::check(indices.as_slice::<i64>()?, limit),
    };
    bad.map_err(|offset| {
        let index = indices.to_i64s().ok().and_then(|v| v.get(offset).copied()).unwrap_or(-1);
        invalid!("Index {index} at offset {offset} in indices is out of range")
    })
}

/// What a step has to walk over.
pub(super) struct Work<'a, T, const V: usize> {
    pool: &'a Pool,
    state: [&'a mut [T]; V],
    gradient: &'a [T],
    /// The rows to change, checked, and the length of each; everything if `None`.
    rows: Option<(&'a Tensor, usize)>,
}

/// How stretches of the variable and its slots change by their stretch of the gradient.
type Change<'a, T, const V: usize> = &'a (dyn Fn([&mut [T]; V], &[T]) + Sync);

/// Elements worth a thread.
const GRAIN: usize = 1 << 14;
/// The work is cut into this many pieces per thread, so that a thread that is held up does not hold up the step.
const PIECES_PER_THREAD: usize = 4;

impl<T: Number, const V: usize> Work<'_, T, V> {
    /// Whether only some rows are changed.
    pub(super) fn is_sparse(&self) -> bool {
        self.rows.is_some()
    }

    /// Calls `change` on stretches of the variable and its slots with their stretch of the gradient, in parallel;
    /// a row named twice is changed twice, in order.
    pub(super) fn each(self, change: impl Fn([&mut [T]; V], &[T]) + Sync) {
        self.walk(&change);
    }

    // Compiled for each type and number of slots, and not for each optimizer.
    fn walk(self, change: Change<'_, T, V>) {
        match self.rows {
            None => self.each_stretch(change),
            Some((indices, row)) => match (indices.as_slice::<i32>(), indices.as_slice::<i64>()) {
                (Ok(indices), _) => self.each_row(indices, row, change),
                (_, Ok(indices)) => self.each_row(indices, row, change),
                _ => unreachable!("the definition of the op allows no other type of index"),
            },
        }
    }

    /// Calls `change` on each element of the variable and its slots with its element of the gradient.
    pub(super) fn each_element(self, change: impl Fn([&mut T; V], T) + Sync) {
        self.each(|state, gradient| {
            // One length for all, said once: the loop then needs no checks.
            let mut state = state.map(|part| &mut part[..gradient.len()]);
            for (i, &gradient) in gradient.iter().enumerate() {
                change(state.each_mut().map(|part| &mut part[i]), gradient);
            }
        });
    }

    fn each_stretch(self, change: Change<'_, T, V>) {
        let (pool, gradient) = (self.pool, self.gradient);
        let count = (pool.threads() * PIECES_PER_THREAD).min(gradient.len() / GRAIN);
        if pool.threads() == 1 || count <= 1 {
            return change(self.state, gradient);
        }
        let size = gradient.len().div_ceil(count);
        let pieces = cut(self.state, size);
        pool.for_each(pieces.len(), 1, &|range| {
            for piece in range {
                let gradient = &gradient[piece * size..][..size.min(gradient.len() - piece * size)];
                change(pieces[piece].lock().each_mut().map(|part| &mut **part), gradient);
            }
        });
    }

    fn each_row<N: Int>(self, indices: &[N], row: usize, change: Change<'_, T, V>) {
        if row == 0 || indices.is_empty() {
            return;
        }
        let (pool, gradient) = (self.pool, self.gradient);
        let limit = self.state[0].len() / row;
        // Each piece is a range of rows and looks for their indices, so that the updates of a row happen in order.
        let share = limit.div_ceil(pool.threads().min(gradient.len() / GRAIN).max(1));
        let update = |mut state: [&mut [T]; V], rows: Range<usize>| {
            let start_of = |index: &N| Some(index.to_i64() as usize).filter(|at| rows.contains(at));
            let start_of = |index: &N| start_of(index).map(|at| (at - rows.start) * row);
            for (i, (index, gradient)) in indices.iter().zip(gradient.chunks_exact(row)).enumerate() {
                if let Some(ahead) = indices.get(i + AHEAD).and_then(start_of) {
                    state.iter().for_each(|part| prefetch(&part[ahead..ahead + row]));
                }
                if let Some(start) = start_of(index) {
                    change(state.each_mut().map(|part| &mut part[start..start + row]), gradient);
                }
            }
        };
        if share == limit {
            return update(self.state, 0..limit);
        }
        let pieces = cut(self.state, share * row);
        pool.for_each(pieces.len(), 1, &|range| {
            for piece in range {
                let rows = piece * share..((piece + 1) * share).min(limit);
                update(pieces[piece].lock().each_mut().map(|part| &mut **part), rows);
            }
        });
    }
}

/// Cuts slices of one length into pieces of `size` elements, each to be taken by one thread.
fn cut<T, const V: usize>(state: [&mut [T]; V], size: usize) -> Vec<Mutex<[&mut [T]; V]>> {
    let count = state[0].len().div_ceil(size);
    let mut parts = state.map(|s| s.chunks_mut(size));
    let piece = |_| Mutex::new(parts.each_mut().map(|p| p.next().expect("the slices have one length")));
    (0..count).map(piece).collect()
}

#[cfg(test)]
mod tests {
    use crate::state::testing::Bench;
    use crate::state::{assign, variable};
    use framework::{Output, Pool};
    use tensor::{Code, DType, Tensor};

    fn made(b: &Bench, name: &str, value: impl Into<Tensor>) -> Output {
        let value = value.into();
        let v = variable(&b.s, name, value.dtype(), value.shape().clone()).unwrap();
        b.fetch(assign(&b.s, v, b.s.constant(value).unwrap()).unwrap()).unwrap();
        v
    }

    fn fed(b: &Bench, dtype: DType) -> Output {
        b.s.node("Placeholder").attr("dtype", dtype).output().unwrap()
    }

    #[track_caller]
    fn check_error(b: &Bench, op: Output, feeds: &[(Output, Tensor)], message: &str) {
        let error = b.fetch_fed(op, feeds).unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument, "{error}");
        assert!(error.message.contains(message), "{error}");
    }

    #[test]
    fn what_does_not_fit_is_refused_in_tensorflows_words() {
        let b = Bench::new();
        let (v, a) = (made(&b, "v", [1.0f32, 2.0]), made(&b, "a", [0.0f32, 0.0]));
        let (alpha, delta) = (fed(&b, DType::F32), fed(&b, DType::F32));
        let descent = b.s.op("ApplyGradientDescent", &[v, alpha, delta]).unwrap();
        let feeds = |x: Tensor, y: Tensor| [(alpha, x), (delta, y)];
        check_error(
            &b,
            descent,
            &feeds(1.0f32.into(), [1.0f32].into()),
            "var and delta do not have the same shape[2] [1]",
        );
        check_error(&b, descent, &feeds([1.0f32].into(), [1.0f32, 1.0].into()), "alpha is not a scalar: [1]");
        let momentum = b.s.op("ApplyMomentum", &[v, v, alpha, delta, alpha]).unwrap();
        check_error(&b, momentum, &feeds(1.0f32.into(), [1.0f32, 1.0].into()), "must be different variables");

        let indices = fed(&b, DType::I32);
        let sparse = b.s.op("SparseApplyMomentum", &[v, a, alpha, delta, indices, alpha]).unwrap();
        let feeds = |y: Tensor, i: Tensor| [(alpha, 1.0f32.into()), (delta, y), (indices, i)];
        check_error(
            &b,
            sparse,
            &feeds([1.0f32].into(), [2i32].into()),
            "Index 2 at offset 0 in indices is out of range",
        );
        check_error(&b, sparse, &feeds([1.0f32].into(), [[0i32]].into()), "indices must be one-dimensional");
        check_error(&b, sparse, &feeds([1.0f32].into(), [0i32, 1].into()), "grad must be the same size as indices");
        check_error(&b, sparse, &feeds([[1.0f32]].into(), [0i32].into()), "var and grad must match in dimension 1");
        check_error(&b, sparse, &feeds(1.0f32.into(), [0i32].into()), "grad must be the same size as indices");
        assert_eq!(b.fetch(v).unwrap(), [1.0f32, 2.0].into(), "nothing was changed");
    }

    #[test]
    fn shapes_that_cannot_fit_are_seen_while_building() {
        let b = Bench::new();
        let (v, a) = (made(&b, "v", [1.0f32, 2.0]), made(&b, "a", [0.0f32]));
        let (x, row) = (b.s.constant(1.0f32).unwrap(), b.s.constant([1.0f32, 1.0]).unwrap());
        assert!(b.s.op("ApplyMomentum", &[v, a, x, row, x]).is_err());
        assert!(b.s.op("ApplyGradientDescent", &[v, row, row]).is_err());
        assert!(b.s.op("ApplyGradientDescent", &[v, x, x]).is_err());
        let updated = b.s.op("ApplyGradientDescent", &[v, x, row]).unwrap();
        assert_eq!(b.s.shape(updated).unwrap(), [2].into());
    }

    /// Many elements are cut into pieces and many rows shared out; few are not. Both must come to the same.
    #[test]
    fn threads_change_nothing() {
        let (rows, row) = (1500, 64);
        let values: Vec<f32> = (0..rows * row).map(|i| (i % 97) as f32 * 0.01).collect();
        let table = Tensor::from_vec([rows, row], values.clone()).unwrap();
        let picked: Vec<i64> = (0..rows as i64).map(|i| i * i % 700).collect();
        let run = |pool: Pool| {
            let b = Bench::with_threads(pool);
            let (v, a) = (made(&b, "v", table.clone()), made(&b, "a", table.clone()));
            let lr = b.s.constant(0.5f32).unwrap();
            let gradient = b.s.constant(table.clone()).unwrap();
            let indices = b.s.constant(picked.clone()).unwrap();
            b.fetch(b.s.op("ApplyMomentum", &[v, a, lr, gradient, lr]).unwrap()).unwrap();
            b.fetch(b.s.op("SparseApplyMomentum", &[v, a, lr, gradient, indices, lr]).unwrap()).unwrap();
            (b.fetch(v).unwrap(), b.fetch(a).unwrap())
        };
        assert!(run(Pool::inline()) == run(Pool::new(3)), "three threads come to another result than one");
    }

    #[test]
    fn steps_over_the_same_variables_do_not_wait_for_each_other() {
        let b = Bench::new();
        let (v, a) = (made(&b, "v", [0.0f32]), made(&b, "a", [0.0f32]));
        let x = b.s.constant(0.0f32).unwrap();
        let gradient = b.s.constant([1.0f32]).unwrap();
        let forward = b.s.op("ApplyMomentum", &[v, a, x, gradient, x]).unwrap();
        let backward = b.s.op("ApplyMomentum", &[a, v, x, gradient, x]).unwrap();
        std::thread::scope(|threads| {
            for op in [forward, backward] {
                let b = &b;
                threads.spawn(move || (0..2000).for_each(|_| drop(b.fetch(op).unwrap())));
            }
        });
    }
}
