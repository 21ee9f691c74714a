//! Answers `tensorflow.WorkerService`: messages in, calls of a worker, messages out.

use crate::master_service::finish;
use crate::packed::{self, Sorted};
use crate::pieces::{Pieces, Writer};
use crate::request_ids::RequestIds;
use crate::server::{Call, Service, unknown_method};
use crate::{fields, freed, lend, push};
use bytes::Bytes;
use distributed::Worker;
use distributed::interface::{Partial, RegisterGraph, RunGraph, RunGraphReply, SessionHandle, WorkerInterface};
use framework::{BoxFuture, Connection, Delivery, Graph, RendezvousKey};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tensor::{Result, Tensor, internal, invalid};

/// Turns a message into a graph of ops that the worker knows.
type Import = dyn Fn(&proto::GraphDef) -> Result<Graph> + Send + Sync;

/// A worker behind gRPC.
pub struct WorkerService {
    worker: Arc<dyn WorkerInterface>,
    import: Box<Import>,
    requests: RequestIds,
}

impl WorkerService {
    /// Serves this worker.
    pub fn new(worker: Arc<Worker>) -> WorkerService {
        WorkerService::with_import(worker.clone(), move |graph| worker.import(graph))
    }

    /// Serves any worker; `import` reads the graphs that are to be registered.
    pub fn with_import(
        worker: Arc<dyn WorkerInterface>,
        import: impl Fn(&proto::GraphDef) -> Result<Graph> + Send + Sync + 'static,
    ) -> WorkerService {
        WorkerService { worker, import: Box::new(import), requests: RequestIds::default() }
    }

    async fn answer(&self, call: Call) -> Result<Vec<Bytes>> {
        let (method, message) = (call.method.as_str(), call.message);
        match method {
            "GetStatus" => self.get_status(message).await,
            "CreateWorkerSession" => self.create_worker_session(message, &call.connection).await,
            "DeleteWorkerSession" => self.delete_worker_session(message).await,
            "RegisterGraph" => self.register_graph(message).await,
            "DeregisterGraph" => self.deregister_graph(message).await,
            "RecvTensor" => self.recv_tensor(message).await,
            "CleanupGraph" => self.cleanup_graph(message).await,
            "CleanupAll" => self.cleanup_all(message).await,
            "Logging" => self.logging(message).await,
            // Answers are not kept, so there is nothing to let go of.
            "MarkRecvFinished" => finish(&proto::MarkRecvFinishedResponse {}, method),
            _ => Err(unknown_method()),
        }
    }

    async fn get_status(&self, message: Pieces) -> Result<Vec<Bytes>> {
        let device_attributes = self.worker.get_status(message.decode("a GetStatus request")?).await?;
        finish(&proto::GetStatusResponse { device_attributes }, "GetStatus")
    }

    async fn create_worker_session(&self, message: Pieces, connection: &Arc<Connection>) -> Result<Vec<Bytes>> {
        let request: proto::CreateWorkerSessionRequest = message.decode("a CreateWorkerSession request")?;
        let session = request.session_handle.clone();
        self.worker.create_worker_session(request).await?;
        self.worker.heard(&session, connection);
        finish(&proto::CreateWorkerSessionResponse {}, "CreateWorkerSession")
    }

    async fn delete_worker_session(&self, message: Pieces) -> Result<Vec<Bytes>> {
        let request: proto::DeleteWorkerSessionRequest = message.decode("a DeleteWorkerSession request")?;
        self.worker.delete_worker_session(request.session_handle).await?;
        freed::give_back();
        finish(&proto::DeleteWorkerSessionResponse {}, "DeleteWorkerSession")
    }

    async fn register_graph(&self, message: Pieces) -> Result<Vec<Bytes>> {
        let request: proto::RegisterGraphRequest = message.decode("a RegisterGraph request")?;
        let graph = (self.import)(&request.graph_def.unwrap_or_default())?;
        let config = proto::ConfigProto { graph_options: request.graph_options, ..Default::default() };
        let registered = self.worker.register_graph(RegisterGraph {
            session: session(request.session_handle, request.create_worker_session_called)?,
            graph,
            config: request.config_proto.unwrap_or(config),
            pushing: request.pushing.iter().map(|task| task.parse()).collect::<Result<_>>()?,
        });
        finish(&proto::RegisterGraphResponse { graph_handle: registered.await? }, "RegisterGraph")
    }

    async fn deregister_graph(&self, message: Pieces) -> Result<Vec<Bytes>> {
        let request: proto::DeregisterGraphRequest = message.decode("a DeregisterGraph request")?;
        let session = session(request.session_handle, request.create_worker_session_called)?;
        self.worker.deregister_graph(session, request.graph_handle).await?;
        finish(&proto::DeregisterGraphResponse {}, "DeregisterGraph")
    }

    async fn run_graph(self: Arc<Self>, mut call: Call) -> Result<Vec<Bytes>> {
        const SEND: u32 = 3;
        let message = std::mem::take(&mut call.message);
        let (request, sends) = fields::split::<proto::RunGraphRequest>(message, SEND, "a RunGraph request")?;
        let in_body = request.store_errors_in_response_body;
        match self.run_split_graph(request, sends, call).await {
            Err(error) if in_body => finish(
                &proto::RunGraphResponse {
                    status_code: error.code as i32,
                    status_error_message: error.message,
                    status_is_derived: error.derived,
                    ..Default::default()
                },
                "RunGraph",
            ),
            answer => answer,
        }
    }

    async fn run_split_graph(
        &self,
        request: proto::RunGraphRequest,
        sends: Vec<Pieces>,
        call: Call,
    ) -> Result<Vec<Bytes>> {
        const RECV: u32 = 1;
        let what = if request.is_partial { "PartialRunGraph (Worker)" } else { "RunGraph (Worker)" };
        self.requests.track(request.request_id, what)?;
        let options = request.exec_opts.unwrap_or_default();
        let mut send: Vec<_> = sends.into_iter().map(fields::named_tensor).collect::<Result<_>>()?;
        if !request.lent.is_empty() {
            send.extend(Box::pin(lend::read_all(request.lent, call.process)).await?);
        }
        let may_lend = request.may_lend && call.process.is_some();
        let reply = self.worker.run_graph(RunGraph {
            session: session(request.session_handle, request.create_worker_session_called)?,
            graph: request.graph_handle,
            step: request.step_id,
            send: send.into_iter().map(|(key, tensor)| (RendezvousKey::from_text(&key), tensor)).collect(),
            recv: request.recv_key.iter().map(|key| RendezvousKey::from_text(key)).collect(),
            trace: options.record_timeline,
            want_graphs: options.record_partition_graphs,
            deadline: call.deadline,
            partial: match (request.is_partial, request.is_last_partial_run) {
                (false, _) => None,
                (true, false) => Some(Partial::More),
                (true, true) => Some(Partial::Last),
            },
            connection: Some(call.connection),
            bring_to: (!request.bring_to.is_empty()).then(|| request.bring_to.parse()).transpose()?,
            bring_large: if may_lend { lend::TOGETHER_MAX } else { push::VALUE_MAX },
            is_held: false,
        });
        let RunGraphReply { recv, step_stats, graphs, brought } = reply.await?;
        if recv.len() != request.recv_key.len() {
            return Err(internal!("{} values were asked for, the graph gave {}", request.recv_key.len(), recv.len()));
        }
        let mut brought = Sorted::new(brought);
        let (brought_lent, loans) = if may_lend { brought.lend() } else { Default::default() };
        if !loans.is_empty() {
            call.kept.keep(loans);
        }
        let head = proto::RunGraphResponse {
            brought: brought.ready,
            brought_dead: brought.dead,
            brought_large: brought.large,
            brought_lent,
            step_stats: options.record_timeline.then_some(step_stats),
            partition_graph: graphs,
            ..Default::default()
        };
        let mut writer = Writer::default().message(&head);
        for (key, tensor) in request.recv_key.iter().zip(&recv) {
            writer.put_named_tensor_field(RECV, key, tensor);
        }
        if !brought.tensors.is_empty() {
            packed::put(&mut writer, packed::BROUGHT_VALUES, &brought.tensors);
        }
        writer.finish("RunGraph")
    }

    async fn recv_tensor(&self, message: Pieces) -> Result<Vec<Bytes>> {
        const TENSOR: u32 = 1;
        let request: proto::RecvTensorRequest = message.decode("a RecvTensor request")?;
        self.requests.track(request.request_id, "RecvTensor (GrpcWorker)")?;
        let key = RendezvousKey::from_text(&request.rendezvous_key);
        let (tensor, is_dead) = match self.worker.recv_tensor(request.step_id, key).await? {
            Delivery::Tensor(tensor) => (tensor, false),
            Delivery::Dead => (Tensor::from([0f32; 0]), true),
        };
        // What is short comes first: a receiver then knows all before the bytes it has to wait for.
        let head = proto::RecvTensorResponse { is_dead, send_start_micros: wall_micros(), ..Default::default() };
        let mut writer = Writer::default().message(&head);
        writer.put_tensor_field(TENSOR, &request.rendezvous_key, &tensor);
        writer.finish("RecvTensor")
    }

    async fn cleanup_graph(&self, message: Pieces) -> Result<Vec<Bytes>> {
        let request: proto::CleanupGraphRequest = message.decode("a CleanupGraph request")?;
        self.worker.cleanup_graph(request.step_id).await?;
        finish(&proto::CleanupGraphResponse {}, "CleanupGraph")
    }

    async fn cleanup_all(&self, message: Pieces) -> Result<Vec<Bytes>> {
        let request: proto::CleanupAllRequest = message.decode("a CleanupAll request")?;
        self.worker.cleanup_all(request.container).await?;
        finish(&proto::CleanupAllResponse {}, "CleanupAll")
    }

    async fn logging(&self, message: Pieces) -> Result<Vec<Bytes>> {
        let response = self.worker.logging(message.decode("a Logging request")?).await?;
        finish(&response, "Logging")
    }
}

impl Service for WorkerService {
    fn name(&self) -> &'static str {
        "tensorflow.WorkerService"
    }

    fn takes_long(&self, method: &str) -> bool {
        matches!(method, "RegisterGraph" | "DeleteWorkerSession" | "CleanupAll")
    }

    fn call(self: Arc<Self>, call: Call) -> BoxFuture<Result<Vec<Bytes>>> {
        // What runs often is apart from the others, which need more room.
        match call.method.as_str() {
            "RunGraph" => Box::pin(self.run_graph(call)),
            _ => Box::pin(async move { self.answer(call).await }),
        }
    }
}

/// Masters that never made a session share one without a name, whatever handle they give.
fn session(handle: SessionHandle, was_made: bool) -> Result<SessionHandle> {
    match (was_made, handle.is_empty()) {
        (true, true) => Err(invalid!("Session must be non-empty.")),
        (true, false) => Ok(handle),
        (false, _) => Ok(SessionHandle::new()),
    }
}

fn wall_micros() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as i64)
}
