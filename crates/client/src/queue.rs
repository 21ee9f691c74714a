//! Queues: elements that some steps put in and others take out, each a list of components.

use crate::{Graph, Operation, Output};
use framework::Scope;
use framework::scope::NodeBuilder;
use tensor::{DType, Element, PartialShape, Result, Tensor, invalid};

/// A queue in the graph; clones are handles on the same queue.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let queue = g.fifo_queue(10).component::<f32>([2]).component::<i32>(Shape::scalar()).build();
/// let put = queue.enqueue(&[&g.constant([1.0f32, 2.0]), &g.constant(7)]);
/// let taken = queue.dequeue();
///
/// let session = Session::new(&g)?;
/// session.run(&put)?;
/// let values = session.run(&taken)?;
/// assert_eq!(values, [Tensor::from([1.0f32, 2.0]), Tensor::from(7)]);
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Queue {
    handle: Output,
    components: Vec<Component>,
}

/// One of the values that an element consists of.
#[derive(Clone, Debug)]
struct Component {
    dtype: DType,
    shape: PartialShape,
}

/// A queue being described: made by [`Graph::fifo_queue`] and its like.
pub struct QueueBuilder {
    graph: Graph,
    kind: Kind,
    capacity: i64,
    components: Vec<Component>,
    name: Option<String>,
    shared_name: String,
}

#[derive(Clone, Copy)]
enum Kind {
    Fifo,
    PaddingFifo,
    Shuffle { min_after_dequeue: i64, seed: Option<i64> },
}

impl Graph {
    /// A queue that gives elements back in the order they came. A capacity of -1 is none.
    pub fn fifo_queue(&self, capacity: i64) -> QueueBuilder {
        self.queue(Kind::Fifo, capacity)
    }

    /// The same for elements of different sizes: when several are taken, the smaller ones are filled up with zeros.
    pub fn padding_fifo_queue(&self, capacity: i64) -> QueueBuilder {
        self.queue(Kind::PaddingFifo, capacity)
    }

    /// A queue that gives elements back in a random order, as long as more than `min_after_dequeue` are in it.
    pub fn random_shuffle_queue(&self, capacity: i64, min_after_dequeue: i64) -> QueueBuilder {
        self.queue(Kind::Shuffle { min_after_dequeue, seed: None }, capacity)
    }

    fn queue(&self, kind: Kind, capacity: i64) -> QueueBuilder {
        QueueBuilder {
            graph: self.clone(),
            kind,
            capacity,
            components: Vec::new(),
            name: None,
            shared_name: String::new(),
        }
    }
}

impl QueueBuilder {
    /// One more component of each element, of this type and shape. A shape must be known in full, but for open
    /// dimensions in a padding queue; or [`PartialShape::unknown`] for all components, and elements are taken singly.
    pub fn component<T: Element>(self, shape: impl Into<PartialShape>) -> QueueBuilder {
        self.component_of(T::DTYPE, shape)
    }

    /// The same, with the type as a value.
    pub fn component_of(mut self, dtype: DType, shape: impl Into<PartialShape>) -> QueueBuilder {
        self.components.push(Component { dtype, shape: shape.into() });
        self
    }

    /// What the queue's node is called.
    pub fn name(mut self, name: impl Into<String>) -> QueueBuilder {
        self.name = Some(name.into());
        self
    }

    /// The name under which other sessions find the same queue.
    pub fn shared_name(mut self, name: impl Into<String>) -> QueueBuilder {
        self.shared_name = name.into();
        self
    }

    /// The seed of a queue that gives elements back in a random order.
    pub fn seed(mut self, seed: i64) -> QueueBuilder {
        if let Kind::Shuffle { seed: own, .. } = &mut self.kind {
            *own = Some(seed);
        }
        self
    }

    /// Adds the queue to the graph.
    #[track_caller]
    pub fn build(self) -> Queue {
        let handle = self.graph.output([], |s, []| self.declare(s));
        Queue { handle, components: self.components }
    }

    fn declare(&self, s: &Scope) -> Result<framework::Output> {
        let types: Vec<DType> = self.components.iter().map(|c| c.dtype).collect();
        let shapes: Vec<PartialShape> = match self.components.iter().all(|c| c.shape.rank().is_none()) {
            true => Vec::new(),
            false => self.components.iter().map(|c| c.shape.clone()).collect(),
        };
        let (op, name) = match self.kind {
            Kind::Fifo => ("FIFOQueueV2", "fifo_queue"),
            Kind::PaddingFifo => ("PaddingFIFOQueueV2", "padding_fifo_queue"),
            Kind::Shuffle { .. } => ("RandomShuffleQueueV2", "random_shuffle_queue"),
        };
        let declare = || {
            let node = s.node(op).name(self.name.as_deref().unwrap_or(name)).attr("component_types", types);
            let node = node.attr("shapes", shapes).attr("capacity", self.capacity);
            self.shuffled(s, node.attr("shared_name", self.shared_name.as_str())).output()
        };
        // TensorFlow keeps this one kind off other devices, and names the device so.
        match self.kind {
            Kind::Fifo => s.with_device("/device:CPU:*".parse()?, declare),
            _ => declare(),
        }
    }

    fn shuffled<'s>(&self, s: &Scope, node: NodeBuilder<'s>) -> NodeBuilder<'s> {
        let Kind::Shuffle { min_after_dequeue, seed } = self.kind else { return node };
        let (seed, seed2) = s.seeds(seed);
        node.attr("min_after_dequeue", min_after_dequeue).attr("seed", seed).attr("seed2", seed2)
    }
}

impl Queue {
    /// The graph it belongs to.
    pub fn graph(&self) -> &Graph {
        self.handle.graph()
    }

    /// Its full name.
    pub fn name(&self) -> String {
        self.handle.name()
    }

    /// The handle that queue ops take.
    pub fn handle(&self) -> &Output {
        &self.handle
    }

    /// Puts an element in, given by its components; waits while the queue is full.
    #[track_caller]
    pub fn enqueue(&self, components: &[&Output]) -> Operation {
        self.put("QueueEnqueueV2", "enqueue", components)
    }

    /// Puts many elements in: each component has them along its first dimension.
    #[track_caller]
    pub fn enqueue_many(&self, components: &[&Output]) -> Operation {
        self.put("QueueEnqueueManyV2", "EnqueueMany", components)
    }

    #[track_caller]
    fn put(&self, op: &str, name: &str, components: &[&Output]) -> Operation {
        let graph = self.graph();
        let inputs: Option<Vec<_>> =
            graph.here(|| std::iter::once(&&self.handle).chain(components).map(|c| graph.own_one(c)).collect());
        let Some(inputs) = inputs else { return Operation::void(graph) };
        graph.operation([], |s, []| {
            self.check(components)?;
            s.node(op).name(self.local_name(name)).inputs(&inputs).build()
        })
    }

    fn check(&self, components: &[&Output]) -> Result<()> {
        let wanted: Vec<DType> = self.components.iter().map(|c| c.dtype).collect();
        let found: Vec<DType> = components.iter().map(|c| c.dtype()).collect();
        if wanted != found {
            return Err(invalid!("elements of {} have components {wanted:?}, not {found:?}", self.name()));
        }
        Ok(())
    }

    /// Takes one element; waits while there is none.
    #[track_caller]
    pub fn dequeue(&self) -> Vec<Output> {
        self.take(Rows::One, &self.local_name("Dequeue"))
    }

    /// Takes `n` elements, joined along a new first dimension; waits until there are as many.
    #[track_caller]
    pub fn dequeue_many(&self, n: i32) -> Vec<Output> {
        self.take(Rows::Many(n), &self.local_name("DequeueMany"))
    }

    /// Takes `n` elements; fewer if the queue is closed and has no more.
    #[track_caller]
    pub fn dequeue_up_to(&self, n: i32) -> Vec<Output> {
        self.take(Rows::UpTo(n), &self.local_name("DequeueUpTo"))
    }

    /// Takes elements by a node of this name, as [`NodeBuilder::name`] understands it.
    #[track_caller]
    pub(crate) fn take(&self, rows: Rows, name: &str) -> Vec<Output> {
        let graph = self.graph();
        let taken = self.handle.id().and_then(|handle| graph.kept(self.taking(graph.scope(), handle, rows, name)));
        let Some(taken) = taken else { return self.components.iter().map(|_| Output::void(graph)).collect() };
        taken.into_iter().map(|id| Output::new(graph, Some(id))).collect()
    }

    fn taking(&self, s: &Scope, handle: framework::Output, rows: Rows, name: &str) -> Result<Vec<framework::Output>> {
        let (op, n) = match rows {
            Rows::One => ("QueueDequeueV2", None),
            Rows::Many(n) => ("QueueDequeueManyV2", Some(n)),
            Rows::UpTo(n) => ("QueueDequeueUpToV2", Some(n)),
        };
        let name = match name.strip_suffix('/') {
            Some(exact) => exact.to_string(),
            None => s.unique_name(name),
        };
        let mut inputs = vec![handle];
        if let Some(n) = n {
            inputs.push(s.with_absolute_name(&name, || {
                s.node("Const").name("n").attr("dtype", DType::I32).attr("value", Tensor::from(n)).output()
            })?);
        }
        let types: Vec<DType> = self.components.iter().map(|c| c.dtype).collect();
        let taken = s.node(op).name(name + "/").inputs(&inputs).attr("component_types", types).outputs()?;
        for (&output, component) in taken.iter().zip(&self.components) {
            s.edit_graph(|g| g.set_shape(output, &taken_shape(&component.shape, rows)))?;
        }
        Ok(taken)
    }

    /// Ends the queue: what is in it can still be taken, then taking ends with `OutOfRange`.
    #[track_caller]
    pub fn close(&self) -> Operation {
        self.close_with(false)
    }

    /// The same, and those who wait for room to put something in end with `Cancelled`.
    #[track_caller]
    pub fn cancel(&self) -> Operation {
        self.close_with(true)
    }

    #[track_caller]
    fn close_with(&self, cancels: bool) -> Operation {
        self.graph().operation([&self.handle], |s, [handle]| {
            s.node("QueueCloseV2")
                .name(self.local_name("Close"))
                .input(handle)
                .attr("cancel_pending_enqueues", cancels)
                .build()
        })
    }

    /// How many elements are in it.
    #[track_caller]
    pub fn size(&self) -> Output {
        self.look("QueueSizeV2", "Size")
    }

    /// Whether it was closed.
    #[track_caller]
    pub fn is_closed(&self) -> Output {
        self.look("QueueIsClosedV2", "Is_Closed")
    }

    #[track_caller]
    fn look(&self, op: &str, name: &str) -> Output {
        self.graph().output([&self.handle], |s, [handle]| s.node(op).name(self.local_name(name)).input(handle).output())
    }

    /// A node's name beside the queue: its last part with something behind it, in the current name scope.
    fn local_name(&self, suffix: &str) -> String {
        let name = self.name();
        format!("{}_{suffix}", name.rsplit('/').next().unwrap_or(&name))
    }
}

/// How many elements are taken at once.
#[derive(Clone, Copy)]
pub(crate) enum Rows {
    /// One, as it is.
    One,
    /// As many, joined.
    Many(i32),
    /// At most as many, joined.
    UpTo(i32),
}

/// The shape of a component that was taken out.
fn taken_shape(element: &PartialShape, rows: Rows) -> PartialShape {
    let size = match rows {
        Rows::One => return element.clone(),
        Rows::Many(n) => usize::try_from(n).ok(),
        Rows::UpTo(_) => None,
    };
    match element.dims() {
        Some(dims) => PartialShape::new(std::iter::once(size).chain(dims.iter().copied())),
        None => PartialShape::unknown(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Session;
    use tensor::{Code, Shape};

    /// The nodes of a graph as `name = op(inputs)`.
    fn nodes(g: &Graph) -> Vec<String> {
        let message = g.to_graph_def().unwrap();
        message.node.iter().map(|n| format!("{} = {}({})", n.name, n.op, n.input.join(", "))).collect()
    }

    /// What TensorFlow 2.21 calls the nodes of the same calls.
    #[test]
    fn nodes_are_named_as_tensorflow_names_them() {
        let g = Graph::new();
        let q = g.fifo_queue(10).component::<f32>([2]).component::<i32>(Shape::scalar()).name("q").build();
        let (x, y) = (g.constant([1.0f32, 2.0]), g.constant(3));
        q.enqueue(&[&x, &y]);
        q.enqueue_many(&[&g.constant([[1.0f32, 2.0]]), &g.constant([3])]);
        let single = q.dequeue();
        let many = q.dequeue_many(3);
        let some = q.dequeue_up_to(2);
        let (_, _) = (q.close(), q.cancel());
        let (_, _) = (q.size(), q.is_closed());
        let found = nodes(&g);
        let want = [
            "q = FIFOQueueV2()",
            "q_enqueue = QueueEnqueueV2(q, Const, Const_1)",
            "q_EnqueueMany = QueueEnqueueManyV2(q, Const_2, Const_3)",
            "q_Dequeue = QueueDequeueV2(q)",
            "q_DequeueMany/n = Const()",
            "q_DequeueMany = QueueDequeueManyV2(q, q_DequeueMany/n)",
            "q_DequeueUpTo/n = Const()",
            "q_DequeueUpTo = QueueDequeueUpToV2(q, q_DequeueUpTo/n)",
            "q_Close = QueueCloseV2(q)",
            "q_Close_1 = QueueCloseV2(q)",
            "q_Size = QueueSizeV2(q)",
            "q_Is_Closed = QueueIsClosedV2(q)",
        ];
        assert_eq!(found.iter().filter(|n| n.starts_with('q')).collect::<Vec<_>>(), want.iter().collect::<Vec<_>>());
        let shapes: Vec<String> =
            [&single, &many, &some].into_iter().flatten().map(|o| o.shape().to_string()).collect();
        assert_eq!(shapes, ["[2]", "[]", "[3,2]", "[3]", "[?,2]", "[?]"]);
        let declared = &g.to_graph_def().unwrap().node[0];
        assert_eq!(declared.device, "/device:CPU:*");
        let padded = g.padding_fifo_queue(10).component::<f32>([None]).build();
        assert_eq!(
            (padded.name().as_str(), padded.dequeue_many(4)[0].shape().to_string()),
            ("padding_fifo_queue", "[4,?]".into())
        );
        assert_eq!(g.random_shuffle_queue(10, 2).component::<f32>([1]).build().name(), "random_shuffle_queue");
    }

    #[test]
    fn what_was_put_in_before_closing_is_taken_out() {
        let g = Graph::new();
        let q = g.random_shuffle_queue(10, 3).seed(1).component::<i32>(Shape::scalar()).build();
        let (put, close, size) = (q.enqueue_many(&[&g.constant([1, 2, 3, 4])]), q.close(), q.size());
        let (one, rest) = (q.dequeue(), q.dequeue_up_to(5));
        let session = Session::new(&g).unwrap();
        session.run(&put).unwrap();
        let mut taken = session.run(&one).unwrap()[0].to_i64s().unwrap();
        assert_eq!(session.run(&size).unwrap(), Tensor::from(3));
        session.run(&close).unwrap();
        taken.extend(session.run(&rest).unwrap()[0].to_i64s().unwrap());
        taken.sort();
        assert_eq!(taken, [1, 2, 3, 4]);
        assert_eq!(session.run(&one).unwrap_err().code, Code::OutOfRange);
        assert_eq!(session.run(&put).unwrap_err().code, Code::Cancelled);
    }

    #[test]
    fn an_element_of_other_types_is_a_mistake() {
        let g = Graph::new();
        let q = g.fifo_queue(-1).component::<f32>(PartialShape::unknown()).build();
        q.enqueue(&[&g.constant(1)]);
        assert!(g.check().unwrap_err().message.contains("fifo_queue"), "{}", g.check().unwrap_err());
    }
}
