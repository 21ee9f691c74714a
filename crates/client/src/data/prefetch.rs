//! `Pipeline`: examples on their way to training, read and prepared ahead by threads of their own.
//!
//! A pipeline is an iterator of results: what goes wrong anywhere travels to whoever asks next. Threads belong to the
//! pipeline; when it is dropped they end with the element they are at.

use super::mnist::below;
use linalg::random::{Philox, Words};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use tensor::{DType, Result, Tensor, internal, invalid};

/// Elements on their way to training.
///
/// ```
/// use ferroflow::data::Pipeline;
/// use ferroflow::prelude::*;
///
/// // Ten times over a source, each time in another order; prepared by two threads, in batches that are ready in time.
/// let batches = Pipeline::repeat(10, |epoch| Ok(Pipeline::new((0..100).map(Ok)).shuffle(50, Some(epoch))))
///     .map_parallel(2, |i| Ok((Tensor::from(i as f32), Tensor::from(i % 2))))
///     .batch(32)
///     .prefetch(4);
/// for batch in batches {
///     let (x, label) = batch?;
///     assert_eq!(x.dims(), label.dims());
/// }
/// # Ok::<(), ferroflow::Error>(())
/// ```
pub struct Pipeline<T> {
    source: Box<dyn Iterator<Item = Result<T>> + Send>,
}

impl<T: Send + 'static> Pipeline<T> {
    /// The elements of an iterator, such as [`records::read`](super::records::read) gives.
    pub fn new<I>(elements: I) -> Pipeline<T>
    where
        I: IntoIterator<Item = Result<T>>,
        I::IntoIter: Send + 'static,
    {
        Pipeline { source: Box::new(elements.into_iter()) }
    }

    /// A source made anew for each of so many epochs, which are counted from 0. `u64::MAX` epochs never end, unless one
    /// is empty.
    pub fn repeat(epochs: u64, mut make: impl FnMut(u64) -> Result<Pipeline<T>> + Send + 'static) -> Pipeline<T> {
        let mut made = 0;
        let mut current: Option<Pipeline<T>> = None;
        let mut is_empty = false;
        Pipeline::new(std::iter::from_fn(move || {
            loop {
                if let Some(element) = current.as_mut().and_then(Iterator::next) {
                    is_empty = false;
                    return Some(element);
                }
                if is_empty || made == epochs {
                    return None;
                }
                match make(made) {
                    Ok(source) => current = Some(source),
                    Err(error) => {
                        made = epochs; // what could not be opened is not tried for ever
                        return Some(Err(error));
                    }
                }
                made += 1;
                is_empty = true;
            }
        }))
    }

    /// In random order, as far as a buffer of this size allows; drawn from the seed, or another one in each run.
    pub fn shuffle(self, buffer_len: usize, seed: Option<u64>) -> Pipeline<T> {
        let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(0));
        Pipeline::new(Shuffle {
            source: self,
            buffer: Vec::new(),
            buffer_len: buffer_len.max(1),
            random: Philox::new(seed, 0).words(),
        })
    }

    /// What a function makes of each element, by so many threads at once, in the same order.
    pub fn map_parallel<U: Send + 'static>(
        self,
        threads: usize,
        f: impl Fn(T) -> Result<U> + Send + Sync + 'static,
    ) -> Pipeline<U> {
        let f = Arc::new(f);
        let threads = threads.max(1);
        let (mut inputs, mut lanes) = (Vec::new(), Vec::new());
        for _ in 0..threads {
            let (input, elements) = sync_channel::<Result<T>>(1);
            let f = f.clone();
            inputs.push(input);
            lanes.push(Ahead::start(1, elements.into_iter().map(move |element| element.and_then(|e| f(e)))));
        }
        // One after the other gets an element, and is asked for what it made of it in the same order.
        let mut dealer = Ahead::start(1, Dealer { source: self.source, inputs, turn: 0 });
        let (mut turn, mut is_over) = (0, false);
        Pipeline::new(std::iter::from_fn(move || {
            if is_over {
                return None;
            }
            let element = lanes[turn].next();
            is_over = lanes[turn].has_ended();
            turn = (turn + 1) % threads;
            // If the lanes are empty because whoever deals panicked, that is to be known.
            element.or_else(|| dealer.next()?.err().map(Err))
        }))
    }

    /// In batches of this size; the last may be smaller.
    pub fn batch(self, size: usize) -> Pipeline<T::Batch>
    where
        T: Batchable,
    {
        self.batches(size, 1)
    }

    /// In batches of exactly this size; what is left over at the end is dropped.
    pub fn full_batches(self, size: usize) -> Pipeline<T::Batch>
    where
        T: Batchable,
    {
        self.batches(size, size)
    }

    fn batches(mut self, size: usize, at_least: usize) -> Pipeline<T::Batch>
    where
        T: Batchable,
    {
        let size = size.max(1);
        Pipeline::new(std::iter::from_fn(move || {
            let elements: Result<Vec<T>> = self.by_ref().take(size).collect();
            match elements {
                Ok(elements) if elements.len() < at_least.max(1) => None,
                Ok(elements) => Some(T::batch(elements)),
                Err(error) => Some(Err(error)),
            }
        }))
    }

    /// Made ahead by a thread, which waits when so many elements are ready.
    pub fn prefetch(self, buffer_len: usize) -> Pipeline<T> {
        Pipeline::new(Ahead::start(buffer_len.max(1), self.source))
    }
}

impl<T> Iterator for Pipeline<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        self.source.next()
    }
}

/// What can be put into batches: tensors of one shape, and tuples of such.
pub trait Batchable: Send + Sized + 'static {
    /// What a batch is.
    type Batch: Send + 'static;
    /// The batch of these elements, of which there is at least one.
    fn batch(elements: Vec<Self>) -> Result<Self::Batch>;
}

impl Batchable for Tensor {
    type Batch = Tensor;

    fn batch(elements: Vec<Tensor>) -> Result<Tensor> {
        let first = &elements[0];
        if let Some(other) = elements.iter().find(|e| e.shape() != first.shape() || e.dtype() != first.dtype()) {
            return Err(invalid!(
                "a batch wants elements of one type and shape, found {}{} and {}{}",
                first.dtype(),
                first.shape(),
                other.dtype(),
                other.shape()
            ));
        }
        let shape: Vec<usize> = std::iter::once(elements.len()).chain(first.dims().iter().copied()).collect();
        if first.dtype() == DType::String {
            let strings = elements.iter().map(Tensor::as_strings).collect::<Result<Vec<_>>>()?;
            return Tensor::from_strings(shape, strings.concat());
        }
        let bytes = elements.iter().map(Tensor::as_bytes).collect::<Result<Vec<_>>>()?;
        Tensor::from_bytes(first.dtype(), shape, &bytes.concat())
    }
}

impl<A: Batchable, B: Batchable> Batchable for (A, B) {
    type Batch = (A::Batch, B::Batch);

    fn batch(elements: Vec<(A, B)>) -> Result<Self::Batch> {
        let (a, b) = elements.into_iter().unzip();
        Ok((A::batch(a)?, B::batch(b)?))
    }
}

struct Shuffle<T> {
    source: Pipeline<T>,
    buffer: Vec<T>,
    buffer_len: usize,
    random: Words,
}

impl<T: Send + 'static> Iterator for Shuffle<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        while self.buffer.len() < self.buffer_len {
            match self.source.next() {
                Some(Ok(element)) => self.buffer.push(element),
                Some(Err(error)) => return Some(Err(error)),
                None => break,
            }
        }
        if self.buffer.is_empty() {
            return None;
        }
        let chosen = below(&mut self.random, self.buffer.len());
        Some(Ok(self.buffer.swap_remove(chosen)))
    }
}

/// Gives each of several threads an element in turn. It makes nothing itself.
struct Dealer<T> {
    source: Box<dyn Iterator<Item = Result<T>> + Send>,
    inputs: Vec<SyncSender<Result<T>>>,
    turn: usize,
}

impl<T> Iterator for Dealer<T> {
    type Item = Result<()>;

    fn next(&mut self) -> Option<Result<()>> {
        for element in self.source.by_ref() {
            // A lane that takes no more has lost who asks it.
            self.inputs[self.turn].send(element).ok()?;
            self.turn = (self.turn + 1) % self.inputs.len();
        }
        None
    }
}

/// An iterator that a thread works through, some elements ahead of who asks.
struct Ahead<T> {
    elements: Receiver<Result<T>>,
    thread: Option<JoinHandle<()>>,
    failed_to_start: Option<tensor::Error>,
}

impl<T: Send + 'static> Ahead<T> {
    fn start(buffer_len: usize, source: impl Iterator<Item = Result<T>> + Send + 'static) -> Ahead<T> {
        let (sender, elements) = sync_channel(buffer_len);
        let work = move || {
            for element in source {
                if sender.send(element).is_err() {
                    return; // nobody asks any more
                }
            }
        };
        match std::thread::Builder::new().name("data pipeline".into()).spawn(work) {
            Ok(thread) => Ahead { elements, thread: Some(thread), failed_to_start: None },
            Err(e) => Ahead { elements, thread: None, failed_to_start: Some(e.into()) },
        }
    }

    /// Whether the end was seen.
    fn has_ended(&self) -> bool {
        self.thread.is_none()
    }
}

impl<T> Iterator for Ahead<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        if let Ok(element) = self.elements.recv() {
            return Some(element);
        }
        if let Some(error) = self.failed_to_start.take() {
            return Some(Err(error));
        }
        // The thread has ended. What it ended by must not pass for the end of the data.
        let panic = self.thread.take()?.join().err()?;
        let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Some(Err(internal!("a thread of the data pipeline panicked: {text}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};
    use tensor::{Code, Error};

    fn numbers(end: i64) -> Pipeline<i64> {
        Pipeline::new((0..end).map(Ok))
    }

    fn all<T>(pipeline: Pipeline<T>) -> Vec<T> {
        pipeline.collect::<Result<_>>().unwrap()
    }

    #[test]
    fn threads_keep_the_order() {
        for threads in [1, 2, 5] {
            let squares = numbers(1000).map_parallel(threads, |i| Ok(i * i)).prefetch(3);
            assert_eq!(all(squares), (0..1000).map(|i| i * i).collect::<Vec<_>>());
        }
        assert!(numbers(0).map_parallel(3, Ok).next().is_none());
    }

    #[test]
    fn every_epoch_has_an_order_of_its_own_and_all_elements() {
        let orders = || all(Pipeline::repeat(3, |epoch| Ok(numbers(40).shuffle(10, Some(epoch)))));
        let found = orders();
        assert_eq!(found, orders(), "a seed gives the same order");
        let mut epochs: Vec<Vec<i64>> = found.chunks(40).map(<[i64]>::to_vec).collect();
        assert!(epochs[0] != epochs[1] && epochs[1] != epochs[2]);
        assert!(epochs[0][0] < 10, "what comes first was in the first buffer");
        epochs.iter_mut().for_each(|epoch| epoch.sort());
        assert_eq!(epochs, vec![(0..40).collect::<Vec<_>>(); 3]);
        assert!(Pipeline::repeat(u64::MAX, |_| Ok(numbers(0))).next().is_none());
    }

    #[test]
    fn batches_are_stacked() {
        let rows =
            || numbers(7).map_parallel(1, |i| Ok((Tensor::from([i, -i]), Tensor::from(format!("{i}").as_str()))));
        let shapes = |batches: Vec<(Tensor, Tensor)>| {
            batches.iter().map(|(a, b)| (a.dims().to_vec(), b.dims().to_vec())).collect::<Vec<_>>()
        };
        let found = all(rows().batch(3));
        assert_eq!(found[1].0, Tensor::from([[3i64, -3], [4, -4], [5, -5]]));
        assert_eq!(found[2].1, Tensor::from(["6"]));
        assert_eq!(shapes(found), [(vec![3, 2], vec![3]), (vec![3, 2], vec![3]), (vec![1, 2], vec![1])]);
        assert_eq!(all(rows().full_batches(3)).len(), 2);

        let uneven = Pipeline::new([Ok(Tensor::from([1.0f32])), Ok(Tensor::from([1.0f32, 2.0]))]);
        let error = uneven.batch(2).next().unwrap().unwrap_err();
        assert_eq!(error.message, "a batch wants elements of one type and shape, found float[1] and float[2]");
    }

    #[test]
    fn errors_travel_and_panics_become_errors() {
        let odd = |i: i64| if i == 5 { Err(Error::new(Code::DataLoss, "five")) } else { Ok(Tensor::from(i)) };
        let found: Vec<_> = numbers(10).map_parallel(2, odd).shuffle(1, None).batch(4).prefetch(2).collect();
        let lengths: Vec<_> = found.iter().map(|batch| batch.as_ref().map(Tensor::num_elements)).collect();
        assert!(matches!(lengths[..], [Ok(4), Err(e), Ok(4)] if e.message == "five"), "{lengths:?}");

        let broken = Pipeline::repeat(u64::MAX, |_| Err::<Pipeline<i64>, _>(Error::new(Code::NotFound, "no file")));
        assert_eq!(broken.collect::<Vec<_>>().len(), 1);

        let sources: [fn() -> Pipeline<i64>; 3] = [
            || numbers(3).map_parallel(2, |i| if i == 1 { panic!("in a lane") } else { Ok(i) }),
            || Pipeline::new((0..3).map(|i| if i == 1 { panic!("in the source") } else { Ok(i) })).map_parallel(2, Ok),
            || Pipeline::new((0..3).map(|i| if i == 1 { panic!("ahead") } else { Ok(i) })).prefetch(1),
        ];
        for source in sources {
            let found: Vec<_> = source().take(3).collect();
            let error = found[1].as_ref().unwrap_err();
            assert!(found[0].is_ok() && error.message.contains("pipeline panicked: "), "{found:?}");
            assert_eq!(source().last().unwrap().unwrap_err().code, Code::Internal, "and then it is over");
        }
    }

    #[test]
    fn no_more_is_made_than_the_buffers_hold_and_threads_end_with_the_pipeline() {
        let made = Arc::new(AtomicUsize::new(0));
        let counter = made.clone();
        let endless = Pipeline::new((0..).map(move |i: i64| {
            counter.fetch_add(1, Ordering::SeqCst);
            Ok(i)
        }));
        let mut pipeline = endless.map_parallel(2, Ok).prefetch(4);
        assert_eq!(pipeline.next().unwrap().unwrap(), 0);
        drop(pipeline);
        // The source, and with it the second handle on the count, goes when the last thread has gone.
        let deadline = Instant::now() + Duration::from_secs(20);
        while Arc::strong_count(&made) > 1 {
            assert!(Instant::now() < deadline, "a thread still holds the source");
            std::thread::yield_now();
        }
        assert!(made.load(Ordering::SeqCst) <= 1 + 4 + 1 + 2 * 3 + 1 + 1, "{made:?}");
    }
}
