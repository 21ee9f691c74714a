//! `SyncReplicas`: workers that step together.
//!
//! Every worker gives its gradients to accumulators on the parameter servers, which refuse those computed from an older
//! step. When enough have come, a thread of the chief takes their mean, lets the optimizer apply it, counts the step and
//! puts a token for each worker into a queue; a worker takes one before it begins its next step, and learns from it which
//! step that is.
//!
//! When that chief is lost another worker does the same in its place: `leading.rs` tells which.
//!
//! Nodes are named and placed as TensorFlow's `SyncReplicasOptimizer` does, so that Rust and Python workers train one
//! model together.

use super::leading::{Lead, Succession};
use super::{Coordinator, Hook, QueueRunner, report_uninitialized_variables};
use crate::graph::group;
use crate::variable::VariableOptions;
use crate::{
    ExponentialMovingAverage, Gradient, Graph, IndexedSlices, Operation, Optimizer, Output, Queue, Session, Variable,
};
use framework::participant::ON_LOST_WORKER;
use framework::scope::scalar_of;
use framework::{Attr, DeviceSpec, LostWorker, NodeId, Scope};
use parking_lot::Mutex;
use std::sync::Arc;
use tensor::{DType, Error, Result, Shape, Tensor, failed_precondition, invalid};

/// An optimizer whose step is made of the gradients of several workers.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::{Coordinator, Hook};
///
/// let g = Graph::new();
/// let w = g.variable("w", [4.0f32, -2.0]);
/// let step = g.global_step();
/// let optimizer = SyncReplicas::new(GradientDescent::new(0.25)).replicas_to_aggregate(1);
/// let train = optimizer.minimize(&w.square().sum()).increment(&step);
/// let init = g.initialize_all();
///
/// let mut hook = optimizer.hook(true); // a training session does with it what follows
/// hook.begin(&g)?;
/// let session = Session::new(&g)?;
/// session.run(&init)?;
/// let threads = Coordinator::new();
/// hook.after_create_session(&session, &threads)?;
/// for _ in 0..4 {
///     session.run(&train)?;
/// }
/// assert!(session.run(&step)?.item::<i64>()? >= 3);
/// # threads.request_stop();
/// # session.close()?;
/// # Ok::<(), ferroflow::Error>(())
/// ```
pub struct SyncReplicas {
    optimizer: Box<dyn Optimizer + Send + Sync>,
    replicas_to_aggregate: Option<u32>,
    total_num_replicas: Option<u32>,
    name: String,
    averages: Option<(ExponentialMovingAverage, Vec<Variable>)>,
    lost_worker: LostWorker,
    applied: Mutex<Option<Arc<Applied>>>,
}

/// What `apply_gradients` leaves for sessions to run.
struct Applied {
    graph: Graph,
    step: Variable,
    counts: Counts,
    tokens: Queue,
    runner: QueueRunner,
    local_step_init: Operation,
    chief_init: Operation,
    /// Names the variables that have no value yet.
    missing: Output,
    lost_worker: LostWorker,
}

/// How many gradients make a step, and how many workers compute them.
#[derive(Clone, Copy)]
struct Counts {
    aggregate: i32,
    total: i32,
}

impl SyncReplicas {
    /// Steps of this optimizer, which is applied to means of gradients.
    pub fn new(optimizer: impl Optimizer + Send + Sync + 'static) -> SyncReplicas {
        SyncReplicas {
            optimizer: Box::new(optimizer),
            replicas_to_aggregate: None,
            total_num_replicas: None,
            name: "sync_replicas".into(),
            averages: None,
            lost_worker: LostWorker::default(),
            applied: Mutex::default(),
        }
    }

    /// How many gradients make a step: as many as there are workers unless said.
    pub fn replicas_to_aggregate(mut self, count: u32) -> Self {
        self.replicas_to_aggregate = Some(count);
        self
    }

    /// How many workers there are; those beyond [`replicas_to_aggregate`](Self::replicas_to_aggregate) stand by for slow
    /// ones. As many as gradients make a step unless said.
    pub fn total_num_replicas(mut self, count: u32) -> Self {
        self.total_num_replicas = Some(count);
        self
    }

    /// What the nodes are called by: `sync_replicas` unless said.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Averages of variables that the chief updates after each step.
    pub fn variable_averages(mut self, averages: ExponentialMovingAverage, variables: &[Variable]) -> Self {
        self.averages = Some((averages, variables.to_vec()));
        self
    }

    /// What becomes of a step when a worker is lost: the others go on without it unless said. Parameter servers of
    /// TensorFlow know only [`LostWorker::Wait`].
    pub fn when_a_worker_dies(mut self, policy: LostWorker) -> Self {
        self.lost_worker = policy;
        self
    }

    /// What a training session needs to run the steps; made after [`minimize`](Optimizer::minimize).
    pub fn hook(&self, is_chief: bool) -> SyncReplicasHook {
        SyncReplicasHook { applied: self.applied(), is_chief, num_tokens: None, lead: None, succession: None }
    }

    /// The thread of the chief that applies gradients and hands out tokens.
    pub fn get_chief_queue_runner(&self) -> Result<QueueRunner> {
        Ok(self.applied()?.runner.clone())
    }

    /// Puts the first tokens into the queue, as many as gradients make a step unless said: to be run once, by the chief.
    ///
    /// With more gradients to a step than workers, at least the difference is needed, or the first step never ends.
    #[track_caller]
    pub fn get_init_tokens_op(&self, num_tokens: Option<u32>) -> Result<Operation> {
        let applied = self.applied()?;
        applied.init_tokens(num_tokens)
    }

    /// What the chief runs when variables have their values: its steps begin at the global step.
    pub fn chief_init_op(&self) -> Result<Operation> {
        Ok(self.applied()?.chief_init.clone())
    }

    /// What every other worker runs when variables have their values.
    pub fn local_step_init_op(&self) -> Result<Operation> {
        Ok(self.applied()?.local_step_init.clone())
    }

    /// Names the variables without a value: when there are none, the two above may be run.
    pub fn ready_for_local_init_op(&self) -> Result<Output> {
        Ok(self.applied()?.missing.clone())
    }

    fn applied(&self) -> Result<Arc<Applied>> {
        self.applied.lock().clone().ok_or_else(|| {
            invalid!("SyncReplicas has no step yet: call minimize or apply_gradients before what runs it")
        })
    }

    fn counts(&self) -> Result<Counts> {
        let aggregate = self.replicas_to_aggregate.or(self.total_num_replicas);
        let aggregate = aggregate.ok_or_else(|| {
            invalid!("SyncReplicas does not know how many gradients make a step; wanted replicas_to_aggregate(count)")
        })?;
        let total = self.total_num_replicas.unwrap_or(aggregate);
        let checked = |name: &str, count: u32| match i32::try_from(count) {
            Ok(count) if count > 0 => Ok(count),
            _ => Err(invalid!("SyncReplicas has {name} {count}, wanted a number from 1 to {}", i32::MAX)),
        };
        Ok(Counts {
            aggregate: checked("replicas_to_aggregate", aggregate)?,
            total: checked("total_num_replicas", total)?,
        })
    }
}

impl Optimizer for SyncReplicas {
    fn compute_gradients(&self, loss: &Output, variables: &[Variable]) -> Vec<(Option<Gradient>, Variable)> {
        self.optimizer.compute_gradients(loss, variables)
    }

    /// Gives the gradients to the accumulators and waits for the step to be made; steps are counted in `step`, or in the
    /// graph's global step.
    #[track_caller]
    fn apply_gradients(&self, gradients: &[(Gradient, Variable)], step: Option<&Variable>) -> Operation {
        let Some((_, first)) = gradients.first() else { return self.optimizer.apply_gradients(gradients, step) };
        let graph = first.graph().clone();
        graph.here(|| {
            let step = step.cloned().unwrap_or_else(|| graph.global_step());
            let is_void = gradients.iter().any(|(gradient, v)| gradient.values().id().is_none() || v.id().is_none());
            if is_void || step.id().is_none() {
                return Operation::void(&graph);
            }
            graph.kept(self.build(&graph, gradients, &step)).unwrap_or_else(|| Operation::void(&graph))
        })
    }

    fn counts_in(&self, graph: &Graph) -> Option<Variable> {
        Some(graph.global_step())
    }
}

/// An accumulator on a parameter server.
struct Accumulator {
    handle: Handle,
    /// The device of its variable.
    device: DeviceSpec,
    /// What gives a worker's gradient to it.
    given: NodeId,
    /// What comes out of it, and the variable which that changes.
    mean: (Gradient, Variable),
}

/// What ops take to mean an accumulator.
#[derive(Clone, Copy)]
struct Handle {
    id: framework::Output,
    is_sparse: bool,
}

impl SyncReplicas {
    fn build(&self, graph: &Graph, gradients: &[(Gradient, Variable)], step: &Variable) -> Result<Operation> {
        let counts = self.counts()?;
        let s = graph.scope();
        let local = local_step(graph, step)?;
        let local_step_init = assign(s, &local, read(s, step)?)?;
        let missing = report_uninitialized_variables(graph, &graph.global_variables());
        let full = s.with_absolute_name("", || s.unique_name(&self.name));
        let accumulate = |(gradient, variable): &(Gradient, Variable)| {
            let device: DeviceSpec = variable.place().device().parse()?;
            s.with_device(device.clone(), || {
                self.accumulate(graph, gradient, variable, &local, counts.aggregate, device)
            })
        };
        let accumulators =
            s.with_absolute_name(&full, || gradients.iter().map(accumulate).collect::<Result<Vec<_>>>())?;

        let beside_step: DeviceSpec = step.place().device().parse()?;
        let (train, tokens, runner) = s.with_absolute_name("", || {
            s.with_device(beside_step, || self.apply_means(graph, &accumulators, step, &local, counts))
        })?;

        let chief_init = s.with_absolute_name(&full, || {
            let mut init = vec![local_step_init];
            for accumulator in &accumulators {
                init.push(s.with_device(accumulator.device.clone(), || accumulator.handle.set_step(s, step))?);
            }
            group(s, "group_deps", &init)
        })?;
        let operation = |id| Operation::new(graph, Some(id));
        let applied = Applied {
            graph: graph.clone(),
            step: step.clone(),
            counts,
            tokens,
            runner,
            local_step_init: operation(local_step_init),
            chief_init: operation(chief_init),
            missing,
            lost_worker: self.lost_worker,
        };
        *self.applied.lock() = Some(Arc::new(applied));
        Ok(train)
    }

    /// What a worker runs, the queue of tokens, and the thread of the chief that applies the means and fills the queue.
    fn apply_means(
        &self,
        graph: &Graph,
        accumulators: &[Accumulator],
        step: &Variable,
        local: &Variable,
        counts: Counts,
    ) -> Result<(Operation, Queue, QueueRunner)> {
        let s = graph.scope();
        let means = all_taken(graph, accumulators)?;
        let update = self.optimizer.apply_gradients(&means, Some(step));
        let update = update.id().ok_or_else(|| graph.check().err().unwrap_or_else(|| invalid!("no update")))?;
        let tokens = graph.fifo_queue(-1).component_of(step.dtype(), Shape::scalar());
        let tokens = tokens.name("sync_token_q").shared_name("sync_token_q").build();
        self.mark(s, tokens.handle().operation().id());
        let given: Vec<NodeId> = accumulators.iter().map(|a| a.given).collect();
        let token = s.with_control(&given, || tokens.dequeue().remove(0));
        let token = token.id().ok_or_else(|| invalid!("the queue of tokens was not built"))?;
        let train = Operation::new(graph, Some(assign(s, local, token)?));
        let hand_out = put_tokens(graph, &tokens, step, counts.aggregate.max(counts.total), Some(update))?;
        let runner = QueueRunner::new(&tokens, vec![self.then_average(graph, hand_out)]);
        Ok((train, tokens, runner))
    }

    /// The averages move after the tokens were handed out: nobody waits for them.
    fn then_average(&self, graph: &Graph, hand_out: Operation) -> Operation {
        let Some((averages, variables)) = &self.averages else { return hand_out };
        let variables: Vec<&Variable> = variables.iter().collect();
        graph.control_dependencies(&[&hand_out], || averages.apply(&variables))
    }

    /// An accumulator for the gradients of a variable: what gives one to it, and the mean it gives back.
    fn accumulate(
        &self,
        graph: &Graph,
        gradient: &Gradient,
        variable: &Variable,
        local: &Variable,
        required: i32,
        device: DeviceSpec,
    ) -> Result<Accumulator> {
        let s = graph.scope();
        let is_sparse = matches!(gradient, Gradient::Sparse(_));
        let (op, name, shape) = match is_sparse {
            true => ("SparseConditionalAccumulator", "sparse_conditional_accumulator", Shape::scalar().into()),
            false => ("ResourceConditionalAccumulator", "conditional_accumulator", variable.shape()),
        };
        let dtype = gradient.values().dtype();
        let id = s.node(op).name(name).attr("dtype", dtype).attr("shape", shape);
        let id = id.attr("shared_name", format!("{}:0/grad_accum", variable.name())).output()?;
        self.mark(s, Some(id.node));
        let handle = Handle { id, is_sparse };
        let given = handle.give(s, gradient, as_i64(s, read(s, local)?)?)?;
        let mean = handle.take(s, dtype, required)?;
        if let framework::GradValue::Dense(mean) = mean {
            let shape = variable.shape();
            s.edit_graph(|g| g.set_shape(mean, &shape))?;
        }
        Ok(Accumulator { handle, device, given, mean: (Gradient::new(graph, mean), variable.clone()) })
    }

    /// Tells the parameter server what to do about lost workers, in an attribute that TensorFlow skips.
    fn mark(&self, s: &Scope, node: Option<NodeId>) {
        let policy = self.lost_worker.to_string();
        if let Some(node) = node {
            s.edit_graph(|g| g.annotate(node, ON_LOST_WORKER, Attr::String(policy.into())));
        }
    }
}

/// The means, once all of them have been taken: a gradient of weights that are being changed then comes too late for every
/// accumulator. Otherwise one that read a changed variable beside an unchanged one could still count for the latter.
fn all_taken(graph: &Graph, accumulators: &[Accumulator]) -> Result<Vec<(Gradient, Variable)>> {
    let means = accumulators.iter().map(|accumulator| accumulator.mean.clone());
    if accumulators.len() == 1 {
        return Ok(means.collect());
    }
    let s = graph.scope();
    let id = |output: &Output| output.id().ok_or_else(|| invalid!("a mean that was not built"));
    let takes = accumulators.iter().map(|accumulator| Ok(id(accumulator.mean.0.values())?.node));
    let takes = takes.collect::<Result<Vec<NodeId>>>()?;
    let after = |output: &Output| {
        let passed = s.with_control(&takes, || s.node("Identity").name("taken").input(id(output)?).output())?;
        Ok::<_, Error>(Output::new(graph, Some(passed)))
    };
    let wait = |(accumulator, (mean, variable)): (&Accumulator, (Gradient, Variable))| {
        let mean = s.with_device(accumulator.device.clone(), || match mean {
            Gradient::Dense(mean) => after(&mean).map(Gradient::Dense),
            Gradient::Sparse(rows) => Ok(Gradient::Sparse(IndexedSlices { values: after(&rows.values)?, ..rows })),
        })?;
        Ok((mean, variable))
    };
    accumulators.iter().zip(means).map(wait).collect()
}

impl Handle {
    /// Nodes that take the accumulator by reference stand beside it; those that take a handle need not.
    fn beside<R>(&self, s: &Scope, build: impl FnOnce() -> Result<R>) -> Result<R> {
        if self.is_sparse { s.colocated_with(self.id.node, build) } else { build() }
    }

    fn give(&self, s: &Scope, gradient: &Gradient, local: framework::Output) -> Result<NodeId> {
        let id = |output: &Output| output.id().ok_or_else(|| invalid!("a gradient that was not built"));
        match gradient {
            Gradient::Dense(gradient) => {
                s.node("ResourceAccumulatorApplyGradient").inputs(&[self.id, local, id(gradient)?]).build()
            }
            Gradient::Sparse(IndexedSlices { values, indices, dense_shape }) => {
                let indices = as_i64(s, id(indices)?)?;
                let shape = match dense_shape {
                    Some(shape) => as_i64(s, id(shape)?)?,
                    None => s.constant(Tensor::from_vec([0], Vec::<i64>::new())?)?,
                };
                let inputs = [self.id, local, indices, id(values)?, shape];
                self.beside(s, || {
                    let node = s.node("SparseAccumulatorApplyGradient").inputs(&inputs);
                    node.attr("has_known_shape", dense_shape.is_some()).build()
                })
            }
        }
    }

    fn take(&self, s: &Scope, dtype: DType, required: i32) -> Result<framework::GradValue> {
        let op = if self.is_sparse { "SparseAccumulatorTakeGradient" } else { "ResourceAccumulatorTakeGradient" };
        let name = s.unique_name(op);
        let required = s.with_absolute_name(&name, || {
            s.node("Const")
                .name("num_required")
                .attr("dtype", DType::I32)
                .attr("value", Tensor::from(required))
                .output()
        })?;
        let taken = self.beside(s, || {
            s.node(op).name(format!("{name}/")).inputs(&[self.id, required]).attr("dtype", dtype).outputs()
        })?;
        match taken[..] {
            [mean] => Ok(framework::GradValue::Dense(mean)),
            [indices, values, shape] => {
                Ok(framework::GradValue::Sparse(framework::IndexedSlices { values, indices, dense_shape: Some(shape) }))
            }
            _ => Err(invalid!("{op} gives {} outputs", taken.len())),
        }
    }

    /// Refuses gradients from before `step` from now on.
    fn set_step(&self, s: &Scope, step: &Variable) -> Result<NodeId> {
        let step = as_i64(s, read(s, step)?)?;
        let op = if self.is_sparse { "AccumulatorSetGlobalStep" } else { "ResourceAccumulatorSetGlobalStep" };
        self.beside(s, || s.node(op).name("SetGlobalStep").inputs(&[self.id, step]).build())
    }
}

impl Applied {
    #[track_caller]
    fn init_tokens(&self, num_tokens: Option<u32>) -> Result<Operation> {
        let Counts { aggregate, total } = self.counts;
        let count = match num_tokens {
            Some(count) => i32::try_from(count).map_err(|_| invalid!("{count} is too many tokens"))?,
            None => aggregate,
        };
        let needed = aggregate - total;
        if count < needed {
            return Err(invalid!("Too few tokens to finish the first step: {count} (given) vs {needed} (needed)"));
        }
        if count == 0 {
            return Ok(self.graph.operation([], |s, []| s.node("NoOp").name("no_init_tokens").build()));
        }
        self.beside_step(|| put_tokens(&self.graph, &self.tokens, &self.step, count, None))
    }

    /// What a worker does that leads, having put these tokens into the queue.
    fn lead(&self, tokens: Operation) -> Lead {
        Lead { init: self.chief_init.clone(), tokens, runner: self.runner.clone() }
    }

    /// What a worker does that leads because who did was lost: everybody who waits gets a token.
    #[track_caller]
    fn succession(&self) -> Result<Succession> {
        let Counts { aggregate, total } = self.counts;
        self.beside_step(|| {
            let tokens = put_tokens(&self.graph, &self.tokens, &self.step, aggregate.max(total), None)?;
            Ok(Succession::new(&self.graph, &self.tokens, &self.step, self.lead(tokens)))
        })
    }

    /// Builds nodes on the device of the global step, where the queue of tokens is.
    fn beside_step<R>(&self, build: impl FnOnce() -> Result<R>) -> Result<R> {
        let s = self.graph.scope();
        let device: DeviceSpec = self.step.place().device().parse()?;
        s.with_absolute_name("", || s.with_device(device, build))
    }
}

/// The step that this worker is in, beside whatever it computes; it starts as the global step.
fn local_step(graph: &Graph, step: &Variable) -> Result<Variable> {
    let s = graph.scope();
    let anchor = s.node("NoOp").build()?;
    let name = s.unique_name("sync_rep_local_step");
    let zero = scalar_of(step.dtype(), 0.0)?;
    let options = VariableOptions { trainable: false, local: true, ..Default::default() };
    s.colocated_with(anchor, || graph.make_variable(name, &zero.into(), options))
}

/// Puts `count` tokens that carry the global step into the queue, after `after`.
fn put_tokens(graph: &Graph, tokens: &Queue, step: &Variable, count: i32, after: Option<NodeId>) -> Result<Operation> {
    let s = graph.scope();
    let name = s.unique_name("Fill");
    let dims = s.with_absolute_name(&name, || {
        let dims = s.node("Const").name("dims").attr("dtype", DType::I32).attr("value", Tensor::from([count]));
        after.into_iter().fold(dims, |dims, node| dims.control(node)).output()
    })?;
    let value = match step.is_resource() {
        false => read(s, step)?,
        // A handle's value is read when it is asked for: the wait must be the reader's own.
        true => s.with_absolute_name(&name, || s.with_control(after.as_slice(), || read(s, step)))?,
    };
    let filled = s.node("Fill").name(format!("{name}/")).inputs(&[dims, value]).output()?;
    Ok(tokens.enqueue_many(&[&Output::new(graph, Some(filled))]))
}

/// The value of a variable at this point: a resource variable is read anew, wherever it is.
fn read(s: &Scope, variable: &Variable) -> Result<framework::Output> {
    if !variable.is_resource() {
        return variable.id().ok_or_else(|| invalid!("a variable that was not built"));
    }
    let node = s.node("ReadVariableOp").input(variable.place_id()?).attr("dtype", variable.dtype());
    node.device("").output()
}

fn assign(s: &Scope, variable: &Variable, value: framework::Output) -> Result<NodeId> {
    let place = variable.place_id()?;
    match variable.is_resource() {
        true => s.node("AssignVariableOp").inputs(&[place, value]).build(),
        false => s.colocated_with(place.node, || s.node("Assign").inputs(&[place, value]).build()),
    }
}

fn as_i64(s: &Scope, x: framework::Output) -> Result<framework::Output> {
    crate::optimizers::cast(s, x, DType::I64)
}

/// Starts the steps of a [`SyncReplicas`] when a training session is ready.
pub struct SyncReplicasHook {
    applied: Result<Arc<Applied>>,
    is_chief: bool,
    num_tokens: Option<u32>,
    /// What the chief does from the beginning.
    lead: Option<Lead>,
    /// What all do when who leads is lost, if they are to go on then.
    succession: Option<Succession>,
}

impl SyncReplicasHook {
    /// How many tokens are in the queue in the beginning: see [`SyncReplicas::get_init_tokens_op`].
    pub fn num_tokens(mut self, count: u32) -> Self {
        self.num_tokens = Some(count);
        self
    }
}

impl Hook for SyncReplicasHook {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        let applied = self.applied.as_ref().map_err(Error::clone)?;
        if !applied.graph.is_same(graph) {
            return Err(invalid!("the step of SyncReplicas belongs to another graph than the session"));
        }
        if self.is_chief {
            self.lead = Some(applied.lead(applied.init_tokens(self.num_tokens)?));
        }
        if applied.lost_worker == LostWorker::Shrink {
            self.succession = Some(applied.succession()?);
        }
        Ok(())
    }

    fn after_create_session(&mut self, session: &Session, coordinator: &Coordinator) -> Result<()> {
        let applied = self.applied.as_ref().map_err(Error::clone)?;
        let missing = session.run(&applied.missing)?;
        if !missing.as_strings()?.is_empty() {
            return Err(failed_precondition!("SyncReplicas cannot start: {missing} have no value yet"));
        }
        if self.is_chief {
            let lead = self.lead.as_ref();
            let lead = lead.ok_or_else(|| failed_precondition!("SyncReplicasHook was not begun before its session"))?;
            if self.succession.as_ref().map_or(Ok(true), |succession| succession.chief_leads(session))? {
                return lead.start(session, coordinator);
            }
        }
        session.run(&applied.local_step_init)?;
        self.succession.as_ref().map_or(Ok(()), |succession| succession.stand_by(session, coordinator))
    }
}
