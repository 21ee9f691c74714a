//! `ferroflow launch`: runs a program as every task of a cluster.
//!
//! This file reads the command line and puts the parts together: `places` says where tasks run, `program` what each of
//! them is, and the processes are looked after by [`crate::processes`].

pub mod kubernetes;
pub mod log;
pub mod places;
pub mod program;

use crate::processes::{self, Policy, TaskProcess};
use clap::{Args, ValueHint};
use ferroflow::{Code, Error, Result};
use log::Log;
use places::Places;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

/// Run a program as every task of a cluster: here, over ssh, in a Slurm allocation, or on Kubernetes
#[derive(Args)]
#[command(after_help = "\
Every process finds its place in the environment variable TF_CONFIG. Where {flags} stands among the arguments, these
stand instead: --ps_hosts=… --worker_hosts=… --job_name=… --task_index=…; {cluster}, {job}, {index} and {address} may
be a part of any argument. Without a program, all tasks are servers of ours.

All is over when the workers have ended: parameter servers are stopped then, and the exit code is 0. When a task fails and
may not be started again, the rest is stopped, and the exit code is its own.

Examples:
  ferroflow launch --ps 2 --workers 4 -- ./trainer {flags}
  ferroflow launch --workers 2 --restart on-failure:3 -- python3 trainer.py {flags} --train_steps=1000
  ferroflow launch --ps 1 --workers 2                      # servers only, for sessions on grpc://…
  ferroflow launch --host-file hosts.txt --ps 1 --workers 8 -- ./trainer {flags}
  salloc -n 3 ferroflow launch --slurm --ps 1 -- ./trainer {flags}
  ferroflow launch --kubernetes --image registry/trainer:1 --workers 4 -- trainer | kubectl apply -f -")]
pub struct Arguments {
    /// How many parameter servers
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=10_000))]
    ps: u32,
    /// How many workers; two unless given, and with --slurm as many as the allocation has tasks left
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(..=10_000))]
    workers: Option<u32>,
    /// Whether a task that fails is started again: never, on-failure (3 times) or on-failure:TIMES
    #[arg(long, value_name = "POLICY", default_value = "never")]
    restart: Restart,
    /// Parameter servers are servers of ours; only the workers run the program
    #[arg(long)]
    ps_server: bool,
    /// Seconds that a process may take to end when told to
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, allow_negative_numbers = true)]
    grace: f64,
    /// Seconds that other workers may go on after worker 0 is done; without limit unless given
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    linger: Option<f64>,
    /// Run over ssh on these machines: a line each, HOST or HOST slots=COUNT
    #[arg(long, value_name = "FILE", conflicts_with_all = ["slurm", "kubernetes"], value_hint = ValueHint::FilePath)]
    host_file: Option<PathBuf>,
    /// The command that reaches another machine
    #[arg(long, value_name = "COMMAND", default_value = "ssh", requires = "host_file")]
    ssh: String,
    /// The first port on machines that are not this one
    #[arg(long, value_name = "PORT", default_value_t = 2222)]
    port: u16,
    /// Run on the tasks of the Slurm allocation we are in
    #[arg(long, conflicts_with = "kubernetes")]
    slurm: bool,
    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<String>,
    #[command(flatten)]
    kubernetes: kubernetes::Manifests,
}

/// How often what failed is started again.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Restart(u32);

impl FromStr for Restart {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Restart, String> {
        let wanted = || format!("'{text}' is no policy; wanted never, on-failure or on-failure:TIMES");
        match text.split_once(':') {
            None if text == "never" => Ok(Restart(0)),
            None if text == "on-failure" => Ok(Restart(3)),
            Some(("on-failure", times)) => times.parse().map(Restart).map_err(|_| wanted()),
            _ => Err(wanted()),
        }
    }
}

/// Runs the cluster to its end, or writes its manifests.
pub fn run(arguments: Arguments) -> Result<ExitCode> {
    if arguments.kubernetes.kubernetes {
        let workers = arguments.workers.unwrap_or(DEFAULT_WORKERS);
        let text = arguments.kubernetes.manifests(
            arguments.ps,
            workers,
            arguments.ps_server,
            arguments.port,
            &arguments.program,
        )?;
        super::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let places = arguments.places()?;
    let tasks = arguments.processes(&places)?;
    let mut log = Log::new(tasks.iter().map(|task| &task.task));
    log.note(&format!("{} on {}", counted(arguments.ps as usize, &tasks), places.cluster));
    let code = processes::run(tasks, arguments.policy()?, &mut |notice| log.show(notice))?;
    Ok(ExitCode::from(code))
}

const DEFAULT_WORKERS: u32 = 2;

fn counted(ps: usize, tasks: &[TaskProcess]) -> String {
    format!("{ps} ps and {} worker{}", tasks.len() - ps, if tasks.len() - ps == 1 { "" } else { "s" })
}

impl Arguments {
    fn places(&self) -> Result<Places> {
        let workers = self.workers.unwrap_or(DEFAULT_WORKERS);
        if self.slurm {
            let slots = ferroflow::train::slurm_allocation(&|name| std::env::var(name).ok())?;
            return Places::in_slurm(&slots, self.ps, self.workers, self.port);
        }
        if self.ps == 0 && workers == 0 {
            return Err(Error::new(Code::InvalidArgument, "a cluster of no tasks: --ps and --workers are both 0"));
        }
        match &self.host_file {
            Some(file) => Places::from_host_file(file, self.ps, workers, self.port, &self.ssh),
            None => Places::here(self.ps, workers),
        }
    }

    fn processes(&self, places: &Places) -> Result<Vec<TaskProcess>> {
        let grace = seconds("--grace", self.grace)?;
        let process = |(task, _): (ferroflow::TaskName, &str)| {
            let is_work = task.job == "worker" && !self.program.is_empty();
            let is_server = self.program.is_empty() || (task.job == "ps" && self.ps_server);
            let arguments = if is_server { program::server(&task)? } else { self.program.clone() };
            let program = program::of_task(&arguments, &places.cluster, &task)?;
            Ok(TaskProcess { program: places.reach(&task, program, grace), task, is_work })
        };
        places.cluster.tasks().map(process).collect()
    }

    fn policy(&self) -> Result<Policy> {
        Ok(Policy {
            restarts: self.restart.0,
            grace: seconds("--grace", self.grace)?,
            linger: self.linger.map(|linger| seconds("--linger", linger)).transpose()?,
        })
    }
}

fn seconds(flag: &str, value: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| Error::new(Code::InvalidArgument, format!("{flag} is {value}, wanted a number of seconds")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restart_policies_are_read() {
        let cases = [
            ("never", Some(0)),
            ("on-failure", Some(3)),
            ("on-failure:7", Some(7)),
            ("on-failure:x", None),
            ("always", None),
        ];
        for (text, times) in cases {
            assert_eq!(text.parse::<Restart>().ok(), times.map(Restart), "{text}");
        }
    }
}
