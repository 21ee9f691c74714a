//! `FileWriter`: writes what a run tells a dashboard to an event file, on a thread of its own.
//!
//! Training hands its events over and goes on. It waits only when the disk falls behind by a whole queue.

use crate::{Graph, RunMetadata};
use framework::Attr;
use parking_lot::Mutex;
use prost::Message as _;
use proto::{Event, event, summary};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use storage::{EventWriter, LocalFiles};
use tensor::{Error, Result, Tensor, already_exists, failed_precondition, internal, invalid};

/// Writes events for TensorBoard; clones write to the same file.
///
/// The last handle to go writes what is still queued; [`close`](FileWriter::close) does so too, and tells whether it
/// worked.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let folder = tempfile::tempdir()?;
/// let writer = FileWriter::create(folder.path())?;
/// for step in 0..100 {
///     writer.add_scalar("loss", 1.0 / (1.0 + step as f32), step)?;
/// }
/// writer.close()?;
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(Clone)]
pub struct FileWriter {
    inner: Arc<Inner>,
}

/// How a writer behaves.
#[derive(Clone, Debug)]
pub struct FileWriterOptions {
    /// How many events may wait to be written before adding one waits too.
    pub max_queue: usize,
    /// How often readers see what was written, apart from [`FileWriter::flush`].
    pub flush_every: Duration,
    /// What the names of files end with.
    pub filename_suffix: String,
}

impl Default for FileWriterOptions {
    fn default() -> FileWriterOptions {
        FileWriterOptions { max_queue: 10, flush_every: Duration::from_secs(120), filename_suffix: String::new() }
    }
}

/// What becomes of a session, as event files tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// It begins at this step.
    Start,
    /// It ends.
    Stop,
    /// It wrote a checkpoint under this prefix.
    Checkpoint(PathBuf),
}

struct Inner {
    logdir: PathBuf,
    options: FileWriterOptions,
    state: Mutex<State>,
}

struct State {
    /// Nothing while the writer is closed.
    running: Option<Running>,
    /// Why the thread ended by itself.
    failure: Option<Error>,
    /// Tags whose metadata the file holds already: dashboards need it once.
    described: HashSet<String>,
    run_tags: HashSet<String>,
}

struct Running {
    path: PathBuf,
    sender: SyncSender<Message>,
    thread: JoinHandle<Result<()>>,
}

enum Message {
    Event(Box<Event>),
    /// Answered when everything before it can be read.
    Flush(Sender<()>),
    Close,
}

impl FileWriter {
    /// A writer with a file of its own in `logdir`, which is made if there is none.
    pub fn create(logdir: impl AsRef<Path>) -> Result<FileWriter> {
        FileWriter::create_with(logdir, FileWriterOptions::default())
    }

    /// The same, with options.
    pub fn create_with(logdir: impl AsRef<Path>, options: FileWriterOptions) -> Result<FileWriter> {
        let logdir = logdir.as_ref().to_path_buf();
        let running = Some(start(&logdir, &options)?);
        let state = State { running, failure: None, described: HashSet::new(), run_tags: HashSet::new() };
        Ok(FileWriter { inner: Arc::new(Inner { logdir, options, state: Mutex::new(state) }) })
    }

    /// The directory that files are written to.
    pub fn logdir(&self) -> &Path {
        &self.inner.logdir
    }

    /// The file that is being written to, unless the writer is closed.
    pub fn path(&self) -> Option<PathBuf> {
        self.inner.state.lock().running.as_ref().map(|running| running.path.clone())
    }

    /// Adds what a summary node gave, or several merged ones.
    pub fn add_summary(&self, summary: &Tensor, step: i64) -> Result<()> {
        let bytes = summary.string_item()?;
        let mut summary = proto::Summary::decode(bytes.clone())
            .map_err(|e| invalid!("add_summary wants what a summary node gives, found no Summary message: {e}"))?;
        let mut state = self.inner.state.lock();
        for value in &mut summary.value {
            if value.metadata.is_some() && !state.described.insert(value.tag.clone()) {
                value.metadata = None;
            }
        }
        drop(state);
        self.add(step, event::What::Summary(summary))
    }

    /// Adds a point to a curve.
    pub fn add_scalar(&self, tag: &str, value: f32, step: i64) -> Result<()> {
        let value = Some(summary::value::Value::SimpleValue(value));
        let value = summary::Value { tag: tag.into(), value, ..Default::default() };
        self.add(step, event::What::Summary(proto::Summary { value: vec![value] }))
    }

    /// Adds the graph as it is now, with the shapes that are known.
    pub fn add_graph(&self, graph: &Graph) -> Result<()> {
        let message = with_shapes(graph)?;
        self.add(0, event::What::GraphDef(message.encode_to_vec().into()))
    }

    /// Adds a graph together with its collections and savers.
    pub fn add_meta_graph(&self, meta_graph: &proto::MetaGraphDef, step: i64) -> Result<()> {
        self.add(step, event::What::MetaGraphDef(meta_graph.encode_to_vec().into()))
    }

    /// Adds what a traced run told about itself, under a tag that must be new.
    pub fn add_run_metadata(&self, metadata: &RunMetadata, tag: &str, step: i64) -> Result<()> {
        if !self.inner.state.lock().run_tags.insert(tag.into()) {
            return Err(already_exists!("the tag '{tag}' names another run's metadata already"));
        }
        let run_metadata = metadata.proto.encode_to_vec().into();
        self.add(step, event::What::TaggedRunMetadata(proto::TaggedRunMetadata { tag: tag.into(), run_metadata }))
    }

    /// Adds what became of a session. Dashboards drop what a start at a lower step supersedes.
    pub fn add_session_log(&self, event: &SessionEvent, step: i64) -> Result<()> {
        use proto::session_log::SessionStatus;
        let (status, checkpoint_path) = match event {
            SessionEvent::Start => (SessionStatus::Start, String::new()),
            SessionEvent::Stop => (SessionStatus::Stop, String::new()),
            SessionEvent::Checkpoint(prefix) => (SessionStatus::Checkpoint, prefix.display().to_string()),
        };
        let log = proto::SessionLog { status: status.into(), checkpoint_path, ..Default::default() };
        self.add(step, event::What::SessionLog(log))
    }

    /// Returns when readers can see everything added so far.
    pub fn flush(&self) -> Result<()> {
        let (done, flushed) = channel();
        self.send(Message::Flush(done))?;
        flushed.recv().map_err(|_| self.inner.failure())
    }

    /// Writes what is queued and ends the file. Nothing can be added afterwards, unless the writer is reopened.
    pub fn close(&self) -> Result<()> {
        self.inner.close()
    }

    /// Goes on in a new file after a close; nothing happens if the writer is open.
    pub fn reopen(&self) -> Result<()> {
        let mut state = self.inner.state.lock();
        if state.running.is_none() {
            state.running = Some(start(&self.inner.logdir, &self.inner.options)?);
            state.failure = None;
            state.described.clear();
        }
        Ok(())
    }

    fn add(&self, step: i64, what: event::What) -> Result<()> {
        let event = Event { wall_time: now(), step, what: Some(what), ..Default::default() };
        self.send(Message::Event(Box::new(event)))
    }

    fn send(&self, message: Message) -> Result<()> {
        let sender = self.inner.state.lock().running.as_ref().map(|running| running.sender.clone());
        // Not under the lock: this waits while the queue is full.
        let sent = sender.is_some_and(|sender| sender.send(message).is_ok());
        if sent { Ok(()) } else { Err(self.inner.failure()) }
    }
}

impl std::fmt::Debug for FileWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileWriter to {}", self.inner.logdir.display())
    }
}

impl Inner {
    fn close(&self) -> Result<()> {
        let running = self.state.lock().running.take();
        let Some(running) = running else { return Ok(()) };
        // If the thread is gone already, it tells why when it is joined.
        let _ = running.sender.send(Message::Close);
        let ended = running.thread.join().unwrap_or_else(|_| Err(internal!("the thread of a FileWriter panicked")));
        if let Err(error) = &ended {
            self.state.lock().failure = Some(error.clone());
        }
        ended
    }

    /// Why nothing can be added.
    fn failure(&self) -> Error {
        let _ = self.close();
        let failure = self.state.lock().failure.clone();
        failure.unwrap_or_else(|| {
            failed_precondition!("the FileWriter to {} is closed; reopen it to add more", self.logdir.display())
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Who wants to know whether everything was written calls close.
        let _ = self.close();
    }
}

/// Opens a file and starts the thread that writes to it.
fn start(logdir: &Path, options: &FileWriterOptions) -> Result<Running> {
    let host = hostname() + &options.filename_suffix;
    let file = EventWriter::create(&LocalFiles, logdir, now(), &host)?;
    let path = file.path().to_path_buf();
    let (sender, receiver) = sync_channel(options.max_queue.max(1));
    let flush_every = options.flush_every;
    let thread = std::thread::Builder::new().name("event writer".into());
    let thread = thread.spawn(move || write(file, &receiver, flush_every))?;
    Ok(Running { path, sender, thread })
}

/// What the thread does: writes events as they come, until it is told to close.
fn write(mut file: EventWriter, messages: &Receiver<Message>, flush_every: Duration) -> Result<()> {
    let mut last_flush = Instant::now();
    loop {
        match messages.recv_timeout(flush_every.saturating_sub(last_flush.elapsed())) {
            Ok(Message::Event(event)) => file.write(&event)?,
            Ok(Message::Flush(done)) => {
                file.flush()?;
                // Who asked may have gone.
                let _ = done.send(());
            }
            Ok(Message::Close) | Err(RecvTimeoutError::Disconnected) => return file.finish(),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if last_flush.elapsed() >= flush_every {
            file.flush()?;
            last_flush = Instant::now();
        }
    }
}

/// The graph's message, each node's known shapes in an attribute where dashboards look for them.
fn with_shapes(graph: &Graph) -> Result<proto::GraphDef> {
    graph.check()?;
    Ok(graph.scope().with_graph(|g| {
        let mut message = framework::graph::export::export(g);
        for (out, (_, node)) in message.node.iter_mut().zip(g.nodes()).filter(|(_, (_, node))| !node.outputs.is_empty())
        {
            let shapes = node.outputs.iter().map(|output| output.shape.clone()).collect();
            out.attr.insert("_output_shapes".into(), Attr::Shapes(shapes).to_proto());
        }
        message
    }))
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// What this machine is called, for the names of files.
fn hostname() -> String {
    let told =
        ["/proc/sys/kernel/hostname", "/etc/hostname"].iter().find_map(|path| std::fs::read_to_string(path).ok());
    let name: String =
        told.unwrap_or_default().chars().filter(|c| c.is_ascii_alphanumeric() || "-._".contains(*c)).collect();
    if name.is_empty() { "localhost".into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RunOptions, Session, feed};
    use storage::{EventReader, event_files};
    use tensor::Code;

    fn events(dir: &Path) -> Vec<Event> {
        let mut found = Vec::new();
        for path in event_files(&LocalFiles, dir).unwrap() {
            let mut reader = EventReader::open(&LocalFiles, &path).unwrap();
            while let Some(event) = reader.next_event().unwrap() {
                found.push(event);
            }
        }
        found
    }

    #[test]
    fn every_kind_of_event_is_written_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let g = Graph::new();
        let x = g.placeholder::<f32>([None, Some(3)]);
        let note = g.constant("hello");
        let summary = g.text_summary("note", &note);
        let writer = FileWriter::create(folder.path().join("new/deep")).unwrap();
        writer.add_graph(&g).unwrap();
        let session = Session::new(&g).unwrap();
        let options = RunOptions { trace: true, ..Default::default() };
        let (summary, metadata) = session.run_options(&summary, feed! { x => [[1.0f32, 2.0, 3.0]] }, &options).unwrap();
        writer.add_summary(&summary, 1).unwrap();
        writer.clone().add_summary(&summary, 2).unwrap();
        writer.add_run_metadata(&metadata, "step1", 1).unwrap();
        writer.add_session_log(&SessionEvent::Checkpoint("/model.ckpt-3".into()), 3).unwrap();
        writer.add_scalar("loss", 0.5, 4).unwrap();
        drop(writer); // the last handle writes the rest

        let found = events(&folder.path().join("new/deep"));
        let steps: Vec<i64> = found.iter().map(|event| event.step).collect();
        assert_eq!(steps, [0, 0, 1, 2, 1, 3, 4]);
        let what = |index: usize| found[index].what.clone().unwrap();
        assert_eq!(what(0), event::What::FileVersion("brain.Event:2".into()));
        let event::What::GraphDef(graph) = what(1) else { panic!("{:?}", what(1)) };
        let graph = proto::GraphDef::decode(graph).unwrap();
        let shapes = Attr::from_proto(&graph.node[0].attr["_output_shapes"]).unwrap();
        assert_eq!(shapes.to_string(), "[shape[?,3]]");
        let metadata = |index| match what(index) {
            event::What::Summary(summary) => summary.value[0].metadata.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(metadata(2).unwrap().plugin_data.unwrap().plugin_name, "text");
        assert_eq!(metadata(3), None, "dashboards need it once");
        let event::What::TaggedRunMetadata(run) = what(4) else { panic!("{:?}", what(4)) };
        assert!(proto::RunMetadata::decode(run.run_metadata).unwrap().step_stats.is_some());
        let event::What::SessionLog(log) = what(5) else { panic!("{:?}", what(5)) };
        assert_eq!(log.checkpoint_path, "/model.ckpt-3");
    }

    #[test]
    fn readers_see_what_was_flushed_and_what_is_due() {
        let folder = tempfile::tempdir().unwrap();
        let writer = FileWriter::create(folder.path()).unwrap();
        assert_eq!(events(folder.path()).len(), 1);
        (0..50).for_each(|step| writer.add_scalar("loss", 0.5, step).unwrap());
        writer.flush().unwrap();
        assert_eq!(events(folder.path()).len(), 51);

        let due = tempfile::tempdir().unwrap();
        let options = FileWriterOptions { flush_every: Duration::from_millis(5), ..Default::default() };
        let writer = FileWriter::create_with(due.path(), options).unwrap();
        writer.add_scalar("loss", 0.5, 1).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while events(due.path()).len() < 2 {
            assert!(Instant::now() < deadline, "nothing was flushed");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_closed_writer_says_so_and_goes_on_in_a_new_file() {
        let folder = tempfile::tempdir().unwrap();
        let writer = FileWriter::create(folder.path()).unwrap();
        writer.add_scalar("loss", 0.5, 1).unwrap();
        writer.close().unwrap();
        writer.close().unwrap();
        for refused in [writer.add_scalar("loss", 0.5, 2), writer.flush()] {
            let error = refused.unwrap_err();
            assert_eq!(error.code, Code::FailedPrecondition);
            assert!(error.message.ends_with("is closed; reopen it to add more"), "{error}");
        }
        writer.reopen().unwrap();
        writer.add_scalar("loss", 0.5, 3).unwrap();
        writer.close().unwrap();
        assert_eq!(event_files(&LocalFiles, folder.path()).unwrap().len(), 2);
        assert_eq!(events(folder.path()).iter().map(|event| event.step).collect::<Vec<_>>(), [0, 1, 0, 3]);
    }

    #[test]
    fn what_cannot_be_added_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let writer = FileWriter::create(folder.path()).unwrap();
        let metadata = RunMetadata::default();
        writer.add_run_metadata(&metadata, "one", 1).unwrap();
        assert_eq!(writer.add_run_metadata(&metadata, "one", 2).unwrap_err().code, Code::AlreadyExists);
        assert_eq!(writer.add_summary(&Tensor::from(1.0f32), 1).unwrap_err().code, Code::InvalidArgument);
        let error = writer.add_summary(&Tensor::from("\u{7f}"), 1).unwrap_err();
        assert!(error.message.contains("found no Summary message"), "{error}");
        let file = folder.path().join("file");
        std::fs::write(&file, b"").unwrap();
        let error = FileWriter::create(file.join("logs")).unwrap_err();
        assert!(error.message.contains("file/logs"), "{error}");
    }
}
