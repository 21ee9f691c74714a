//! Asks the linker for a smaller program: functions with the same code are kept once, which saves half a megabyte, and the
//! addresses that the loader adjusts are packed, which makes a hundredth of another.
//!
//! The linker must understand that, which the one does that Rust brings along, and so must the loader the latter, which
//! glibc does from 2.36 on. Where one of them is in doubt it is not asked. In a backtrace a function that was kept once may
//! have the name of another one with the same code.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if !is_optimised() || !links_with_rusts_own() || !is_for_such_a_machine() {
        return;
    }
    println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    if glibc_unpacks() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

fn is_optimised() -> bool {
    variable("PROFILE") == "release"
}

/// Whether nobody chose another linker, and this toolchain has one of its own.
fn links_with_rusts_own() -> bool {
    let chosen = !variable("RUSTC_LINKER").is_empty() || variable("CARGO_ENCODED_RUSTFLAGS").contains("link");
    let libraries = output(Command::new(variable("RUSTC")).args(["--print", "target-libdir"]));
    !chosen && libraries.is_some_and(|path| Path::new(path.trim()).with_file_name("bin/gcc-ld/ld.lld").exists())
}

/// Whether the program is for machines like this one.
fn is_for_such_a_machine() -> bool {
    let target = variable("TARGET");
    target == variable("HOST") && target == "x86_64-unknown-linux-gnu"
}

fn glibc_unpacks() -> bool {
    let version = output(Command::new("getconf").arg("GNU_LIBC_VERSION"));
    version.is_some_and(|text| is_at_least(&text, (2, 36)))
}

/// Whether text such as `glibc 2.36` names a version or a later one.
fn is_at_least(text: &str, version: (u32, u32)) -> bool {
    let found = text.trim().strip_prefix("glibc ").and_then(|text| text.split_once('.'));
    found
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
        .is_some_and(|found: (u32, u32)| found >= version)
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}
