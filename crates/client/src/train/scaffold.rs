//! `Scaffold`: the parts of a graph that make a session ready for training, and what initialises and saves it.

use super::Saver;
use crate::{Feeds, Graph, Operation, Output, Session, Variable};
use framework::Scope;
use parking_lot::Mutex;
use std::sync::Arc;
use tensor::{Result, Tensor};

/// What a program does itself in initialising a session.
type InitFn = Arc<dyn Fn(&Session) -> Result<()> + Send + Sync>;

/// The parts of a graph that training sessions use: each is made in the usual way unless the program brings its own.
/// Clones are handles on the same scaffold.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::Scaffold;
///
/// let g = Graph::new();
/// let w = g.variable("w", 0.0f32);
/// let put = w.assign(1.0);
/// let scaffold = Scaffold::new().init_op(&put);
/// let session = MonitoredTrainingSession::new(&g).scaffold(&scaffold).start()?;
/// assert_eq!(session.raw()?.run(&w)?.item::<f32>()?, 1.0);
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Scaffold {
    parts: Arc<Mutex<Parts>>,
}

#[derive(Clone, Default)]
pub(super) struct Parts {
    pub(super) init_op: Option<Operation>,
    pub(super) init_feeds: Feeds,
    pub(super) init_fn: Option<InitFn>,
    /// Names what is missing before local variables are initialised.
    pub(super) ready_for_local_init_op: Option<Output>,
    pub(super) local_init_op: Option<Operation>,
    pub(super) local_init_feeds: Feeds,
    /// Names what is missing in the end.
    pub(super) ready_op: Option<Output>,
    pub(super) summary_op: Option<Output>,
    pub(super) saver: Option<Saver>,
}

impl Scaffold {
    /// A scaffold of which every part is the usual one.
    pub fn new() -> Scaffold {
        Scaffold::default()
    }

    /// Gives the model its initial state; unless told, all variables their initial values.
    pub fn init_op(self, operation: &Operation) -> Scaffold {
        self.with(|parts| parts.init_op = Some(operation.clone()))
    }

    /// Values that the initialisation is fed.
    pub fn init_feeds(self, feeds: Feeds) -> Scaffold {
        self.with(|parts| parts.init_feeds = feeds)
    }

    /// Called after the initialisation, if there was nothing to restore: to load what was trained elsewhere, for instance.
    pub fn init_fn(self, init: impl Fn(&Session) -> Result<()> + Send + Sync + 'static) -> Scaffold {
        self.with(|parts| parts.init_fn = Some(Arc::new(init)))
    }

    /// Gives a list of what is not ready for training; unless told, the names of variables without a value.
    pub fn ready_op(self, output: &Output) -> Scaffold {
        self.with(|parts| parts.ready_op = Some(output.clone()))
    }

    /// Gives a list of what is missing before each worker may initialise what it keeps for itself; unless told, the names
    /// of shared variables without a value.
    pub fn ready_for_local_init_op(self, output: &Output) -> Scaffold {
        self.with(|parts| parts.ready_for_local_init_op = Some(output.clone()))
    }

    /// Initialises what each worker keeps for itself; unless told, the local variables.
    pub fn local_init_op(self, operation: &Operation) -> Scaffold {
        self.with(|parts| parts.local_init_op = Some(operation.clone()))
    }

    /// Values that the initialisation of what each worker keeps for itself is fed.
    pub fn local_init_feeds(self, feeds: Feeds) -> Scaffold {
        self.with(|parts| parts.local_init_feeds = feeds)
    }

    /// The summary that is written; unless told, all of the graph's in one.
    pub fn summary_op(self, output: &Output) -> Scaffold {
        self.with(|parts| parts.summary_op = Some(output.clone()))
    }

    /// Saves and restores the model; unless told, all variables, each task its own.
    pub fn saver(self, saver: &Saver) -> Scaffold {
        self.with(|parts| parts.saver = Some(saver.clone()))
    }

    fn with(self, change: impl FnOnce(&mut Parts)) -> Scaffold {
        change(&mut self.parts.lock());
        self
    }

    /// Makes the parts that the program did not bring. Training sessions do this after the hooks have begun.
    #[track_caller]
    pub fn finalize(&self, graph: &Graph) {
        let mut parts = self.parts.lock();
        parts.init_op.get_or_insert_with(|| graph.initialize_all());
        let (global, local) = (graph.global_variables(), graph.local_variables());
        parts.ready_op.get_or_insert_with(|| {
            let all: Vec<Variable> = global.iter().chain(&local).cloned().collect();
            report_uninitialized_variables(graph, &all)
        });
        parts.ready_for_local_init_op.get_or_insert_with(|| report_uninitialized_variables(graph, &global));
        parts.local_init_op.get_or_insert_with(|| graph.initialize_local());
        parts.summary_op = parts.summary_op.take().or_else(|| graph.merge_all_summaries());
        parts.saver.get_or_insert_with(|| Saver::builder(graph).sharded(true).allow_empty(true).build());
    }

    /// What saves and restores the model, once the scaffold was finalized or was given one.
    pub fn get_saver(&self) -> Option<Saver> {
        self.parts.lock().saver.clone()
    }

    /// The summary that is written, once the scaffold was finalized or was given one, and if there is any.
    pub fn get_summary_op(&self) -> Option<Output> {
        self.parts.lock().summary_op.clone()
    }

    pub(super) fn parts(&self) -> Parts {
        self.parts.lock().clone()
    }
}

/// The names of those of these variables that have no value yet.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::report_uninitialized_variables;
///
/// let g = Graph::new();
/// let (a, b) = (g.variable("a", 1.0f32), g.variable("b", 2.0f32));
/// let missing = report_uninitialized_variables(&g, &[a.clone(), b]);
/// let session = Session::new(&g)?;
/// session.run(a.initializer())?;
/// assert_eq!(session.run(&missing)?.as_strings()?, ["b"]);
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[track_caller]
pub fn report_uninitialized_variables(graph: &Graph, variables: &[Variable]) -> Output {
    graph.name_scope("report_uninitialized_variables", || {
        let states: Vec<Output> = graph.here(|| variables.iter().map(Variable::is_initialized).collect());
        let states: Option<Vec<_>> = graph.here(|| states.iter().map(|state| graph.own_one(state)).collect());
        let names: Vec<String> = variables.iter().map(|variable| variable.name()).collect();
        match states {
            Some(states) => {
                graph.output([], |s, []| s.with_device("/device:CPU:0".parse()?, || names_of_false(s, &states, names)))
            }
            None => Output::void(graph),
        }
    })
}

fn names_of_false(s: &Scope, states: &[framework::Output], names: Vec<String>) -> Result<framework::Output> {
    let names = Tensor::from_strings([names.len()], names.into_iter().map(Into::into).collect())?;
    let names = s.constant(names)?;
    if states.is_empty() {
        return Ok(names);
    }
    let states = s.node("Pack").name("stack").inputs(states).output()?;
    let missing = s.op("LogicalNot", &[states])?;
    s.with_name("boolean_mask", || {
        let places = s.op("Where", &[missing])?;
        let places = s.node("Squeeze").input(places).attr("squeeze_dims", vec![1i64]).output()?;
        let name = s.unique_name("GatherV2");
        let axis = s.with_absolute_name(&name, || {
            s.node("Const").name("axis").attr("dtype", tensor::DType::I32).attr("value", Tensor::from(0)).output()
        })?;
        s.node("GatherV2").name(name + "/").inputs(&[names, places, axis]).output()
    })
}
