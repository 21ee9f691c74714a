//! Timing: how often something is done, how long that takes, and what it costs the servers.

use ferroflow::prelude::*;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// The device that variables are on, and the one that computes.
pub const PS: &str = "/job:ps/task:0";
pub const WORKER: &str = "/job:worker/task:0";

/// Where and how long to measure.
pub struct Bench {
    pub cluster: ClusterSpec,
    pub pids: Vec<u32>,
    pub seconds: Duration,
}

impl Bench {
    /// What a session on a worker connects to.
    pub fn target(&self, worker: u32) -> Result<String> {
        Ok(format!("grpc://{}", self.cluster.task_address("worker", worker)?))
    }

    /// A session on the first worker, with the variables at their initial values.
    pub fn session(&self, graph: &Graph) -> Result<Session> {
        let init = graph.initialize_all();
        let session = Session::connect(self.target(0)?, graph)?;
        session.run(&init)?;
        Ok(session)
    }

    /// The median time of a step, in seconds.
    pub fn median(&self, mut step: impl FnMut() -> Result<()>) -> Result<f64> {
        const WARM_UP: usize = 3;
        const AT_LEAST: usize = 6;
        (0..WARM_UP).try_for_each(|_| step())?;
        let mut times = Vec::new();
        let end = Instant::now() + self.seconds;
        while times.len() < AT_LEAST || Instant::now() < end {
            let start = Instant::now();
            step()?;
            times.push(start.elapsed().as_secs_f64());
        }
        Ok(median(times))
    }

    /// Prints rate, median time and the servers' CPU time of a step made by 1 and by 16 threads.
    pub fn rates(&self, name: &str, step: impl Fn() -> Result<()> + Sync) -> Result<()> {
        for threads in [1, 16] {
            let steps = vec![&step; threads];
            let title = format!("{name}, {threads} thread{}", if threads > 1 { "s" } else { "" });
            let times = self.rate(&title, &steps)?;
            print(&format!("{title}: median time"), median(times) * 1e6, "µs");
        }
        Ok(())
    }

    /// Prints rate and the servers' CPU time of a step made by a thread for each of these; the times of all.
    pub fn rate(&self, title: &str, steps: &[impl Fn() -> Result<()> + Sync]) -> Result<Vec<f64>> {
        drive(steps, Duration::from_millis(300))?;
        let before = self.server_cpu();
        let (times, wall) = drive(steps, self.seconds)?;
        let used = self.server_cpu() - before;
        let made = times.len() + steps.len(); // each begins with one that is not timed
        print(title, times.len() as f64 / wall, "steps/s");
        print(&format!("{title}: server CPU"), used / made as f64 * 1e6, "µs/step");
        Ok(times)
    }

    /// The CPU time that the servers have used so far, in seconds.
    pub fn server_cpu(&self) -> f64 {
        const TICKS_A_SECOND: f64 = 100.0; // what Linux tells every program, whatever it counts in
        let ticks = |pid: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let after_name = stat.rsplit(')').next().unwrap_or_default();
            after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>()
        };
        self.pids.iter().map(ticks).sum::<f64>() / TICKS_A_SECOND
    }
}

/// Lets a thread for each of these repeat it for some time: the times of all, and the time it took altogether.
pub fn drive(steps: &[impl Fn() -> Result<()> + Sync], seconds: Duration) -> Result<(Vec<f64>, f64)> {
    let ready = Barrier::new(steps.len() + 1);
    std::thread::scope(|scope| {
        let threads = steps.iter().map(|step| {
            let ready = &ready;
            scope.spawn(move || {
                let first = is_answered(step());
                ready.wait();
                first?;
                let mut times = Vec::new();
                let begin = Instant::now();
                while begin.elapsed() < seconds {
                    let start = Instant::now();
                    if is_answered(step())? {
                        times.push(start.elapsed().as_secs_f64());
                    }
                }
                Ok(times)
            })
        });
        let threads: Vec<_> = threads.collect();
        ready.wait();
        let begin = Instant::now();
        let times = threads.into_iter().map(|thread| thread.join().expect("a step does not panic"));
        let times: Vec<Vec<f64>> = times.collect::<Result<_>>()?;
        Ok((times.concat(), begin.elapsed().as_secs_f64()))
    })
}

/// Whether a step was answered; some sound ones are not by TensorFlow's servers, which take them for repeated ones.
fn is_answered(step: Result<()>) -> Result<bool> {
    match step {
        Ok(()) => Ok(true),
        Err(e) if e.code == Code::Aborted && e.message.contains("received twice") => Ok(false),
        Err(e) => Err(e),
    }
}

/// One line of what was found.
pub fn print(name: &str, value: f64, unit: &str) {
    println!("{name}\t{value}\t{unit}");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
