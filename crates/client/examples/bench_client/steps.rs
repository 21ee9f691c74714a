//! Steps that compute nothing: what a step itself costs; and one that only computes.

use crate::measure::{Bench, PS, WORKER, drive, print};
use ferroflow::initializers::ones;
use ferroflow::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Threads that step over many connections.
const FEW: usize = 10;

/// A step that does nothing.
pub fn null(bench: &Bench) -> Result<()> {
    let g = Graph::new();
    let nothing = g.device(WORKER, || g.group(&[]));
    let session = bench.session(&g)?;
    bench.rates("null step", || session.run(&nothing))
}

/// A variable on the ps is read by the worker.
pub fn over_two_tasks(bench: &Bench) -> Result<()> {
    let g = Graph::new();
    let variable = g.device(PS, || g.variable("v", 1.0f32));
    let read = g.device(WORKER, || &variable + 1.0);
    let session = bench.session(&g)?;
    bench.rates("step over ps and worker", || session.run(&read).map(|_| ()))
}

/// Null steps over many connections, each of a session of its own: each with a thread that steps all the time, and with
/// ten threads that step over one after the other.
pub fn connections(bench: &Bench) -> Result<()> {
    let g = Graph::new();
    let nothing = g.device(WORKER, || g.group(&[]));
    for count in [10, 30, 100, 300, 1000] {
        let sessions = (0..count).map(|_| Session::connect(bench.target(0)?, &g)).collect::<Result<Vec<_>>>()?;
        let steps: Vec<_> = sessions.iter().map(|session| || session.run(&nothing)).collect();
        bench.rate(&format!("null steps over {count} connections"), &steps)?;
        let steps = sessions.chunks(count / FEW).map(|sessions| {
            let (nothing, next) = (&nothing, AtomicUsize::new(0));
            move || sessions[next.fetch_add(1, Relaxed) % sessions.len()].run(nothing)
        });
        let (times, wall) = drive(&steps.collect::<Vec<_>>(), bench.seconds)?;
        print(&format!("null steps over {count} connections in turn"), times.len() as f64 / wall, "steps/s");
    }
    Ok(())
}

/// A product of large matrices, in this process.
pub fn kernel(bench: &Bench) -> Result<()> {
    const SIZE: usize = 1024;
    let g = Graph::new();
    let [a, b] = ["a", "b"].map(|name| g.variable(name, ones([SIZE, SIZE])));
    let product = a.matmul(&b).operation();
    let init = g.initialize_all();
    let session = Session::new(&g)?;
    session.run(&init)?;
    let seconds = bench.median(|| session.run(&product))?;
    print("matrix product of 1024 rows, in one process", 2.0 * (SIZE as f64).powi(3) / seconds / 1e9, "GFLOP/s");
    Ok(())
}
