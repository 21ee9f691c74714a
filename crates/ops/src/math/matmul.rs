//! `MatMul`, `BatchMatMul`, `BatchMatMulV2`: products of matrices, alone and in batches.

use super::functions::conj;
use framework::gradient::GradValue;
use framework::typed::{NumberKernel, wide_numbers};
use framework::{Grad, InferenceContext, KernelBuild, KernelContext, Number, Op, Output, Scope};
use linalg::broadcast::{BroadcastPlan, binary};
use linalg::matmul::GemmShape;
use linalg::parallel::Pool;
use std::borrow::Cow;
use tensor::{PartialShape, Result, Shape, broadcast, broadcast_partial, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("MatMul")
            .input("a: T")
            .input("b: T")
            .output("product: T")
            .attr("transpose_a: bool = false")
            .attr("transpose_b: bool = false")
            .attr(
                "T: {bfloat16, half, float, double, int32, int64, uint8, uint16, uint32, uint64, complex64, \
                 complex128}",
            )
            .attr("grad_a: bool = false")
            .attr("grad_b: bool = false")
            .costly()
            .shape(shape)
            .kernel(wide_numbers(MatMul::new))
            .gradient(gradient),
        batch_op("BatchMatMul", "bfloat16, half, float, double, int32, int64, complex64, complex128")
            .shape(|c| batch_shape(c, PartialShape::merge))
            .kernel(wide_numbers(|b| Ok(BatchMatMul { adjoint: [b.attr("adj_x")?, b.attr("adj_y")?], repeats: false })))
            .gradient(batch_gradient),
        batch_op(
            "BatchMatMulV2",
            "bfloat16, half, float, double, int16, int32, int64, uint8, uint16, uint32, uint64, complex64, complex128",
        )
        .shape(|c| batch_shape(c, broadcast_partial))
        .kernel(wide_numbers(|b| Ok(BatchMatMul { adjoint: [b.attr("adj_x")?, b.attr("adj_y")?], repeats: true })))
        .gradient(batch_gradient_v2),
    ]
}

fn batch_op(name: &str, types: &str) -> Op {
    Op::new(name)
        .input("x: T")
        .input("y: T")
        .output("output: T")
        .attr(&format!("T: {{{types}}}"))
        .attr("adj_x: bool = false")
        .attr("adj_y: bool = false")
        .attr("grad_x: bool = false")
        .attr("grad_y: bool = false")
        .costly()
}

/// The product of two matrices.
pub fn matmul(s: &Scope, a: Output, b: Output) -> Result<Output> {
    s.op("MatMul", &[a, b])
}

/// The product of two matrices, each transposed first if so asked.
pub fn matmul_transposed(s: &Scope, a: Output, b: Output, transpose: [bool; 2]) -> Result<Output> {
    s.node("MatMul").inputs(&[a, b]).attr("transpose_a", transpose[0]).attr("transpose_b", transpose[1]).output()
}

/// The products of matrices in batches; batch dimensions broadcast, and each side may be adjoined first.
pub fn batch_matmul(s: &Scope, x: Output, y: Output, adjoint: [bool; 2]) -> Result<Output> {
    s.node("BatchMatMulV2").inputs(&[x, y]).attr("adj_x", adjoint[0]).attr("adj_y", adjoint[1]).output()
}

pub(crate) fn shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let (a, b) = (c.require_rank(0, 2)?, c.require_rank(1, 2)?);
    let (ta, tb): (bool, bool) = (c.attr("transpose_a")?, c.attr("transpose_b")?);
    let [rows, columns] = product(&a, &b, [ta, tb])?;
    Ok(vec![[rows, columns].into()])
}

/// Rows and columns of a product of the last two dimensions.
fn product(a: &PartialShape, b: &PartialShape, transpose: [bool; 2]) -> Result<[Option<usize>; 2]> {
    let last = |shape: &PartialShape, swap: bool| {
        let rank = shape.rank().unwrap_or(2);
        let (rows, columns) = (shape.dim(rank - 2), shape.dim(rank - 1));
        if swap { (columns, rows) } else { (rows, columns) }
    };
    let ((rows, inner_a), (inner_b, columns)) = (last(a, transpose[0]), last(b, transpose[1]));
    if inner_a.is_some() && inner_b.is_some() && inner_a != inner_b {
        return Err(invalid!("Matrix size-incompatible: In[0]: {a}, In[1]: {b}"));
    }
    Ok([rows, columns])
}

fn batch_shape(
    c: &InferenceContext<'_>,
    combine: fn(&PartialShape, &PartialShape) -> Result<PartialShape>,
) -> Result<Vec<PartialShape>> {
    let (a, b) = (c.input(0), c.input(1));
    a.with_rank_at_least(2)?;
    b.with_rank_at_least(2)?;
    let (Some(dims_a), Some(dims_b)) = (a.dims(), b.dims()) else { return Ok(vec![PartialShape::unknown()]) };
    let outer = |dims: &[Option<usize>]| PartialShape::new(dims[..dims.len() - 2].iter().copied());
    let batch = combine(&outer(dims_a), &outer(dims_b))?;
    let inner = product(a, b, [c.attr("adj_x")?, c.attr("adj_y")?])?;
    Ok(vec![match batch.dims() {
        Some(dims) => PartialShape::new(dims.iter().copied().chain(inner)),
        None => PartialShape::unknown(),
    }])
}

/// How the gradient of each factor is a product again: its two factors, and which are transposed.
///
/// `0` stands for the gradient of the product, `1` for the other factor.
fn factors(transposed: [bool; 2]) -> [([usize; 2], [bool; 2]); 2] {
    match transposed {
        [false, false] => [([0, 1], [false, true]), ([1, 0], [true, false])],
        [false, true] => [([0, 1], [false, false]), ([0, 1], [true, false])],
        [true, false] => [([1, 0], [false, true]), ([1, 0], [false, false])],
        [true, true] => [([1, 0], [true, true]), ([0, 1], [true, true])],
    }
}

fn gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let factors = factors([g.attr(s, "transpose_a")?, g.attr(s, "transpose_b")?]);
    let mut grads = vec![None, None];
    for i in (0..2).filter(|&i| g.wanted[i]) {
        let from = [g.dy[0], conj(s, g.inputs[1 - i])?];
        let (order, transpose) = factors[i];
        grads[i] = Some(matmul_transposed(s, from[order[0]], from[order[1]], transpose)?.into());
    }
    Ok(grads)
}

fn batch_factors(s: &Scope, g: &Grad<'_>, op: &str) -> Result<Vec<Option<Output>>> {
    let factors = factors([g.attr(s, "adj_x")?, g.attr(s, "adj_y")?]);
    let mut grads = vec![None, None];
    for i in (0..2).filter(|&i| g.wanted[i]) {
        let from = [g.dy[0], g.inputs[1 - i]];
        let (order, adjoint) = factors[i];
        let node = s.node(op).inputs(&[from[order[0]], from[order[1]]]);
        grads[i] = Some(node.attr("adj_x", adjoint[0]).attr("adj_y", adjoint[1]).output()?);
    }
    Ok(grads)
}

fn batch_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    Ok(batch_factors(s, g, "BatchMatMul")?.into_iter().map(|grad| grad.map(GradValue::from)).collect())
}

fn batch_gradient_v2(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let grads = batch_factors(s, g, "BatchMatMulV2")?;
    let batch = |x: Output| -> Result<Option<Vec<usize>>> {
        Ok(s.shape(x)?.known().map(|shape| shape.dims()[..shape.rank().saturating_sub(2)].to_vec()))
    };
    let (a, b) = (batch(g.inputs[0])?, batch(g.inputs[1])?);
    if a.is_some() && a == b {
        return Ok(grads.into_iter().map(|grad| grad.map(GradValue::from)).collect());
    }
    // Batches that were repeated are summed again.
    let sizes = [s.op("Shape", &[g.inputs[0]])?, s.op("Shape", &[g.inputs[1]])?];
    let outer =
        |sizes: Output| s.op("StridedSlice", &[sizes, s.constant([0i32])?, s.constant([-2i32])?, s.constant([1i32])?]);
    let axes = s.node("BroadcastGradientArgs").inputs(&[outer(sizes[0])?, outer(sizes[1])?]).outputs()?;
    let mut sums = Vec::with_capacity(2);
    for (i, grad) in grads.into_iter().enumerate() {
        sums.push(match grad {
            Some(grad) => Some(s.op("Reshape", &[s.op("Sum", &[grad, axes[i]])?, sizes[i]])?.into()),
            None => None,
        });
    }
    Ok(sums)
}

pub(crate) struct MatMul {
    transpose: [bool; 2],
}

impl MatMul {
    pub(crate) fn new(b: &KernelBuild<'_>) -> Result<MatMul> {
        Ok(MatMul { transpose: [b.attr("transpose_a")?, b.attr("transpose_b")?] })
    }
}

impl NumberKernel for MatMul {
    fn compute<T: Number>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (a, b) = (ctx.input(0), ctx.input(1));
        let (&[a0, a1], &[b0, b1]) = (a.dims(), b.dims()) else {
            let (i, wrong) = if a.shape().rank() == 2 { (1, b) } else { (0, a) };
            return Err(invalid!(
                "In[{i}] and In[{}] has different ndims or is not a matrix: In[{i}] has shape {}",
                1 - i,
                wrong.shape()
            ));
        };
        let [transpose_a, transpose_b] = self.transpose;
        let (m, k) = if transpose_a { (a1, a0) } else { (a0, a1) };
        let (inner, n) = if transpose_b { (b1, b0) } else { (b0, b1) };
        if k != inner {
            return Err(invalid!("Matrix size-incompatible: In[0]: {}, In[1]: {}", a.shape(), b.shape()));
        }
        let mut c = ctx.allocate::<T>(Shape::checked([m as i64, n as i64])?)?;

        let shape = GemmShape { transpose_a, transpose_b, ..GemmShape::new(m, n, k) };
        multiply(ctx.pool(), &shape, a.as_slice::<T>()?, b.as_slice::<T>()?, &mut c);
        ctx.set_output(0, c)
    }
}

/// A product; a sum of no terms is zero.
fn multiply<T: Number>(pool: &Pool, shape: &GemmShape, a: &[T], b: &[T], c: &mut [T]) {
    if shape.k == 0 {
        c.fill(T::ZERO);
    } else if !c.is_empty() {
        T::gemm(pool, shape, a, b, c);
    }
}

struct BatchMatMul {
    adjoint: [bool; 2],
    /// Whether batch dimensions of one are repeated.
    repeats: bool,
}

impl NumberKernel for BatchMatMul {
    fn compute<T: Number>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (a, b) = (ctx.input(0), ctx.input(1));
        let ([batch_a @ .., a0, a1], [batch_b @ .., b0, b1]) = (a.dims(), b.dims()) else {
            return Err(invalid!(
                "wanted matrices, found In[0] of shape {} and In[1] of shape {}",
                a.shape(),
                b.shape()
            ));
        };
        if !self.repeats && batch_a != batch_b {
            return Err(invalid!(
                "In[0] and In[1] must have the same batch dimensions: {} and {}",
                a.shape(),
                b.shape()
            ));
        }
        let (m, k) = if self.adjoint[0] { (*a1, *a0) } else { (*a0, *a1) };
        let (inner, n) = if self.adjoint[1] { (*b1, *b0) } else { (*b0, *b1) };
        if k != inner {
            return Err(invalid!("Matrix size-incompatible: In[0]: {}, In[1]: {}", a.shape(), b.shape()));
        }
        let batch = broadcast(&batch_a.into(), &batch_b.into())?;
        let sizes = batch.dims().iter().chain([&m, &n]).map(|&d| d as i64);
        let mut c = ctx.allocate::<T>(Shape::checked(sizes)?)?;
        if c.is_empty() {
            return ctx.set_output(0, c);
        }

        let (left, right) =
            (adjoined::<T>(a.as_slice()?, self.adjoint[0]), adjoined::<T>(b.as_slice()?, self.adjoint[1]));
        let sources = matrices(batch_a, batch_b, batch.num_elements())?;
        let [transpose_a, transpose_b] = self.adjoint;
        let shape = GemmShape { transpose_a, transpose_b, ..GemmShape::new(m, n, k) };
        let one = |pool: &Pool, matrix: usize, c: &mut [T]| {
            let (i, j) = sources[matrix];
            multiply(pool, &shape, &left[i * m * k..(i + 1) * m * k], &right[j * k * n..(j + 1) * k * n], c);
        };
        let pool = ctx.pool();
        if sources.len() < pool.threads() {
            for (matrix, c) in c.chunks_exact_mut(m * n).enumerate() {
                one(pool, matrix, c);
            }
        } else {
            // Many products: each on one thread, several of them when they are small.
            let grain = (1 << 16) / (m * n * k).max(1) + 1;
            pool.for_each_row(&mut c, m * n, grain, &|first, part| {
                for (i, c) in part.chunks_exact_mut(m * n).enumerate() {
                    one(&Pool::inline(), first + i, c);
                }
            });
        }
        ctx.set_output(0, c)
    }
}

/// For each matrix of the result, which of each side it is the product of.
fn matrices(batch_a: &[usize], batch_b: &[usize], count: usize) -> Result<Vec<(usize, usize)>> {
    if batch_a == batch_b {
        return Ok((0..count).map(|i| (i, i)).collect());
    }
    let plan = BroadcastPlan::new(batch_a, batch_b)
        .ok_or_else(|| invalid!("Incompatible batches: {batch_a:?} vs. {batch_b:?}"))?;
    let numbers = |batch: &[usize]| (0..batch.iter().product::<usize>()).collect::<Vec<usize>>();
    let mut pairs = vec![(0, 0); count];
    binary(&Pool::inline(), &plan, &numbers(batch_a), &numbers(batch_b), &mut pairs, |i, j| (i, j));
    Ok(pairs)
}

/// The conjugate where the matrix is to be adjoined: transposing is left to the product.
fn adjoined<T: Number>(values: &[T], adjoint: bool) -> Cow<'_, [T]> {
    if adjoint && T::DTYPE.is_complex() {
        Cow::Owned(values.iter().map(|x| x.conj()).collect())
    } else {
        Cow::Borrowed(values)
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::Tensor;

    #[test]
    fn sizes_that_do_not_fit_are_named() {
        let error = eval("MatMul", &[[[1.0f32, 2.0, 3.0]].into(), [[1.0f32, 2.0]].into()], &[]).unwrap_err();
        assert!(error.message.contains("Matrix size-incompatible: In[0]: [1,3], In[1]: [1,2]"), "{error}");
    }

    #[test]
    fn a_sum_of_no_terms_is_zero() {
        let (a, b) = (Tensor::from_vec([2, 0], Vec::<f32>::new()), Tensor::from_vec([0, 3], Vec::<f32>::new()));
        let product = eval("MatMul", &[a.unwrap(), b.unwrap()], &[]).unwrap().remove(0);
        assert_eq!(product, Tensor::from([[0.0f32; 3]; 2]));
    }

    #[test]
    fn one_matrix_meets_every_matrix_of_a_batch() {
        let batch = Tensor::from([1.0f32, 2.0, 3.0]).reshaped([3, 1, 1]).unwrap();
        let product = eval("BatchMatMulV2", &[batch, [[10.0f32, 20.0]].into()], &[]).unwrap().remove(0);
        assert_eq!(product.dims(), [3, 1, 2]);
        assert_eq!(product.as_slice::<f32>().unwrap(), [10.0, 20.0, 20.0, 40.0, 30.0, 60.0]);
    }
}
