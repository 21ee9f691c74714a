//! The queue ops: declare, enqueue, dequeue, close, look. `queue.rs` has the queue itself.
//!
//! Every op exists twice: under its own name with a reference to two strings for a handle, as old graphs have it, and
//! under the name with `V2` with a resource handle.

use super::declared::{Declared, resolve};
use super::members::{chosen_policy, servers_policy};
use super::queue::{Amount, Element, Order, Queue, QueueSpec, list};
use super::tokens::{STOP_QUEUE, TOKEN_QUEUE};
use framework::kernel::{AsyncContext, AsyncKernel, BoxFuture, Outputs, async_kernel, function, kernel};
use framework::op::KernelFn;
use framework::participant::{AS_CHIEF, AS_WORKER, ASKS_TO_LEAD, FOLLOWS, LEADS};
use framework::{
    InferenceContext, Kernel, KernelBuild, KernelContext, LostWorker, Op, Output, Scope, StepContext, Value, shapes,
};
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Tensor, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    let declarations = [
        declares("FIFOQueue", |op| op, kernel(|b| Declare::new(b, Order::Fifo))),
        declares("PaddingFIFOQueue", |op| op, kernel(|b| Declare::new(b, Order::PaddingFifo))),
        declares(
            "RandomShuffleQueue",
            |op| op.attr("min_after_dequeue: int = 0").attr("seed: int = 0").attr("seed2: int = 0"),
            kernel(Declare::shuffled),
        ),
        declares_typed("PriorityQueue", PRIORITY_ATTRS, |op| op, kernel(Declare::by_priority)),
    ];
    let uses = [
        uses("QueueEnqueue", adds, async_kernel(|b| Enqueue::new(b, false))),
        uses("QueueEnqueueMany", adds, async_kernel(|b| Enqueue::new(b, true))),
        uses("QueueDequeue", takes_one, async_kernel(|b| Dequeue::new(b, Batch::One))),
        uses("QueueDequeueMany", takes_many, async_kernel(|b| Dequeue::new(b, Batch::Many))),
        uses("QueueDequeueUpTo", takes_many, async_kernel(|b| Dequeue::new(b, Batch::UpTo))),
        uses(
            "QueueClose",
            |op| op.attr("cancel_pending_enqueues: bool = false").shape(shapes::no_outputs),
            async_kernel(|b| Ok(Close { cancels: b.attr("cancel_pending_enqueues")? })),
        ),
        uses("QueueSize", |op| op.output("size: int32").shape(shapes::scalar), kernel(Size::new)),
        uses("QueueIsClosed", |op| op.output("is_closed: bool").shape(shapes::scalar), function(is_closed)),
    ];
    declarations.into_iter().chain(uses).flatten().collect()
}

/// A queue of elements with components of these types and shapes; its handle.
pub fn fifo_queue(
    s: &Scope,
    capacity: i64,
    types: &[DType],
    shapes: &[PartialShape],
    shared_name: &str,
) -> Result<Output> {
    let node = s.node("FIFOQueueV2").attr("component_types", types.to_vec()).attr("shapes", shapes.to_vec());
    node.attr("capacity", capacity).attr("shared_name", shared_name).output()
}

/// How the components of most queues are declared: their types, and their shapes.
const PLAIN_ATTRS: [&str; 2] = ["component_types: list(type) >= 1", "shapes: list(shape) >= 0 = []"];
/// The same for a queue that adds a component of its own, the priority.
const PRIORITY_ATTRS: [&str; 2] = ["component_types: list(type) >= 0 = []", "shapes: list(shape) >= 0"];

/// The old and the new op that declare a kind of queue.
fn declares(name: &str, attrs: fn(Op) -> Op, kernel: KernelFn) -> [Op; 2] {
    declares_typed(name, PLAIN_ATTRS, attrs, kernel)
}

fn declares_typed(name: &str, components: [&str; 2], attrs: fn(Op) -> Op, kernel: KernelFn) -> [Op; 2] {
    let op = |name: String, handle: &str| {
        let op = Op::new(name).output(handle).attr(components[0]).attr(components[1]);
        let op = attrs(op.attr("capacity: int = -1"));
        op.attr("container: string = ''").attr("shared_name: string = ''").stateful().kernel(kernel.clone())
    };
    [
        op(name.to_string(), "handle: Ref(string)").shape(|_| Ok(vec![PartialShape::from([2])])),
        op(format!("{name}V2"), "handle: resource").shape(shapes::scalar),
    ]
}

/// The old and the new op that use a queue.
fn uses(name: &str, describe: fn(Op) -> Op, kernel: KernelFn) -> [Op; 2] {
    [
        describe(Op::new(name).input("handle: Ref(string)")).not_differentiable().kernel(kernel.clone()),
        describe(Op::new(format!("{name}V2")).input("handle: resource")).stateful().kernel(kernel),
    ]
}

fn adds(op: Op) -> Op {
    let op = op.input("components: Tcomponents").attr("Tcomponents: list(type) >= 1").attr("timeout_ms: int = -1");
    op.shape(shapes::no_outputs)
}

fn takes_one(op: Op) -> Op {
    let op = op.output("components: component_types").attr("component_types: list(type) >= 1");
    op.attr("timeout_ms: int = -1").shape(shapes::unknown)
}

fn takes_many(op: Op) -> Op {
    let op = op.input("n: int32").output("components: component_types").attr("component_types: list(type) >= 1");
    op.attr("timeout_ms: int = -1").shape(many_shape)
}

fn many_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    c.require_scalar(1)?;
    match c.input_i64(1) {
        Some(n) if n < 0 => Err(invalid!("Input 'n' must be >= 0, but is {n}")),
        _ => shapes::unknown(c),
    }
}

/// Makes a queue, or finds one of its shared name.
struct Declare {
    declared: Declared<Queue>,
    spec: QueueSpec,
    random_seeds: (u64, u64),
    /// Whether it holds the tokens of synchronous training, and what to do about lost workers if the node says so.
    tokens: Option<Option<LostWorker>>,
}

impl Declare {
    fn new(b: &KernelBuild<'_>, order: Order) -> Result<Declare> {
        Declare::with(b, order, b.attr("component_types")?, b.attr("shapes")?)
    }

    /// A queue by priority has a component more than its node names: the first.
    fn by_priority(b: &KernelBuild<'_>) -> Result<Declare> {
        let (mut types, mut shapes): (Vec<DType>, Vec<PartialShape>) = (b.attr("component_types")?, b.attr("shapes")?);
        types.insert(0, DType::I64);
        if !shapes.is_empty() {
            shapes.insert(0, PartialShape::scalar());
        }
        Declare::with(b, Order::Priority, types, shapes)
    }

    fn with(b: &KernelBuild<'_>, order: Order, types: Vec<DType>, shapes: Vec<PartialShape>) -> Result<Declare> {
        let spec = QueueSpec { order, types, shapes, capacity: b.attr("capacity")? };
        spec.check()?;
        let random_seeds = (b.env.random_u64(), b.env.random_u64());
        let policy = chosen_policy(b)?;
        let is_of_tokens = policy.is_some() || b.attr::<String>("shared_name")? == TOKEN_QUEUE;
        let tokens = (is_of_tokens && spec.order == Order::Fifo).then_some(policy);
        Ok(Declare { declared: Declared::new(b)?, spec, random_seeds, tokens })
    }

    fn shuffled(b: &KernelBuild<'_>) -> Result<Declare> {
        let staying: i64 = b.attr("min_after_dequeue")?;
        let min_after_dequeue =
            usize::try_from(staying).map_err(|_| invalid!("min_after_dequeue {staying} must be >= 0"))?;
        Declare::new(b, Order::Shuffled { min_after_dequeue, seeds: (b.attr("seed")?, b.attr("seed2")?) })
    }
}

impl Kernel for Declare {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let policy = self.tokens.map(|chosen| chosen.unwrap_or_else(|| servers_policy(ctx.step())));
        self.declared.output(
            ctx,
            |name| {
                let queue = Queue::new(name, self.spec.clone(), self.random_seeds)?;
                Ok(if let Some(policy) = policy { queue.of_tokens(policy) } else { queue })
            },
            |queue, name| queue.spec().check_same(&self.spec, name),
        )
    }
}

fn check_timeout(b: &KernelBuild<'_>) -> Result<()> {
    match b.attr::<i64>("timeout_ms")? {
        -1 => Ok(()),
        _ => Err(invalid!("Timeout not supported yet.")),
    }
}

/// An error unless the node's component types are those of the queue.
fn check_types(queue: &Queue, types: &[DType], is_enqueue: bool) -> Result<()> {
    let wanted = &queue.spec().types;
    if types == wanted {
        return Ok(());
    }
    let signature = |types: &[DType]| match is_enqueue {
        true => format!("resource, {}->", list(types)),
        false => format!("resource->{}", list(types)),
    };
    Err(invalid!("Signature mismatch, have: {} expected: {}", signature(types), signature(wanted)))
}

struct Enqueue {
    types: Vec<DType>,
    /// Whether every component holds a row for each of several elements.
    is_many: bool,
}

impl Enqueue {
    fn new(b: &KernelBuild<'_>, is_many: bool) -> Result<Enqueue> {
        check_timeout(b)?;
        Ok(Enqueue { types: b.attr("Tcomponents")?, is_many })
    }

    fn elements(&self, queue: &Queue, inputs: &[Value]) -> Result<std::collections::VecDeque<Element>> {
        check_types(queue, &self.types, true)?;
        let components: Element = inputs[1..].iter().map(Value::tensor).collect::<Result<_>>()?;
        if self.is_many { queue.elements(&components) } else { Ok([queue.element(components)?].into()) }
    }
}

impl AsyncKernel for Enqueue {
    fn try_compute(&self, ctx: &mut KernelContext<'_>) -> Option<Result<()>> {
        let inputs: Vec<Value> = (0..ctx.num_inputs()).map(|i| ctx.input_value(i).clone()).collect();
        let prepared = resolve::<Queue>(ctx.resources(), &inputs[0]).and_then(|q| Ok((self.elements(&q, &inputs)?, q)));
        match prepared {
            Ok((elements, queue)) => {
                // Who is relieved learns it with the last elements, which are needed.
                let relieved = queue.made_by(ctx.step().participant.as_ref(), &elements);
                queue.try_enqueue(elements).map(|added| added.and(relieved))
            }
            Err(e) => Some(Err(e)),
        }
    }

    fn compute(&self, ctx: AsyncContext) -> BoxFuture<Result<Outputs>> {
        let prepared = resolve::<Queue>(ctx.device.resources(), &ctx.inputs[0])
            .and_then(|q| Ok(q.enqueue(self.elements(&q, &ctx.inputs)?)));
        drop(ctx); // what waits holds its elements, not the inputs
        Box::pin(async move { prepared?.await.map(|()| Outputs::new()) })
    }
}

/// What a dequeue asks for.
#[derive(Clone, Copy, PartialEq)]
enum Batch {
    One,
    Many,
    UpTo,
}

struct Dequeue {
    types: Vec<DType>,
    batch: Batch,
}

impl Dequeue {
    fn new(b: &KernelBuild<'_>, batch: Batch) -> Result<Dequeue> {
        check_timeout(b)?;
        Ok(Dequeue { types: b.attr("component_types")?, batch })
    }

    fn amount(&self, queue: &Queue, n: Option<&Value>) -> Result<Amount> {
        check_types(queue, &self.types, false)?;
        let Some(n) = n else { return Ok(Amount::Exactly(1)) };
        let n = n.tensor()?.item::<i32>()?;
        let n = usize::try_from(n).map_err(|_| invalid!("DequeueMany requested {n} < 0 elements"))?;
        queue.check_batches()?;
        Ok(if self.batch == Batch::UpTo { Amount::UpTo(n) } else { Amount::Exactly(n) })
    }

    fn prepare(&self, resources: &framework::Resources, inputs: &[Value]) -> Result<(Arc<Queue>, Amount)> {
        let queue = resolve::<Queue>(resources, &inputs[0])?;
        let amount = self.amount(&queue, inputs.get(1))?;
        Ok((queue, amount))
    }
}

/// The components of what was taken.
fn components(queue: &Queue, batch: Batch, mut taken: Vec<Element>) -> Result<Element> {
    match batch {
        Batch::One => taken.pop().ok_or_else(|| tensor::internal!("a dequeue took nothing")),
        Batch::Many | Batch::UpTo => queue.batch(&taken),
    }
}

/// Nothing asked for is nothing waited for.
fn is_nothing(amount: Amount) -> bool {
    matches!(amount, Amount::Exactly(0) | Amount::UpTo(0))
}

impl AsyncKernel for Dequeue {
    fn try_compute(&self, ctx: &mut KernelContext<'_>) -> Option<Result<()>> {
        let inputs: Vec<Value> = (0..ctx.num_inputs()).map(|i| ctx.input_value(i).clone()).collect();
        let (queue, amount) = match self.prepare(ctx.resources(), &inputs) {
            Ok(prepared) => prepared,
            Err(e) => return Some(Err(e)),
        };
        let taker = ctx.step().participant.as_ref();
        queue.wanted_by(taker);
        let taken = if is_nothing(amount) { Ok(Vec::new()) } else { queue.try_dequeue(amount, taker)? };
        Some(taken.and_then(|t| components(&queue, self.batch, t)).and_then(|components| {
            components.into_iter().enumerate().try_for_each(|(i, component)| ctx.set_output(i, component))
        }))
    }

    fn compute(&self, ctx: AsyncContext) -> BoxFuture<Result<Outputs>> {
        let prepared = self.prepare(ctx.device.resources(), &ctx.inputs);
        let (batch, taker) = (self.batch, ctx.step.participant.clone());
        Box::pin(async move {
            let (queue, amount) = prepared?;
            let taken = if is_nothing(amount) { Vec::new() } else { queue.dequeue(amount, taker).await? };
            Ok(components(&queue, batch, taken)?.into_iter().map(Value::Tensor).collect())
        })
    }
}

struct Close {
    cancels: bool,
}

impl AsyncKernel for Close {
    fn compute(&self, ctx: AsyncContext) -> BoxFuture<Result<Outputs>> {
        let queue = resolve::<Queue>(ctx.device.resources(), &ctx.inputs[0]);
        let cancels = self.cancels;
        Box::pin(async move {
            let queue = queue?;
            if !queue.may_be_closed_by(ctx.step.participant.as_ref()) {
                return Ok(Outputs::new());
            }
            let is_chiefs = queue.name() == STOP_QUEUE && servers_policy(&ctx.step) != LostWorker::Wait;
            if is_chiefs || queue.is_closed_at_the_end() {
                stop(&ctx.step);
            }
            if cancels {
                queue.close_and_cancel();
            } else {
                queue.close().await?;
            }
            Ok(Outputs::new())
        })
    }
}

/// The chief stops: what it still waits for in other steps would never come.
fn stop(step: &StepContext) {
    if let Some(chief) = &step.participant {
        chief.leave(step.env.now());
    }
}

/// How many elements wait; of a token queue, to those who ask for it, whether their session is to fill it.
struct Size {
    asks_as_chief: Option<bool>,
}

impl Size {
    fn new(b: &KernelBuild<'_>) -> Result<Size> {
        if !b.node.attrs.contains_key(ASKS_TO_LEAD) {
            return Ok(Size { asks_as_chief: None });
        }
        match b.attr::<String>(ASKS_TO_LEAD)?.as_str() {
            AS_CHIEF => Ok(Size { asks_as_chief: Some(true) }),
            AS_WORKER => Ok(Size { asks_as_chief: Some(false) }),
            other => Err(invalid!("{ASKS_TO_LEAD} is '{other}', wanted {AS_CHIEF} or {AS_WORKER}")),
        }
    }
}

impl Kernel for Size {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let queue = resolve::<Queue>(ctx.resources(), ctx.input_value(0))?;
        let asker = ctx.step().participant.as_ref();
        let leads = self.asks_as_chief.and_then(|is_chief| queue.is_led_by(asker, is_chief));
        let answer = match leads {
            Some(true) => LEADS,
            Some(false) => FOLLOWS,
            None => queue.len() as i32,
        };
        ctx.set_output(0, Tensor::scalar(answer))
    }
}

fn is_closed(ctx: &mut KernelContext<'_>) -> Result<()> {
    let queue = resolve::<Queue>(ctx.resources(), ctx.input_value(0))?;
    ctx.set_output(0, Tensor::scalar(queue.is_closed()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_flow::testing::Session;

    fn enqueue(s: &Scope, queue: Output, value: i32) -> Result<framework::NodeId> {
        s.node("QueueEnqueueV2").input(queue).input(s.constant(value)?).build()
    }

    fn dequeue(s: &Scope, queue: Output) -> Result<Output> {
        s.node("QueueDequeueV2").input(queue).attr("component_types", vec![DType::I32]).output()
    }

    #[test]
    fn a_queue_without_a_shared_name_is_the_sessions_own_and_goes_with_it() -> Result<()> {
        let (one, shared) = (Session::new(), "shared");
        let two = Session::on(one.device.clone());
        let queues = |session: &Session| -> Result<[Output; 2]> {
            let own = session.s.node("FIFOQueueV2").name("q").attr("component_types", vec![DType::I32]).output()?;
            Ok([own, fifo_queue(&session.s, 10, &[DType::I32], &[], shared)?])
        };
        let ([own, common], [other, same]) = (queues(&one)?, queues(&two)?);
        one.run(enqueue(&one.s, own, 1)?)?;
        one.run(enqueue(&one.s, common, 2)?)?;
        let sizes = [two.s.op("QueueSizeV2", &[other])?, two.s.op("QueueSizeV2", &[same])?];
        assert_eq!(two.fetch(&sizes)?, [Tensor::scalar(0i32), Tensor::scalar(1i32)]);
        let find = |name: &str| two.device.resources().get::<Queue>("", name).is_some();
        assert!(find("_0_q") && find("_1_q") && find(shared));
        drop(one);
        assert!(!find("_0_q") && find("_1_q") && find(shared));
        Ok(())
    }

    #[test]
    fn a_closed_queue_says_so_by_its_name() -> Result<()> {
        let session = Session::new();
        let s = &session.s;
        let queue = fifo_queue(s, 10, &[DType::I32], &[], "jobs")?;
        session.run(enqueue(s, queue, 7)?)?;
        session.run(s.node("QueueCloseV2").input(queue).build()?)?;
        let taken = dequeue(s, queue)?;
        assert_eq!(session.fetch(&[taken])?, [Tensor::scalar(7i32)]);
        let empty = session.fetch(&[taken]).unwrap_err();
        assert_eq!(empty.code, tensor::Code::OutOfRange);
        let text = "FIFOQueue 'jobs' is closed and has insufficient elements (requested 1, current size 0)";
        assert!(empty.message.starts_with(text), "{empty}");
        let late = session.run(enqueue(s, queue, 8)?).unwrap_err();
        assert_eq!(late.code, tensor::Code::Cancelled);
        assert!(late.message.starts_with("FIFOQueue 'jobs' is closed."), "{late}");
        Ok(())
    }

    #[test]
    fn old_graphs_refer_to_queues_by_two_strings() -> Result<()> {
        let session = Session::new();
        let s = &session.s;
        let queue =
            s.node("FIFOQueue").attr("component_types", vec![DType::I32]).attr("shared_name", "old").output()?;
        let add = s.node("QueueEnqueueMany").input(queue).input(s.constant([1i32, 2])?).build()?;
        session.run(add)?;
        let size = s.op("QueueSize", &[queue])?;
        let found = session.fetch(&[queue, size])?;
        assert_eq!(found, [Tensor::from(["localhost", "old"]), Tensor::scalar(2i32)]);
        let same = fifo_queue(s, -1, &[DType::I32], &[], "old")?;
        assert_eq!(session.fetch(&[dequeue(s, same)?])?, [Tensor::scalar(1i32)], "the same queue by a handle");
        let other = fifo_queue(s, 5, &[DType::I32], &[], "old")?;
        assert!(session.fetch(&[other]).unwrap_err().message.contains("has capacity -1 but requested capacity was 5"));
        Ok(())
    }
}
