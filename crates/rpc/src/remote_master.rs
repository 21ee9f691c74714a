//! A master in another process, asked over gRPC.

use crate::channel::{Channel, Lane, Outgoing};
use crate::fields;
use crate::lend::Lender;
use crate::pieces::Writer;
use crate::remote_worker::{by_name, fresh_id, in_body};
use bytes::Bytes;
use distributed::interface::{Call, DeviceList, MasterInterface, RunStep, RunStepReply, SessionHandle};
use framework::SystemEnv;
use prost::Message;
use proto::LentTensor;
use std::time::Duration;
use tensor::{Result, Tensor};

/// Stands for a master at the other end of a channel.
pub struct RemoteMaster {
    channel: Channel,
    lender: Lender,
    env: SystemEnv,
    options: RemoteOptions,
}

/// How often a master that was there before is tried; with the pauses between, about two seconds.
const TRIES: u32 = 10;

/// How long to wait.
#[derive(Clone, Copy, Debug)]
pub struct RemoteOptions {
    /// For a server that is not up yet, when a session is made.
    pub patience: Duration,
    /// For every other call, unless a run says otherwise; `None` waits until the peer is gone.
    pub operation_timeout: Option<Duration>,
}

impl Default for RemoteOptions {
    fn default() -> RemoteOptions {
        RemoteOptions { patience: Duration::from_secs(30), operation_timeout: None }
    }
}

impl RemoteMaster {
    /// The master at `host:port`, with or without `grpc://` before it. Nothing is sent yet.
    pub fn new(target: &str, options: RemoteOptions) -> RemoteMaster {
        let address = target.strip_prefix("grpc://").unwrap_or(target);
        let channel = Channel::for_client(address);
        RemoteMaster { lender: Lender::new(channel.clone()), channel, env: SystemEnv::default(), options }
    }

    async fn ask<M: Message + Default>(&self, path: &'static str, request: impl Message) -> Result<M> {
        let body = Writer::default().message(&request).finish(path)?;
        let limit = self.options.operation_timeout;
        let answer = self.channel.unary(Outgoing { path, body, limit, lane: Lane::Control, tries: TRIES }).await?;
        answer.decode("the answer")
    }

    async fn run(&self, mut request: RunStep) -> Result<RunStepReply> {
        let limit = match request.options.timeout_in_ms {
            ms if ms > 0 => Some(Duration::from_millis(ms as u64)),
            _ => self.options.operation_timeout,
        };
        let (lent_feed, loans) = self.lender.lend(&mut request.feeds, String::as_str).await;
        let reply = self.run_with(&request, lent_feed, limit).await;
        if !loans.is_empty() && reply.is_err() {
            self.lender.doubt();
        }
        reply
    }

    async fn run_with(
        &self,
        request: &RunStep,
        lent_feed: Vec<LentTensor>,
        limit: Option<Duration>,
    ) -> Result<RunStepReply> {
        const PATH: &str = "/tensorflow.MasterService/RunStep";
        const TENSOR: u32 = 1;
        let body = encode_run_step(request, lent_feed, fresh_id(&self.env), limit)?;
        let answer =
            self.channel.unary(Outgoing { path: PATH, body, limit, lane: Lane::Control, tries: TRIES }).await?;
        let (head, tensors) = fields::split::<proto::RunStepResponse>(answer, TENSOR, "the answer to RunStep")?;
        in_body(head.status_code, head.status_error_message, false)?;
        let fetches = by_name(tensors, request.fetches.iter().map(String::as_str))?;
        Ok(RunStepReply { fetches, metadata: head.metadata.unwrap_or_default() })
    }

    async fn call(&self, session: SessionHandle, callable: i64, feeds: Vec<Tensor>) -> Result<RunStepReply> {
        const PATH: &str = "/tensorflow.MasterService/RunCallable";
        const FEED: u32 = 3;
        const FETCH: u32 = 1;
        let head = proto::RunCallableRequest {
            session_handle: session,
            handle: callable,
            request_id: fresh_id(&self.env),
            ..Default::default()
        };
        let mut writer = Writer::default().message(&head);
        for (i, tensor) in feeds.iter().enumerate() {
            writer.put_tensor_field(FEED, &format!("feed {i}"), tensor);
        }
        let (body, limit) = (writer.finish("RunCallable")?, self.options.operation_timeout);
        let answer =
            self.channel.unary(Outgoing { path: PATH, body, limit, lane: Lane::Control, tries: TRIES }).await?;
        let (head, tensors) = fields::split::<proto::RunCallableResponse>(answer, FETCH, "the answer to RunCallable")?;
        let fetches = tensors.into_iter().map(fields::tensor).collect::<Result<_>>()?;
        Ok(RunStepReply { fetches, metadata: head.metadata.unwrap_or_default() })
    }
}

impl MasterInterface for RemoteMaster {
    fn create_session(&self, request: proto::CreateSessionRequest) -> Call<'_, SessionHandle> {
        Box::pin(async move {
            self.channel.wait_until_ready(self.options.patience).await?;
            let answer: proto::CreateSessionResponse =
                self.ask("/tensorflow.MasterService/CreateSession", request).await?;
            Ok(answer.session_handle)
        })
    }

    fn extend_session(&self, session: SessionHandle, graph: proto::GraphDef, version: i64) -> Call<'_, i64> {
        Box::pin(async move {
            let request = proto::ExtendSessionRequest {
                session_handle: session,
                graph_def: Some(graph),
                current_graph_version: version,
            };
            let answer: proto::ExtendSessionResponse =
                self.ask("/tensorflow.MasterService/ExtendSession", request).await?;
            Ok(answer.new_graph_version)
        })
    }

    fn run_step(&self, request: RunStep) -> Call<'_, RunStepReply> {
        Box::pin(self.run(request))
    }

    fn partial_run_setup(
        &self,
        session: SessionHandle,
        feeds: Vec<String>,
        fetches: Vec<String>,
        targets: Vec<String>,
    ) -> Call<'_, String> {
        Box::pin(async move {
            let request = proto::PartialRunSetupRequest {
                session_handle: session,
                feed: feeds,
                fetch: fetches,
                target: targets,
                request_id: fresh_id(&self.env),
            };
            let answer: proto::PartialRunSetupResponse =
                self.ask("/tensorflow.MasterService/PartialRunSetup", request).await?;
            Ok(answer.partial_run_handle)
        })
    }

    fn make_callable(&self, session: SessionHandle, options: proto::CallableOptions) -> Call<'_, i64> {
        Box::pin(async move {
            let request = proto::MakeCallableRequest {
                session_handle: session,
                options: Some(options),
                request_id: fresh_id(&self.env),
            };
            let answer: proto::MakeCallableResponse =
                self.ask("/tensorflow.MasterService/MakeCallable", request).await?;
            Ok(answer.handle)
        })
    }

    fn run_callable(&self, session: SessionHandle, callable: i64, feeds: Vec<Tensor>) -> Call<'_, RunStepReply> {
        Box::pin(self.call(session, callable, feeds))
    }

    fn release_callable(&self, session: SessionHandle, callable: i64) -> Call<'_, ()> {
        Box::pin(async move {
            let request = proto::ReleaseCallableRequest { session_handle: session, handle: callable };
            let path = "/tensorflow.MasterService/ReleaseCallable";
            self.ask::<proto::ReleaseCallableResponse>(path, request).await.map(drop)
        })
    }

    fn close_session(&self, session: SessionHandle) -> Call<'_, ()> {
        Box::pin(async move {
            let request = proto::CloseSessionRequest { session_handle: session };
            let path = "/tensorflow.MasterService/CloseSession";
            self.ask::<proto::CloseSessionResponse>(path, request).await.map(drop)
        })
    }

    fn list_devices(&self, session: SessionHandle) -> Call<'_, DeviceList> {
        Box::pin(async move {
            let request = proto::ListDevicesRequest { session_handle: session };
            let answer: proto::ListDevicesResponse = self.ask("/tensorflow.MasterService/ListDevices", request).await?;
            Ok(DeviceList { local: answer.local_device, remote: answer.remote_device })
        })
    }

    fn reset(&self, containers: Vec<String>, device_filters: Vec<String>) -> Call<'_, ()> {
        Box::pin(async move {
            let request = proto::ResetRequest { container: containers, device_filters };
            let path = "/tensorflow.MasterService/Reset";
            self.ask::<proto::ResetResponse>(path, request).await.map(drop)
        })
    }
}

fn encode_run_step(
    request: &RunStep,
    lent_feed: Vec<LentTensor>,
    request_id: i64,
    limit: Option<Duration>,
) -> Result<Vec<Bytes>> {
    const FEED: u32 = 2;
    let mut options = request.options.clone();
    options.timeout_in_ms = limit.map_or(0, |limit| limit.as_millis() as i64);
    let head = proto::RunStepRequest {
        session_handle: request.session.clone(),
        fetch: request.fetches.clone(),
        target: request.targets.clone(),
        options: Some(options),
        partial_run_handle: request.partial_run.clone(),
        store_errors_in_response_body: true,
        request_id,
        lent_feed,
        ..Default::default()
    };
    let mut writer = Writer::default().message(&head);
    for (name, tensor) in &request.feeds {
        writer.put_named_tensor_field(FEED, name, tensor);
    }
    writer.finish("RunStep")
}
