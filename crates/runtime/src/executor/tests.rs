//! The executor on graphs of a few small ops of its own.

use super::hurry::AN_INSTANT;
use super::{Executor, KernelCache};
use crate::{LocalRendezvous, block_on, brief};
use framework::graph::text;
use framework::kernel::{BuiltKernel, FnKernel, KernelContext, async_kernel, function};
use framework::{
    Arrived, Asked, AsyncContext, AsyncKernel, BoxFuture, ControlFlow, CpuDevice, Delivery, Device, DeviceName, Env,
    KernelBuild, Op, Outputs, Pool, Receiver, Registry, Rendezvous, RendezvousKey, StepContext, SystemEnv, Value,
};
use parking_lot::Mutex;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tensor::{Code, Result, Tensor, invalid};

fn registry(log: &Arc<Mutex<Vec<i64>>>) -> Registry {
    let log = |op: Op| {
        let log = log.clone();
        op.input("x: int64").stateful().kernel(Arc::new(move |_| {
            let log = log.clone();
            Ok(BuiltKernel::new(FnKernel(move |ctx: &mut KernelContext<'_>| {
                log.lock().push(ctx.input(0).item::<i64>()?);
                Ok(())
            })))
        }))
    };
    let binary = |name: &str, f: fn(&mut KernelContext<'_>) -> Result<()>| {
        Op::new(name).input("x: int64").input("y: int64").output("z: int64").kernel(function(f))
    };
    let flow = |name: &str, flow: ControlFlow| Op::new(name).attr("T: type").control_flow(flow);
    let enter = flow("Enter", ControlFlow::Enter).input("data: T").output("output: T").attr("frame_name: string");
    Registry::new([
        constant("Const").value(|c| Some(vec![c.attr("value").ok()])),
        constant("Computed"),
        binary("Add", |ctx| {
            let sum = ctx.input(0).item::<i64>()? + ctx.input(1).item::<i64>()?;
            ctx.set_output(0, sum)
        }),
        binary("Mul", |ctx| {
            let product = ctx.input(0).item::<i64>()? * ctx.input(1).item::<i64>()?;
            ctx.set_output(0, product)
        })
        .costly(),
        Op::new("Less").input("x: int64").input("y: int64").output("z: bool").kernel(function(|ctx| {
            let less = ctx.input(0).item::<i64>()? < ctx.input(1).item::<i64>()?;
            ctx.set_output(0, less)
        })),
        Op::new("Fail").output("z: int64").kernel(function(|_| Err(invalid!("as asked")))),
        Op::new("NoOp").kernel(function(|_| Ok(()))),
        log(Op::new("Log")),
        binary("SlowAdd", |ctx| {
            let begin = Instant::now();
            while begin.elapsed() < 2 * AN_INSTANT {}
            let sum = ctx.input(0).item::<i64>()? + ctx.input(1).item::<i64>()?;
            ctx.set_output(0, sum)
        }),
        log(Op::new("Send").control_flow(ControlFlow::Send)),
        Op::new("Receive")
            .output("z: int64")
            .attr("key: string")
            .stateful()
            .kernel(async_kernel(|b| Ok(Receive(RendezvousKey::from_text(&b.attr::<String>("key")?))))),
        Op::new("Wait")
            .output("z: int64")
            .attr("key: string")
            .stateful()
            .kernel(async_kernel(|b| Ok(Wait(b.attr("key")?)))),
        flow("Switch", ControlFlow::Switch).input("data: T").input("pred: bool").output("f: T").output("t: T"),
        flow("Merge", ControlFlow::Merge)
            .input("inputs: N*T")
            .output("output: T")
            .output("value_index: int32")
            .attr("N: int >= 1"),
        enter.attr("is_constant: bool = false").attr("parallel_iterations: int = 10"),
        flow("Exit", ControlFlow::Exit).input("data: T").output("output: T"),
        flow("NextIteration", ControlFlow::NextIteration).input("data: T").output("output: T"),
        Op::new("LoopCond").input("input: bool").output("output: bool").kernel(function(|ctx| {
            let value = ctx.take(0);
            ctx.set_output(0, value)
        })),
    ])
}

/// An op that gives its attribute.
fn constant(name: &str) -> Op {
    Op::new(name).output("output: dtype").attr("value: tensor").attr("dtype: type").kernel(Arc::new(
        |b: &KernelBuild<'_>| {
            let value: Tensor = b.attr("value")?;
            Ok(BuiltKernel::new(FnKernel(move |ctx: &mut KernelContext<'_>| ctx.set_output(0, value.clone()))))
        },
    ))
}

/// Takes a number from the rendezvous, waiting for it.
struct Wait(String);

impl AsyncKernel for Wait {
    fn compute(&self, ctx: AsyncContext) -> BoxFuture<Result<Outputs>> {
        let received = ctx.step.rendezvous.recv(&RendezvousKey::from_text(&self.0));
        Box::pin(async move {
            match received.await? {
                Delivery::Tensor(tensor) => Ok(Outputs::from_iter([Value::Tensor(tensor)])),
                Delivery::Dead => Ok(Outputs::from_iter([Value::Dead])),
            }
        })
    }
}

/// The same, of what another task sends.
struct Receive(RendezvousKey);

impl AsyncKernel for Receive {
    fn compute(&self, ctx: AsyncContext) -> BoxFuture<Result<Outputs>> {
        let received = ctx.step.rendezvous.recv(&self.0);
        Box::pin(async move { Ok(Outputs::from_iter([Value::from(received.await?)])) })
    }

    fn receives(&self) -> Option<&RendezvousKey> {
        Some(&self.0)
    }
}

struct Bench {
    executor: Executor,
    log: Arc<Mutex<Vec<i64>>>,
}

impl Bench {
    fn new(graph: &str, threads: usize) -> Result<Bench> {
        let log = Arc::default();
        let graph = text::parse(graph, &registry(&log))?;
        let device: Arc<dyn Device> =
            Arc::new(CpuDevice::new(DeviceName::cpu("localhost", 0, 0), 1, Pool::new(threads)));
        let env: Arc<dyn Env> = Arc::new(SystemEnv::default());
        Ok(Bench { executor: Executor::compile(&graph, &device, &env, &KernelCache::default())?, log })
    }

    fn context(&self) -> (Arc<StepContext>, LocalRendezvous) {
        let rendezvous = LocalRendezvous::new();
        let context = StepContext::new(1, Arc::new(rendezvous.clone()), Arc::new(SystemEnv::default()), None);
        (Arc::new(context), rendezvous)
    }

    /// What one step logs, sorted.
    fn run(&self) -> Result<Vec<i64>> {
        self.log_of(self.executor.run(self.context().0))
    }

    /// The same on a thread that must be back soon.
    fn run_briefly(&self) -> Result<Vec<i64>> {
        let mut step = self.executor.run(self.context().0);
        self.log_of(poll_fn(move |cx| brief::briefly(|| Pin::new(&mut step).poll(cx)).value))
    }

    fn log_of(&self, step: impl Future<Output = Result<()>>) -> Result<Vec<i64>> {
        let deadline = Instant::now() + Duration::from_secs(20);
        block_on(step, Some(deadline)).expect("the step ends")?;
        let mut logged = std::mem::take(&mut *self.log.lock());
        logged.sort_unstable();
        Ok(logged)
    }
}

/// The same whether the constants are known when the graph is compiled or not, and whether the thread has time or not.
#[track_caller]
fn check(graph: &str, want: &[i64]) {
    for (threads, constant) in [(1, "Const"), (3, "Const"), (1, "Computed"), (3, "Computed")] {
        let bench = Bench::new(&graph.replace("Const", constant), threads).unwrap();
        for _ in 0..20 {
            assert_eq!(bench.run().unwrap(), want, "with {threads} threads and {constant}");
            assert_eq!(bench.run_briefly().unwrap(), want, "in a hurry with {threads} threads and {constant}");
        }
    }
}

#[test]
fn nodes_run_when_their_inputs_are_there() {
    check(
        "a = Const {value: int64[] 2, dtype: int64}
         b = Const {value: int64[] 3, dtype: int64}
         c = Add(a, b)
         d = Mul(c, c)
         e = Mul(c, a)
         f = Add(d, e)
         log = Log(f)",
        &[35],
    );
}

/// Of nodes that are ready at the same time, wherever they stand in the graph.
#[test]
fn what_is_sent_away_goes_first() {
    let x = "x = Computed {value: int64[] 3, dtype: int64}";
    let (kept, sent) = ("kept = Log(x)", "y = Add(x, x)\nsent = Send(y)");
    let constant_kept = format!("{x}\n{kept}");
    let constant_sent = "y = Computed {value: int64[] 6, dtype: int64}\nsent = Send(y)";
    let graphs =
        [[x, kept, sent], [x, sent, kept], ["", &constant_kept, constant_sent], ["", constant_sent, &constant_kept]];
    for graph in graphs.map(|lines| lines.join("\n")) {
        let bench = Bench::new(&graph, 1).unwrap();
        let deadline = Some(Instant::now() + Duration::from_secs(20));
        block_on(bench.executor.run(bench.context().0), deadline).expect("the step ends").unwrap();
        assert_eq!(*bench.log.lock(), [6, 3], "{graph}");
    }
}

#[test]
fn what_was_sent_leaves_before_what_takes_a_while() {
    static PUT_OFF: Mutex<Vec<brief::Job>> = Mutex::new(Vec::new());
    brief::set_later(|job| PUT_OFF.lock().push(job));
    let graph = "x = Computed {value: int64[] 3, dtype: int64}
                 sent = Send(x)
                 y = SlowAdd(x, x)
                 kept = Log(y)";
    let bench = Bench::new(graph, 1).unwrap();
    assert_eq!(bench.run_briefly().unwrap(), [3, 6], "that it takes a while is not known before");
    let mut step = bench.executor.run(bench.context().0);
    let mut poll = || brief::briefly(|| Pin::new(&mut step).poll(&mut Context::from_waker(Waker::noop()))).value;
    assert!(poll().is_pending());
    assert_eq!(*bench.log.lock(), [3]);
    let jobs = std::mem::take(&mut *PUT_OFF.lock());
    jobs.into_iter().for_each(|job| brief::briefly(job).value);
    assert!(poll().is_ready());
    assert_eq!(*bench.log.lock(), [3, 6]);
}

#[test]
fn a_branch_not_taken_does_not_run() {
    let graph = |pred| {
        format!(
            "p = Const {{value: bool[] {pred}, dtype: bool}}
             x = Const {{value: int64[] 7, dtype: int64}}
             s = Switch(x, p)
             no = Add(s, s)
             yes = Mul(s:1, s:1)
             lno = Log(no)
             m = Merge(no, yes)
             log = Log(m)"
        )
    };
    check(&graph("true"), &[49]);
    check(&graph("false"), &[14, 14]);
}

const COUNT_TO_TEN: &str = "
    zero = Const {value: int64[] 0, dtype: int64}
    one = Const {value: int64[] 1, dtype: int64}
    ten = Const {value: int64[] 10, dtype: int64}
    enter = Enter(zero) {frame_name: \"loop\", PARALLEL}
    step = Enter(one) {frame_name: \"loop\", is_constant: true, PARALLEL}
    limit = Enter(ten) {frame_name: \"loop\", is_constant: true, PARALLEL}
    merge = Merge(enter, next)
    less = Less(merge, limit)
    cond = LoopCond(less)
    switch = Switch(merge, cond)
    body = Add(switch:1, step)
    seen = Log(body)
    next = NextIteration(body)
    exit = Exit(switch)
    log = Log(exit)";

#[test]
fn a_loop_counts() {
    for parallel in ["parallel_iterations: 1", "parallel_iterations: 10"] {
        check(&COUNT_TO_TEN.replace("PARALLEL", parallel), &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10]);
    }
}

#[test]
fn a_loop_in_a_branch_not_taken_ends_dead() {
    check(
        "p = Const {value: bool[] false, dtype: bool}
         x = Const {value: int64[] 0, dtype: int64}
         ten = Const {value: int64[] 10, dtype: int64}
         s = Switch(x, p)
         enter = Enter(s:1) {frame_name: \"loop\"}
         limit = Enter(ten) {frame_name: \"loop\", is_constant: true}
         merge = Merge(enter, next)
         less = Less(merge, limit)
         cond = LoopCond(less)
         switch = Switch(merge, cond)
         body = Add(switch:1, limit)
         next = NextIteration(body)
         exit = Exit(switch)
         after = Merge(s, exit)
         log = Log(after)",
        &[0],
    );
}

#[test]
fn a_loop_counts_with_constants_of_its_own() {
    check(
        "zero = Const {value: int64[] 0, dtype: int64}
         enter = Enter(zero) {frame_name: \"loop\"}
         sum_enter = Enter(zero) {frame_name: \"loop\"}
         i = Merge(enter, next)
         sum = Merge(sum_enter, sum_next)
         limit = Const(^i) {value: int64[] 4, dtype: int64}
         less = Less(i, limit)
         cond = LoopCond(less)
         switch = Switch(i, cond)
         sum_switch = Switch(sum, cond)
         body = Add(switch:1, switch:1)
         one = Const(^body) {value: int64[] 1, dtype: int64}
         two = Const(^one) {value: int64[] 2, dtype: int64}
         more = Add(switch:1, one)
         sum_more = Add(sum_switch:1, two)
         both = Mul(one, two)
         seen = Log(both)
         next = NextIteration(more)
         sum_next = NextIteration(sum_more)
         exit = Exit(switch)
         sum_exit = Exit(sum_switch)
         log = Log(exit)
         log_sum = Log(sum_exit)",
        &[2, 2, 2, 2, 4, 8],
    );
}

#[test]
fn a_constant_in_a_branch_not_taken_is_dead_with_it() {
    check(
        "p = Const {value: bool[] true, dtype: bool}
         x = Const {value: int64[] 7, dtype: int64}
         s = Switch(x, p)
         no = Add(s, s)
         yes = Add(s:1, s:1)
         dead = Const(^no) {value: int64[] 1, dtype: int64}
         alive = Const(^yes) {value: int64[] 2, dtype: int64}
         log_dead = Log(dead)
         log_alive = Log(alive)
         both = Add(dead, alive)
         log_both = Log(both)
         either = Merge(dead, alive)
         log = Log(either)
         waits = Const(^dead) {value: int64[] 3, dtype: int64}
         log_waits = Log(waits)
         after = Const(^s) {value: int64[] 4, dtype: int64}
         log_after = Log(after)",
        &[2, 2, 4],
    );
}

#[test]
fn loops_nest() {
    // for i in 0..3 { for j in 0..i {} ; log }
    check(
        "zero = Const {value: int64[] 0, dtype: int64}
         one = Const {value: int64[] 1, dtype: int64}
         three = Const {value: int64[] 3, dtype: int64}
         enter = Enter(zero) {frame_name: \"outer\"}
         step = Enter(one) {frame_name: \"outer\", is_constant: true}
         start = Enter(zero) {frame_name: \"outer\", is_constant: true}
         limit = Enter(three) {frame_name: \"outer\", is_constant: true}
         i = Merge(enter, next)
         less = Less(i, limit)
         cond = LoopCond(less)
         switch = Switch(i, cond)
         inner_enter = Enter(start) {frame_name: \"inner\"}
         inner_limit = Enter(switch:1) {frame_name: \"inner\", is_constant: true}
         inner_step = Enter(step) {frame_name: \"inner\", is_constant: true}
         j = Merge(inner_enter, inner_next)
         inner_less = Less(j, inner_limit)
         inner_cond = LoopCond(inner_less)
         inner_switch = Switch(j, inner_cond)
         inner_body = Add(inner_switch:1, inner_step)
         inner_next = NextIteration(inner_body)
         inner_exit = Exit(inner_switch)
         seen = Log(inner_exit)
         body = Add(switch:1, step)
         next = NextIteration(body)
         exit = Exit(switch)
         log = Log(exit)",
        &[0, 1, 2, 3],
    );
}

#[test]
fn an_error_names_its_node_and_ends_the_step() {
    let bench = Bench::new(
        "bad = Fail
         never = Wait {key: \"k\"}
         sum = Add(bad, never)",
        2,
    )
    .unwrap();
    let error = bench.run().unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert_eq!(error.message, "as asked\n\t [[{{node bad}}]]");
}

#[test]
fn a_node_that_waits_goes_on_when_its_value_comes() {
    let bench = Bench::new("w = Wait {key: \"k\"}\nlog = Log(w)", 2).unwrap();
    let (context, rendezvous) = bench.context();
    let sender = std::thread::spawn(move || {
        while rendezvous.awaited().is_empty() {
            std::thread::yield_now();
        }
        rendezvous.send(&RendezvousKey::from_text("k"), Delivery::Tensor(Tensor::scalar(5i64)))
    });
    block_on(bench.executor.run(context), Some(Instant::now() + Duration::from_secs(20))).unwrap().unwrap();
    sender.join().unwrap().unwrap();
    assert_eq!(*bench.log.lock(), vec![5]);
}

#[test]
fn dropping_the_future_ends_the_step_and_leaves_nobody_waiting() {
    let bench = Bench::new("w = Wait {key: \"k\"}\nlog = Log(w)", 2).unwrap();
    let (context, rendezvous) = bench.context();
    let deadline = Instant::now() + Duration::from_millis(20);
    assert!(block_on(bench.executor.run(context.clone()), Some(deadline)).is_err());
    assert_eq!(context.why_ended().unwrap().code, Code::Cancelled);
    assert!(rendezvous.awaited().is_empty());
}

#[test]
fn bad_loops_are_refused_or_end_with_an_error() {
    let outside = Bench::new("x = Const {value: int64[] 0, dtype: int64}\ne = Exit(x)", 1);
    assert!(outside.err().unwrap().message.contains("never entered"));
    let mixed = Bench::new(
        "x = Const {value: int64[] 0, dtype: int64}
         e = Enter(x) {frame_name: \"loop\"}
         s = Add(e, x)",
        1,
    );
    assert!(mixed.err().unwrap().message.contains("different frames"));
    // Leaves in every iteration: an exit must follow the false side of the switch.
    let graph = COUNT_TO_TEN.replace("PARALLEL", "parallel_iterations: 1").replace("Exit(switch)", "Exit(body)");
    let error = Bench::new(&graph, 1).unwrap().run().unwrap_err();
    assert!(error.message.contains("left its loop more than once"), "{error}");
}

type Group = (Arc<[RendezvousKey]>, Arc<dyn Receiver>);

/// A meeting place where groups are asked for, of which some may be received one by one.
#[derive(Clone, Default)]
struct Post {
    local: LocalRendezvous,
    alone: Vec<u32>,
    groups: Arc<Mutex<Vec<Group>>>,
    /// How many groups somebody is interested in.
    wanted: Arc<AtomicUsize>,
}

struct Interest(Arc<AtomicUsize>);

impl Drop for Interest {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Rendezvous for Post {
    fn send(&self, key: &RendezvousKey, value: Delivery) -> Result<()> {
        self.local.send(key, value)
    }

    fn try_recv(&self, key: &RendezvousKey) -> Option<Result<Delivery>> {
        self.local.try_recv(key)
    }

    fn recv(&self, key: &RendezvousKey) -> BoxFuture<Result<Delivery>> {
        self.local.recv(key)
    }

    fn receive_group(&self, keys: &Arc<[RendezvousKey]>, receiver: Arc<dyn Receiver>) -> Result<Option<Asked>> {
        self.groups.lock().push((keys.clone(), receiver));
        self.wanted.fetch_add(1, Ordering::SeqCst);
        Ok(Some(Asked { alone: self.alone.clone(), interest: Box::new(Interest(self.wanted.clone())) }))
    }

    fn abort(&self, why: tensor::Error) {
        self.local.abort(why);
    }
}

impl Post {
    fn receiver(&self, group: usize) -> Arc<dyn Receiver> {
        self.groups.lock()[group].1.clone()
    }

    fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) > 0
    }
}

fn sent_by(task: u32, edge: &str) -> String {
    format!("/job:ps/replica:0/task:{task}/device:CPU:0;1;/job:w/replica:0/task:0/device:CPU:0;{edge};0:0")
}

/// A step that adds a and b of one task and c of another, begun.
fn receiving(post: &Post) -> (Bench, super::StepFuture) {
    let (a, b, c) = (sent_by(0, "a"), sent_by(0, "b"), sent_by(1, "c"));
    let graph = format!(
        "a = Receive {{key: \"{a}\"}}
         b = Receive {{key: \"{b}\"}}
         c = Receive {{key: \"{c}\"}}
         ab = Add(a, b)
         abc = Add(ab, c)
         log = Log(abc)"
    );
    let bench = Bench::new(&graph, 2).unwrap();
    let context = StepContext::new(1, Arc::new(post.clone()), Arc::new(SystemEnv::default()), None);
    let mut step = bench.executor.run(Arc::new(context));
    assert!(block_on(poll_fn(|cx| Poll::Ready(Pin::new(&mut step).poll(cx).is_pending())), None).unwrap());
    (bench, step)
}

fn value(number: i64) -> Arrived {
    Arrived::Value(Delivery::Tensor(Tensor::scalar(number)))
}

#[test]
fn what_comes_from_one_task_is_asked_for_as_a_group() {
    let post = Post::default();
    let (bench, step) = receiving(&post);
    let keys = |group: usize| post.groups.lock()[group].0.iter().map(|key| key.to_string()).collect::<Vec<_>>();
    assert_eq!((keys(0), keys(1)), (vec![sent_by(0, "a"), sent_by(0, "b")], vec![sent_by(1, "c")]));
    post.receiver(0).receive(vec![(1, value(20))]);
    assert_eq!(step.waiting(), ["a (Receive)", "c (Receive)"]);
    post.receiver(0).receive(vec![(0, value(1)), (1, value(7)), (9, value(7))]); // of which only one is awaited
    post.receiver(1).receive(vec![(0, value(300))]);
    assert_eq!(bench.log_of(step).unwrap(), [321]);
    assert!(!post.is_wanted());
}

#[test]
fn some_of_a_group_may_be_received_one_by_one() {
    let post = Post { alone: vec![0], ..Post::default() };
    let (bench, step) = receiving(&post);
    let send = |key: String, number: i64| {
        post.send(&RendezvousKey::from_text(&key), Delivery::Tensor(Tensor::scalar(number))).unwrap();
    };
    send(sent_by(0, "a"), 1);
    send(sent_by(1, "c"), 300);
    post.receiver(0).receive(vec![(1, Arrived::Alone)]);
    send(sent_by(0, "b"), 20);
    assert_eq!(bench.log_of(step).unwrap(), [321]);
}

#[test]
fn a_dead_value_of_a_group_is_dead() {
    let post = Post::default();
    let (bench, step) = receiving(&post);
    post.receiver(0).receive(vec![(0, Arrived::Value(Delivery::Dead)), (1, value(1))]);
    post.receiver(1).receive(vec![(0, value(1))]);
    assert_eq!(bench.log_of(step).unwrap(), []);
}

#[test]
fn a_group_that_fails_ends_the_step() {
    let post = Post::default();
    let (bench, step) = receiving(&post);
    post.receiver(0).receive(vec![(0, value(1))]);
    post.receiver(0).fail(tensor::unavailable!("the other one is gone"));
    let error = bench.log_of(step).unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (Code::Unavailable, "the other one is gone\n\t [[{{node b}}]]"));
    assert!(!post.is_wanted());
}

#[test]
fn nobody_wants_a_group_of_a_step_that_was_dropped() {
    let post = Post::default();
    let (bench, step) = receiving(&post);
    assert!(post.is_wanted());
    drop(step);
    assert!(!post.is_wanted());
    post.receiver(0).receive(vec![(0, value(1)), (1, value(2))]);
    post.receiver(1).fail(tensor::unavailable!("late"));
    assert!(bench.log.lock().is_empty());
}

#[test]
fn a_step_that_has_ended_before_it_began_asks_for_nothing() {
    let post = Post::default();
    let bench = Bench::new(&format!("a = Receive {{key: \"{}\"}}\nlog = Log(a)", sent_by(0, "a")), 1).unwrap();
    let context = Arc::new(StepContext::new(1, Arc::new(post.clone()), Arc::new(SystemEnv::default()), None));
    context.end(tensor::cancelled!("early"));
    assert_eq!(bench.log_of(bench.executor.run(context)).unwrap_err().code, Code::Cancelled);
    assert!(post.groups.lock().is_empty());
}
