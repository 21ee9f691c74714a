//! `ShuffleDataset` and its kin: elements in another order; for given seeds, in TensorFlow's.

use super::{Dataset, Element, Elements, Next, Shared, input, number, output, scalar_shape};
use crate::pace::Pace;
use framework::kernel::kernel;
use framework::{Env, Kernel, KernelBuild, KernelContext, Op, StepContext};
use linalg::random::{Philox, Words};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use tensor::{Result, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    let shuffle = |name: &str| {
        Op::new(name)
            .input("input_dataset: variant")
            .input("buffer_size: int64")
            .input("seed: int64")
            .input("seed2: int64")
            .output("handle: variant")
            .shape(scalar_shape)
    };
    let types = |op: Op| {
        op.attr("output_types: list(type) >= 1").attr("output_shapes: list(shape) >= 1").attr("metadata: string = ''")
    };
    let reshuffles = |op: Op| op.attr("reshuffle_each_iteration: bool = true");
    let once = |b: &KernelBuild<'_>| Make::new(b, false);
    let repeated = |b: &KernelBuild<'_>| Make::new(b, true);
    vec![
        types(reshuffles(shuffle("ShuffleDataset"))).kernel(kernel(once)),
        types(reshuffles(shuffle("ShuffleDatasetV3").input("seed_generator: resource")))
            .stateful()
            .kernel(kernel(once)),
        types(reshuffles(shuffle("ShuffleAndRepeatDataset").input("count: int64"))).kernel(kernel(repeated)),
        types(reshuffles(shuffle("ShuffleAndRepeatDatasetV2").input("count: int64").input("seed_generator: resource")))
            .stateful()
            .kernel(kernel(repeated)),
    ]
}

struct Make {
    reshuffles: bool,
    /// Whether input 4 says how often to go through the input.
    repeats: bool,
    env: Arc<dyn Env>,
}

impl Make {
    fn new(b: &KernelBuild<'_>, repeats: bool) -> Result<Make> {
        Ok(Make { reshuffles: b.attr("reshuffle_each_iteration")?, repeats, env: b.env.clone() })
    }
}

/// As a buffer's size: as large as the input.
const UNKNOWN_SIZE: i64 = -2;

impl Kernel for Make {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let dataset = input(ctx, 0)?;
        let size = match number(ctx, 1, "buffer_size")? {
            UNKNOWN_SIZE => u64::MAX,
            size if size > 0 => size as u64,
            other => {
                return Err(invalid!("buffer_size must be greater than zero or UNKNOWN_CARDINALITY, found {other}"));
            }
        };
        let mut seeds = (number(ctx, 2, "seed")? as u64, number(ctx, 3, "seed2")? as u64);
        if seeds == (0, 0) {
            seeds = (self.env.random_u64(), self.env.random_u64());
        }
        let count = if self.repeats { number(ctx, 4, "count")? } else { 1 };
        if count == 0 {
            return Err(invalid!("count must be greater than zero or equal to -1."));
        }
        let seeds = match self.reshuffles {
            true => Seeds::Drawn(Mutex::new(Philox::new(seeds.0, seeds.1).words())),
            false => Seeds::Fixed(seeds),
        };
        output(ctx, Shuffle { input: dataset, size, seeds: Arc::new(seeds), count })
    }
}

/// Where the seeds of a pass come from.
enum Seeds {
    /// Every pass has the same.
    Fixed((u64, u64)),
    /// Every pass draws its own.
    Drawn(Mutex<Words>),
}

impl Seeds {
    fn stream(&self) -> Words {
        let (seed, seed2) = match self {
            Seeds::Fixed(seeds) => *seeds,
            Seeds::Drawn(words) => {
                let mut words = words.lock();
                (u64::from(words.next_word()), u64::from(words.next_word()))
            }
        };
        Philox::new(seed, seed2).words()
    }
}

struct Shuffle {
    input: Shared,
    size: u64,
    seeds: Arc<Seeds>,
    count: i64,
}

impl Dataset for Shuffle {
    fn iterate(&self) -> Result<Box<dyn Elements>> {
        Ok(Box::new(Pass {
            input: self.input.clone(),
            current: None,
            passes_left: self.count,
            size: self.size,
            words: self.seeds.stream(),
            seeds: self.seeds.clone(),
            buffer: Vec::new(),
            epochs: VecDeque::new(),
            held: 0,
        }))
    }
}

/// A buffer from which elements are drawn. Places are numbered on and on and wrap around the buffer; elements of one pass
/// over the input are not mixed with those of the next.
struct Pass {
    input: Shared,
    current: Option<Box<dyn Elements>>,
    /// Passes over the input still to be started; negative for ever.
    passes_left: i64,
    size: u64,
    seeds: Arc<Seeds>,
    /// Drawn from by the pass over the input whose elements come next.
    words: Words,
    buffer: Vec<Option<Element>>,
    /// For each pass over the input, the places of its elements that are not drawn yet.
    epochs: VecDeque<(u64, u64)>,
    held: u64,
}

impl Pass {
    async fn fill(&mut self, step: &StepContext) -> Result<()> {
        let mut pace = Pace::new();
        while self.held < self.size {
            pace.turn(step).await?;
            let current = match &mut self.current {
                Some(current) => current,
                None if self.passes_left == 0 => return Ok(()),
                none => {
                    self.passes_left -= i64::from(self.passes_left > 0);
                    let start = self.epochs.back().map_or(0, |(_, end)| *end);
                    self.epochs.push_back((start, start));
                    none.insert(self.input.iterate()?)
                }
            };
            let Some(element) = current.next(step).await? else {
                self.current = None;
                // A pass that found nothing would be followed by another for ever.
                if self.epochs.back().is_none_or(|(start, end)| start == end && self.held == 0) {
                    self.passes_left = 0;
                }
                continue;
            };
            self.put(element);
        }
        Ok(())
    }

    fn place(&self, number: u64) -> usize {
        (number % self.size) as usize
    }

    fn put(&mut self, element: Element) {
        let Some((_, end)) = self.epochs.back_mut() else { return };
        let number = *end;
        *end += 1;
        let place = self.place(number);
        if place >= self.buffer.len() {
            self.buffer.resize_with(place + 1, || None);
        }
        self.buffer[place] = Some(element);
        self.held += 1;
    }

    fn draw(&mut self) -> Option<Element> {
        while self.epochs.front().is_some_and(|(start, end)| start == end) && self.epochs.len() > 1 {
            self.epochs.pop_front();
            self.words = self.seeds.stream();
        }
        let (start, end) = *self.epochs.front()?;
        if start == end {
            return None;
        }
        let offset = u64::from(self.words.next_word()) % (end - start);
        let drawn = self.place(start + offset);
        let first = self.place(start);
        self.buffer.swap(drawn, first);
        if let Some((start, _)) = self.epochs.front_mut() {
            *start += 1;
        }
        self.held -= 1;
        self.buffer[first].take()
    }
}

impl Elements for Pass {
    fn next<'a>(&'a mut self, step: &'a StepContext) -> Next<'a> {
        Box::pin(async move {
            self.fill(step).await?;
            Ok(self.draw())
        })
    }
}
