//! `QueueRunner`: threads that keep a queue filled.

use super::Coordinator;
use crate::session::stay_in_background;
use crate::{Graph, Operation, Queue, Session};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tensor::{Code, Result};

/// Keeps a queue filled: a thread for each of its enqueue operations runs it again and again, until the input ends or
/// all threads are asked to stop.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::{Coordinator, QueueRunner, start_queue_runners};
///
/// let g = Graph::new();
/// let queue = g.fifo_queue(4).component::<f32>([2]).build();
/// let fill = queue.enqueue(&[&g.random_uniform([2], 0.0, 1.0)]);
/// g.add_queue_runner(QueueRunner::new(&queue, vec![fill]));
/// let batch = queue.dequeue_many(3).remove(0);
///
/// let session = Session::new(&g)?;
/// let coordinator = Coordinator::new();
/// start_queue_runners(&session, &g, &coordinator)?;
/// assert_eq!(session.run(&batch)?.shape().dims(), [3, 2]);
/// coordinator.request_stop();
/// coordinator.join(std::time::Duration::from_secs(10))?;
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct QueueRunner {
    queue: String,
    enqueue: Vec<Operation>,
    close: Operation,
    cancel: Operation,
}

impl QueueRunner {
    /// A runner that fills `queue` by these operations, a thread for each; the same one may be listed several times.
    #[track_caller]
    pub fn new(queue: &Queue, enqueue: Vec<Operation>) -> QueueRunner {
        let (close, cancel) = (queue.close(), queue.cancel());
        QueueRunner { queue: queue.name(), enqueue, close, cancel }
    }

    /// As TensorFlow writes it into files.
    pub fn to_proto(&self) -> proto::QueueRunnerDef {
        proto::QueueRunnerDef {
            queue_name: self.queue.clone(),
            enqueue_op_name: self.enqueue.iter().map(Operation::name).collect(),
            close_op_name: self.close.name(),
            cancel_op_name: self.cancel.name(),
            queue_closed_exception_types: vec![Code::OutOfRange as i32],
        }
    }

    /// The runner in a message, for a graph that has its nodes.
    #[track_caller]
    pub fn from_proto(graph: &Graph, message: &proto::QueueRunnerDef) -> QueueRunner {
        QueueRunner {
            queue: message.queue_name.clone(),
            enqueue: message.enqueue_op_name.iter().map(|name| graph.find_operation(name)).collect(),
            close: graph.find_operation(&message.close_op_name),
            cancel: graph.find_operation(&message.cancel_op_name),
        }
    }

    /// Starts the threads. When the last of them finds that the input has ended, the queue is closed; when all are asked
    /// to stop, those that wait for room in it are woken.
    pub fn start(&self, session: &Session, coordinator: &Coordinator) -> Result<()> {
        let filling = Arc::new(Mutex::new(self.enqueue.len()));
        for enqueue in &self.enqueue {
            let (session, enqueue) = (session.clone(), enqueue.clone());
            let (filling, close) = (filling.clone(), self.close.clone());
            coordinator.spawn(&format!("QueueRunnerThread-{}-{}", self.queue, enqueue.name()), move |coordinator| {
                let ended = fill(&session, &enqueue, coordinator);
                let is_last = {
                    let mut filling = filling.lock();
                    *filling -= 1;
                    *filling == 0
                };
                match ended {
                    Err(e) if e.code == Code::OutOfRange => {
                        if is_last {
                            // The input's end is reached by those who take from the queue, when it is empty.
                            session.run(&close)?;
                        }
                        Ok(())
                    }
                    ended => ended,
                }
            })?;
        }
        let (session, cancel) = (session.clone(), self.cancel.clone());
        coordinator.spawn(&format!("QueueRunnerThread-{}-close_on_stop", self.queue), move |coordinator| {
            coordinator.wait_for_stop(Duration::MAX);
            // A queue that is closed already, or whose task is gone, has nobody waiting in it.
            let _ = session.run(&cancel);
            Ok(())
        })
    }
}

fn fill(session: &Session, enqueue: &Operation, coordinator: &Coordinator) -> Result<()> {
    stay_in_background();
    while !coordinator.should_stop() {
        session.run(enqueue)?;
    }
    Ok(())
}

impl Graph {
    /// Adds a runner to those that training sessions start.
    pub fn add_queue_runner(&self, runner: QueueRunner) {
        self.collections().lock().queue_runners.push(runner);
    }

    /// The runners added so far.
    pub fn queue_runners(&self) -> Vec<QueueRunner> {
        self.collections().lock().queue_runners.clone()
    }
}

/// Starts all queue runners of a graph.
pub fn start_queue_runners(session: &Session, graph: &Graph, coordinator: &Coordinator) -> Result<()> {
    graph.queue_runners().iter().try_for_each(|runner| runner.start(session, coordinator))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensor::{Shape, Tensor, invalid};

    const LIMIT: Duration = Duration::from_secs(20);

    /// A graph whose queue is filled by two threads with the numbers below `limit`, and what takes one out.
    fn counting(limit: i64) -> (Graph, crate::Output, Operation) {
        let g = Graph::new();
        let count = g.variable("count", 0i64);
        let next =
            g.output([count.place()], |s, [place]| s.node("CountUpTo").input(place).attr("limit", limit).output());
        let queue = g.fifo_queue(3).component::<i64>(Shape::scalar()).name("q").build();
        let put = queue.enqueue(&[&next]);
        g.add_queue_runner(QueueRunner::new(&queue, vec![put.clone(), put]));
        let (one, init) = (queue.dequeue().remove(0), g.initialize_all());
        (g, one, init)
    }

    #[test]
    fn the_queue_is_closed_when_the_input_ends_for_all() {
        let (g, one, init) = counting(50);
        let session = Session::new(&g).unwrap();
        session.run(&init).unwrap();
        let coordinator = Coordinator::new();
        start_queue_runners(&session, &g, &coordinator).unwrap();
        let mut taken = Vec::new();
        let end = loop {
            match session.run(&one) {
                Ok(value) => taken.push(value.item::<i64>().unwrap()),
                Err(end) => break end,
            }
        };
        assert_eq!(end.code, Code::OutOfRange, "{end}");
        taken.sort();
        assert_eq!(taken, (0..50).collect::<Vec<i64>>());
        coordinator.request_stop_with(end);
        coordinator.join(LIMIT).unwrap();
    }

    #[test]
    fn threads_that_wait_for_room_end_when_asked() {
        let (g, one, init) = counting(1 << 40);
        let session = Session::new(&g).unwrap();
        session.run(&init).unwrap();
        let coordinator = Coordinator::new();
        start_queue_runners(&session, &g, &coordinator).unwrap();
        session.run(&one).unwrap();
        coordinator.request_stop();
        coordinator.join(LIMIT).unwrap();
    }

    #[test]
    fn an_error_in_filling_stops_all() {
        let g = Graph::new();
        let queue = g.fifo_queue(3).component::<f32>([1]).build();
        let x = g.placeholder::<f32>([1]);
        g.add_queue_runner(QueueRunner::new(&queue, vec![queue.enqueue(&[&x])]));
        let (session, coordinator) = (Session::new(&g).unwrap(), Coordinator::new());
        start_queue_runners(&session, &g, &coordinator).unwrap();
        let error = coordinator.join(LIMIT).unwrap_err();
        assert_eq!(error.code, invalid!("").code, "{error}");
    }

    #[test]
    fn a_runner_survives_its_message() {
        let (g, one, init) = counting(2);
        let message = g.queue_runners()[0].to_proto();
        assert_eq!(message.enqueue_op_name, ["q_enqueue", "q_enqueue"]);
        assert_eq!((message.close_op_name.as_str(), message.cancel_op_name.as_str()), ("q_Close", "q_Close_1"));
        let again = QueueRunner::from_proto(&g, &message);
        let (session, coordinator) = (Session::new(&g).unwrap(), Coordinator::new());
        session.run(&init).unwrap();
        again.start(&session, &coordinator).unwrap();
        assert_eq!(session.run(&one).unwrap(), Tensor::from(0i64));
        coordinator.request_stop();
        coordinator.join(LIMIT).unwrap();
    }
}
