//! Answers `ferroflow.Task`, which only our own tasks know: how they are, and the request to stop.

use crate::channel::{Channel, Lane, Outgoing};
use crate::master_service::finish;
use crate::pieces::Writer;
use crate::server::{Call, Service, unknown_method};
use bytes::Bytes;
use framework::BoxFuture;
use prost::Message;
use proto::ferroflow::{SignOffRequest, SignOffResponse, StatusRequest, StatusResponse, StopRequest, StopResponse};
use std::sync::Arc;
use std::time::Duration;
use tensor::Result;

/// What a task can tell of itself, and be told.
pub trait TaskStatus: Send + Sync + 'static {
    /// How the task is at this moment.
    fn status(&self) -> StatusResponse;
    /// Asks it to let calls under way end within this time, if one is given, and then to exit. Returns at once.
    fn stop(&self, drain: Option<Duration>);
    /// Hears that another task has done its work.
    fn signed_off(&self, task: &str) -> Result<()>;
}

/// A task behind gRPC.
pub struct TaskService {
    task: Arc<dyn TaskStatus>,
}

impl TaskService {
    /// Serves this task.
    pub fn new(task: Arc<dyn TaskStatus>) -> TaskService {
        TaskService { task }
    }

    fn answer(&self, call: Call) -> Result<Vec<Bytes>> {
        match call.method.as_str() {
            "Status" => finish(&self.task.status(), "Status"),
            "Stop" => {
                let request: StopRequest = call.message.decode("a Stop request")?;
                let drain = u64::try_from(request.drain_micros).ok().filter(|&micros| micros > 0);
                self.task.stop(drain.map(Duration::from_micros));
                finish(&StopResponse {}, "Stop")
            }
            "SignOff" => {
                let request: SignOffRequest = call.message.decode("a SignOff request")?;
                self.task.signed_off(&request.task)?;
                finish(&SignOffResponse {}, "SignOff")
            }
            _ => Err(unknown_method()),
        }
    }
}

impl Service for TaskService {
    fn name(&self) -> &'static str {
        "ferroflow.Task"
    }

    fn takes_long(&self, _: &str) -> bool {
        false
    }

    fn call(self: Arc<Self>, call: Call) -> BoxFuture<Result<Vec<Bytes>>> {
        Box::pin(async move { self.answer(call) })
    }
}

/// A task in another process, asked over gRPC.
pub struct RemoteTask {
    channel: Channel,
    limit: Duration,
}

impl RemoteTask {
    /// The task at `host:port`, with or without `grpc://` before it; each question may take this long.
    pub fn new(target: &str, limit: Duration) -> RemoteTask {
        RemoteTask { channel: Channel::new(None, target.strip_prefix("grpc://").unwrap_or(target)), limit }
    }

    /// How the task is.
    pub async fn status(&self) -> Result<StatusResponse> {
        self.ask("/ferroflow.Task/Status", &StatusRequest {}).await
    }

    /// Asks the task to stop; it has agreed when this ends.
    pub async fn stop(&self, drain: Option<Duration>) -> Result<()> {
        let drain_micros = drain.map_or(0, |drain| i64::try_from(drain.as_micros()).unwrap_or(i64::MAX));
        let _: StopResponse = self.ask("/ferroflow.Task/Stop", &StopRequest { drain_micros }).await?;
        Ok(())
    }

    /// Tells the task that another one has done its work.
    pub async fn sign_off(&self, task: &str) -> Result<()> {
        let _: SignOffResponse = self.ask("/ferroflow.Task/SignOff", &SignOffRequest { task: task.into() }).await?;
        Ok(())
    }

    async fn ask<M: Message + Default>(&self, path: &'static str, request: &impl Message) -> Result<M> {
        let body = Writer::default().message(request).finish(path)?;
        let call = Outgoing { path, body, limit: Some(self.limit), lane: Lane::Control, tries: 1 };
        self.channel.unary(call).await?.decode("the answer")
    }
}
