//! What a step sends to another task, as one call (`/ferroflow.Tensors/Push`).
//!
//! Only tasks of our own kind know the call, and a master tells them that they are. Small values stand in it, packed. Large ones
//! stay in the caller's memory and are read from there, if that is possible; the answer says that they have been. Of what is
//! larger still the call only says that it is there.

use crate::fields;
use crate::lend;
use crate::lent::Loan;
use crate::master_service::finish;
use crate::packed::{self, Sorted};
use crate::pieces::Writer;
use crate::server::Call;
use bytes::Bytes;
use distributed::interface::{Parcel, Push, WorkerInterface};
use framework::{Arrived, Delivery};
use proto::LentTensor;
use tensor::Result;

pub(crate) const PATH: &str = "/ferroflow.Tensors/Push";
const VALUES: u32 = 1;

/// A value that is larger does not stand in a message with others: it is lent, or asked for. Asked for, it takes the way there
/// and back once more, but is read from the socket right into its memory. Over TCP on one machine, replicas train a tenth to
/// a quarter faster if their 313 KB come unasked, and values of a megabyte come a tenth slower.
pub(crate) const VALUE_MAX: usize = 512 << 10;

/// Values of a step, by their places in a list of keys. Tensors stand packed in field 1, in the order of `ready`.
#[derive(Clone, PartialEq, prost::Message)]
struct PushRequest {
    #[prost(int64, tag = "2")]
    step_id: i64,
    #[prost(string, tag = "3")]
    session_handle: String,
    #[prost(fixed64, tag = "4")]
    list: u64,
    #[prost(uint32, repeated, tag = "5")]
    ready: Vec<u32>,
    /// Values of branches that were not taken.
    #[prost(uint32, repeated, tag = "6")]
    dead: Vec<u32>,
    /// Values to be asked for one by one.
    #[prost(uint32, repeated, tag = "7")]
    large: Vec<u32>,
    /// Values in the caller's memory, which stay there until it has the answer.
    #[prost(message, repeated, tag = "8")]
    lent: Vec<LentTensor>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PushResponse {}

/// A call as it is sent, and what is to be kept until it is answered.
pub(crate) fn encode(push: Push, may_lend: bool) -> Result<(Vec<Bytes>, Vec<Loan>)> {
    let mut values = Sorted::new(push.parcel.values);
    let (lent, loans) = if may_lend { values.lend() } else { Default::default() };
    let head = PushRequest {
        step_id: push.step,
        session_handle: push.session,
        list: push.parcel.list,
        ready: values.ready,
        dead: values.dead,
        large: values.large,
        lent,
    };
    let mut writer = Writer::default().message(&head);
    if !values.tensors.is_empty() {
        packed::put(&mut writer, VALUES, &values.tensors);
    }
    Ok((writer.finish("Push")?, loans))
}

/// Takes what a call brings.
pub(crate) async fn take(worker: &dyn WorkerInterface, call: Call) -> Result<Vec<Bytes>> {
    let (head, packed) = fields::split::<PushRequest>(call.message, VALUES, "a Push request")?;
    let packed = packed.into_iter().next_back().unwrap_or_default();
    let mut values = packed::read(&head.ready, &head.dead, &head.large, packed)?;
    for lent in head.lent {
        let place = lent.place;
        let tensor = lend::read_one(lent, call.process, "a value that was sent").await?;
        values.push((place, Arrived::Value(Delivery::Tensor(tensor))));
    }
    let parcel = Parcel { list: head.list, values };
    worker.push(Push { session: head.session_handle, step: head.step_id, parcel }).await?;
    finish(&PushResponse {}, "Push")
}
