//! Hooks around the steps of a training session.

use ferroflow::prelude::*;
use ferroflow::train::hooks::{
    CheckpointListener, CheckpointSaver, FeedFn, FinalOps, GlobalStepWaiter, NanTensor, Profiler, StepCounter,
    SummarySaver,
};
use ferroflow::train::{QueueRunner, RunArgs, RunContext, RunValues, Saver, latest_checkpoint};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A graph whose training step adds one to `w` and to the global step.
fn counting() -> (Graph, Variable, Operation) {
    let g = Graph::new();
    let step = g.global_step();
    let w = g.variable("w", 0.0f32);
    let add = w.assign_add(1.0);
    let train = g.control_dependencies(&[&add], || step.assign_add(1i64));
    (g, w, train)
}

fn run_to_end(mut session: MonitoredSession, train: &Operation) -> usize {
    let mut runs = 0;
    while !session.should_stop() {
        session.run(train).unwrap();
        runs += 1;
    }
    session.close().unwrap();
    runs
}

fn names(dir: &Path, start: &str) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.starts_with(start));
    names.sort();
    names
}

type Log = Arc<Mutex<Vec<String>>>;

/// Notes what it is told.
struct Trace(Log, Variable);

impl Trace {
    fn note(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }
}

impl Hook for Trace {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        self.note(format!("begin {}", graph.global_variables().len()));
        Ok(())
    }
    fn after_create_session(&mut self, _: &Session, _: &Coordinator) -> Result<()> {
        self.note("create");
        Ok(())
    }
    fn before_run(&mut self, _: &RunContext<'_>) -> Result<RunArgs> {
        self.note("before");
        Ok(RunArgs::fetch([&self.1]))
    }
    fn after_run(&mut self, context: &RunContext<'_>, values: &RunValues) -> Result<()> {
        self.note(format!("after {} {}", values.values.len(), context.stop_requested()));
        Ok(())
    }
    fn end(&mut self, session: &Session) -> Result<()> {
        self.note(format!("end {}", session.run(&self.1)?));
        Ok(())
    }
}

/// The order in which TensorFlow's session calls a hook that stands behind a StopAtStepHook.
#[test]
fn hooks_are_called_in_order() {
    let (g, w, train) = counting();
    let log = Log::default();
    let session =
        MonitoredTrainingSession::new(&g).hook(StopAtStep::num_steps(2)).hook(Trace(log.clone(), w)).start().unwrap();
    assert_eq!(run_to_end(session, &train), 2);
    let log = log.lock().unwrap().join(", ");
    assert_eq!(log, "begin 2, create, before, after 1 false, before, after 1 true, end 2");
}

#[test]
fn training_that_has_come_to_its_last_step_does_not_go_on() {
    let dir = tempfile::tempdir().unwrap();
    for (last, runs) in [(5, 5), (5, 0), (9, 4)] {
        let (g, _, train) = counting();
        let session = MonitoredTrainingSession::new(&g)
            .checkpoint_dir(dir.path())
            .save_checkpoint_steps(2)
            .hook(StopAtStep::last(last))
            .start()
            .unwrap();
        assert_eq!(run_to_end(session, &train), runs, "last step {last}");
    }
    assert_eq!(latest_checkpoint(dir.path()).unwrap(), Some(dir.path().join("model.ckpt-9")));
    // 0, 2, 4, 5 and 5, 7, 9, of which the last five are kept.
    let kept: Vec<String> = names(dir.path(), "model.ckpt").into_iter().filter(|n| n.ends_with(".index")).collect();
    assert_eq!(kept, [2, 4, 5, 7, 9].map(|step| format!("model.ckpt-{step}.index")));
}

#[test]
fn summaries_steps_per_second_and_the_graph_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let (g, w, train) = counting();
    g.scalar_summary("weight", &w);
    let session = MonitoredTrainingSession::new(&g)
        .checkpoint_dir(dir.path())
        .save_summaries_steps(2)
        .log_step_count_steps(3)
        .hook(StopAtStep::last(7))
        .start()
        .unwrap();
    run_to_end(session, &train);
    let files = names(dir.path(), "events.out.tfevents");
    assert_eq!(files.len(), 1, "all write to one file: {files:?}");
    let events = read_events(&dir.path().join(&files[0]));
    let tags = |tag: &str| -> Vec<i64> {
        let has = |e: &&proto::Event| match &e.what {
            Some(proto::event::What::Summary(s)) => s.value.iter().any(|v| v.tag == tag),
            _ => false,
        };
        events.iter().filter(has).map(|e| e.step).collect()
    };
    assert_eq!(tags("weight"), [1, 3, 5, 7]);
    assert_eq!(tags("global_step/sec"), [4, 7]);
    assert!(events.iter().any(|e| matches!(e.what, Some(proto::event::What::GraphDef(_)))));
    let checkpoints = events.iter().filter(|e| match &e.what {
        Some(proto::event::What::SessionLog(log)) => log.checkpoint_path.contains("model.ckpt-"),
        _ => false,
    });
    assert_eq!(checkpoints.map(|e| e.step).collect::<Vec<_>>(), [0, 7]);
}

fn read_events(path: &Path) -> Vec<proto::Event> {
    let mut reader = storage::EventReader::open(&storage::LocalFiles, path).unwrap();
    std::iter::from_fn(|| reader.next_event().unwrap()).collect()
}

#[test]
fn values_are_printed_with_the_runs_they_belong_to() {
    let (g, w, train) = counting();
    let log = Log::default();
    let seen = log.clone();
    let format = move |values: &[(String, Tensor)]| {
        let text = format!("{} {}", values[0].0, values[0].1);
        seen.lock().unwrap().push(text.clone());
        text
    };
    let after = g.control_dependencies(&[&train], || w.read());
    let session = MonitoredTrainingSession::new(&g)
        .hook(LoggingTensor::new(Every::steps(3)).tensor("w", &after).and_at_end().format(format))
        .hook(StopAtStep::last(5))
        .start()
        .unwrap();
    run_to_end(session, &train);
    assert_eq!(*log.lock().unwrap(), ["w 1", "w 4", "w 6"], "the last one is a run of its own");
}

#[test]
fn a_loss_that_is_no_number_ends_training() {
    for fails in [true, false] {
        let (g, w, train) = counting();
        let loss = (2.0 - &w).sqrt();
        let mut session =
            MonitoredTrainingSession::new(&g).hook(NanTensor::new(&loss).fail_on_nan(fails)).start().unwrap();
        let error = loop {
            match session.run(&train) {
                Err(error) => break Some(error),
                Ok(()) if session.should_stop() => break None,
                Ok(()) => assert!(session.last_step().unwrap() < 10),
            }
        };
        assert!(session.should_stop());
        match error {
            Some(error) => assert!(fails && error.message.contains("NaN loss during training"), "{error}"),
            None => assert!(!fails),
        }
        assert_eq!(session.run(&train).is_err(), fails, "an error closes the session");
    }
}

#[test]
fn the_last_values_are_computed_and_inputs_supplied() {
    let g = Graph::new();
    let (x, step) = (g.placeholder::<f32>([2]), g.global_step());
    let sum = g.variable("sum", [0.0f32, 0.0]);
    let add = sum.assign_add(&x);
    let train = g.control_dependencies(&[&add], || step.assign_add(1i64));
    let last = FinalOps::new([&sum]);
    let (input, mut left) = (x.clone(), 3);
    let feed = FeedFn::new(move || {
        left -= 1;
        if left < 0 {
            Err(Error::new(Code::OutOfRange, "no more"))
        } else {
            Ok(feed! { input => [1.0f32, left as f32] })
        }
    });
    let mut session = MonitoredTrainingSession::new(&g).hook(feed).hook(last.clone()).start().unwrap();
    session.run_until_stop(|session| session.run(&train)).unwrap();
    assert_eq!(last.values().unwrap(), [Tensor::from([3.0f32, 3.0])]);
    let twice = FeedFn::new(move || Ok(feed! { x => [1.0f32, 2.0] }));
    let x = g.find("Placeholder");
    let mut session = MonitoredTrainingSession::new(&g).hook(twice).start().unwrap();
    let error = session.run_with(&train, feed! { x => [1.0f32, 2.0] }).unwrap_err();
    assert!(error.message.contains("Placeholder:0 is fed twice"), "{error}");
}

#[test]
fn a_late_worker_waits_for_its_step_and_not_for_ever() {
    let (g, _, train) = counting();
    let waiter = GlobalStepWaiter::new(5).max_wait(Duration::from_millis(100));
    let mut session = MonitoredTrainingSession::new(&g).hook(waiter).start().unwrap();
    let error = session.run(&train).unwrap_err();
    assert_eq!(error.code, Code::DeadlineExceeded);
    assert!(error.message.contains("the global step is 0, this worker begins at 5"), "{error}");
    let mut session = MonitoredTrainingSession::new(&g).hook(GlobalStepWaiter::new(5)).start().unwrap();
    let raw = session.raw().unwrap().clone();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| (0..5).for_each(|_| raw.run(&train).unwrap()));
        session.run(&train).unwrap();
        other.join().unwrap();
    });
    assert_eq!(session.raw().unwrap().run(&g.global_step()).unwrap(), Tensor::from(6i64));
}

#[test]
fn some_runs_are_traced() {
    let dir = tempfile::tempdir().unwrap();
    let writer = FileWriter::create(dir.path()).unwrap();
    let (g, _, train) = counting();
    let session = MonitoredTrainingSession::new(&g)
        .hook(Profiler::new(dir.path(), Every::steps(2)).writer(&writer))
        .hook(StopAtStep::last(6))
        .start()
        .unwrap();
    run_to_end(session, &train);
    writer.close().unwrap();
    assert_eq!(names(dir.path(), "timeline"), ["timeline-3.json", "timeline-5.json"]);
    let trace = std::fs::read_to_string(dir.path().join("timeline-3.json")).unwrap();
    assert!(trace.contains("AssignAdd"), "{trace}");
    let events = read_events(&dir.path().join(&names(dir.path(), "events")[0]));
    let tags: Vec<&str> = events
        .iter()
        .filter_map(|e| match &e.what {
            Some(proto::event::What::TaggedRunMetadata(tagged)) => Some(tagged.tag.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(tags, ["step_3", "step_5"]);
}

struct StopAfterSaves(Log);

impl CheckpointListener for StopAfterSaves {
    fn before_save(&mut self, _: &Session, step: i64) -> Result<()> {
        self.0.lock().unwrap().push(format!("before {step}"));
        Ok(())
    }
    fn after_save(&mut self, _: &Session, step: i64) -> Result<bool> {
        self.0.lock().unwrap().push(format!("after {step}"));
        Ok(step >= 4)
    }
}

#[test]
fn a_listener_may_end_training_and_a_failed_save_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let (g, _, train) = counting();
    let (log, saver) = (Log::default(), Saver::new(&g));
    let hook = CheckpointSaver::new(dir.path(), Every::steps(2)).saver(&saver).listener(StopAfterSaves(log.clone()));
    let session = MonitoredTrainingSession::new(&g).hook(hook.basename("m")).start().unwrap();
    run_to_end(session, &train);
    assert_eq!(*log.lock().unwrap(), ["before 0", "after 0", "before 2", "after 2", "before 4", "after 4"]);
    assert_eq!(latest_checkpoint(dir.path()).unwrap(), Some(dir.path().join("m-4")));

    let gone = dir.path().join("gone");
    let hook = CheckpointSaver::new(&gone, Every::steps(1)).saver(&saver);
    let mut session = MonitoredTrainingSession::new(&g).hook(hook).start().unwrap();
    std::fs::remove_dir_all(&gone).unwrap();
    std::fs::write(&gone, "a file where the directory was").unwrap();
    session.run(&train).unwrap();
    session.run(&train).unwrap();
    session.close().unwrap_err();
}

#[test]
fn hooks_that_count_steps_say_when_there_are_none() {
    let dir = tempfile::tempdir().unwrap();
    let hooks: [Box<dyn Hook>; 4] = [
        Box::new(StopAtStep::last(1)),
        Box::new(StepCounter::new(Every::steps(1))),
        Box::new(SummarySaver::new(Every::steps(1)).output_dir(dir.path())),
        Box::new(GlobalStepWaiter::new(1)),
    ];
    for hook in hooks {
        let error = MonitoredTrainingSession::new(&Graph::new()).hook(hook).start().map(|_| ()).unwrap_err();
        assert!(error.message.contains("Graph::global_step"), "{error}");
    }
}

#[test]
fn queues_are_filled_and_their_end_is_the_end() {
    let g = Graph::new();
    let step = g.global_step();
    let options = VariableOptions { local: true, trainable: false, ..Default::default() };
    let count = g.variable_with("count", 0i64, options);
    let name = count.name();
    let place = g.scope().with_graph(|graph| graph.find_output(&name)).unwrap();
    let next =
        g.scope().node("CountUpTo").name("next").input(place).attr("limit", 7i64).output().map(|_| g.find("next"));
    let next = next.unwrap();
    let queue = g.fifo_queue(2).component::<i64>(Shape::scalar()).build();
    g.add_queue_runner(QueueRunner::new(&queue, vec![queue.enqueue(&[&next])]));
    let taken = queue.dequeue().remove(0);
    let train = step.assign_add(&taken);
    let mut session = MonitoredTrainingSession::new(&g).start().unwrap();
    let mut runs = 0;
    session
        .run_until_stop(|session| {
            session.run(&train)?;
            runs += 1;
            Ok(())
        })
        .unwrap();
    assert_eq!(runs, 7);
    assert!(session.should_stop() && session.close().is_ok());
}

#[test]
fn what_a_thread_failed_of_is_the_error_of_the_run_that_waits_for_it() {
    let g = Graph::new();
    let queue = g.fifo_queue(2).component::<f32>([1]).build();
    let nobody_feeds_this = g.placeholder::<f32>([1]);
    g.add_queue_runner(QueueRunner::new(&queue, vec![queue.enqueue(&[&nobody_feeds_this])]));
    let taken = queue.dequeue().remove(0);
    let mut session = MonitoredTrainingSession::new(&g).start().unwrap();
    let error = session.run(&taken).unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument, "{error}");
    assert!(error.message.contains("Placeholder"), "{error}");
    assert!(session.should_stop());
}

/// Starts a thread that loses a task, the first time.
struct Fragile(Arc<Mutex<Vec<Coordinator>>>);

impl Hook for Fragile {
    fn after_create_session(&mut self, _: &Session, coordinator: &Coordinator) -> Result<()> {
        let mut opened = self.0.lock().unwrap();
        opened.push(coordinator.clone());
        if opened.len() > 1 {
            return Ok(());
        }
        coordinator.spawn("fragile", |_| Err(Error::new(Code::Unavailable, "a task was lost")))
    }
}

#[test]
fn a_task_that_a_thread_has_lost_between_two_runs_does_not_end_training() {
    let (g, _, train) = counting();
    let opened = Arc::default();
    let session = MonitoredTrainingSession::new(&g).hook(StopAtStep::last(5)).hook(Fragile(Arc::clone(&opened)));
    let session = session.start().unwrap();
    let first = opened.lock().unwrap()[0].clone();
    assert!(first.wait_for_stop(Duration::from_secs(30)));
    assert_eq!(run_to_end(session, &train), 5);
    assert_eq!(opened.lock().unwrap().len(), 2);
}

#[test]
fn a_step_may_be_put_together_by_the_program() {
    let (g, w, train) = counting();
    let mut session = MonitoredTrainingSession::new(&g).hook(StopAtStep::last(3)).start().unwrap();
    let mut values = Vec::new();
    while !session.should_stop() {
        let value = session.run_step_fn(|step| {
            let before = step.session().run(&w)?.item::<f32>()?;
            step.run_with_hooks(&train, Feeds::new())?;
            Ok(before)
        });
        values.push(value.unwrap());
    }
    assert_eq!(values, [0.0, 1.0, 2.0]);
    let mut session = MonitoredTrainingSession::new(&g).start().unwrap();
    let last = session.run_step_fn(|step| {
        step.request_stop();
        Ok(())
    });
    last.unwrap();
    assert!(session.should_stop());
}
