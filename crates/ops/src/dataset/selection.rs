//! Datasets that choose among the elements of others: `RepeatDataset`, `SkipDataset`, `TakeDataset`, `ShardDataset`,
//! `ConcatenateDataset`, `ZipDataset`.

use super::{Dataset, Elements, Next, Shared, input, number, output, scalar_shape};
use crate::pace::Pace;
use framework::kernel::{function, kernel};
use framework::{Kernel, KernelContext, Op, StepContext};
use tensor::{Result, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    let of_one = |name: &str| Op::new(name).input("input_dataset: variant").output("handle: variant");
    let types = |op: Op| {
        op.attr("output_types: list(type) >= 1")
            .attr("output_shapes: list(shape) >= 1")
            .attr("metadata: string = ''")
            .shape(scalar_shape)
    };
    vec![
        types(of_one("RepeatDataset").input("count: int64")).kernel(function(|ctx| {
            let (input, count) = (input(ctx, 0)?, number(ctx, 1, "count")?);
            output(ctx, Repeat { input, count })
        })),
        types(of_one("SkipDataset").input("count: int64")).kernel(function(|ctx| {
            let (input, count) = (input(ctx, 0)?, number(ctx, 1, "count")?);
            output(ctx, Skip { input, count })
        })),
        types(of_one("TakeDataset").input("count: int64")).kernel(function(|ctx| {
            let (input, count) = (input(ctx, 0)?, number(ctx, 1, "count")?);
            output(ctx, Take { input, count })
        })),
        types(
            of_one("ShardDataset")
                .input("num_shards: int64")
                .input("index: int64")
                .attr("require_non_empty: bool = false"),
        )
        .kernel(kernel(|b| Ok(MakeShard { wants_elements: b.attr("require_non_empty")? }))),
        types(of_one("ConcatenateDataset").input("another_dataset: variant")).kernel(function(|ctx| {
            let parts = [input(ctx, 0)?, input(ctx, 1)?];
            output(ctx, Concatenate(parts))
        })),
        types(Op::new("ZipDataset").input("input_datasets: N*variant").output("handle: variant").attr("N: int >= 1"))
            .kernel(function(|ctx| {
                let inputs = (0..ctx.num_inputs()).map(|i| input(ctx, i)).collect::<Result<_>>()?;
                output(ctx, Zip(inputs))
            })),
    ]
}

/// All elements several times; for ever if the count is negative.
struct Repeat {
    input: Shared,
    count: i64,
}

impl Dataset for Repeat {
    fn iterate(&self) -> Result<Box<dyn Elements>> {
        Ok(Box::new(RepeatPass { input: self.input.clone(), left: self.count, current: None, found: false }))
    }
}

struct RepeatPass {
    input: Shared,
    left: i64,
    current: Option<Box<dyn Elements>>,
    /// Whether the current pass has found an element: one that finds none would go on for ever.
    found: bool,
}

impl Elements for RepeatPass {
    fn next<'a>(&'a mut self, step: &'a StepContext) -> Next<'a> {
        Box::pin(async move {
            let mut pace = Pace::new();
            while self.left != 0 {
                pace.turn(step).await?;
                let current = match &mut self.current {
                    Some(current) => current,
                    none => {
                        self.found = false;
                        none.insert(self.input.iterate()?)
                    }
                };
                if let Some(element) = current.next(step).await? {
                    self.found = true;
                    return Ok(Some(element));
                }
                self.current = None;
                if !self.found && self.left < 0 {
                    self.left = 0;
                } else if self.left > 0 {
                    self.left -= 1;
                }
            }
            Ok(None)
        })
    }
}

/// All elements but the first; none if the count is negative.
struct Skip {
    input: Shared,
    count: i64,
}

impl Dataset for Skip {
    fn iterate(&self) -> Result<Box<dyn Elements>> {
        let input = if self.count < 0 { None } else { Some(self.input.iterate()?) };
        Ok(Box::new(SkipPass { input, left: self.count }))
    }
}

struct SkipPass {
    input: Option<Box<dyn Elements>>,
    left: i64,
}

impl Elements for SkipPass {
    fn next<'a>(&'a mut self, step: &'a StepContext) -> Next<'a> {
        Box::pin(async move {
            let Some(input) = &mut self.input else { return Ok(None) };
            let mut pace = Pace::new();
            while self.left > 0 {
                pace.turn(step).await?;
                if input.next(step).await?.is_none() {
                    self.input = None;
                    return Ok(None);
                }
                self.left -= 1;
            }
            input.next(step).await
        })
    }
}

/// The first elements; all if the count is negative.
struct Take {
    input: Shared,
    count: i64,
}

impl Dataset for Take {
    fn iterate(&self) -> Result<Box<dyn Elements>> {
        Ok(Box::new(TakePass { input: self.input.iterate()?, left: u64::try_from(self.count).unwrap_or(u64::MAX) }))
    }
}

struct TakePass {
    input: Box<dyn Elements>,
    left: u64,
}

impl Elements for TakePass {
    fn next<'a>(&'a mut self, step: &'a StepContext) -> Next<'a> {
        Box::pin(async move {
            if self.left == 0 {
                return Ok(None);
            }
            self.left -= 1;
            self.input.next(step).await
        })
    }
}

struct MakeShard {
    wants_elements: bool,
}

impl Kernel for MakeShard {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (input, shards, index) = (input(ctx, 0)?, number(ctx, 1, "num_shards")?, number(ctx, 2, "index")?);
        let shards = u64::try_from(shards)
            .ok()
            .filter(|&n| n > 0)
            .ok_or_else(|| invalid!("Number of shards must be greater than zero (currently num_shards = {shards})."))?;
        let index = u64::try_from(index)
            .ok()
            .filter(|&i| i < shards)
            .ok_or_else(|| invalid!("Index must be between 0 and {} (currently index = {index}).", shards - 1))?;
        output(ctx, Shard { input, shards, index, wants_elements: self.wants_elements })
    }
}

/// Every so many-th element.
struct Shard {
    input: Shared,
    shards: u64,
    index: u64,
    wants_elements: bool,
}

impl Dataset for Shard {
    fn iterate(&self) -> Result<Box<dyn Elements>> {
        Ok(Box::new(ShardPass {
            input: self.input.iterate()?,
            shards: self.shards,
            before: self.index,
            wants_elements: self.wants_elements,
        }))
    }
}

struct ShardPass {
    input: Box<dyn Elements>,
    shards: u64,
    /// How many to leave out before the next.
    before: u64,
    /// Whether to find none at all is an error.
    wants_elements: bool,
}

impl Elements for ShardPass {
    fn next<'a>(&'a mut self, step: &'a StepContext) -> Next<'a> {
        Box::pin(async move {
            let mut pace = Pace::new();
            for _ in 0..self.before {
                pace.turn(step).await?;
                if self.input.next(step).await?.is_none() {
                    return self.end();
                }
            }
            self.before = self.shards - 1;
            match self.input.next(step).await? {
                None => self.end(),
                Some(element) => {
                    self.wants_elements = false;
                    Ok(Some(element))
                }
            }
        })
    }
}

impl ShardPass {
    fn end(&self) -> Result<Option<super::Element>> {
        match self.wants_elements {
            true => Err(invalid!("There aren't enough elements in this dataset for each shard to have at least one")),
            false => Ok(None),
        }
    }
}

/// The elements of one dataset, then those of another.
struct Concatenate([Shared; 2]);

impl Dataset for Concatenate {
    fn iterate(&self) -> Result<Box<dyn Elements>> {
        Ok(Box::new(ConcatenatePass { current: self.0[0].iterate()?, then: Some(self.0[1].clone()) }))
    }
}

struct ConcatenatePass {
    current: Box<dyn Elements>,
    then: Option<Shared>,
}

impl Elements for ConcatenatePass {
    fn next<'a>(&'a mut self, step: &'a StepContext) -> Next<'a> {
        Box::pin(async move {
            loop {
                if let Some(element) = self.current.next(step).await? {
                    return Ok(Some(element));
                }
                match self.then.take() {
                    Some(then) => self.current = then.iterate()?,
                    None => return Ok(None),
                }
            }
        })
    }
}

/// The elements of several datasets side by side, as long as all have some.
struct Zip(Vec<Shared>);

impl Dataset for Zip {
    fn iterate(&self) -> Result<Box<dyn Elements>> {
        Ok(Box::new(ZipPass(self.0.iter().map(|d| d.iterate()).collect::<Result<_>>()?)))
    }
}

struct ZipPass(Vec<Box<dyn Elements>>);

impl Elements for ZipPass {
    fn next<'a>(&'a mut self, step: &'a StepContext) -> Next<'a> {
        Box::pin(async move {
            let mut joined = Vec::new();
            for input in &mut self.0 {
                match input.next(step).await? {
                    Some(element) => joined.extend(element),
                    None => {
                        self.0.clear();
                        return Ok(None);
                    }
                }
            }
            Ok((!self.0.is_empty()).then_some(joined))
        })
    }
}
