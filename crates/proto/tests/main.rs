//! Recorded calls between TensorFlow's own processes decode, and encode again without losing a byte.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, Kind};
use proto::*;
use serde_json::Value;

type Recode = fn(&[u8]) -> Vec<u8>;

fn recode<M: Message + Default>(bytes: &[u8]) -> Vec<u8> {
    M::decode(bytes).expect("a recorded message decodes").encode_to_vec()
}

/// The two messages of every method that the recordings call.
fn messages(method: &str) -> (Recode, Recode) {
    match method {
        "CreateSession" => (recode::<CreateSessionRequest>, recode::<CreateSessionResponse>),
        "ExtendSession" => (recode::<ExtendSessionRequest>, recode::<ExtendSessionResponse>),
        "RunStep" => (recode::<RunStepRequest>, recode::<RunStepResponse>),
        "PartialRunSetup" => (recode::<PartialRunSetupRequest>, recode::<PartialRunSetupResponse>),
        "MakeCallable" => (recode::<MakeCallableRequest>, recode::<MakeCallableResponse>),
        "RunCallable" => (recode::<RunCallableRequest>, recode::<RunCallableResponse>),
        "ReleaseCallable" => (recode::<ReleaseCallableRequest>, recode::<ReleaseCallableResponse>),
        "ListDevices" => (recode::<ListDevicesRequest>, recode::<ListDevicesResponse>),
        "CloseSession" => (recode::<CloseSessionRequest>, recode::<CloseSessionResponse>),
        "Reset" => (recode::<ResetRequest>, recode::<ResetResponse>),
        "GetStatus" => (recode::<GetStatusRequest>, recode::<GetStatusResponse>),
        "CreateWorkerSession" => (recode::<CreateWorkerSessionRequest>, recode::<CreateWorkerSessionResponse>),
        "DeleteWorkerSession" => (recode::<DeleteWorkerSessionRequest>, recode::<DeleteWorkerSessionResponse>),
        "RegisterGraph" => (recode::<RegisterGraphRequest>, recode::<RegisterGraphResponse>),
        "RunGraph" => (recode::<RunGraphRequest>, recode::<RunGraphResponse>),
        "RecvTensor" => (recode::<RecvTensorRequest>, recode::<RecvTensorResponse>),
        "CleanupGraph" => (recode::<CleanupGraphRequest>, recode::<CleanupGraphResponse>),
        "CleanupAll" => (recode::<CleanupAllRequest>, recode::<CleanupAllResponse>),
        "Logging" => (recode::<LoggingRequest>, recode::<LoggingResponse>),
        other => panic!("the recordings call {other}, this test does not know it"),
    }
}

/// Fails unless both byte strings hold the same message.
///
/// They are compared as trees and not as bytes: TensorFlow writes the entries of a map in no particular order, and
/// here and there a zero that could be left out. A tree keeps fields that no `.proto` file of ours names, our structs
/// do not, so that a field that is missing there is seen here.
#[track_caller]
fn assert_same(pool: &DescriptorPool, name: &str, recorded: &[u8], encoded: &[u8]) {
    let descriptor = pool.get_message_by_name(&format!("tensorflow.{name}")).expect("the message is in protos/");
    let tree = |bytes: &[u8]| DynamicMessage::decode(descriptor.clone(), bytes).expect("the message decodes");
    let without_zeros = |bytes: &[u8]| tree(&tree(bytes).encode_to_vec());
    let (before, after) = (without_zeros(recorded), without_zeros(encoded));
    assert!(before == after, "{name} was recorded as\n{before}\nand became\n{after}");
}

fn descriptors() -> DescriptorPool {
    let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("protos");
    let files: Vec<_> = fs::read_dir(&protos).unwrap().map(|file| file.unwrap().path()).collect();
    DescriptorPool::from_file_descriptor_set(protox::compile(files, [protos]).unwrap()).unwrap()
}

/// The recorded calls of one folder: method, request, response. A call that failed has no response.
fn recorded(folder: &str) -> Vec<(String, Vec<u8>, Option<Vec<u8>>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/wire").join(folder);
    let raw = fs::read(folder.join("raw.bin")).unwrap();
    let index: Value = serde_json::from_slice(&fs::read(folder.join("index.json")).unwrap()).unwrap();
    let slice = |range: &Value| -> Option<Vec<u8>> {
        let start = range[0].as_u64()? as usize;
        Some(raw[start..start + range[1].as_u64()? as usize].to_vec())
    };
    let calls = index["calls"].as_array().unwrap().iter();
    calls
        .map(|call| {
            (call["method"].as_str().unwrap().to_owned(), slice(&call["request"]).unwrap(), slice(&call["response"]))
        })
        .collect()
}

#[track_caller]
fn check_recording(folder: &str) {
    let (pool, calls) = (descriptors(), recorded(folder));
    assert!(!calls.is_empty(), "{folder} has calls");
    for (path, request, response) in calls {
        let method = path.rsplit('/').next().unwrap_or_default();
        let (recode_request, recode_response) = messages(method);
        assert_same(&pool, &format!("{method}Request"), &request, &recode_request(&request));
        if let Some(response) = response {
            assert_same(&pool, &format!("{method}Response"), &response, &recode_response(&response));
        }
    }
}

#[test]
fn calls_about_a_variable_survive() {
    check_recording("02_variable_on_ps");
}

#[test]
fn traced_and_partial_and_cancelled_runs_survive() {
    check_recording("08_trace_partial_cancel");
}

#[test]
fn a_recorded_graph_reads_as_it_was_written() {
    let (_, request, _) = recorded("02_variable_on_ps").swap_remove(0);
    let graph = CreateSessionRequest::decode(request.as_slice()).unwrap().graph_def.unwrap();
    assert_eq!(graph.versions.unwrap().producer, 2474);

    let constant = &graph.node[0];
    assert_eq!((constant.name.as_str(), constant.op.as_str()), ("Const", "Const"));
    assert_eq!(constant.device, "/job:ps/task:0");
    assert_eq!(constant.attr["dtype"].value, Some(attr_value::Value::Type(DataType::DtFloat as i32)));
    let Some(attr_value::Value::Tensor(tensor)) = &constant.attr["value"].value else {
        panic!("the constant has a value")
    };
    let dims = vec![tensor_shape_proto::Dim { size: 3, name: String::new() }];
    assert_eq!(tensor.tensor_shape, Some(TensorShapeProto { dim: dims, unknown_rank: false }));
    assert_eq!(tensor.tensor_content, [1f32, 2., 3.].map(f32::to_le_bytes).concat());
}

#[test]
fn messages_have_tensorflows_fields() {
    let table =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/wire/fields.txt")).unwrap();
    // Nothing here looks into these two, so that they are passed on as the bytes they came as.
    let table = table.replace(" tensorflow.SavedObjectGraph single", " bytes single");
    let table = table.replace(" tensorflow.TypeSpecProto single", " bytes single");
    let theirs: BTreeSet<&str> = table.lines().collect();
    let name_of = |line: &str| line.split(' ').next().unwrap_or_default().to_string();
    let known: BTreeSet<String> = theirs.iter().map(|line| name_of(line)).collect();
    assert!(known.contains("tensorflow.Example") && known.contains("tensorflow.GraphDef"));
    let ours: BTreeSet<String> = descriptors()
        .all_messages()
        .flat_map(|message| message.fields().map(|field| field_line(&field)).collect::<Vec<_>>())
        .filter(|line| known.contains(&name_of(line)))
        .collect();
    let ours: BTreeSet<&str> = ours.iter().map(String::as_str).collect();
    let wrong: Vec<_> = ours.difference(&theirs).collect();
    let missing: Vec<_> = theirs.difference(&ours).collect();
    assert!(wrong.is_empty() && missing.is_empty(), "ours alone: {wrong:#?}\nTensorFlow's alone: {missing:#?}");
}

/// A field as a line of the table.
fn field_line(field: &FieldDescriptor) -> String {
    let kind = match field.kind() {
        Kind::Message(message) => message.full_name().to_string(),
        Kind::Enum(names) => names.full_name().to_string(),
        plain => format!("{plain:?}").to_lowercase(),
    };
    let count = if field.is_list() || field.is_map() { "repeated" } else { "single" };
    format!("{} {} {} {kind} {count}", field.parent_message().full_name(), field.name(), field.number())
}

#[test]
fn a_payload_shares_the_memory_it_was_received_in() {
    let content = bytes::Bytes::from(vec![7; 4096]);
    let received = bytes::Bytes::from(TensorProto { tensor_content: content, ..Default::default() }.encode_to_vec());
    let decoded = TensorProto::decode(received.clone()).unwrap();
    assert!(received.as_ptr_range().contains(&decoded.tensor_content.as_ptr()));
}

#[test]
fn the_methods_are_served_under_the_names_that_are_called() {
    let pool = descriptors();
    for folder in ["02_variable_on_ps", "08_trace_partial_cancel"] {
        for (path, ..) in recorded(folder) {
            let (service, method) = path.trim_start_matches('/').split_once('/').unwrap();
            let service = pool.get_service_by_name(service).unwrap_or_else(|| panic!("no service for {path}"));
            assert!(service.methods().any(|served| served.name() == method), "no method for {path}");
        }
    }
}
