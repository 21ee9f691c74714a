//! `BatchDatasetV2` and `UnbatchDataset`: elements joined into rows of larger ones, and taken apart again.

use super::sources::row;
use super::{Dataset, Element, Elements, Next, Shared, input, number, output, scalar_shape};
use crate::data_flow::rows;
use crate::pace::Pace;
use framework::kernel::function;
use framework::{KernelContext, Op, StepContext};
use tensor::{Result, Tensor, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("BatchDatasetV2")
            .input("input_dataset: variant")
            .input("batch_size: int64")
            .input("drop_remainder: bool")
            .output("handle: variant")
            .attr("parallel_copy: bool = false")
            .attr("output_types: list(type) >= 1")
            .attr("output_shapes: list(shape) >= 1")
            .attr("metadata: string = ''")
            .shape(scalar_shape)
            .kernel(function(|ctx| {
                let input = input(ctx, 0)?;
                let (size, drops_rest) = size_and_rest(ctx, 1, 2)?;
                output(ctx, Batch { input, size, drops_rest })
            })),
        Op::new("ParallelBatchDataset")
            .input("input_dataset: variant")
            .input("batch_size: int64")
            .input("num_parallel_calls: int64")
            .input("drop_remainder: bool")
            .output("handle: variant")
            .attr("parallel_copy: bool = false")
            .attr("output_types: list(type) >= 1")
            .attr("output_shapes: list(shape) >= 1")
            .attr("deterministic: string = 'default'")
            .attr("metadata: string = ''")
            .shape(scalar_shape)
            .kernel(function(|ctx| {
                let input = input(ctx, 0)?;
                let (size, drops_rest) = size_and_rest(ctx, 1, 3)?;
                output(ctx, Batch { input, size, drops_rest })
            })),
        Op::new("UnbatchDataset")
            .input("input_dataset: variant")
            .output("handle: variant")
            .attr("output_types: list(type) >= 1")
            .attr("output_shapes: list(shape) >= 1")
            .attr("metadata: string = ''")
            .shape(scalar_shape)
            .kernel(function(|ctx| {
                let input = input(ctx, 0)?;
                output(ctx, Unbatch(input))
            })),
    ]
}

/// How many elements make a batch, and whether a smaller last one is left out.
pub(super) fn size_and_rest(ctx: &KernelContext<'_>, size: usize, rest: usize) -> Result<(usize, bool)> {
    let size = number(ctx, size, "batch_size")?;
    let size = usize::try_from(size).ok().filter(|&n| n > 0);
    let size = size.ok_or_else(|| invalid!("Batch size must be greater than zero."))?;
    Ok((size, ctx.input(rest).item::<bool>()?))
}

/// So many elements, or what is left of them; `None` at the end, or if the rest is not wanted.
pub(super) async fn gather(
    input: &mut Option<Box<dyn Elements>>,
    step: &StepContext,
    size: usize,
    drops_rest: bool,
) -> Result<Option<Vec<Element>>> {
    let Some(elements) = input else { return Ok(None) };
    let mut gathered = Vec::new();
    let mut pace = Pace::new();
    while gathered.len() < size {
        pace.turn(step).await?;
        match elements.next(step).await? {
            Some(element) => gathered.push(element),
            None => {
                *input = None;
                break;
            }
        }
    }
    let is_wanted = !gathered.is_empty() && (gathered.len() == size || !drops_rest);
    Ok(is_wanted.then_some(gathered))
}

struct Batch {
    input: Shared,
    size: usize,
    drops_rest: bool,
}

impl Dataset for Batch {
    fn iterate(&self) -> Result<Box<dyn Elements>> {
        let input = Some(self.input.iterate()?);
        Ok(Box::new(BatchPass { input, size: self.size, drops_rest: self.drops_rest }))
    }
}

struct BatchPass {
    input: Option<Box<dyn Elements>>,
    size: usize,
    drops_rest: bool,
}

impl Elements for BatchPass {
    fn next<'a>(&'a mut self, step: &'a StepContext) -> Next<'a> {
        Box::pin(async move {
            match gather(&mut self.input, step, self.size, self.drops_rest).await? {
                Some(elements) => Ok(Some(stack(&elements)?)),
                None => Ok(None),
            }
        })
    }
}

/// Elements of equal shapes as rows of one.
pub(super) fn stack(elements: &[Element]) -> Result<Element> {
    let first = elements.first().ok_or_else(|| tensor::internal!("an empty batch"))?;
    (0..first.len()).map(|component| stack_component(elements, component)).collect()
}

fn stack_component(elements: &[Element], component: usize) -> Result<Tensor> {
    let missing = || invalid!("an element of a batch has no component {component}");
    let rows: Vec<&Tensor> = elements.iter().map(|e| e.get(component).ok_or_else(missing)).collect::<Result<_>>()?;
    let first = rows[0];
    for (i, row) in rows.iter().enumerate() {
        if row.shape() != first.shape() || row.dtype() != first.dtype() {
            return Err(invalid!(
                "Cannot batch tensors with different shapes in component {component}. First element had shape {} and \
                 element {i} had shape {}.",
                first.shape(),
                row.shape()
            ));
        }
    }
    rows::stacked(first.dtype(), first.shape(), rows.iter().copied())
}

struct Unbatch(Shared);

impl Dataset for Unbatch {
    fn iterate(&self) -> Result<Box<dyn Elements>> {
        Ok(Box::new(UnbatchPass { input: self.0.iterate()?, batch: Vec::new(), rows: 0, at: 0 }))
    }
}

struct UnbatchPass {
    input: Box<dyn Elements>,
    batch: Element,
    rows: usize,
    at: usize,
}

impl Elements for UnbatchPass {
    fn next<'a>(&'a mut self, step: &'a StepContext) -> Next<'a> {
        Box::pin(async move {
            let mut pace = Pace::new();
            while self.at >= self.rows {
                pace.turn(step).await?;
                let Some(batch) = self.input.next(step).await? else { return Ok(None) };
                let mut rows = batch.iter().map(|c| c.dims().first().copied());
                let first = rows.next().flatten();
                let count =
                    first.ok_or_else(|| invalid!("Input element must have a non-scalar value in each component."))?;
                if rows.any(|r| r != Some(count)) {
                    return Err(invalid!("Input element must have the same batch size in each component."));
                }
                (self.batch, self.rows, self.at) = (batch, count, 0);
            }
            let element = self.batch.iter().map(|c| row(c, self.at)).collect::<Result<_>>()?;
            self.at += 1;
            Ok(Some(element))
        })
    }
}
