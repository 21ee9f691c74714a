//! `ferroflow checkpoint`: looks into checkpoints.

use super::print;
use crate::table::{bytes, table};
use clap::Subcommand;
use ferroflow::inspect::{self, Checkpoint, CheckpointTensor, numbers};
use ferroflow::{Code, Error, Result, Tensor};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What to do with a checkpoint.
#[derive(Subcommand)]
pub enum Command {
    /// List the checkpoints of a directory
    #[command(after_help = "Example:\n  ferroflow checkpoint ls train_logs")]
    Ls {
        /// The directory
        #[arg(default_value = ".")]
        dir: PathBuf,
    },
    /// Show the tensors of a checkpoint, or the values of one
    #[command(after_help = "\
Examples:
  ferroflow checkpoint show train_logs                 # the latest one
  ferroflow checkpoint show train_logs/model.ckpt-200 hid_w")]
    Show {
        /// A prefix, a file, or a directory whose latest checkpoint is meant
        checkpoint: PathBuf,
        /// A tensor whose values are shown
        tensor: Option<String>,
    },
    /// Read every byte of a checkpoint and check it
    #[command(after_help = "Example:\n  ferroflow checkpoint verify train_logs/model.ckpt-200")]
    Verify {
        /// A prefix, a file, or a directory whose latest checkpoint is meant
        checkpoint: PathBuf,
    },
    /// Say how two checkpoints differ; the exit code is 1 if they do
    #[command(after_help = "Example:\n  ferroflow checkpoint diff model.ckpt-100 model.ckpt-200")]
    Diff {
        /// One
        a: PathBuf,
        /// The other
        b: PathBuf,
    },
}

/// Runs the command; whether all is well.
pub fn run(command: Command) -> Result<bool> {
    match command {
        Command::Ls { dir } => print(&list(&dir)?).map(|()| true),
        Command::Show { checkpoint, tensor: None } => print(&show(&Checkpoint::open(&checkpoint)?)?).map(|()| true),
        Command::Show { checkpoint, tensor: Some(name) } => {
            print(&describe(&name, &Checkpoint::open(&checkpoint)?.read(&name)?)?).map(|()| true)
        }
        Command::Verify { checkpoint } => verify(&Checkpoint::open(&checkpoint)?),
        Command::Diff { a, b } => {
            let found = differences(&Checkpoint::open(&a)?, &Checkpoint::open(&b)?)?;
            print(if found.is_empty() { "the same\n" } else { &found })?;
            Ok(found.is_empty())
        }
    }
}

fn list(dir: &Path) -> Result<String> {
    let found = inspect::checkpoints(dir)?;
    if found.is_empty() {
        return Err(Error::new(Code::NotFound, format!("there are no checkpoints in {}", dir.display())));
    }
    let rows = found.iter().map(|checkpoint| {
        let age = SystemTime::now().duration_since(checkpoint.modified).unwrap_or_default();
        let name = checkpoint.prefix.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mark = if checkpoint.is_latest { "latest" } else { "" };
        [name, bytes(checkpoint.bytes), format!("{} ago", super::status::age(age)), mark.to_string()]
    });
    Ok(table(["CHECKPOINT", "SIZE", "WRITTEN", ""], rows))
}

fn size(tensor: &CheckpointTensor) -> u64 {
    (tensor.shape.num_elements() * tensor.dtype.size()) as u64
}

fn show(checkpoint: &Checkpoint) -> Result<String> {
    let tensors = checkpoint.tensors()?;
    let rows = tensors.iter().map(|tensor| {
        let parts = if tensor.parts > 1 { tensor.parts.to_string() } else { "whole".into() };
        [tensor.name.clone(), tensor.dtype.to_string(), tensor.shape.to_string(), bytes(size(tensor)), parts]
    });
    let total: u64 = tensors.iter().map(size).sum();
    let rows = table(["TENSOR", "TYPE", "SHAPE", "SIZE", "PARTS"], rows);
    Ok(format!("{}\n{rows}{} tensors, {}\n", checkpoint.prefix().display(), tensors.len(), bytes(total)))
}

fn describe(name: &str, tensor: &Tensor) -> Result<String> {
    let mut out = format!("{name}: {} {}\n", tensor.dtype(), tensor.shape());
    if let Some(values) = numbers(tensor)?.filter(|values| values.len() > 1) {
        let sum: f64 = values.iter().sum();
        let (low, high) = values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
        let odd = values.iter().filter(|value| !value.is_finite()).count();
        let mean = sum / values.len() as f64;
        let _ = write!(out, "min {}, max {}, mean {}", precise(low), precise(high), precise(mean));
        let _ = writeln!(out, "{}", if odd > 0 { format!(", {odd} not finite") } else { String::new() });
    }
    let _ = writeln!(out, "{tensor}");
    Ok(out)
}

fn verify(checkpoint: &Checkpoint) -> Result<bool> {
    let tensors = checkpoint.tensors()?;
    let bad: Vec<String> =
        tensors.iter().filter_map(|tensor| checkpoint.read(&tensor.name).err()).map(|e| e.message).collect();
    bad.iter().for_each(|problem| eprintln!("{problem}"));
    let total: u64 = tensors.iter().map(size).sum();
    let verdict = if bad.is_empty() { "all checksums are right".to_string() } else { format!("{} damaged", bad.len()) };
    print(&format!("{}: {} tensors, {}: {verdict}\n", checkpoint.prefix().display(), tensors.len(), bytes(total)))?;
    Ok(bad.is_empty())
}

/// A line for each tensor that is not the same in both.
fn differences(a: &Checkpoint, b: &Checkpoint) -> Result<String> {
    let by_name = |checkpoint: &Checkpoint| -> Result<BTreeMap<String, CheckpointTensor>> {
        Ok(checkpoint.tensors()?.into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect())
    };
    let (left, right) = (by_name(a)?, by_name(b)?);
    let mut out = String::new();
    for (name, tensor) in &left {
        let Some(other) = right.get(name) else {
            let _ = writeln!(out, "- {name}: {} {}", tensor.dtype, tensor.shape);
            continue;
        };
        if (tensor.dtype, &tensor.shape) != (other.dtype, &other.shape) {
            let _ = writeln!(out, "! {name}: {} {} became {} {}", tensor.dtype, tensor.shape, other.dtype, other.shape);
        } else if let Some(change) = change(&a.read(name)?, &b.read(name)?)? {
            let _ = writeln!(out, "~ {name}: {change}");
        }
    }
    for (name, tensor) in right.iter().filter(|(name, _)| !left.contains_key(*name)) {
        let _ = writeln!(out, "+ {name}: {} {}", tensor.dtype, tensor.shape);
    }
    Ok(out)
}

/// How two tensors of one type and shape differ, if they do.
fn change(a: &Tensor, b: &Tensor) -> Result<Option<String>> {
    let (Some(left), Some(right)) = (numbers(a)?, numbers(b)?) else {
        return Ok((a.to_string() != b.to_string()).then(|| "other values".into()));
    };
    let differs = |(x, y): (&f64, &f64)| x.to_bits() != y.to_bits();
    let count = left.iter().zip(&right).filter(|pair| differs(*pair)).count();
    if count == 0 {
        return Ok(None);
    }
    if let ([from], [to]) = (left.as_slice(), right.as_slice()) {
        return Ok(Some(format!("{} became {}", precise(*from), precise(*to))));
    }
    let most = left.iter().zip(&right).map(|(x, y)| (y - x).abs()).fold(0.0, f64::max);
    Ok(Some(format!("{count} of {} values differ, at most by {}", left.len(), precise(most))))
}

/// A number with six digits or more, without rows of zeros.
fn precise(value: f64) -> String {
    let size = value.abs();
    if value == value.trunc() && size < 1e15 {
        format!("{value:.0}")
    } else if (1e-3..1e9).contains(&size) {
        format!("{value:.6}")
    } else {
        format!("{value:.5e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_neither_rounded_away_nor_rows_of_zeros() {
        for (value, want) in [
            (0.0, "0"),
            (1001.0, "1001"),
            (-0.5, "-0.500000"),
            (0.00012345678, "1.23457e-4"),
            (5.605e-45, "5.60500e-45"),
            (1.5e300, "1.50000e300"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(precise(value), want);
        }
    }

    #[test]
    fn a_change_of_one_number_shows_it() {
        let changed = |a: f32, b: f32| change(&Tensor::from(a), &Tensor::from(b)).unwrap();
        assert_eq!(changed(0.81, 5.6e-45).as_deref(), Some("0.810000 became 5.60519e-45"));
        assert_eq!(changed(1.0, 1.0), None);
    }
}
