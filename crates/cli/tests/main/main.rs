//! The command as a user meets it: real processes, their output and their exit codes.

mod errors;
mod launch;
