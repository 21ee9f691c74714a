//! `ferroflow completions`: teaches a shell the command line.

use clap::{Args, Command};
use clap_complete::Shell;
use ferroflow::Result;

/// Print what a shell needs to complete this command line
#[derive(Args)]
#[command(after_help = "\
Examples:
  ferroflow completions bash > /etc/bash_completion.d/ferroflow
  ferroflow completions zsh > ~/.zfunc/_ferroflow
  ferroflow completions fish > ~/.config/fish/completions/ferroflow.fish")]
pub struct Arguments {
    /// Which shell
    shell: Shell,
}

/// Prints the completions.
pub fn run(arguments: Arguments, mut command: Command) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "ferroflow", &mut script);
    super::print(&String::from_utf8_lossy(&script))
}
