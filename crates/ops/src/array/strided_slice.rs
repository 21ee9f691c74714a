//! `StridedSlice` and `StridedSliceGrad`: what an index expression such as `x[1:, ..., ::-2, new, 3]` selects.

use super::{Indices, indices, moved_value, small, strided_tensor};
use framework::kernel::KernelContext;
use framework::typed::{Item, MoveKernel, moves};
use framework::{Grad, GradValue, InferenceContext, KernelBuild, Op, Output, Pool, Scope};
use linalg::transpose::{Strided, copy_strided};
use smallvec::SmallVec;
use tensor::{DType, PartialShape, Result, Shape, Tensor, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        masks(
            Op::new("StridedSlice")
                .input("input: T")
                .input("begin: Index")
                .input("end: Index")
                .input("strides: Index")
                .output("output: T")
                .attr("T: type")
                .attr("Index: {int16, int32, int64}"),
        )
        .shape(slice_shape)
        .value(|c| {
            let (x, masks) = (c.input_value(0)?, Masks::new(|name| c.attr(name)).ok()?);
            let (begin, end, strides) = (c.input_i64s(1)?, c.input_i64s(2)?, c.input_i64s(3)?);
            let selection = masks.select_known(x.dims(), &begin, &end, &strides).ok()?;
            let pool = Pool::inline();
            Some(vec![moved_value!(x.dtype(), selected(&pool, x, &selection)).and_then(small)])
        })
        .gradient(slice_gradient)
        .kernel(moves(|b| Ok(StridedSlice(Masks::of(b)?)))),
        masks(
            Op::new("StridedSliceGrad")
                .input("shape: Index")
                .input("begin: Index")
                .input("end: Index")
                .input("strides: Index")
                .input("dy: T")
                .output("output: T")
                .attr("T: type")
                .attr("Index: indextype"),
        )
        .shape(|c| Ok(vec![c.shape_from_input(0)?]))
        .gradient(|s, g| {
            let slice = with_masks(s, g, "StridedSlice", &[g.dy[0], g.inputs[1], g.inputs[2], g.inputs[3]])?;
            Ok(vec![None, None, None, None, Some(slice.into())])
        })
        .kernel(moves(|b| Ok(StridedSliceGrad(Masks::of(b)?)))),
    ]
}

const MASKS: [&str; 5] = ["begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"];

fn masks(op: Op) -> Op {
    MASKS.iter().fold(op, |op, mask| op.attr(&format!("{mask}: int = 0")))
}

/// A node over these inputs with the masks of the node being differentiated.
fn with_masks(s: &Scope, g: &Grad<'_>, op: &str, inputs: &[Output]) -> Result<Output> {
    let mut node = s.node(op).inputs(inputs);
    for mask in MASKS {
        node = node.attr(mask, g.attr::<i64>(s, mask)?);
    }
    node.output()
}

fn slice_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let mut spec = [g.inputs[1], g.inputs[2], g.inputs[3]];
    let mut index_type = s.dtype(spec[0])?;
    if index_type == DType::I16 {
        index_type = DType::I32;
        for input in &mut spec {
            *input = s.node("Cast").input(*input).attr("DstT", index_type).output()?;
        }
    }
    let shape = s.node("Shape").input(g.inputs[0]).attr("out_type", index_type).output()?;
    let dx = with_masks(s, g, "StridedSliceGrad", &[shape, spec[0], spec[1], spec[2], g.dy[0]])?;
    Ok(vec![Some(dx.into()), None, None, None])
}

/// Bit `i` of a mask speaks of entry `i` of begin, end and strides.
#[derive(Clone, Copy)]
struct Masks {
    begin: i64,
    end: i64,
    ellipsis: i64,
    new_axis: i64,
    shrink_axis: i64,
}

/// What an index expression selects.
struct Selection {
    /// For each dimension of the input: the first element, the step, and how many.
    ranges: SmallVec<[Range; 4]>,
    /// The shape of the result: dimensions dropped and put in as asked.
    shape: PartialShape,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    first: i64,
    step: i64,
    len: Option<usize>,
}

/// Where a dimension of the result comes from.
enum Source {
    Dim(usize),
    New,
}

impl Masks {
    fn new(attr: impl Fn(&str) -> Result<i64>) -> Result<Masks> {
        Ok(Masks {
            begin: attr(MASKS[0])?,
            end: attr(MASKS[1])?,
            ellipsis: attr(MASKS[2])?,
            new_axis: attr(MASKS[3])?,
            shrink_axis: attr(MASKS[4])?,
        })
    }

    fn of(b: &KernelBuild<'_>) -> Result<Masks> {
        Masks::new(|name| b.attr(name))
    }

    /// What is selected from a tensor of these sizes.
    fn select_known(&self, dims: &[usize], begin: &[i64], end: &[i64], strides: &[i64]) -> Result<Selection> {
        let dims: SmallVec<[Option<usize>; 4]> = dims.iter().map(|&d| Some(d)).collect();
        self.select(&dims, strides.len(), Some(begin), Some(end), Some(strides))
    }

    /// What is selected, as far as sizes and numbers are known.
    fn select(
        &self,
        dims: &[Option<usize>],
        entries: usize,
        begin: Option<&[i64]>,
        end: Option<&[i64]>,
        strides: Option<&[i64]>,
    ) -> Result<Selection> {
        if entries >= 32 {
            return Err(invalid!("StridedSlice takes fewer than 32 indices, found {entries}"));
        }
        let bit = |mask: i64, i: usize| mask >> i & 1 == 1;
        let ellipses = (0..entries).filter(|&i| bit(self.ellipsis, i));
        let ellipsis = ellipses.clone().next();
        if ellipses.count() > 1 {
            return Err(invalid!("Multiple ellipses in slice spec not allowed"));
        }
        // An ellipsis stands for all dimensions that no other entry speaks of.
        let spoken = (0..entries).filter(|&i| Some(i) != ellipsis && !bit(self.new_axis, i)).count();
        let whole = Range { first: 0, step: 1, len: None };
        let all = |dim: usize| Range { len: dims[dim], ..whole };
        let mut ranges = SmallVec::new();
        let mut sources: SmallVec<[Source; 8]> = SmallVec::new();
        let stretch = |ranges: &mut SmallVec<[Range; 4]>, sources: &mut SmallVec<[Source; 8]>| {
            for _ in 0..dims.len().saturating_sub(spoken) {
                sources.push(Source::Dim(ranges.len()));
                ranges.push(all(ranges.len()));
            }
        };
        for i in 0..entries {
            if Some(i) == ellipsis {
                stretch(&mut ranges, &mut sources);
                continue;
            }
            if bit(self.new_axis, i) {
                sources.push(Source::New);
                continue;
            }
            let dim = ranges.len();
            if dim >= dims.len() {
                return Err(invalid!("Index out of range using input dim {dim}; input has only {} dims", dims.len()));
            }
            let shrinks = bit(self.shrink_axis, i);
            let entry = Entry {
                begin: begin.map(|b| b[i]),
                end: end.map(|e| e[i]),
                stride: strides.map(|s| s[i]),
                from_start: bit(self.begin, i),
                to_end: bit(self.end, i),
                shrinks,
            };
            if !shrinks {
                sources.push(Source::Dim(dim));
            }
            ranges.push(entry.range(i, dim, dims[dim])?);
        }
        if ellipsis.is_none() {
            stretch(&mut ranges, &mut sources);
        }
        let shape = sources.iter().map(|source| match source {
            Source::Dim(dim) => ranges[*dim].len,
            Source::New => Some(1),
        });
        Ok(Selection { shape: PartialShape::new(shape), ranges })
    }
}

/// One entry of an index expression, about one dimension.
struct Entry {
    begin: Option<i64>,
    end: Option<i64>,
    stride: Option<i64>,
    from_start: bool,
    to_end: bool,
    shrinks: bool,
}

impl Entry {
    fn range(&self, i: usize, dim: usize, size: Option<usize>) -> Result<Range> {
        if self.stride == Some(0) {
            return Err(invalid!("strides[{i}] must be non-zero"));
        }
        if self.shrinks && self.stride.is_some_and(|s| s < 0) {
            return Err(invalid!("only stride 1 allowed on non-range indexing."));
        }
        let unknown = Range { first: 0, step: self.stride.unwrap_or(1), len: None };
        let Some(size) = size.map(|s| s as i64) else {
            return Ok(Range { len: self.shrinks.then_some(1), ..unknown });
        };
        let from_end = |x: i64| if x < 0 { x + size } else { x };
        if self.shrinks {
            let Some(begin) = self.begin else { return Ok(Range { len: Some(1), ..unknown }) };
            let first = from_end(begin);
            if !(0..size).contains(&first) {
                return Err(invalid!("slice index {begin} of dimension {dim} out of bounds."));
            }
            return Ok(Range { first, step: 1, len: Some(1) });
        }
        let Some(step) = self.stride else { return Ok(unknown) };
        // Going backwards, the end that is not reached lies before the first element.
        let (low, high) = if step > 0 { (0, size) } else { (-1, size - 1) };
        let (start, stop) = if step > 0 { (low, high) } else { (high, low) };
        let bound = |value: Option<i64>, open: bool, default: i64| match value {
            _ if open => Some(default),
            value => value.map(|x| from_end(x).clamp(low, high)),
        };
        let (Some(first), Some(last)) = (bound(self.begin, self.from_start, start), bound(self.end, self.to_end, stop))
        else {
            return Ok(unknown);
        };
        let span = last - first;
        let len = if span == 0 || (span < 0) != (step < 0) { 0 } else { span / step + i64::from(span % step != 0) };
        Ok(Range { first, step, len: Some(len as usize) })
    }
}

impl Selection {
    /// The block of the input, dimension by dimension, and its layout within the input.
    fn layout(&self, dims: &[usize]) -> (Vec<usize>, Strided) {
        let dense = Strided::dense(dims).strides;
        let block: Vec<usize> = self.ranges.iter().map(|r| r.len.unwrap_or(0)).collect();
        if block.contains(&0) {
            return (block, Strided { start: 0, strides: dense });
        }
        // A step is only taken where there are two elements, and then it is smaller than the dimension.
        let step = |r: &Range| if r.len.is_some_and(|l| l > 1) { r.step as isize } else { 1 };
        let strides = self.ranges.iter().zip(&dense).map(|(r, &d)| step(r) * d).collect();
        let start = self.ranges.iter().zip(&dense).map(|(r, &d)| r.first as usize * d as usize).sum();
        (block, Strided { start, strides })
    }

    fn is_everything(&self, dims: &[usize]) -> bool {
        self.ranges.iter().zip(dims).all(|(r, &d)| r.first == 0 && (r.step == 1 || d == 1) && r.len == Some(d))
    }

    fn shape(&self) -> Result<Shape> {
        self.shape.known().ok_or_else(|| tensor::internal!("a selection of known sizes has an unknown shape"))
    }
}

fn check_spec(begin: &Tensor, end: &Tensor, strides: &Tensor) -> Result<()> {
    let is_vector = begin.shape().rank() == 1;
    if !is_vector || begin.shape() != end.shape() || begin.shape() != strides.shape() {
        return Err(invalid!(
            "Expected begin, end, and strides to be 1D equal size tensors, but got shapes {}, {}, and {} instead.",
            begin.shape(),
            end.shape(),
            strides.shape()
        ));
    }
    Ok(())
}

fn slice_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let mut spec = c.require_rank(1, 1)?;
    spec = spec.merge(&c.require_rank(2, 1)?)?.merge(&c.require_rank(3, 1)?)?;
    let (Some(dims), Some(entries)) = (c.input(0).dims(), spec.dim(0)) else {
        return Ok(vec![PartialShape::unknown()]);
    };
    let masks = Masks::new(|name| c.attr(name))?;
    let (begin, end, strides) = (c.input_i64s(1), c.input_i64s(2), c.input_i64s(3));
    Ok(vec![masks.select(dims, entries, begin.as_deref(), end.as_deref(), strides.as_deref())?.shape])
}

fn selected<I: Item>(pool: &Pool, x: &Tensor, selection: &Selection) -> Result<Tensor> {
    let (block, from) = selection.layout(x.dims());
    strided_tensor::<I>(pool, x, block.into(), &from)?.reshaped(selection.shape()?)
}

struct StridedSlice(Masks);

impl MoveKernel for StridedSlice {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        check_spec(ctx.input(1), ctx.input(2), ctx.input(3))?;
        let spec = |i: usize| indices(ctx.input(i));
        let (begin, end, strides): (Indices, Indices, Indices) = (spec(1)?, spec(2)?, spec(3)?);
        let x = ctx.input(0);
        let selection = self.0.select_known(x.dims(), &begin, &end, &strides)?;
        if selection.is_everything(x.dims()) {
            let y = ctx.take(0).reshaped(selection.shape()?)?;
            return ctx.set_output(0, y);
        }
        let y = selected::<I>(ctx.pool(), x, &selection)?;
        ctx.set_output(0, y)
    }
}

struct StridedSliceGrad(Masks);

impl MoveKernel for StridedSliceGrad {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        check_spec(ctx.input(1), ctx.input(2), ctx.input(3))?;
        if ctx.input(0).shape().rank() != 1 {
            return Err(invalid!("shape must be 1-D, got shape {}", ctx.input(0).shape()));
        }
        let shape = Shape::checked(indices(ctx.input(0))?)?;
        let spec = |i: usize| indices(ctx.input(i));
        let (begin, end, strides): (Indices, Indices, Indices) = (spec(1)?, spec(2)?, spec(3)?);
        let selection = self.0.select_known(shape.dims(), &begin, &end, &strides)?;
        let dy = ctx.input(4);
        let wanted = selection.shape()?;
        if *dy.shape() != wanted {
            return Err(invalid!("shape of dy was {} instead of {wanted}", dy.shape()));
        }

        let (block, to) = selection.layout(shape.dims());
        let dx = super::build::<I>(dy.dtype(), shape, |out| {
            out.fill(I::zero());
            copy_strided(&block, I::items(dy)?, &Strided::dense(&block), out, &to);
            Ok(())
        })?;
        ctx.set_output(0, dx)
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::{Result, Tensor};

    /// begin, end, strides, then the masks in the order of the attributes.
    fn cut(x: &Tensor, spec: [Vec<i32>; 3], masks: [i64; 5]) -> Result<Tensor> {
        let [begin, end, strides] = spec;
        let attrs: Vec<_> = super::MASKS.iter().zip(masks).map(|(&name, mask)| (name, mask.into())).collect();
        let y = eval(
            "StridedSlice",
            &[x.clone(), begin.clone().into(), end.clone().into(), strides.clone().into()],
            &attrs,
        )?;
        let shape: Vec<i32> = x.dims().iter().map(|&d| d as i32).collect();
        let inputs = [shape.into(), begin.into(), end.into(), strides.into(), y[0].clone()];
        let back = eval("StridedSliceGrad", &inputs, &attrs)?;
        assert_eq!(back[0].shape(), x.shape());
        // What went back is the input where it was selected and zero elsewhere.
        let both = back[0].as_slice::<i32>()?.iter().zip(x.as_slice::<i32>()?);
        assert_eq!(both.clone().filter(|(b, x)| b == x).count(), y[0].num_elements());
        assert!(both.into_iter().all(|(b, x)| b == x || *b == 0));
        Ok(y[0].clone())
    }

    #[test]
    fn index_expressions_select_as_in_numpy() {
        let x = Tensor::from([[1i32, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]);
        let none = [0; 5];
        // x[1:3, 0:4:2]
        let y = cut(&x, [vec![1, 0], vec![3, 4], vec![1, 2]], none).unwrap();
        assert_eq!(y, Tensor::from([[5i32, 7], [9, 11]]));
        // x[::-1, -2]
        let y = cut(&x, [vec![0, -2], vec![0, 0], vec![-1, 1]], [1, 1, 0, 0, 2]).unwrap();
        assert_eq!(y, Tensor::from([11i32, 7, 3]));
        // x[..., new, 3]
        let y = cut(&x, [vec![0, 0, 3], vec![0, 0, 4], vec![1, 1, 1]], [0, 0, 1, 2, 4]).unwrap();
        assert_eq!(y, Tensor::from([[4i32], [8], [12]]));
        // x[2:0:-1], x[5:9], x[:-100]
        let y = cut(&x, [vec![2], vec![0], vec![-1]], none).unwrap();
        assert_eq!(y, Tensor::from([[9i32, 10, 11, 12], [5, 6, 7, 8]]));
        assert_eq!(cut(&x, [vec![5], vec![9], vec![1]], none).unwrap().dims(), [0, 4]);
        assert_eq!(cut(&x, [vec![0], vec![-100], vec![1]], [1, 0, 0, 0, 0]).unwrap().dims(), [0, 4]);
        assert_eq!(cut(&x, [vec![0], vec![3], vec![i32::MAX]], none).unwrap(), Tensor::from([[1i32, 2, 3, 4]]));
    }

    #[test]
    fn impossible_expressions_are_refused() {
        let x = Tensor::from([[1i32, 2], [3, 4]]);
        let fails = |spec, masks, want: &str| {
            let error = cut(&x, spec, masks).unwrap_err();
            assert!(error.message.contains(want), "{error}");
        };
        fails([vec![0], vec![1], vec![0]], [0; 5], "strides[0] must be non-zero");
        fails([vec![2], vec![3], vec![1]], [0, 0, 0, 0, 1], "slice index 2 of dimension 0 out of bounds");
        fails([vec![0; 3], vec![1; 3], vec![1; 3]], [0; 5], "input has only 2 dims");
        fails([vec![0; 2], vec![1; 2], vec![1; 2]], [0, 0, 3, 0, 0], "Multiple ellipses");
        fails([vec![0], vec![1, 2], vec![1]], [0; 5], "equal size");
    }
}
