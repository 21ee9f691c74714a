//! The first program: a server in this process, a graph of one node, a session.

use ferroflow::prelude::*;

fn main() -> Result<()> {
    let server = Server::create_local()?; // a cluster of one task, in this process
    let g = Graph::new();
    let hello = g.constant("Hello, distributed world!");
    let session = Session::connect(server.target(), &g)?;
    println!("{}", session.run(&hello)?);
    Ok(())
}
