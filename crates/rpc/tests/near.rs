//! Clients and servers of one user on one machine, which do without TCP.

use crate::fakes::{Served, step, wait};
use distributed::interface::{MasterInterface, WorkerInterface};
use std::fs::read_to_string;
use std::net::{Ipv4Addr, SocketAddr};
use tensor::Tensor;

/// How many open TCP connections from and to this address the system knows.
fn tcp_connections(address: SocketAddr) -> usize {
    let wanted = format!("{:08X}:{:04X}", u32::from_ne_bytes(Ipv4Addr::LOCALHOST.octets()), address.port());
    const OPEN: &str = "01";
    let is_connected = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let ends = [words.next(), words.next()];
        ends.contains(&Some(&wanted)) && words.next() == Some(OPEN)
    };
    read_to_string("/proc/net/tcp").unwrap().lines().filter(|line| is_connected(line)).count()
}

fn has_name(address: SocketAddr) -> bool {
    let name = format!("@ferroflow/direct-1/{address}");
    read_to_string("/proc/net/unix").unwrap().lines().any(|line| line.ends_with(&name))
}

#[test]
fn clients_and_tasks_on_one_machine_do_without_tcp() {
    let served = Served::start();
    let address = served.server.address();
    let (master, worker) = (served.master(), served.worker());
    let value = Tensor::scalar(7);
    let reply = wait(master.run_step(step(&[("x", value.clone())], &["x"], &[]))).unwrap();
    assert!(reply.fetches == [value]);
    wait(worker.get_status(Default::default())).unwrap();
    assert_eq!(tcp_connections(address), 0);
}

#[test]
fn a_server_for_all_addresses_is_found_by_the_usual_one() {
    let served = Served::at("0.0.0.0:0");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, served.server.address().port()));
    let master = rpc::RemoteMaster::new(&address.to_string(), Default::default());
    wait(master.close_session("s".into())).unwrap();
    assert!(has_name(address));
    assert_eq!(tcp_connections(address), 0);
}

#[test]
fn a_name_goes_with_its_server() {
    let served = Served::start();
    let address = served.server.address();
    assert!(has_name(address));
    drop(served);
    assert!(!has_name(address));
}
