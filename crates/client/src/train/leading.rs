//! Who leads the steps of synchronous training: takes the gradients, applies them and hands out the tokens.
//!
//! The chief does. Every worker has what is needed for it, and asks the parameter server that holds the tokens now and
//! then whether it is to: when the leader is lost, one of them is told so. That one begins the step that was under way
//! again. A chief that comes back while another one leads waits for its turn like the others.

use super::report::say;
use super::session_manager::step_of;
use super::{Coordinator, QueueRunner};
use crate::graph::Graph;
use crate::{Operation, Output, Queue, Session, Variable};
use framework::Attr;
use framework::participant::{AS_CHIEF, AS_WORKER, ASKS_TO_LEAD, FOLLOWS, LEADS};
use std::time::Duration;
use tensor::{Code, Result};

/// How often a worker asks.
const EVERY: Duration = Duration::from_millis(250);

/// The thread that leads, and what is run before it starts.
#[derive(Clone)]
pub(super) struct Lead {
    /// The steps that the workers are told to be in begin at the global step.
    pub(super) init: Operation,
    /// A token for each worker.
    pub(super) tokens: Operation,
    pub(super) runner: QueueRunner,
}

impl Lead {
    /// Leads from now on, until the threads are asked to stop.
    pub(super) fn start(&self, session: &Session, coordinator: &Coordinator) -> Result<()> {
        session.run(&self.init)?;
        session.run(&self.tokens)?;
        self.runner.start(session, coordinator)
    }
}

/// How a worker asks whether it is to lead.
#[derive(Clone)]
pub(super) struct Succession {
    as_chief: Output,
    as_worker: Output,
    step: Variable,
    lead: Lead,
}

#[derive(Clone, Copy, PartialEq)]
enum Answer {
    Leads,
    Follows,
    /// The parameter server is TensorFlow's, or does not go on without lost workers.
    Unknown,
}

impl Succession {
    /// Adds the questions to the graph, for the worker that would lead like this.
    #[track_caller]
    pub(super) fn new(graph: &Graph, tokens: &Queue, step: &Variable, lead: Lead) -> Succession {
        let question = |role: &str| {
            let size = tokens.size();
            if let Some(node) = size.operation().id() {
                graph.scope().edit_graph(|g| g.annotate(node, ASKS_TO_LEAD, Attr::String(role.to_string().into())));
            }
            size
        };
        Succession { as_chief: question(AS_CHIEF), as_worker: question(AS_WORKER), step: step.clone(), lead }
    }

    /// Whether a chief that begins is to lead: unless another one does.
    pub(super) fn chief_leads(&self, session: &Session) -> Result<bool> {
        Ok(ask(session, &self.as_chief)? != Answer::Follows)
    }

    /// Leads when the leader is lost.
    pub(super) fn stand_by(&self, session: &Session, coordinator: &Coordinator) -> Result<()> {
        let (session, succession) = (session.downgrade(), self.clone());
        coordinator.spawn("sync_replicas-stand_by", move |coordinator| {
            while !coordinator.wait_for_stop(EVERY) {
                let Some(session) = session.upgrade() else { break };
                match ask(&session, &succession.as_worker) {
                    Ok(Answer::Leads) => return succession.take_over(&session, coordinator),
                    Ok(Answer::Unknown) => break,
                    Err(e) if e.code == Code::Cancelled => break, // the session is closed
                    // Whatever is wrong, the worker's own steps find it too.
                    Ok(Answer::Follows) | Err(_) => {}
                }
            }
            Ok(())
        })
    }

    fn take_over(&self, session: &Session, coordinator: &Coordinator) -> Result<()> {
        self.lead.start(session, coordinator)?;
        let at = step_of(session, Some(&self.step))?.unwrap_or_default();
        say(format_args!(
            "the worker that led the steps was lost, this one leads them now: no step was lost, the one after global step \
             {at} began again"
        ));
        Ok(())
    }
}

fn ask(session: &Session, question: &Output) -> Result<Answer> {
    Ok(match session.run(question)?.item::<i32>()? {
        LEADS => Answer::Leads,
        FOLLOWS => Answer::Follows,
        _ => Answer::Unknown,
    })
}
