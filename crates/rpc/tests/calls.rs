//! Calls that go well, and calls that the other side answers with an error.

use crate::fakes::{PATIENCE, Reach, Served, is_whole, pattern, step, task, until, wait};
use bytes::Bytes;
use distributed::interface::{MasterInterface, Partial, RegisterGraph, RunGraph, WorkerInterface};
use framework::{Delivery, RendezvousKey};
use proto::ferroflow::StatusResponse;
use rpc::channel::Outgoing;
use rpc::pieces::Writer;
use rpc::{Channel, Lane, Listener, RemoteMaster, RemoteOptions, RemoteTask, TaskService, TaskStatus};
use std::sync::Arc;
use std::time::Duration;
use tensor::{Code, DType, ResourceHandle, Result, Tensor};

fn received(delivery: Delivery) -> Tensor {
    match delivery {
        Delivery::Tensor(tensor) => tensor,
        Delivery::Dead => panic!("it is dead"),
    }
}

#[test]
fn a_master_is_asked_everything() {
    for served in Served::each_way() {
        let master = served.master();
        let graph = proto::GraphDef { node: vec![Default::default(); 3], ..Default::default() };
        let request = proto::CreateSessionRequest { graph_def: Some(graph.clone()), ..Default::default() };
        assert_eq!(wait(master.create_session(request)).unwrap(), "session of 3 nodes");
        assert_eq!(wait(master.extend_session("s".into(), graph, 4)).unwrap(), 7);
        let setup = master.partial_run_setup("s".into(), vec!["a".into()], vec!["b".into()], vec!["c".into()]);
        assert_eq!(wait(setup).unwrap(), r#"["a"] ["b"] ["c"]"#);
        let options = proto::CallableOptions { fetch: vec!["x".into(); 2], ..Default::default() };
        assert_eq!(wait(master.make_callable("s".into(), options)).unwrap(), 2);
        let feeds = vec![Tensor::scalar(1i32), Tensor::from(["s"])];
        assert!(wait(master.run_callable("s".into(), 2, feeds.clone())).unwrap().fetches == feeds);
        wait(master.release_callable("s".into(), 7)).unwrap();
        let devices = wait(master.list_devices("near".into())).unwrap();
        assert_eq!((&devices.local[0].name[..], &devices.remote[0].name[..]), ("near", "far"));
        wait(master.reset(vec!["c".into()], vec!["c".into()])).unwrap();
        wait(master.close_session("s".into())).unwrap();
    }
}

#[test]
fn a_worker_is_asked_everything() {
    for served in Served::each_way() {
        let worker = served.worker();
        assert_eq!(wait(worker.get_status(Default::default())).unwrap()[0].incarnation, u64::MAX - 1);
        let request = proto::CreateWorkerSessionRequest { session_handle: "s".into(), ..Default::default() };
        wait(worker.create_worker_session(request)).unwrap();
        for session in ["s", ""] {
            let request = RegisterGraph { session: session.into(), ..Default::default() };
            assert_eq!(wait(worker.register_graph(request)).unwrap(), format!("graph of '{session}'"));
        }
        let value = Tensor::from([1.5f64, 2.5]);
        let [a, b] = ["a", "b"].map(RendezvousKey::from_text);
        for partial in [None, Some(Partial::More), Some(Partial::Last)] {
            let send = vec![(a.clone(), value.clone()), (b.clone(), Tensor::scalar(true))];
            let run =
                RunGraph { session: "s".into(), send, recv: vec![b.clone(), a.clone()], partial, ..Default::default() };
            assert!(wait(worker.run_graph(run)).unwrap().recv == [Tensor::scalar(true), value.clone()]);
        }
        assert!(received(wait(worker.recv_tensor(9, RendezvousKey::from_text("100"))).unwrap()) == pattern(100, 9));
        let strings = received(wait(worker.recv_tensor(9, RendezvousKey::from_text("strings"))).unwrap());
        assert!(strings == Tensor::from(["a", "", "ü"]));
        assert!(matches!(wait(worker.recv_tensor(9, RendezvousKey::from_text("dead"))).unwrap(), Delivery::Dead));
        wait(worker.cleanup_graph(9)).unwrap();
        wait(worker.cleanup_all(vec![])).unwrap();
        wait(worker.deregister_graph("s".into(), "g".into())).unwrap();
        let logged =
            wait(worker.logging(proto::LoggingRequest { fetch_step_id: vec![3], ..Default::default() })).unwrap();
        assert_eq!(logged.step[0].step_id, 3);
        wait(worker.delete_worker_session("s".into())).unwrap();
    }
}

#[test]
fn every_element_type_travels() {
    for served in Served::each_way() {
        let master = served.master();
        for &dtype in DType::ALL {
            let tensor = match dtype {
                DType::String => Tensor::from(["ab", "\0ü"]),
                DType::Resource => {
                    let handle = ResourceHandle { device: "d".into(), name: "n".into(), ..Default::default() };
                    Tensor::from_handles([1], vec![handle]).unwrap()
                }
                DType::Variant => Tensor::zeros(dtype, [1]).unwrap(),
                _ => Tensor::from_bytes(dtype, [3, 1], &vec![1; 3 * dtype.size()]).unwrap(),
            };
            let reply = wait(master.run_step(step(&[("x:0", tensor.clone())], &["x:0"], &[]))).unwrap();
            assert!(reply.fetches == [tensor], "{dtype}");
        }
    }
}

#[test]
fn values_come_in_the_order_they_were_asked_for() {
    for served in Served::each_way() {
        let [a, b] = [Tensor::scalar(1f32), Tensor::from([2i64, 3])];
        let request = step(&[("a", a.clone()), ("b", b.clone())], &["b", "a"], &[]);
        assert!(wait(served.master().run_step(request)).unwrap().fetches == [b, a]);
    }
}

#[test]
fn large_tensors_travel_in_both_directions() {
    for served in Served::each_way() {
        let size = 64 << 20;
        let large = pattern(size, 5);
        let found =
            received(wait(served.worker().recv_tensor(5, RendezvousKey::from_text(&size.to_string()))).unwrap());
        assert!(found == large, "received");
        assert_eq!(found.as_bytes().unwrap().as_ptr() as usize % 64, 0);
        let reply = wait(served.master().run_step(step(&[("x", large.clone())], &["x"], &[]))).unwrap();
        assert!(reply.fetches == [large], "fed and fetched");
    }
}

#[test]
fn an_error_keeps_its_code_text_and_mark() {
    for served in Served::each_way() {
        let worker = served.worker();
        let create = |session: &str| {
            let request = proto::CreateWorkerSessionRequest { session_handle: session.into(), ..Default::default() };
            wait(worker.create_worker_session(request)).unwrap_err()
        };
        let in_status = create("fail");
        assert!(in_status.message.starts_with("100% lost: ü\nxx"), "{in_status}");
        assert_eq!(is_whole(&in_status), served.reach() != Reach::Far);
        assert!(create("derived").derived);
        // In the body nothing is cut.
        let run = RunGraph { session: "s".into(), graph: "fail".into(), ..Default::default() };
        assert_eq!(wait(worker.run_graph(run)).unwrap_err().message.len(), "100% lost: ü\n".len() + 5000);
        let run = RunGraph { session: "s".into(), graph: "derived".into(), ..Default::default() };
        assert!(wait(worker.run_graph(run)).unwrap_err().derived);
        let error = wait(served.master().run_step(step(&[], &[], &["fail"]))).unwrap_err();
        assert_eq!((error.code, error.message.len()), (Code::DataLoss, "100% lost: ü\n".len() + 5000));
    }
}

#[test]
fn a_panic_is_an_answer_and_the_server_goes_on() {
    for served in Served::each_way() {
        let master = served.master();
        let error = wait(master.run_step(step(&[], &[], &["panic"]))).unwrap_err();
        assert_eq!(error.code, Code::Internal);
        wait(master.run_step(step(&[], &[], &["go on"]))).unwrap();
    }
}

fn raw(path: &'static str, message: &impl prost::Message) -> Outgoing {
    let body = Writer::default().message(message).finish("a test").unwrap();
    Outgoing { path, body, limit: Some(PATIENCE), lane: Lane::Control, tries: 1 }
}

#[test]
fn what_is_not_there_is_unimplemented() {
    for served in Served::each_way() {
        let paths = [
            "/tensorflow.WorkerService/Tracing",
            "/tensorflow.WorkerService/RecvBuf",
            "/tensorflow.WorkerService/",
            "/tensorflow.MasterService/NoSuch",
            "/tensorflow.NoService/GetStatus",
            "/nonsense",
            "/",
        ];
        for path in paths {
            let error = wait(served.channel().unary(raw(path, &proto::GetStatusRequest::default()))).unwrap_err();
            assert_eq!((error.code, &error.message[..]), (Code::Unimplemented, ""), "{path}");
        }
        let finished = raw("/tensorflow.WorkerService/MarkRecvFinished", &proto::MarkRecvFinishedRequest::default());
        assert!(wait(served.channel().unary(finished)).unwrap().is_empty());
    }
}

#[test]
fn a_repeated_request_is_not_carried_out_again() {
    for served in Served::each_way() {
        let channel = served.channel();
        let run_step = |id| proto::RunStepRequest { request_id: id, target: vec!["t".into()], ..Default::default() };
        let send = |message: &proto::RunStepRequest| {
            wait(channel.unary(raw("/tensorflow.MasterService/RunStep", message))).map(drop)
        };
        send(&run_step(-5)).unwrap();
        let error = send(&run_step(-5)).unwrap_err();
        assert_eq!(error.code, Code::Aborted);
        assert!(error.message.starts_with("The same RunStep (Master) request was received twice."), "{error}");
        assert_eq!(served.counts.begun.load(std::sync::atomic::Ordering::SeqCst), 1);
        send(&run_step(0)).unwrap();
        send(&run_step(0)).unwrap();
    }
}

#[test]
fn dropping_a_call_drops_its_handler() {
    for served in Served::each_way() {
        let (master, worker) = (served.master(), served.worker());
        let run = RunGraph { session: "s".into(), graph: "wait".into(), ..Default::default() };
        let calls: [distributed::interface::Call<'_, ()>; 3] = [
            Box::pin(async { master.run_step(step(&[], &[], &["wait"])).await.map(drop) }),
            Box::pin(async { worker.run_graph(run).await.map(drop) }),
            Box::pin(async { worker.recv_tensor(1, RendezvousKey::from_text("wait")).await.map(drop) }),
        ];
        for mut call in calls {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            until("the handler runs", || {
                assert!(call.as_mut().poll(&mut context).is_pending());
                served.counts.under_way() == 1
            });
            drop(call);
            until("the handler is dropped", || served.counts.under_way() == 0);
        }
        wait(worker.cleanup_graph(1)).unwrap();
    }
}

#[test]
fn a_deadline_ends_both_sides() {
    for served in Served::each_way() {
        let mut request = step(&[], &[], &["wait"]);
        request.options.timeout_in_ms = 100;
        let error = wait(served.master().run_step(request)).unwrap_err();
        assert_eq!(error.code, Code::DeadlineExceeded);
        until("the handler is dropped", || served.counts.under_way() == 0);
        let options = RemoteOptions { operation_timeout: Some(Duration::from_millis(100)), ..Default::default() };
        let error = wait(RemoteMaster::new(&served.address(), options).close_session("wait".into())).unwrap_err();
        assert_eq!(error.code, Code::DeadlineExceeded);
        assert!(error.message.contains("CloseSession"), "{error}");
        until("the handler is dropped", || served.counts.under_way() == 0);
    }
}

#[test]
fn a_thousand_calls_wait_while_others_are_answered() {
    for served in Served::each_way() {
        let worker = Arc::new(served.worker());
        let parked: Vec<_> = (0..1000)
            .map(|_| {
                let worker = worker.clone();
                rpc::runtime::steps()
                    .spawn(async move { worker.recv_tensor(1, RendezvousKey::from_text("wait")).await })
            })
            .collect();
        until("all are parked", || served.counts.under_way() == 1000);
        wait(worker.get_status(Default::default())).unwrap();
        received(wait(worker.recv_tensor(1, RendezvousKey::from_text("1000000"))).unwrap());
        parked.iter().for_each(|call| call.abort());
        until("all are gone", || served.counts.under_way() == 0);
    }
}

#[test]
fn a_message_that_is_too_long_is_not_sent() {
    let served = Served::start();
    let gigabyte = Tensor::from_filled(DType::U8, [1 << 30], |_| Ok(())).unwrap();
    let request = step(&[("a:0", gigabyte.clone()), ("b:0", gigabyte)], &[], &["t"]);
    let error = wait(served.master().run_step(request)).unwrap_err();
    assert_eq!(error.code, Code::ResourceExhausted);
    assert!(error.message.contains("RunStep") && error.message.contains("'a:0'"), "{error}");
}

#[test]
fn packed_requests_are_understood() {
    use std::io::Write;
    let served = Served::start();
    let request = proto::LoggingRequest { fetch_step_id: vec![1; 5000], ..Default::default() };
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(&prost::Message::encode_to_vec(&request)).unwrap();
    let packed = packer.finish().unwrap();
    let mut body = vec![1];
    body.extend((packed.len() as u32).to_be_bytes());
    body.extend(packed);
    let trailers = call_raw(&served, ("grpc-encoding", "gzip"), body).unwrap();
    assert_eq!(trailers["grpc-status"], "0");
}

#[test]
fn only_a_caller_of_our_own_kind_takes_a_whole_answer_for_a_success() {
    let served = Served::start();
    let empty_message = || vec![0; 5];
    assert!(call_raw(&served, ("ferroflow", "1"), empty_message()).is_none());
    let trailers = call_raw(&served, ("other", "1"), empty_message()).unwrap();
    assert_eq!(trailers["grpc-status"], "0");
    let worker = served.worker();
    for _ in ["the first answer tells its kind", "the second has no trailers"] {
        wait(worker.get_status(Default::default())).unwrap();
    }
}

/// The trailers of the answer to a call with this header more.
fn call_raw(served: &Served, (name, value): (&'static str, &'static str), body: Vec<u8>) -> Option<http::HeaderMap> {
    let address = served.address();
    let call = async move {
        let socket = tokio::net::TcpStream::connect(address).await.unwrap();
        let (send, connection) = h2::client::handshake(socket).await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::post("http://test/tensorflow.WorkerService/Logging")
            .header("content-type", "application/grpc+proto")
            .header(name, value)
            .body(())
            .unwrap();
        let mut send = send.ready().await.unwrap();
        let (response, mut stream) = send.send_request(request, false).unwrap();
        stream.send_data(Bytes::from(body), true).unwrap();
        let mut body = response.await.unwrap().into_body();
        while let Some(chunk) = body.data().await {
            body.flow_control().release_capacity(chunk.unwrap().len()).unwrap();
        }
        body.trailers().await.unwrap()
    };
    wait(async { rpc::runtime::network().spawn(call).await.unwrap() })
}

#[test]
fn a_channel_knows_whom_it_leads_to() {
    let channel = Channel::new(Some(&task()), "host:1");
    assert_eq!(channel.peer().to_string(), "/job:ps/replica:0/task:3 at host:1");
}

#[test]
fn a_task_tells_how_it_is_and_is_told_to_stop() {
    struct Told(std::sync::Mutex<Option<Option<Duration>>>);
    impl TaskStatus for Told {
        fn status(&self) -> StatusResponse {
            StatusResponse { task: "/job:ps/replica:0/task:3".into(), pid: 7, ..Default::default() }
        }
        fn stop(&self, drain: Option<Duration>) {
            *self.0.lock().unwrap() = Some(drain);
        }
        fn signed_off(&self, task: &str) -> Result<()> {
            if task == "worker" { Ok(()) } else { Err(tensor::not_found!("no task {task}")) }
        }
    }
    let told = Arc::new(Told(Default::default()));
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let server = listener.serve(vec![Arc::new(TaskService::new(told.clone()))]).unwrap();
    let task = RemoteTask::new(&format!("grpc://{}", server.address()), PATIENCE);
    assert_eq!(wait(task.status()).unwrap().pid, 7);
    for drain in [None, Some(Duration::from_millis(1500))] {
        wait(task.stop(drain)).unwrap();
        assert_eq!(*told.0.lock().unwrap(), Some(drain));
    }
    wait(task.sign_off("worker")).unwrap();
    assert_eq!(wait(task.sign_off("nobody")).unwrap_err().code, Code::NotFound);
}
