//! `TopKV2`: the largest elements of each row, and where they stand.

use super::{index, index_tensor};
use framework::kernel::KernelContext;
use framework::typed::{Real, RealKernel, wide_reals};
use framework::{Grad, GradValue, InferenceContext, Op, Output, Scope};
use std::cmp::Ordering;
use tensor::{DType, PartialShape, Result, Shape, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("TopKV2")
            .input("input: T")
            .input("k: Tk")
            .output("values: T")
            .output("indices: index_type")
            .attr("sorted: bool = true")
            .attr("T: realnumbertype")
            .attr("Tk: {int16, int32, int64} = int32")
            .attr("index_type: {int16, int32, int64} = int32")
            .costly()
            .shape(top_shape)
            .gradient(top_gradient)
            .kernel(wide_reals(|b| Ok(TopK { index_type: b.dtype("index_type")? }))),
    ]
}

/// The `k` largest elements of each row, largest first, and their places.
pub fn top_k(s: &Scope, x: Output, k: i32) -> Result<(Output, Output)> {
    let node = s.node("TopKV2").inputs(&[x, s.constant(k)?]).build()?;
    Ok((Output { node, index: 0 }, Output { node, index: 1 }))
}

fn top_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    c.require_scalar(1)?;
    c.input(0).with_rank_at_least(1)?;
    let k = c.input_i64(1).map(|k| usize::try_from(k).map_err(|_| invalid!("Need k >= 0, got {k}"))).transpose()?;
    let Some(dims) = c.input(0).dims() else { return Ok(vec![PartialShape::unknown(); 2]) };
    let mut dims = dims.to_vec();
    if let Some(last) = dims.last_mut() {
        if let (Some(have), Some(want)) = (*last, k)
            && have < want
        {
            return Err(invalid!("input must have last dimension >= k = {want} but is {have}"));
        }
        *last = k;
    }
    Ok(vec![PartialShape::new(dims); 2])
}

/// Each gradient goes back to where its value stood.
fn top_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let x = g.inputs[0];
    let flat = s.constant([-1i32])?;
    let wide = |x: Output| s.node("Cast").input(x).attr("DstT", DType::I64).output();
    let shape = s.node("Shape").input(x).attr("out_type", DType::I64).output()?;
    let (last, end, one) = (s.constant([-1i32])?, s.constant([0i32])?, s.constant([1i32])?);
    let last = s.node("StridedSlice").inputs(&[shape, last, end, one]).attr("end_mask", 1i64);
    let columns = last.attr("shrink_axis_mask", 1i64).output()?;
    let total = s.node("Size").input(x).attr("out_type", DType::I64).output()?;
    // Where each row begins; a row without columns must not stop the counting.
    let step = s.op("Maximum", &[columns, s.constant(1i64)?])?;
    let starts = super::expand_dims(s, s.op("Range", &[s.constant(0i64)?, total, step])?, 1)?;
    let indices = wide(g.outputs[1])?;
    let found = s.node("Shape").input(indices).output()?;
    let (last, end) = (s.constant([-1i32])?, s.constant([0i32])?);
    let width = s.node("StridedSlice").inputs(&[found, last, end, one]).attr("end_mask", 1i64).output()?;
    let rows = s.op("Size", &[starts])?;
    let rows = s.op("Reshape", &[rows, one])?;
    let indices = s.op("Reshape", &[indices, super::concat(s, &[rows, width], 0)?])?;
    let places = s.op("Reshape", &[s.op("Add", &[indices, starts])?, s.constant([-1i32, 1])?])?;
    let whole = s.op("Reshape", &[total, one])?;
    let dx = super::scatter_nd(s, places, s.op("Reshape", &[g.dy[0], flat])?, whole)?;
    Ok(vec![Some(s.op("Reshape", &[dx, shape])?.into()), None])
}

struct TopK {
    index_type: DType,
}

impl RealKernel for TopK {
    fn compute<T: Real>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (x, k) = (ctx.input(0), ctx.input(1));
        if !k.shape().is_scalar() {
            return Err(invalid!("k must be scalar, got shape {}", k.shape()));
        }
        let k = index(k, "k")?;
        let k = usize::try_from(k).map_err(|_| invalid!("Need k >= 0, got {k}"))?;
        let Some((&columns, outer)) = x.dims().split_last() else {
            return Err(invalid!("input must be >= 1-D, got shape {}", x.shape()));
        };
        if columns < k {
            return Err(invalid!("input must have at least k columns. Had {columns}, needed {k}"));
        }
        let shape: Shape = outer.iter().copied().chain([k]).collect();

        let mut places = vec![0i64; shape.num_elements()];
        let items = x.as_slice::<T>()?;
        ctx.pool().for_each_row(&mut places, k, (1usize << 14).div_ceil(columns.max(1)), &|first, part| {
            let mut order = Vec::new();
            for (i, places) in part.chunks_exact_mut(k).enumerate() {
                largest(&items[(first + i) * columns..][..columns], &mut order, places);
            }
        });
        let mut values = ctx.allocate::<T>(shape.clone())?;
        for (i, (value, &place)) in values.iter_mut().zip(&places).enumerate() {
            *value = items[i / k * columns + place as usize];
        }
        let places = index_tensor(self.index_type, shape, &places)?;
        ctx.set_output(0, values)?;
        ctx.set_output(1, places)
    }
}

/// Where the largest elements stand, in order; of equal ones the first comes first.
fn largest<T: Real>(row: &[T], order: &mut Vec<usize>, places: &mut [i64]) {
    let before = |a: &usize, b: &usize| {
        let (x, y) = (row[*a], row[*b]);
        // Whatever is not a number comes last.
        let by_value = y.partial_cmp(&x).unwrap_or_else(|| x.is_nan().cmp(&y.is_nan()));
        by_value.then(a.cmp(b))
    };
    if let [place] = places {
        let best = (1..row.len()).fold(0, |best, i| if before(&i, &best) == Ordering::Less { i } else { best });
        *place = best as i64;
        return;
    }
    order.clear();
    order.extend(0..row.len());
    if places.len() < row.len() {
        order.select_nth_unstable_by(places.len() - 1, before);
        order.truncate(places.len());
    }
    order.sort_unstable_by(before);
    for (place, &at) in places.iter_mut().zip(order.iter()) {
        *place = at as i64;
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::Tensor;

    #[test]
    fn the_largest_come_first_and_ties_in_order() {
        let x = Tensor::from([[3.0f32, 1.0, 3.0, 2.0], [0.0, f32::NAN, -1.0, 5.0]]);
        let top = |k: i32| eval("TopKV2", &[x.clone(), Tensor::scalar(k)], &[]);
        let found = top(3).unwrap();
        assert_eq!(found[0], Tensor::from([[3.0f32, 3.0, 2.0], [5.0, 0.0, -1.0]]));
        assert_eq!(found[1], Tensor::from([[0i32, 2, 3], [3, 0, 2]]));
        assert_eq!(top(1).unwrap()[1], Tensor::from([[0i32], [3]]));
        assert_eq!(top(0).unwrap()[0].dims(), [2, 0]);
        assert!(top(5).unwrap_err().message.contains("Had 4, needed 5"));
        assert!(top(-1).is_err());
        assert!(eval("TopKV2", &[Tensor::scalar(1i32), Tensor::scalar(0i32)], &[]).is_err());
    }
}
