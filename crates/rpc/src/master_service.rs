//! Answers `tensorflow.MasterService`: messages in, calls of a master, messages out.

use crate::pieces::{Pieces, Writer};
use crate::request_ids::RequestIds;
use crate::server::{Call, Service, unknown_method};
use crate::{fields, freed, lend};
use bytes::Bytes;
use distributed::interface::{MasterInterface, RunStep, RunStepReply};
use framework::{BoxFuture, Connection};
use prost::Message;
use std::mem::take;
use std::sync::Arc;
use tensor::{Error, Result, Tensor, internal};

/// A master behind gRPC.
pub struct MasterService {
    master: Arc<dyn MasterInterface>,
    requests: RequestIds,
}

impl MasterService {
    /// Serves this master.
    pub fn new(master: Arc<dyn MasterInterface>) -> MasterService {
        MasterService { master, requests: RequestIds::default() }
    }

    async fn answer(&self, call: Call) -> Result<Vec<Bytes>> {
        let (method, message) = (call.method.as_str(), call.message);
        match method {
            "CreateSession" => self.create_session(message, &call.connection).await,
            "ExtendSession" => self.extend_session(message, &call.connection).await,
            "PartialRunSetup" => self.partial_run_setup(message).await,
            "MakeCallable" => self.make_callable(message).await,
            "RunCallable" => self.run_callable(message, &call.connection).await,
            "ReleaseCallable" => self.release_callable(message).await,
            "CloseSession" => self.close_session(message).await,
            "ListDevices" => self.list_devices(message).await,
            "Reset" => self.reset(message).await,
            _ => Err(unknown_method()),
        }
    }

    async fn create_session(&self, message: Pieces, connection: &Arc<Connection>) -> Result<Vec<Bytes>> {
        let request: proto::CreateSessionRequest = message.decode("a CreateSession request")?;
        let session_handle = self.master.create_session(request).await?;
        self.master.heard(&session_handle, connection);
        finish(&proto::CreateSessionResponse { session_handle, ..Default::default() }, "CreateSession")
    }

    async fn extend_session(&self, message: Pieces, connection: &Arc<Connection>) -> Result<Vec<Bytes>> {
        let request: proto::ExtendSessionRequest = message.decode("an ExtendSession request")?;
        self.master.heard(&request.session_handle, connection);
        let graph = request.graph_def.unwrap_or_default();
        let extended = self.master.extend_session(request.session_handle, graph, request.current_graph_version);
        finish(&proto::ExtendSessionResponse { new_graph_version: extended.await? }, "ExtendSession")
    }

    async fn run_step(self: Arc<Self>, call: Call) -> Result<Vec<Bytes>> {
        const FEED: u32 = 2;
        let (mut request, feeds) = fields::split::<proto::RunStepRequest>(call.message, FEED, "a RunStep request")?;
        self.master.heard(&request.session_handle, &call.connection);
        let in_body = request.store_errors_in_response_body;
        match self.run_split_step(&mut request, feeds, call.process).await {
            Err(error) if in_body => finish(
                &proto::RunStepResponse {
                    status_code: error.code as i32,
                    status_error_message: error.message,
                    ..Default::default()
                },
                "RunStep",
            ),
            answer => answer,
        }
    }

    async fn run_split_step(
        &self,
        request: &mut proto::RunStepRequest,
        feeds: Vec<Pieces>,
        process: Option<u32>,
    ) -> Result<Vec<Bytes>> {
        const TENSOR: u32 = 1;
        self.requests.track(request.request_id, "RunStep (Master)")?;
        let mut feeds: Vec<_> = feeds.into_iter().map(fields::named_tensor).collect::<Result<_>>()?;
        if !request.lent_feed.is_empty() {
            feeds.extend(Box::pin(lend::read_all(take(&mut request.lent_feed), process)).await?);
        }
        let reply = self.master.run_step(RunStep {
            session: take(&mut request.session_handle),
            feeds,
            fetches: request.fetch.clone(),
            targets: take(&mut request.target),
            options: request.options.take().unwrap_or_default(),
            partial_run: take(&mut request.partial_run_handle),
        });
        let RunStepReply { fetches, metadata } = reply.await?;
        check_count(&request.fetch, &fetches)?;
        let head = proto::RunStepResponse { metadata: Some(metadata), ..Default::default() };
        let mut writer = Writer::default().message(&head);
        for (name, tensor) in request.fetch.iter().zip(&fetches) {
            writer.put_named_tensor_field(TENSOR, name, tensor);
        }
        writer.finish("RunStep")
    }

    async fn partial_run_setup(&self, message: Pieces) -> Result<Vec<Bytes>> {
        let request: proto::PartialRunSetupRequest = message.decode("a PartialRunSetup request")?;
        self.requests.track(request.request_id, "PartialRunSetup (Master)")?;
        let setup = self.master.partial_run_setup(request.session_handle, request.feed, request.fetch, request.target);
        finish(&proto::PartialRunSetupResponse { partial_run_handle: setup.await? }, "PartialRunSetup")
    }

    async fn make_callable(&self, message: Pieces) -> Result<Vec<Bytes>> {
        let request: proto::MakeCallableRequest = message.decode("a MakeCallable request")?;
        self.requests.track(request.request_id, "MakeCallable (Master)")?;
        let made = self.master.make_callable(request.session_handle, request.options.unwrap_or_default());
        finish(&proto::MakeCallableResponse { handle: made.await? }, "MakeCallable")
    }

    async fn run_callable(&self, message: Pieces, connection: &Arc<Connection>) -> Result<Vec<Bytes>> {
        const FEED: u32 = 3;
        const FETCH: u32 = 1;
        let (request, feeds) = fields::split::<proto::RunCallableRequest>(message, FEED, "a RunCallable request")?;
        self.master.heard(&request.session_handle, connection);
        self.requests.track(request.request_id, "RunCallable (Master)")?;
        let feeds = feeds.into_iter().map(fields::tensor).collect::<Result<_>>()?;
        let reply = self.master.run_callable(request.session_handle, request.handle, feeds).await?;
        let head = proto::RunCallableResponse { metadata: Some(reply.metadata), ..Default::default() };
        let mut writer = Writer::default().message(&head);
        for (i, tensor) in reply.fetches.iter().enumerate() {
            writer.put_tensor_field(FETCH, &format!("fetch {i}"), tensor);
        }
        writer.finish("RunCallable")
    }

    async fn release_callable(&self, message: Pieces) -> Result<Vec<Bytes>> {
        let request: proto::ReleaseCallableRequest = message.decode("a ReleaseCallable request")?;
        self.master.release_callable(request.session_handle, request.handle).await?;
        finish(&proto::ReleaseCallableResponse {}, "ReleaseCallable")
    }

    async fn close_session(&self, message: Pieces) -> Result<Vec<Bytes>> {
        let request: proto::CloseSessionRequest = message.decode("a CloseSession request")?;
        self.master.close_session(request.session_handle).await?;
        freed::give_back(); // a session's graphs are many small things
        finish(&proto::CloseSessionResponse {}, "CloseSession")
    }

    async fn list_devices(&self, message: Pieces) -> Result<Vec<Bytes>> {
        let request: proto::ListDevicesRequest = message.decode("a ListDevices request")?;
        let list = self.master.list_devices(request.session_handle).await?;
        finish(&proto::ListDevicesResponse { local_device: list.local, remote_device: list.remote }, "ListDevices")
    }

    async fn reset(&self, message: Pieces) -> Result<Vec<Bytes>> {
        let request: proto::ResetRequest = message.decode("a Reset request")?;
        self.master.reset(request.container, request.device_filters).await?;
        finish(&proto::ResetResponse {}, "Reset")
    }
}

impl Service for MasterService {
    fn name(&self) -> &'static str {
        "tensorflow.MasterService"
    }

    fn takes_long(&self, method: &str) -> bool {
        !matches!(method, "RunStep" | "RunCallable")
    }

    fn call(self: Arc<Self>, call: Call) -> BoxFuture<Result<Vec<Bytes>>> {
        // What runs often is apart from the others, which need more room.
        match call.method.as_str() {
            "RunStep" => Box::pin(self.run_step(call)),
            _ => Box::pin(async move { self.answer(call).await }),
        }
    }
}

/// A whole message for the wire.
pub(crate) fn finish(message: &impl Message, method: &str) -> Result<Vec<Bytes>> {
    Writer::default().message(message).finish(method)
}

/// A client takes a missing value for an empty one, so it must not come to that.
fn check_count(wanted: &[String], found: &[Tensor]) -> Result<(), Error> {
    if wanted.len() == found.len() {
        return Ok(());
    }
    Err(internal!("{} values were to be fetched, the step gave {}", wanted.len(), found.len()))
}
