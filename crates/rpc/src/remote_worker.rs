//! A worker in another process, asked over gRPC.

use crate::channel::{Channel, Lane, Outgoing};
use crate::fields::{self, Start};
use crate::forget::{self, EndedSteps};
use crate::grpc::message::{Broken, Incoming, prefix};
use crate::lend::{self, Borrower, Lender};
use crate::lent::{self, Loan};
use crate::lost;
use crate::packed;
use crate::pieces::{PREFIX, Pieces, Writer};
use crate::push;
use crate::server::SHORT_MAX;
use crate::small::SmallValues;
use bytes::Bytes;
use distributed::brief;
use distributed::interface::{
    Call, GraphHandle, Partial, Push, RegisterGraph, RunGraph, RunGraphReply, SessionHandle, WorkerInterface,
};
use framework::{Arrived, Asked, Delivery, Env, Receiver, RendezvousKey, SystemEnv};
use prost::Message;
use proto::LentTensor;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::{ArrivingTensor, Code, Error, Result, Tensor, internal};

/// Stands for a worker at the other end of a channel.
pub struct RemoteWorker {
    channel: Channel,
    small: Arc<SmallValues>,
    borrower: Borrower,
    lender: Lender,
    ended: EndedSteps,
    env: SystemEnv,
}

/// What is sent along with a call to run a graph must not hold up others.
const EARLY_BYTES_MAX: usize = 64 << 10;

/// How long a task may take to drop a session: its master does not wait for ever to close one.
const DELETE_TIME: Duration = Duration::from_secs(10);

impl RemoteWorker {
    /// The worker that this channel leads to.
    pub fn new(channel: Channel) -> RemoteWorker {
        RemoteWorker {
            small: SmallValues::new(channel.clone()),
            borrower: Borrower::new(channel.clone()),
            lender: Lender::new(channel.clone()),
            ended: EndedSteps::default(),
            channel,
            env: SystemEnv::default(),
        }
    }

    async fn ask<M: Message + Default>(
        &self,
        path: &'static str,
        request: impl Message,
        limit: Option<Duration>,
    ) -> Result<M> {
        let body = Writer::default().message(&request).finish(path)?;
        let answer = self.channel.unary(Outgoing { path, body, limit, lane: Lane::Control, tries: 1 }).await?;
        answer.decode("the answer")
    }

    async fn run(&self, mut request: RunGraph) -> Result<RunGraphReply> {
        let (lent, loans) = self.lender.lend(&mut request.send, RendezvousKey::as_str).await;
        let may_lend = request.bring_to.is_some() && self.borrower.can_borrow().await;
        let reply = self.run_with(&request, lent, may_lend).await;
        if !loans.is_empty() && reply.is_err() {
            self.lender.doubt();
        }
        reply
    }

    async fn run_with(&self, request: &RunGraph, lent: Vec<LentTensor>, may_lend: bool) -> Result<RunGraphReply> {
        const PATH: &str = "/tensorflow.WorkerService/RunGraph";
        let limit = request.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let body = encode_run_graph(request, lent, may_lend, fresh_id(&self.env))?;
        let call = Outgoing { path: PATH, body, limit, lane: Lane::Control, tries: 1 };
        let answer = match may_lend {
            // The call lasts until what came with the answer has been read.
            true => self.channel.call(call, read_answer_and_loans).await?,
            false => self.channel.call(call, read_answer).await?,
        };
        let RunAnswer { head, recv, large } = answer;
        in_body(head.status_code, head.status_error_message, head.status_is_derived)?;
        let (ready, dead, large_places) = (&head.brought, &head.brought_dead, &head.brought_large);
        let mut brought = packed::read(ready, dead, large_places, head.brought_values.into())?;
        for (place, read) in large {
            let tensor = read.map_err(|e| self.borrower.unreadable("what was brought", &e))?;
            brought.push((place, Arrived::Value(Delivery::Tensor(tensor))));
        }
        Ok(RunGraphReply {
            brought,
            recv: by_name(recv, request.recv.iter().map(RendezvousKey::as_str))?,
            step_stats: head.step_stats.unwrap_or_default(),
            graphs: head.partition_graph,
        })
    }

    async fn receive(&self, step: i64, key: RendezvousKey) -> Result<Delivery> {
        if self.small.may_have(&key)
            && let Arrived::Value(value) = self.small.receive(step, key.clone()).await?
        {
            return Ok(value);
        }
        // Boxed, because most values are small, and the rest of the call takes much room.
        Box::pin(self.receive_large(step, &key)).await
    }

    async fn receive_large(&self, step: i64, key: &RendezvousKey) -> Result<Delivery> {
        match self.borrower.can_borrow().await {
            true => self.borrower.take(step, key).await,
            false => self.receive_alone(step, key).await,
        }
    }

    async fn receive_alone(&self, step: i64, key: &RendezvousKey) -> Result<Delivery> {
        const PATH: &str = "/tensorflow.WorkerService/RecvTensor";
        let request = proto::RecvTensorRequest {
            step_id: step,
            rendezvous_key: key.as_str().to_string(),
            request_id: fresh_id(&self.env),
            ..Default::default()
        };
        let body = Writer::default().message(&request).finish(PATH)?;
        let call = Outgoing { path: PATH, body, limit: None, lane: Lane::Tensors, tries: 1 };
        self.channel.call(call, receive_tensor).await
    }
}

impl RemoteWorker {
    async fn send_parcel(&self, push: Push) -> Result<()> {
        let has_large = push.parcel.values.iter().any(|(_, arrived)| match arrived {
            Arrived::Alone => true,
            Arrived::Value(Delivery::Tensor(tensor)) => Loan::pays(tensor),
            Arrived::Value(Delivery::Dead) => false,
        });
        let (body, loans) = push::encode(push, self.lender.can_lend())?;
        let call = Outgoing { path: push::PATH, body, limit: None, lane: Lane::Control, tries: 1 };
        let answer = self.channel.unary(call).await;
        if answer.is_err() && !loans.is_empty() {
            self.lender.doubt();
        }
        drop(loans);
        if has_large {
            self.lender.find_out().await; // the next ones may then be lent
        }
        answer.map(drop)
    }

    async fn clean_up(&self, step: i64) -> Result<()> {
        if !self.channel.is_of_our_kind() {
            return self.clean_up_one(step).await;
        }
        let steps = self.ended.gather(step).await;
        if steps.is_empty() {
            return Ok(());
        }
        match forget::tell(&self.channel, &steps).await {
            // Not of our kind any more.
            Err(e) if e.code == Code::Unimplemented => {
                for step in steps {
                    self.clean_up_one(step).await?;
                }
                Ok(())
            }
            told => told,
        }
    }

    async fn clean_up_one(&self, step: i64) -> Result<()> {
        let request = proto::CleanupGraphRequest { step_id: step };
        let path = "/tensorflow.WorkerService/CleanupGraph";
        self.ask::<proto::CleanupGraphResponse>(path, request, None).await.map(drop)
    }
}

/// An answer to RunGraph.
struct RunAnswer {
    head: proto::RunGraphResponse,
    recv: Vec<Pieces>,
    /// What was lent, by its places.
    large: Vec<(u32, io::Result<Tensor>)>,
}

impl RunAnswer {
    fn new(answer: Pieces) -> Result<RunAnswer> {
        const RECV: u32 = 1;
        let (head, recv) = fields::split::<proto::RunGraphResponse>(answer, RECV, "the answer to RunGraph")?;
        Ok(RunAnswer { head, recv, large: Vec::new() })
    }
}

async fn read_answer(incoming: &mut Incoming) -> Result<Option<RunAnswer>, Broken> {
    let Some(answer) = incoming.message().await? else { return Ok(None) };
    Ok(Some(RunAnswer::new(answer)?))
}

async fn read_answer_and_loans(incoming: &mut Incoming) -> Result<Option<RunAnswer>, Broken> {
    let Some(answer) = incoming.message_and_leave().await? else { return Ok(None) };
    let mut answer = RunAnswer::new(answer)?;
    for lent in std::mem::take(&mut answer.head.brought_lent) {
        answer.large.push((lent.place, lent::read(&lent).await?));
    }
    Ok(Some(answer))
}

/// Reads an answer to RecvTensor. A large tensor goes into its own memory as it comes, so that it never exists twice.
async fn receive_tensor(incoming: &mut Incoming) -> Result<Option<Delivery>, Broken> {
    if let Some(tensor) = incoming.take_tensor() {
        return Ok(Some(Delivery::Tensor(tensor.finish()?)));
    }
    let mut pieces = Pieces::default();
    let mut announced = None;
    while let Some(chunk) = incoming.chunk().await? {
        pieces.gather(chunk);
        if announced.is_none() && pieces.len() >= PREFIX {
            announced = Some(prefix(&mut pieces)?);
        }
        let Some((is_packed, len)) = announced else { continue };
        if is_packed || pieces.len() >= len {
            break;
        }
        let mut rest = pieces.clone();
        match fields::start_of_recv_tensor(&mut rest, len) {
            Start::Incomplete => continue,
            Start::Other => break,
            Start::Content(tensor) => return receive_content(incoming, rest, tensor).await.map(Some),
        }
    }
    match incoming.message_after(pieces, announced).await? {
        Some(message) => Ok(Some(decode_received(message)?)),
        None => Ok(None),
    }
}

async fn receive_content(
    incoming: &mut Incoming,
    first: Pieces,
    mut tensor: ArrivingTensor,
) -> Result<Delivery, Broken> {
    if tensor.missing() > SHORT_MAX {
        brief::enough_time().await;
    }
    for chunk in first {
        tensor.push(&chunk)?;
    }
    while let Some(chunk) = incoming.chunk().await? {
        tensor.push(&chunk)?;
    }
    Ok(Delivery::Tensor(tensor.finish()?))
}

fn decode_received(message: Pieces) -> Result<Delivery> {
    const TENSOR: u32 = 1;
    let (head, tensors) = fields::split::<proto::RecvTensorResponse>(message, TENSOR, "the answer to RecvTensor")?;
    if head.is_dead {
        return Ok(Delivery::Dead);
    }
    let found = tensors.into_iter().next_back().unwrap_or_default();
    Ok(Delivery::Tensor(fields::tensor(found)?))
}

impl WorkerInterface for RemoteWorker {
    fn get_status(&self, request: proto::GetStatusRequest) -> Call<'_, Vec<proto::DeviceAttributes>> {
        Box::pin(async move {
            let answer: proto::GetStatusResponse =
                self.ask("/tensorflow.WorkerService/GetStatus", request, None).await?;
            Ok(answer.device_attributes)
        })
    }

    fn create_worker_session(&self, request: proto::CreateWorkerSessionRequest) -> Call<'_, ()> {
        Box::pin(async move {
            let path = "/tensorflow.WorkerService/CreateWorkerSession";
            self.ask::<proto::CreateWorkerSessionResponse>(path, request, None).await.map(drop)
        })
    }

    fn lose_session(&self, session: SessionHandle) -> Call<'_, ()> {
        Box::pin(async move {
            // Another kind of task does not care who takes part.
            if self.channel.is_of_our_kind() { lost::tell(&self.channel, session).await } else { Ok(()) }
        })
    }

    fn delete_worker_session(&self, session: SessionHandle) -> Call<'_, ()> {
        Box::pin(async move {
            let path = "/tensorflow.WorkerService/DeleteWorkerSession";
            let request = proto::DeleteWorkerSessionRequest { session_handle: session };
            self.ask::<proto::DeleteWorkerSessionResponse>(path, request, Some(DELETE_TIME)).await.map(drop)
        })
    }

    fn register_graph(&self, request: RegisterGraph) -> Call<'_, GraphHandle> {
        Box::pin(async move {
            let message = proto::RegisterGraphRequest {
                create_worker_session_called: !request.session.is_empty(),
                session_handle: request.session,
                graph_def: Some(framework::graph::export::export(&request.graph)),
                graph_options: request.config.graph_options.clone(),
                config_proto: Some(request.config),
                pushing: request.pushing.iter().map(ToString::to_string).collect(),
                ..Default::default()
            };
            let answer: proto::RegisterGraphResponse =
                self.ask("/tensorflow.WorkerService/RegisterGraph", message, None).await?;
            self.lender.find_out().await;
            Ok(answer.graph_handle)
        })
    }

    fn deregister_graph(&self, session: SessionHandle, graph: GraphHandle) -> Call<'_, ()> {
        Box::pin(async move {
            let path = "/tensorflow.WorkerService/DeregisterGraph";
            let request = proto::DeregisterGraphRequest {
                create_worker_session_called: !session.is_empty(),
                session_handle: session,
                graph_handle: graph,
            };
            self.ask::<proto::DeregisterGraphResponse>(path, request, None).await.map(drop)
        })
    }

    fn run_graph(&self, request: RunGraph) -> Call<'_, RunGraphReply> {
        Box::pin(self.run(request))
    }

    fn can_bring(&self) -> bool {
        self.channel.is_of_our_kind()
    }

    fn early_bytes_max(&self) -> usize {
        match (self.channel.is_of_our_kind(), self.lender.can_lend()) {
            (false, _) => 0,
            (true, false) => EARLY_BYTES_MAX,
            (true, true) => lend::TOGETHER_MAX,
        }
    }

    fn push_bytes_max(&self) -> usize {
        if self.lender.can_lend() { lend::TOGETHER_MAX } else { push::VALUE_MAX }
    }

    fn push(&self, push: Push) -> Call<'_, ()> {
        Box::pin(self.send_parcel(push))
    }

    fn receive_group(&self, step: i64, keys: &Arc<[RendezvousKey]>, receiver: Arc<dyn Receiver>) -> Option<Asked> {
        self.small.receive_group(step, keys, receiver)
    }

    fn recv_tensor(&self, step: i64, key: RendezvousKey) -> Call<'_, Delivery> {
        Box::pin(self.receive(step, key))
    }

    fn cleanup_graph(&self, step: i64) -> Call<'_, ()> {
        Box::pin(self.clean_up(step))
    }

    fn cleanup_all(&self, containers: Vec<String>) -> Call<'_, ()> {
        Box::pin(async move {
            let path = "/tensorflow.WorkerService/CleanupAll";
            let request = proto::CleanupAllRequest { container: containers };
            self.ask::<proto::CleanupAllResponse>(path, request, None).await.map(drop)
        })
    }

    fn logging(&self, request: proto::LoggingRequest) -> Call<'_, proto::LoggingResponse> {
        Box::pin(self.ask("/tensorflow.WorkerService/Logging", request, None))
    }
}

fn encode_run_graph(request: &RunGraph, lent: Vec<LentTensor>, may_lend: bool, request_id: i64) -> Result<Vec<Bytes>> {
    const SEND: u32 = 3;
    let head = proto::RunGraphRequest {
        session_handle: request.session.clone(),
        create_worker_session_called: !request.session.is_empty(),
        graph_handle: request.graph.clone(),
        step_id: request.step,
        recv_key: request.recv.iter().map(|key| key.as_str().to_string()).collect(),
        exec_opts: Some(proto::ExecutorOpts {
            record_timeline: request.trace,
            record_partition_graphs: request.want_graphs,
            ..Default::default()
        }),
        is_partial: request.partial.is_some(),
        is_last_partial_run: request.partial == Some(Partial::Last),
        store_errors_in_response_body: true,
        request_id,
        bring_to: request.bring_to.as_ref().map(ToString::to_string).unwrap_or_default(),
        may_lend,
        lent,
        ..Default::default()
    };
    let mut writer = Writer::default().message(&head);
    for (key, tensor) in &request.send {
        writer.put_named_tensor_field(SEND, key.as_str(), tensor);
    }
    writer.finish("RunGraph")
}

/// A number for a request that is to be carried out once.
pub(crate) fn fresh_id(env: &SystemEnv) -> i64 {
    match env.random_u64() as i64 {
        0 => 1, // would mean: not tracked
        id => id,
    }
}

/// The failure that an answer reports in its body.
pub(crate) fn in_body(code: i32, message: String, derived: bool) -> Result<()> {
    Code::from_i32(code).map_or(Ok(()), |code| Err(Error { code, message, derived }))
}

/// Values that came under their names in any order, in the order in which they were asked for.
pub(crate) fn by_name<'a>(found: Vec<Pieces>, wanted: impl Iterator<Item = &'a str>) -> Result<Vec<Tensor>> {
    let found = found.into_iter().map(fields::named_tensor).collect::<Result<HashMap<String, Tensor>>>()?;
    let missing = |name: &str| internal!("the answer does not hold '{name}', which was asked for");
    wanted.map(|name| found.get(name).cloned().ok_or_else(|| missing(name))).collect()
}
