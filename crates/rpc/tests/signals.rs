//! Signals to end the process.

use crate::fakes::until;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_signal_to_end_is_heard() {
    let heard = Arc::new(AtomicBool::new(false));
    let flag = heard.clone();
    rpc::runtime::on_signal(move || flag.store(true, Ordering::SeqCst)).unwrap();
    let pid = std::process::id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    until("the signal is heard", || heard.load(Ordering::SeqCst));
}
