//! A cluster of two servers on this machine, as in the guide: a session on either sees the variables of both.
//!
//! ```sh
//! cargo run --example local_cluster -p ferroflow                          # both tasks in this process
//! cargo run --example local_cluster -p ferroflow -- --task_index 1 &      # or a process for each
//! cargo run --example local_cluster -p ferroflow -- --task_index 0
//! ```

use clap::Parser;
use ferroflow::prelude::*;

#[derive(Parser)]
struct Flags {
    /// Where the two tasks listen.
    #[arg(long = "local_hosts", value_delimiter = ',', default_value = "localhost:2222,localhost:2223")]
    local_hosts: Vec<String>,
    /// Which task this process is; without it, it is both, on free ports.
    #[arg(long = "task_index")]
    task_index: Option<u32>,
}

fn main() -> Result<()> {
    let flags = Flags::parse();
    let Some(index) = flags.task_index else {
        let servers = Server::create_cluster([("local", 2)])?;
        return work(servers[0].target(), servers[1].target());
    };
    let cluster = ClusterSpec::new().job("local", flags.local_hosts.clone());
    let server = Server::start(&cluster, "local", index)?;
    match (index, flags.local_hosts.get(1)) {
        (0, Some(other)) => work(server.target(), &format!("grpc://{other}")),
        _ => server.join(),
    }
}

/// Puts a variable on each task and uses both from either.
fn work(first: &str, second: &str) -> Result<()> {
    let g = Graph::new();
    let v = g.device("/job:local/task:1", || g.variable("v", [1.0f32, 2.0]));
    let add = v.assign_add(Tensor::from([10.0f32, 10.0]));
    let (w, y) = g.device("/job:local/task:0", || {
        let w = g.variable("w", 3.0f32);
        let y = v.sum() * &w;
        (w, y)
    });
    let init = g.initialize_all();

    let on_first = Session::connect(first, &g)?;
    let on_second = Session::connect(second, &g)?;
    on_first.run(&init)?;
    println!("w = {}, sum of v times w = {}", on_first.run(&w)?, on_first.run(&y)?);
    on_first.run(&add)?;
    println!("the other session sees v = {}, sum of v times w = {}", on_second.run(&v)?, on_second.run(&y)?);
    println!("devices: {}", on_second.list_devices()?.join(" "));
    Ok(())
}
