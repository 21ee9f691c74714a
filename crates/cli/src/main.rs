//! The `ferroflow` command: launches, watches and inspects.

mod commands;
mod logging;
mod plot;
mod processes;
mod screen;
mod table;
mod yaml;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// The distributed TensorFlow runtime, rebuilt in Rust.
#[derive(Parser)]
#[command(name = "ferroflow", version, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  ferroflow demo mnist
  ferroflow launch --ps 1 --workers 2 -- ./trainer {flags}
  ferroflow server --cluster 'ps|h0:2222,worker|h1:2222;h2:2222' --job_name ps --task_index 0
  ferroflow status grpc://h1:2222
  ferroflow stop grpc://h1:2222 --all
  ferroflow checkpoint show train_logs
  ferroflow events train_logs
  ferroflow graph show model/graph.pb")]
struct Arguments {
    /// How much to log: error, warn, info, debug or trace
    #[arg(long, global = true, value_name = "LEVEL", default_value = "info", value_parser = LEVELS, hide_possible_values = true, help_heading = LOGGING)]
    log: String,
    /// How to write log lines: text, for people, or json, one object a line
    #[arg(long, global = true, value_name = "FORMAT", value_enum, default_value_t, hide_possible_values = true, help_heading = LOGGING)]
    log_format: logging::Format,
    #[command(subcommand)]
    command: Command,
}

const LOGGING: &str = "Logging";
const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

#[derive(Subcommand)]
enum Command {
    /// Show what it can do: train on a cluster of processes on this machine
    #[command(subcommand, after_help = "Example:\n  ferroflow demo mnist")]
    Demo(commands::demo::Command),
    #[command(hide = true)]
    DemoTask(commands::demo::task::Arguments),
    Launch(commands::launch::Arguments),
    Server(commands::server::Arguments),
    Status(commands::status::Arguments),
    Stop(commands::status::StopArguments),
    /// Look into checkpoints
    #[command(
        subcommand,
        after_help = "\
Examples:
  ferroflow checkpoint ls train_logs
  ferroflow checkpoint show train_logs                 # the latest one
  ferroflow checkpoint show train_logs/model.ckpt-200 hid_w
  ferroflow checkpoint verify train_logs/model.ckpt-200
  ferroflow checkpoint diff train_logs/model.ckpt-100 train_logs/model.ckpt-200"
    )]
    Checkpoint(commands::checkpoint::Command),
    Events(commands::events::Arguments),
    /// Look into graph files
    #[command(subcommand, after_help = "Example:\n  ferroflow graph show model/graph.pb --sizes")]
    Graph(commands::graph::Command),
    Completions(commands::completions::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    logging::start(&arguments.log, arguments.log_format);
    let result = match arguments.command {
        Command::Demo(command) => commands::demo::run(command),
        Command::DemoTask(arguments) => done(commands::demo::task::run(arguments)),
        Command::Launch(arguments) => commands::launch::run(arguments),
        Command::Server(arguments) => done(commands::server::run(arguments)),
        Command::Status(arguments) => done(commands::status::run(arguments)),
        Command::Stop(arguments) => done(commands::status::stop(arguments)),
        Command::Checkpoint(command) => commands::checkpoint::run(command).map(|well| ExitCode::from(u8::from(!well))),
        Command::Events(arguments) => done(commands::events::run(arguments)),
        Command::Graph(command) => done(commands::graph::run(command)),
        Command::Completions(arguments) => done(commands::completions::run(arguments, Arguments::command())),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ferroflow: {}", error.message);
            ExitCode::FAILURE
        }
    }
}

fn done(result: ferroflow::Result<()>) -> ferroflow::Result<ExitCode> {
    result.map(|()| ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }
}
