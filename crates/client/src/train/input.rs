//! Input through queues: names of files handed out epoch by epoch, and examples gathered into batches.

use super::QueueRunner;
use crate::queue::Rows;
use crate::{Graph, Output, Queue, QueueBuilder, Variable, VariableOptions};
use framework::Scope;
use tensor::{DType, PartialShape, Result, Tensor, invalid};

/// How names are handed out: `ProducerOptions { num_epochs: Some(2), ..Default::default() }`.
#[derive(Clone, Debug)]
pub struct ProducerOptions {
    /// How often each is handed out; then the input ends. For ever, if not said. Counted in a local variable.
    pub num_epochs: Option<i64>,
    /// Whether they are shuffled in each epoch.
    pub shuffle: bool,
    /// The seed of the shuffling.
    pub seed: Option<i64>,
    /// How many wait in the queue.
    pub capacity: i64,
    /// The name under which other sessions find the same queue.
    pub shared_name: String,
}

impl Default for ProducerOptions {
    fn default() -> ProducerOptions {
        ProducerOptions { num_epochs: None, shuffle: true, seed: None, capacity: 32, shared_name: String::new() }
    }
}

/// How batches are gathered: `BatchOptions { num_threads: 4, ..Default::default() }`.
#[derive(Clone, Debug)]
pub struct BatchOptions {
    /// How many threads gather.
    pub num_threads: usize,
    /// How many examples wait in the queue.
    pub capacity: i64,
    /// Whether the outputs hold many examples each, along the first dimension.
    pub enqueue_many: bool,
    /// Whether the last batch may be smaller, rather than left out.
    pub allow_smaller_final_batch: bool,
    /// The seed, if batches are shuffled.
    pub seed: Option<i64>,
}

impl Default for BatchOptions {
    fn default() -> BatchOptions {
        let (num_threads, capacity) = (1, 32);
        BatchOptions { num_threads, capacity, enqueue_many: false, allow_smaller_final_batch: false, seed: None }
    }
}

impl Graph {
    /// A queue of texts, usually names of files, that is filled epoch by epoch.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::train::ProducerOptions;
    ///
    /// let g = Graph::new();
    /// let options = ProducerOptions { num_epochs: Some(1), shuffle: false, ..Default::default() };
    /// let name = g.string_input_producer(&["a", "b"], &options).dequeue().remove(0);
    /// let mut session = MonitoredTrainingSession::new(&g).start()?;
    /// let mut names = Vec::new();
    /// session.run_until_stop(|session| {
    ///     names.push(session.run(&name)?.to_string());
    ///     Ok(())
    /// })?;
    /// assert_eq!(names, ["a", "b"]);
    /// # Ok::<(), ferroflow::Error>(())
    /// ```
    #[track_caller]
    pub fn string_input_producer(&self, texts: &[&str], options: &ProducerOptions) -> Queue {
        let name = self.scope().unique_name("input_producer");
        self.here(|| {
            self.scope().with_absolute_name(&name, || {
                let texts = self.output([], |s, []| checked_texts(s, texts));
                self.input_producer(&name, texts, options)
            })
        })
    }

    /// A queue, called as the name scope that is open, that is filled with the rows of `input`.
    #[track_caller]
    fn input_producer(&self, name: &str, mut input: Output, options: &ProducerOptions) -> Queue {
        if options.shuffle {
            let (seed, seed2) = self.scope().seeds(options.seed);
            input = self.output([&input], |s, [input]| {
                s.node("RandomShuffle").input(input).attr("seed", seed).attr("seed2", seed2).output()
            });
        }
        if let Some(limit) = options.num_epochs {
            input = self.limit_epochs(&input, limit);
        }
        let row =
            input.shape().dims().and_then(|dims| dims.get(1..).map(|dims| PartialShape::new(dims.iter().copied())));
        let queue =
            self.fifo_queue(options.capacity).component_of(input.dtype(), row.unwrap_or_else(PartialShape::unknown));
        let queue = queue.name(format!("{name}/")).shared_name(&*options.shared_name).build();
        let enqueue = queue.enqueue_many(&[&input]);
        self.add_queue_runner(QueueRunner::new(&queue, vec![enqueue]));
        self.summarize_fullness(&queue, options.capacity, 0);
        queue
    }

    /// The same values, as often as the limit says; then `OutOfRange`.
    #[track_caller]
    fn limit_epochs(&self, input: &Output, limit: i64) -> Output {
        if limit <= 0 {
            self.keep(invalid!("num_epochs must be > 0, not {limit}"));
            return Output::void(self);
        }
        let name = self.scope().unique_name("limit_epochs");
        let counted = self.scope().with_absolute_name(&name, || {
            // A reference variable: that is the kind with an op that counts to a limit.
            let options = VariableOptions { trainable: false, local: true, resource: Some(false) };
            let epochs: Variable = self.variable_with("epochs", 0i64, options);
            self.operation([epochs.place()], |s, [place]| {
                s.colocated_with(place.node, || s.node("CountUpTo").input(place).attr("limit", limit).build())
            })
        });
        match self.own_node(&counted) {
            Some(counted) => self.output([input], |s, [input]| {
                s.with_control(&[counted], || s.node("Identity").name(name + "/").input(input).output())
            }),
            None => Output::void(self),
        }
    }

    /// Gathers examples, given by the outputs that compute one, into batches of this size.
    #[track_caller]
    pub fn batch(&self, example: &[&Output], size: i32, options: &BatchOptions) -> Vec<Output> {
        let queue = self.fifo_queue(options.capacity);
        self.here(|| self.gather_batches("batch", example, size, options, queue, 0))
    }

    /// The same in a random order: drawn from at least `min_after_dequeue` examples.
    #[track_caller]
    pub fn shuffle_batch(
        &self,
        example: &[&Output],
        size: i32,
        min_after_dequeue: i64,
        options: &BatchOptions,
    ) -> Vec<Output> {
        let mut queue = self.random_shuffle_queue(options.capacity, min_after_dequeue);
        if let Some(seed) = options.seed {
            queue = queue.seed(seed);
        }
        self.here(|| self.gather_batches("shuffle_batch", example, size, options, queue, min_after_dequeue))
    }

    fn gather_batches(
        &self,
        name: &str,
        example: &[&Output],
        size: i32,
        options: &BatchOptions,
        queue: QueueBuilder,
        staying: i64,
    ) -> Vec<Output> {
        let name = self.scope().unique_name(name);
        self.scope().with_absolute_name(&name, || {
            // TensorFlow's says with it that every example is kept; random ops count the nodes before them.
            self.constant(true);
            let queue = example.iter().fold(queue, |queue, output| {
                let shape = match options.enqueue_many {
                    true => output.shape().dims().map(|dims| PartialShape::new(dims.iter().skip(1).copied())),
                    false => Some(output.shape()),
                };
                queue.component_of(output.dtype(), shape.unwrap_or_else(PartialShape::unknown))
            });
            let queue = queue.build();
            let enqueue = if options.enqueue_many { queue.enqueue_many(example) } else { queue.enqueue(example) };
            self.add_queue_runner(QueueRunner::new(&queue, vec![enqueue; options.num_threads.max(1)]));
            self.summarize_fullness(&queue, options.capacity, staying);
            let rows = if options.allow_smaller_final_batch { Rows::UpTo(size) } else { Rows::Many(size) };
            queue.take(rows, &format!("{name}/"))
        })
    }

    fn summarize_fullness(&self, queue: &Queue, capacity: i64, staying: i64) {
        let size = queue.size();
        if staying == 0 {
            let full = size.cast::<f32>() * (1.0 / capacity as f32);
            self.scalar_summary(&format!("fraction_of_{capacity}_full"), &full);
            return;
        }
        let room = capacity - staying;
        let over = size - staying as i32;
        let zero = self.output([&over], |s, [over]| {
            let name = s.unique_name("Maximum");
            let zero = s.with_absolute_name(&name, || {
                s.node("Const").name("x").attr("dtype", DType::I32).attr("value", Tensor::from(0)).output()
            })?;
            s.node("Maximum").name(name + "/").inputs(&[zero, over]).output()
        });
        let full = zero.cast::<f32>() * (1.0 / room as f32);
        self.scalar_summary(&format!("fraction_over_{staying}_of_{room}_full"), &full);
    }
}

/// A constant of texts, that a run refuses to use if there are none.
fn checked_texts(s: &Scope, texts: &[&str]) -> Result<framework::Output> {
    const EMPTY: &str = "string_input_producer requires a non-null input tensor";
    if texts.is_empty() {
        return Err(invalid!("{EMPTY}"));
    }
    let count = i32::try_from(texts.len()).map_err(|_| invalid!("{} texts are too many", texts.len()))?;
    let bytes = texts.iter().map(|text| text.as_bytes().to_vec().into()).collect();
    let texts = s.constant(Tensor::from_strings([texts.len()], bytes)?)?;
    let constant = |name: &str, value: Tensor| {
        s.node("Const").name(name).attr("dtype", value.dtype()).attr("value", value).output()
    };
    let size = constant("Size", Tensor::from(count))?;
    let greater = s.unique_name("Greater");
    let zero = s.with_absolute_name(&greater, || constant("y", Tensor::from(0)))?;
    let is_some = s.node("Greater").name(greater + "/").inputs(&[size, zero]).output()?;
    let assert = s.with_name("Assert", || {
        constant("Const", Tensor::string(EMPTY))?;
        let name = s.unique_name("Assert");
        let text = s.with_absolute_name(&name, || constant("data_0", Tensor::string(EMPTY)))?;
        s.node("Assert").name(name + "/").inputs(&[is_some, text]).attr("summarize", 3i64).build()
    })?;
    s.with_control(&[assert], || s.node("Identity").input(texts).output())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nodes of a graph as `name = op(inputs)`, without those that were there before.
    fn nodes(g: &Graph, skip: usize) -> String {
        let message = g.to_graph_def().unwrap();
        let lines = message.node.iter().skip(skip);
        lines.map(|n| format!("{} = {}({})", n.name, n.op, n.input.join(", "))).collect::<Vec<_>>().join("\n")
    }

    /// What TensorFlow 2.21 builds for `string_input_producer(["a", "b"], num_epochs=2, seed=5)`, with variables as in v1.
    #[test]
    fn a_producer_is_built_as_tensorflow_builds_it() {
        let g = Graph::new();
        let options = ProducerOptions { num_epochs: Some(2), seed: Some(5), ..Default::default() };
        g.string_input_producer(&["a", "b"], &options);
        let want = "\
input_producer/Const = Const()
input_producer/Size = Const()
input_producer/Greater/y = Const()
input_producer/Greater = Greater(input_producer/Size, input_producer/Greater/y)
input_producer/Assert/Const = Const()
input_producer/Assert/Assert/data_0 = Const()
input_producer/Assert/Assert = Assert(input_producer/Greater, input_producer/Assert/Assert/data_0)
input_producer/Identity = Identity(input_producer/Const, ^input_producer/Assert/Assert)
input_producer/RandomShuffle = RandomShuffle(input_producer/Identity)
input_producer/limit_epochs/epochs/initial_value = Const()
input_producer/limit_epochs/epochs = VariableV2()
input_producer/limit_epochs/epochs/Assign = Assign(input_producer/limit_epochs/epochs, input_producer/limit_epochs/epochs/initial_value)
input_producer/limit_epochs/epochs/read = Identity(input_producer/limit_epochs/epochs)
input_producer/limit_epochs/CountUpTo = CountUpTo(input_producer/limit_epochs/epochs)
input_producer/limit_epochs = Identity(input_producer/RandomShuffle, ^input_producer/limit_epochs/CountUpTo)
input_producer = FIFOQueueV2()
input_producer/input_producer_EnqueueMany = QueueEnqueueManyV2(input_producer, input_producer/limit_epochs)
input_producer/input_producer_Close = QueueCloseV2(input_producer)
input_producer/input_producer_Close_1 = QueueCloseV2(input_producer)
input_producer/input_producer_Size = QueueSizeV2(input_producer)
input_producer/Cast = Cast(input_producer/input_producer_Size)
input_producer/mul/y = Const()
input_producer/mul = Mul(input_producer/Cast, input_producer/mul/y)
input_producer/fraction_of_32_full/tags = Const()
input_producer/fraction_of_32_full = ScalarSummary(input_producer/fraction_of_32_full/tags, input_producer/mul)";
        assert_eq!(nodes(&g, 0), want);
        assert_eq!(g.queue_runners().len(), 1);
    }

    /// What TensorFlow 2.21 builds for `shuffle_batch([x, y], 3, 50, 6, seed=4)`.
    #[test]
    fn batches_are_built_as_tensorflow_builds_them() {
        let g = Graph::new();
        let (x, y) = (g.constant([1.0f32, 2.0]), g.constant(1));
        let options = BatchOptions { capacity: 50, seed: Some(4), ..Default::default() };
        let batch = g.shuffle_batch(&[&x, &y], 3, 6, &options);
        let want = "\
shuffle_batch/Const = Const()
shuffle_batch/random_shuffle_queue = RandomShuffleQueueV2()
shuffle_batch/random_shuffle_queue_enqueue = QueueEnqueueV2(shuffle_batch/random_shuffle_queue, Const, Const_1)
shuffle_batch/random_shuffle_queue_Close = QueueCloseV2(shuffle_batch/random_shuffle_queue)
shuffle_batch/random_shuffle_queue_Close_1 = QueueCloseV2(shuffle_batch/random_shuffle_queue)
shuffle_batch/random_shuffle_queue_Size = QueueSizeV2(shuffle_batch/random_shuffle_queue)
shuffle_batch/sub/y = Const()
shuffle_batch/sub = Sub(shuffle_batch/random_shuffle_queue_Size, shuffle_batch/sub/y)
shuffle_batch/Maximum/x = Const()
shuffle_batch/Maximum = Maximum(shuffle_batch/Maximum/x, shuffle_batch/sub)
shuffle_batch/Cast = Cast(shuffle_batch/Maximum)
shuffle_batch/mul/y = Const()
shuffle_batch/mul = Mul(shuffle_batch/Cast, shuffle_batch/mul/y)
shuffle_batch/fraction_over_6_of_44_full/tags = Const()
shuffle_batch/fraction_over_6_of_44_full = ScalarSummary(shuffle_batch/fraction_over_6_of_44_full/tags, shuffle_batch/mul)
shuffle_batch/n = Const()
shuffle_batch = QueueDequeueManyV2(shuffle_batch/random_shuffle_queue, shuffle_batch/n)";
        assert_eq!(nodes(&g, 2), want);
        let shapes: Vec<String> = batch.iter().map(|o| o.shape().to_string()).collect();
        assert_eq!(shapes, ["[3,2]", "[3]"]);
        let many = BatchOptions { enqueue_many: true, allow_smaller_final_batch: true, ..Default::default() };
        let z = g.constant([[1.0f32, 2.0]]);
        assert_eq!(g.batch(&[&z], 4, &many)[0].shape().to_string(), "[?,2]");
        assert_eq!(g.find_operation("batch/fifo_queue_EnqueueMany").name(), "batch/fifo_queue_EnqueueMany");
        g.check().unwrap();
    }

    #[test]
    fn no_texts_and_no_epochs_are_mistakes() {
        for (texts, num_epochs) in [(&[][..], None), (&["a"][..], Some(0))] {
            let g = Graph::new();
            g.string_input_producer(texts, &ProducerOptions { num_epochs, ..Default::default() });
            assert!(g.check().is_err());
        }
    }
}
