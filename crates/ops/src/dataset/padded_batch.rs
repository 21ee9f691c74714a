//! `PaddedBatchDatasetV2`: elements of different shapes, padded to rows of one.

use super::batch::{gather, size_and_rest};
use super::{Dataset, Element, Elements, Next, Shared, by_item, input, output, scalar_shape};
use framework::kernel::kernel;
use framework::typed::Item;
use framework::{Kernel, KernelBuild, KernelContext, Op, StepContext};
use linalg::transpose::{Strided, copy_strided};
use std::sync::Arc;
use tensor::{Result, Shape, Tensor, data_loss, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("PaddedBatchDatasetV2")
            .input("input_dataset: variant")
            .input("batch_size: int64")
            .input("padded_shapes: N*int64")
            .input("padding_values: Toutput_types")
            .input("drop_remainder: bool")
            .output("handle: variant")
            .attr("parallel_copy: bool = false")
            .attr("Toutput_types: list(type) >= 1")
            .attr("output_shapes: list(shape) >= 1")
            .attr("N: int >= 1")
            .attr("metadata: string = ''")
            .shape(scalar_shape)
            .kernel(kernel(|b: &KernelBuild<'_>| {
                let count: i64 = b.attr("N")?;
                Ok(Make { components: count as usize })
            })),
    ]
}

struct Make {
    components: usize,
}

impl Kernel for Make {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (count, inputs) = (self.components, ctx.num_inputs());
        let dataset = input(ctx, 0)?;
        let (size, drops_rest) = size_and_rest(ctx, 1, inputs - 1)?;
        if inputs != 3 + 2 * count {
            return Err(invalid!(
                "Number of padded shapes ({count}) must match the number of padding values ({})",
                inputs.saturating_sub(3 + count)
            ));
        }
        let mut padding = Vec::with_capacity(count);
        for i in 0..count {
            let (shape, value) = (ctx.input(2 + i), ctx.input(2 + count + i));
            if shape.shape().rank() != 1 {
                return Err(invalid!("All padded shapes must be vectors"));
            }
            if !value.shape().is_scalar() {
                return Err(invalid!("All padding values must be scalars"));
            }
            let dims = shape.as_slice::<i64>()?.iter().map(|&d| match d {
                -1 => Ok(None),
                d => usize::try_from(d).map(Some).map_err(|_| invalid!("a padded size is {d}")),
            });
            padding.push(Padding { dims: dims.collect::<Result<_>>()?, value: value.clone() });
        }
        output(ctx, PaddedBatch { input: dataset, size, drops_rest, padding: padding.into() })
    }
}

/// How one component is padded.
struct Padding {
    /// The sizes; `None` is the largest of the batch.
    dims: Vec<Option<usize>>,
    value: Tensor,
}

struct PaddedBatch {
    input: Shared,
    size: usize,
    drops_rest: bool,
    padding: Arc<[Padding]>,
}

impl Dataset for PaddedBatch {
    fn iterate(&self) -> Result<Box<dyn Elements>> {
        Ok(Box::new(Pass {
            input: Some(self.input.iterate()?),
            size: self.size,
            drops_rest: self.drops_rest,
            padding: self.padding.clone(),
        }))
    }
}

struct Pass {
    input: Option<Box<dyn Elements>>,
    size: usize,
    drops_rest: bool,
    padding: Arc<[Padding]>,
}

impl Elements for Pass {
    fn next<'a>(&'a mut self, step: &'a StepContext) -> Next<'a> {
        Box::pin(async move {
            match gather(&mut self.input, step, self.size, self.drops_rest).await? {
                Some(elements) => {
                    let joined = self.padding.iter().enumerate().map(|(i, padding)| padding.join(&elements, i));
                    Ok(Some(joined.collect::<Result<_>>()?))
                }
                None => Ok(None),
            }
        })
    }
}

impl Padding {
    /// One component of some elements, as rows.
    fn join(&self, elements: &[Element], component: usize) -> Result<Tensor> {
        fn fill<I: Item>(rows: &[&Tensor], dims: &[usize], shape: Shape, value: &Tensor) -> Result<Tensor> {
            let value = I::items(value)?.first().cloned().unwrap_or_else(I::zero);
            let size: usize = dims.iter().product();
            I::build(rows[0].dtype(), shape, &mut |out| {
                out.fill(value.clone());
                for (i, row) in rows.iter().enumerate().filter(|(_, row)| row.num_elements() > 0) {
                    let to = Strided { start: i * size, strides: Strided::dense(dims).strides };
                    copy_strided(row.dims(), I::items(row)?, &Strided::dense(row.dims()), out, &to);
                }
                Ok(())
            })
        }
        let missing = || invalid!("an element of a batch has no component {component}");
        let rows: Vec<&Tensor> =
            elements.iter().map(|e| e.get(component).ok_or_else(missing)).collect::<Result<_>>()?;
        let dims = self.padded(&rows, component)?;
        let shape = Shape::checked(std::iter::once(rows.len()).chain(dims.iter().copied()).map(|d| d as i64))?;
        if rows.iter().any(|row| row.dtype() != self.value.dtype()) {
            return Err(invalid!(
                "Mismatched type between padding value {component} and input dataset's component {component}"
            ));
        }
        by_item!(self.value.dtype(), fill(&rows, &dims, shape, &self.value))
    }

    /// The sizes that all rows fit into.
    fn padded(&self, rows: &[&Tensor], component: usize) -> Result<Vec<usize>> {
        for row in rows {
            if row.shape().rank() != self.dims.len() {
                return Err(invalid!(
                    "All elements in a batch must have the same rank as the padded shape for component{component}: \
                     expected rank {} but got element with rank {}",
                    self.dims.len(),
                    row.shape().rank()
                ));
            }
        }
        let size = |(axis, wanted): (usize, &Option<usize>)| {
            let largest = rows.iter().map(|row| row.dims()[axis]).max().unwrap_or(0);
            match wanted {
                None => Ok(largest),
                Some(wanted) if *wanted >= largest => Ok(*wanted),
                Some(wanted) => Err(data_loss!(
                    "Attempted to pad to a smaller size than the input element: {largest} along axis {axis}, wanted {wanted}"
                )),
            }
        };
        self.dims.iter().enumerate().map(size).collect()
    }
}
