//! Datasets that call functions: `MapDataset`, `FilterDataset`, `FlatMapDataset`, `InterleaveDataset`, `ScanDataset`,
//! `TakeWhileDataset`, their parallel forms, and `ReduceDataset`.
//!
//! The parallel forms make the same elements in the same order.

use super::batch::{gather, size_and_rest, stack};
use super::{Dataset, Element, Elements, Next, Shared, input, number, output, scalar_shape, unwrap};
use crate::pace::Pace;
use framework::kernel::{async_kernel, kernel};
use framework::{
    AsyncContext, AsyncKernel, BoxFuture, Function, Kernel, KernelBuild, KernelContext, Op, Outputs, StepContext, Value,
};
use std::sync::Arc;
use tensor::{Code, DType, Result, Tensor, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    let start = |name: &str| Op::new(name).input("input_dataset: variant");
    let arguments = |op: Op| op.input("other_arguments: Targuments").attr("Targuments: list(type) >= 0");
    let finish = |op: Op| {
        op.output("handle: variant")
            .attr("output_types: list(type) >= 1")
            .attr("output_shapes: list(shape) >= 1")
            .attr("metadata: string = ''")
            .shape(scalar_shape)
    };
    let map = |op: Op| finish(op.attr("f: func").attr("preserve_cardinality: bool = false"));
    let cycle = |op: Op| arguments(op).input("cycle_length: int64").input("block_length: int64").attr("f: func");
    let reduce = start("ReduceDataset")
        .input("initial_state: Tstate")
        .input("other_arguments: Targuments")
        .output("components: output_types")
        .attr("f: func")
        .attr("Tstate: list(type) >= 1")
        .attr("Targuments: list(type) >= 0")
        .attr("output_types: list(type) >= 1")
        .attr("output_shapes: list(shape) >= 1")
        .attr("use_inter_op_parallelism: bool = true")
        .attr("metadata: string = ''")
        .stateful()
        .shape(|c| c.attr("output_shapes"))
        .kernel(async_kernel(Reduce::new));
    vec![
        map(arguments(start("MapDataset")))
            .attr("use_inter_op_parallelism: bool = true")
            .attr("force_synchronous: bool = false")
            .kernel(kernel(|b| Ok(Make::new(b, "f")?.keeping_count(b)?.mapping(0)))),
        map(arguments(start("ParallelMapDataset")).input("num_parallel_calls: int32"))
            .attr("use_inter_op_parallelism: bool = true")
            .attr("sloppy: bool = false")
            .kernel(kernel(|b| Ok(Make::new(b, "f")?.keeping_count(b)?.mapping(1)))),
        map(arguments(start("ParallelMapDatasetV2")).input("num_parallel_calls: int64"))
            .attr("use_inter_op_parallelism: bool = true")
            .attr("deterministic: string = 'default'")
            .attr("use_unbounded_threadpool: bool = false")
            .kernel(kernel(|b| Ok(Make::new(b, "f")?.keeping_count(b)?.mapping(1)))),
        map(arguments(start("MapAndBatchDataset"))
            .input("batch_size: int64")
            .input("num_parallel_calls: int64")
            .input("drop_remainder: bool"))
        .kernel(kernel(|b| Ok(Make { kind: Kind::MapAndBatch, after: 3, ..Make::new(b, "f")?.keeping_count(b)? }))),
        finish(arguments(start("FilterDataset")).attr("predicate: func"))
            .kernel(kernel(|b| Ok(Make { kind: Kind::Filter, ..Make::new(b, "predicate")? }))),
        finish(arguments(start("TakeWhileDataset")).attr("predicate: func"))
            .kernel(kernel(|b| Ok(Make { kind: Kind::TakeWhile, ..Make::new(b, "predicate")? }))),
        finish(arguments(start("FlatMapDataset")).attr("f: func"))
            .kernel(kernel(|b| Ok(Make { kind: Kind::FlatMap, ..Make::new(b, "f")? }))),
        finish(cycle(start("InterleaveDataset")))
            .kernel(kernel(|b| Ok(Make { kind: Kind::Interleave, after: 2, ..Make::new(b, "f")? }))),
        finish(
            cycle(start("ParallelInterleaveDatasetV2")).input("num_parallel_calls: int64").attr("sloppy: bool = false"),
        )
        .kernel(kernel(|b| Ok(Make { kind: Kind::Interleave, after: 3, ..Make::new(b, "f")? }))),
        finish(
            cycle(start("ParallelInterleaveDatasetV4"))
                .input("buffer_output_elements: int64")
                .input("prefetch_input_elements: int64")
                .input("num_parallel_calls: int64")
                .attr("deterministic: string = 'default'"),
        )
        .kernel(kernel(|b| Ok(Make { kind: Kind::Interleave, after: 5, ..Make::new(b, "f")? }))),
        finish(
            arguments(start("ScanDataset").input("initial_state: Tstate"))
                .attr("f: func")
                .attr("Tstate: list(type) >= 1")
                .attr("preserve_cardinality: bool = false")
                .attr("use_default_device: bool = true"),
        )
        .kernel(kernel(|b| {
            let states: Vec<DType> = b.attr("Tstate")?;
            Ok(Make { kind: Kind::Scan, states: states.len(), ..Make::new(b, "f")?.keeping_count(b)? })
        })),
        start("IgnoreErrorsDataset")
            .output("handle: variant")
            .attr("output_types: list(type) >= 1")
            .attr("output_shapes: list(shape) >= 1")
            .attr("log_warning: bool = false")
            .shape(scalar_shape)
            .kernel(framework::kernel::function(|ctx| {
                let input = input(ctx, 0)?;
                output(ctx, IgnoreErrors(input))
            })),
        reduce,
    ]
}

/// What is made of a function's results.
#[derive(Clone, Copy)]
enum Kind {
    Map,
    MapAndBatch,
    Filter,
    TakeWhile,
    FlatMap,
    Interleave,
    Scan,
}

/// Makes a dataset that calls a function. Its inputs are a dataset, states, captured values, and numbers.
struct Make {
    kind: Kind,
    function: Arc<Function>,
    /// Whether an element less is an error.
    keeps_count: bool,
    states: usize,
    /// How many inputs there are after the captured values.
    after: usize,
}

impl Make {
    fn new(b: &KernelBuild<'_>, function: &str) -> Result<Make> {
        let function = Arc::new(b.function(function)?);
        Ok(Make { kind: Kind::Map, function, keeps_count: false, states: 0, after: 0 })
    }

    fn keeping_count(self, b: &KernelBuild<'_>) -> Result<Make> {
        Ok(Make { keeps_count: b.attr("preserve_cardinality")?, ..self })
    }

    fn mapping(self, after: usize) -> Make {
        Make { after, ..self }
    }
}

impl Kernel for Make {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let dataset = input(ctx, 0)?;
        let first = 1 + self.states;
        let end = ctx.num_inputs() - self.after;
        let captured: Arc<[Tensor]> = ctx.input_list(first..end).cloned().collect();
        let call = Call { function: self.function.clone(), captured, keeps_count: self.keeps_count };
        match self.kind {
            Kind::Map => output(ctx, Map { input: dataset, call }),
            Kind::MapAndBatch => {
                let (size, drops_rest) = size_and_rest(ctx, end, end + 2)?;
                output(ctx, MapAndBatch { map: Map { input: dataset, call }, size, drops_rest })
            }
            Kind::Filter => output(ctx, Filter { input: dataset, call, ends: false }),
            Kind::TakeWhile => output(ctx, Filter { input: dataset, call, ends: true }),
            Kind::FlatMap => output(ctx, Interleave { input: dataset, call, cycle: 1, block: u64::MAX }),
            Kind::Interleave => {
                let (cycle, block) = (number(ctx, end, "cycle_length")?, number(ctx, end + 1, "block_length")?);
                let cycle = match cycle {
                    AUTOTUNE => ctx.pool().threads(),
                    cycle => usize::try_from(cycle).ok().filter(|&n| n > 0).ok_or_else(|| {
                        invalid!("cycle_length must be greater than zero or tf.data.AUTOTUNE, found {cycle}")
                    })?,
                };
                let block = u64::try_from(block).ok().filter(|&n| n > 0);
                let block = block.ok_or_else(|| invalid!("`block_length` must be > 0"))?;
                output(ctx, Interleave { input: dataset, call, cycle, block })
            }
            Kind::Scan => {
                let state = ctx.input_list(1..first).cloned().collect();
                output(ctx, Scan { input: dataset, call, state })
            }
        }
    }
}

/// As a number of parallel calls: as many as seem good.
const AUTOTUNE: i64 = -1;

/// A function with the values it captured.
#[derive(Clone)]
struct Call {
    function: Arc<Function>,
    captured: Arc<[Tensor]>,
    keeps_count: bool,
}

impl Call {
    async fn call(&self, step: &StepContext, mut arguments: Vec<Tensor>) -> Result<Vec<Tensor>> {
        arguments.extend(self.captured.iter().cloned());
        self.function.call(step, arguments).await
    }

    /// The same; a function that says "out of range" means that there are no more elements.
    async fn next(&self, step: &StepContext, arguments: Vec<Tensor>) -> Result<Option<Vec<Tensor>>> {
        match self.call(step, arguments).await {
            Ok(results) => Ok(Some(results)),
            Err(e) if e.code == Code::OutOfRange && self.keeps_count => {
                Err(invalid!("Function invocation produced OutOfRangeError: {}", e.message))
            }
            Err(e) if e.code == Code::OutOfRange => Ok(None),
            Err(e) => Err(e),
        }
    }

    async fn holds(&self, step: &StepContext, element: &Element) -> Result<bool> {
        let result = self.call(step, element.clone()).await?;
        match result.as_slice() {
            [answer] if answer.shape().is_scalar() && answer.dtype() == DType::Bool => answer.item::<bool>(),
            _ => Err(invalid!("`predicate` must return a scalar bool.")),
        }
    }
}

#[derive(Clone)]
struct Map {
    input: Shared,
    call: Call,
}

impl Dataset for Map {
    fn iterate(&self) -> Result<Box<dyn Elements>> {
        Ok(Box::new(MapPass { input: self.input.iterate()?, call: self.call.clone() }))
    }
}

struct MapPass {
    input: Box<dyn Elements>,
    call: Call,
}

impl Elements for MapPass {
    fn next<'a>(&'a mut self, step: &'a StepContext) -> Next<'a> {
        Box::pin(async move {
            match self.input.next(step).await? {
                Some(element) => self.call.next(step, element).await,
                None => Ok(None),
            }
        })
    }
}

struct MapAndBatch {
    map: Map,
    size: usize,
    drops_rest: bool,
}

impl Dataset for MapAndBatch {
    fn iterate(&self) -> Result<Box<dyn Elements>> {
        let input = Some(self.map.iterate()?);
        Ok(Box::new(MapAndBatchPass { input, size: self.size, drops_rest: self.drops_rest }))
    }
}

struct MapAndBatchPass {
    input: Option<Box<dyn Elements>>,
    size: usize,
    drops_rest: bool,
}

impl Elements for MapAndBatchPass {
    fn next<'a>(&'a mut self, step: &'a StepContext) -> Next<'a> {
        Box::pin(async move {
            let gathered = gather(&mut self.input, step, self.size, self.drops_rest).await?;
            gathered.map(|elements| stack(&elements)).transpose()
        })
    }
}

/// The elements for which the function holds.
struct Filter {
    input: Shared,
    call: Call,
    /// Whether the first for which it does not is the end.
    ends: bool,
}

impl Dataset for Filter {
    fn iterate(&self) -> Result<Box<dyn Elements>> {
        Ok(Box::new(FilterPass { input: Some(self.input.iterate()?), call: self.call.clone(), ends: self.ends }))
    }
}

struct FilterPass {
    input: Option<Box<dyn Elements>>,
    call: Call,
    ends: bool,
}

impl Elements for FilterPass {
    fn next<'a>(&'a mut self, step: &'a StepContext) -> Next<'a> {
        Box::pin(async move {
            let Some(input) = &mut self.input else { return Ok(None) };
            let mut pace = Pace::new();
            while let Some(element) = input.next(step).await? {
                pace.turn(step).await?;
                if self.call.holds(step, &element).await? {
                    return Ok(Some(element));
                }
                if self.ends {
                    break;
                }
            }
            self.input = None;
            Ok(None)
        })
    }
}

/// The elements of the datasets that the function makes, some of them in turn.
struct Interleave {
    input: Shared,
    call: Call,
    /// How many datasets take turns.
    cycle: usize,
    /// How many elements come from one at a time.
    block: u64,
}

impl Dataset for Interleave {
    fn iterate(&self) -> Result<Box<dyn Elements>> {
        /// More than are ever open at once: a number from outside cannot exhaust memory.
        const CYCLE_MAX: usize = 1 << 20;
        if self.cycle > CYCLE_MAX {
            return Err(tensor::exhausted!("a cycle of {} datasets is wanted, {CYCLE_MAX} are possible", self.cycle));
        }
        Ok(Box::new(InterleavePass {
            input: Some(self.input.iterate()?),
            call: self.call.clone(),
            open: (0..self.cycle).map(|_| None).collect(),
            at: 0,
            taken: 0,
            block: self.block,
        }))
    }
}

struct InterleavePass {
    /// `None` at its end.
    input: Option<Box<dyn Elements>>,
    call: Call,
    open: Vec<Option<Box<dyn Elements>>>,
    /// Whose turn it is, and how many elements it has given.
    at: usize,
    taken: u64,
    block: u64,
}

impl InterleavePass {
    fn advance(&mut self) {
        self.at = (self.at + 1) % self.open.len();
        self.taken = 0;
    }
}

impl Elements for InterleavePass {
    fn next<'a>(&'a mut self, step: &'a StepContext) -> Next<'a> {
        Box::pin(async move {
            let mut pace = Pace::new();
            while self.input.is_some() || self.open.iter().any(Option::is_some) {
                pace.turn(step).await?;
                if let Some(current) = &mut self.open[self.at] {
                    if let Some(element) = current.next(step).await? {
                        self.taken += 1;
                        if self.taken >= self.block {
                            self.advance();
                        }
                        return Ok(Some(element));
                    }
                    self.open[self.at] = None;
                    self.advance();
                    continue;
                }
                let Some(input) = &mut self.input else {
                    self.advance();
                    continue;
                };
                match input.next(step).await? {
                    None => self.input = None,
                    Some(element) => {
                        let made = self.call.call(step, element).await?;
                        let [dataset] = made.as_slice() else {
                            return Err(invalid!("`f` must return a single dataset, found {} values", made.len()));
                        };
                        self.open[self.at] = Some(unwrap(dataset)?.iterate()?);
                    }
                }
            }
            Ok(None)
        })
    }
}

/// The function's results, with a state handed from one call to the next.
struct Scan {
    input: Shared,
    call: Call,
    state: Vec<Tensor>,
}

impl Dataset for Scan {
    fn iterate(&self) -> Result<Box<dyn Elements>> {
        Ok(Box::new(ScanPass { input: self.input.iterate()?, call: self.call.clone(), state: self.state.clone() }))
    }
}

struct ScanPass {
    input: Box<dyn Elements>,
    call: Call,
    state: Vec<Tensor>,
}

impl Elements for ScanPass {
    fn next<'a>(&'a mut self, step: &'a StepContext) -> Next<'a> {
        Box::pin(async move {
            let Some(element) = self.input.next(step).await? else { return Ok(None) };
            let arguments = self.state.iter().cloned().chain(element).collect();
            let Some(mut results) = self.call.next(step, arguments).await? else { return Ok(None) };
            if results.len() < self.state.len() {
                return Err(invalid!(
                    "the function of a scan returns {} values, its state has {}",
                    results.len(),
                    self.state.len()
                ));
            }
            let outputs = results.split_off(self.state.len());
            self.state = results;
            Ok(Some(outputs))
        })
    }
}

/// The elements that can be made.
struct IgnoreErrors(Shared);

impl Dataset for IgnoreErrors {
    fn iterate(&self) -> Result<Box<dyn Elements>> {
        Ok(Box::new(IgnoreErrorsPass(self.0.iterate()?)))
    }
}

struct IgnoreErrorsPass(Box<dyn Elements>);

impl Elements for IgnoreErrorsPass {
    fn next<'a>(&'a mut self, step: &'a StepContext) -> Next<'a> {
        Box::pin(async move {
            let mut pace = Pace::new();
            loop {
                pace.turn(step).await?;
                match self.0.next(step).await {
                    Err(e) if e.code != Code::Cancelled && !step.is_ended() => {}
                    other => return other,
                }
            }
        })
    }
}

/// `ReduceDataset`: the state that is left when the function has seen all elements.
struct Reduce {
    function: Arc<Function>,
    states: usize,
}

impl Reduce {
    fn new(b: &KernelBuild<'_>) -> Result<Reduce> {
        let states: Vec<DType> = b.attr("Tstate")?;
        Ok(Reduce { function: Arc::new(b.function("f")?), states: states.len() })
    }
}

impl AsyncKernel for Reduce {
    fn compute(&self, ctx: AsyncContext) -> BoxFuture<Result<Outputs>> {
        let (function, states) = (self.function.clone(), self.states);
        Box::pin(async move {
            let mut values: Vec<Tensor> = ctx.inputs.iter().map(Value::tensor).collect::<Result<_>>()?;
            let captured = values.split_off(1 + states).into();
            let mut state = values.split_off(1);
            let call = Call { function, captured, keeps_count: false };
            let mut elements = unwrap(&values[0])?.iterate()?;
            let mut pace = Pace::new();
            while let Some(element) = elements.next(&ctx.step).await? {
                pace.turn(&ctx.step).await?;
                let arguments = state.iter().cloned().chain(element).collect();
                state = call.call(&ctx.step, arguments).await?;
            }
            Ok(state.into_iter().map(Value::Tensor).collect())
        })
    }
}
