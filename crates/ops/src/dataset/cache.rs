//! `CacheDataset`: elements kept in memory when they were made once.

use super::{Dataset, Element, Elements, Next, Shared, input, output, ready, scalar_shape, text};
use framework::kernel::function;
use framework::{KernelContext, Op, StepContext};
use std::sync::{Arc, OnceLock};
use tensor::{Result, unsupported};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    let cache = |name: &str| Op::new(name).input("input_dataset: variant").input("filename: string");
    let finish = |op: Op| {
        op.output("handle: variant")
            .attr("output_types: list(type) >= 1")
            .attr("output_shapes: list(shape) >= 1")
            .attr("metadata: string = ''")
            .shape(scalar_shape)
            .kernel(function(make))
    };
    vec![finish(cache("CacheDataset")), finish(cache("CacheDatasetV2").input("cache: resource")).stateful()]
}

fn make(ctx: &mut KernelContext<'_>) -> Result<()> {
    let (input, file) = (input(ctx, 0)?, text(ctx, 1, "filename")?);
    if !file.is_empty() {
        return Err(unsupported!("a dataset is only cached in memory, found the file name '{file}'"));
    }
    output(ctx, Cache { input, kept: Arc::default() })
}

/// All elements, once a pass has come to the end.
type Kept = Arc<OnceLock<Vec<Element>>>;

struct Cache {
    input: Shared,
    kept: Kept,
}

impl Dataset for Cache {
    fn iterate(&self) -> Result<Box<dyn Elements>> {
        Ok(match self.kept.get() {
            Some(_) => Box::new(Replay { kept: self.kept.clone(), at: 0 }),
            None => Box::new(Keeping { input: self.input.iterate()?, kept: self.kept.clone(), seen: Vec::new() }),
        })
    }
}

struct Replay {
    kept: Kept,
    at: usize,
}

impl Elements for Replay {
    fn next<'a>(&'a mut self, _: &'a StepContext) -> Next<'a> {
        let element = self.kept.get().and_then(|all| all.get(self.at)).cloned();
        self.at += 1;
        ready(Ok(element))
    }
}

struct Keeping {
    input: Box<dyn Elements>,
    kept: Kept,
    seen: Vec<Element>,
}

impl Elements for Keeping {
    fn next<'a>(&'a mut self, step: &'a StepContext) -> Next<'a> {
        Box::pin(async move {
            match self.input.next(step).await? {
                Some(element) => {
                    self.seen.push(element.clone());
                    Ok(Some(element))
                }
                None => {
                    // If another pass was faster, its elements are the ones.
                    let _ = self.kept.set(std::mem::take(&mut self.seen));
                    Ok(None)
                }
            }
        })
    }
}
