//! One task, no network: kernels, the executor and whole training steps, ours and TensorFlow's on the same graphs.
//!
//! ```text
//! cargo bench -p ferroflow --bench in_process                                  # ours alone
//! TF_PYTHON=venv/bin/python cargo bench -p ferroflow --bench in_process        # with ratios to TensorFlow
//! cargo bench -p ferroflow --bench in_process -- matmul                        # only what contains the word
//! ```
//!
//! Each workload is a graph built here. TensorFlow gets the very same graph through `their_side.py` beside this file
//! and is timed in the same run, in turns with ours, because the machine may be shared. Where a workload repeats one op,
//! the copies wait for each other, and TensorFlow's graph rewriting is off so that it runs them all.

mod training;
mod workloads;

use distributed::{LocalCluster, MasterInterface, RunStep};
use framework::SystemEnv;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::{Result, Tensor};
use workloads::{Unit, Workload};

/// How long one measurement takes, and how many there are of each side.
const MEASUREMENT: Duration = Duration::from_millis(400);
const ROUNDS: usize = 5;

fn main() -> Result<()> {
    let only: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let mut tensorflow = TensorFlow::start();
    println!("{:<34} {:>14} {:>14} {:>7} {:>7}", "workload", "ours", "TensorFlow", "ratio", "wanted");
    for (name, build) in workloads::all() {
        if !only.is_empty() && !only.iter().any(|o| name.contains(o.as_str())) {
            continue;
        }
        let workload = build()?;
        let ours = Ours::start(&workload)?;
        if let Some(tensorflow) = &mut tensorflow {
            tensorflow.load(&workload);
        }
        let (mut mine, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            mine.push(ours.measure()?);
            if let Some(tensorflow) = &mut tensorflow {
                theirs.push(tensorflow.measure());
            }
        }
        report(&workload, median(mine), (!theirs.is_empty()).then(|| median(theirs)));
    }
    Ok(())
}

fn report(workload: &Workload, mine: f64, theirs: Option<f64>) {
    let show = |seconds: f64| {
        let each = seconds / workload.repeats as f64;
        match workload.unit {
            Unit::Rate(name) => format!("{:.1} {name}", workload.work / each / 1e9),
            Unit::Nanos => format!("{:.0} ns", each * 1e9),
            Unit::Micros => format!("{:.1} µs", each * 1e6),
        }
    };
    let ratio = theirs.map_or("-".into(), |t| format!("{:.2}", t / mine));
    let theirs = theirs.map_or("-".into(), show);
    println!("{:<34} {:>14} {:>14} {:>7} {:>7}", workload.name, show(mine), theirs, ratio, workload.wanted);
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Our side: a session on a one-task cluster.
struct Ours<'w> {
    cluster: LocalCluster,
    session: String,
    workload: &'w Workload,
}

impl Ours<'_> {
    fn start(workload: &Workload) -> Result<Ours<'_>> {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let env = Arc::new(SystemEnv::default());
        let cluster = LocalCluster::new("localhost", threads, Arc::new(ops::registry()), env);
        let rewrite = proto::RewriterConfig { disable_meta_optimizer: !workload.optimized, ..Default::default() };
        let config = proto::ConfigProto {
            graph_options: Some(proto::GraphOptions { rewrite_options: Some(rewrite), ..Default::default() }),
            ..Default::default()
        };
        let request = proto::CreateSessionRequest {
            graph_def: Some(workload.graph.clone()),
            config: Some(config),
            ..Default::default()
        };
        let session = wait(cluster.master().create_session(request))?;
        let ours = Ours { cluster, session, workload };
        if let Some(init) = &workload.init {
            ours.run(&[], init)?;
        }
        Ok(ours)
    }

    fn run(&self, feeds: &[(String, Tensor)], target: &str) -> Result<()> {
        let request = RunStep {
            session: self.session.clone(),
            feeds: feeds.to_vec(),
            targets: vec![target.into()],
            ..RunStep::default()
        };
        wait(self.cluster.master().run_step(request)).map(|_| ())
    }

    /// Seconds for one run.
    fn measure(&self) -> Result<f64> {
        for _ in 0..3 {
            self.run(&self.workload.feeds, &self.workload.target)?;
        }
        let mut times = Vec::new();
        let end = Instant::now() + MEASUREMENT;
        while Instant::now() < end || times.len() < 5 {
            let start = Instant::now();
            self.run(&self.workload.feeds, &self.workload.target)?;
            times.push(start.elapsed().as_secs_f64());
        }
        Ok(median(times))
    }
}

fn wait<T>(call: distributed::interface::Call<'_, T>) -> Result<T> {
    runtime::block_on(call, None).expect("there is no deadline")
}

/// Their side: a Python process that takes a graph and is asked to measure it, again and again.
struct TensorFlow {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl TensorFlow {
    fn start() -> Option<TensorFlow> {
        let python = std::env::var("TF_PYTHON").ok()?;
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/in_process/their_side.py");
        let mut child = Command::new(python)
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("TF_PYTHON runs");
        let input = child.stdin.take().expect("the input is piped");
        let output = BufReader::new(child.stdout.take().expect("the output is piped"));
        Some(TensorFlow { child, input, output })
    }

    fn load(&mut self, workload: &Workload) {
        use prost::Message;
        let file = std::env::temp_dir().join(format!("ferroflow-bench-{}.pb", std::process::id()));
        std::fs::write(&file, workload.graph.encode_to_vec()).expect("the graph is written");
        let feeds = workload.feeds.iter().map(|(name, value)| format!("{name}={}", dims(value)));
        let line = format!(
            "load\t{}\t{}\t{}\t{}\t{}",
            file.display(),
            workload.init.as_deref().unwrap_or(""),
            workload.target,
            if workload.optimized_there { "on" } else { "off" },
            feeds.collect::<Vec<_>>().join(" ")
        );
        assert_eq!(self.ask(&line), "ok");
    }

    fn measure(&mut self) -> f64 {
        self.ask(&format!("measure\t{}", MEASUREMENT.as_secs_f64())).parse().expect("a number of seconds")
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").expect("TensorFlow's process is alive");
        let mut answer = String::new();
        self.output.read_line(&mut answer).expect("TensorFlow's process answers");
        answer.trim().to_string()
    }
}

impl Drop for TensorFlow {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn dims(value: &Tensor) -> String {
    let dims: Vec<String> = value.dims().iter().map(|d| d.to_string()).collect();
    format!("{}:{}", value.dtype(), dims.join(","))
}
