//! `ferroflow events`: the scalars of event files, drawn in the terminal.

use super::print;
use crate::plot;
use clap::Args;
use ferroflow::inspect::{self, Point};
use ferroflow::{Code, Error, Result};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Draw the scalars of event files: loss curves and the like
#[derive(Args)]
#[command(after_help = "\
Examples:
  ferroflow events train_logs
  ferroflow events train_logs --tag loss --width 100
  ferroflow events train_logs --csv > curves.csv")]
pub struct Arguments {
    /// A directory with event files, or with runs that have some
    #[arg(value_name = "LOGDIR")]
    logdir: PathBuf,
    /// Only tags that contain this
    #[arg(long, value_name = "TEXT")]
    tag: Option<String>,
    /// How wide curves are drawn, in letters
    #[arg(long, value_name = "LETTERS", default_value_t = 72, value_parser = clap::value_parser!(u16).range(2..1000))]
    width: u16,
    /// How high curves are drawn, in lines
    #[arg(long, value_name = "LINES", default_value_t = 8, value_parser = clap::value_parser!(u16).range(2..200))]
    height: u16,
    /// Print the points, one a line, for other programs
    #[arg(long)]
    csv: bool,
}

/// Draws or prints.
pub fn run(arguments: Arguments) -> Result<()> {
    let scalars = chosen(inspect::scalars(&arguments.logdir)?, arguments.tag.as_deref())?;
    print(&if arguments.csv {
        csv(&scalars)
    } else {
        curves(&scalars, arguments.width.into(), arguments.height.into())
    })
}

fn chosen(mut scalars: BTreeMap<String, Vec<Point>>, tag: Option<&str>) -> Result<BTreeMap<String, Vec<Point>>> {
    let Some(wanted) = tag else { return Ok(scalars) };
    let known: Vec<String> = scalars.keys().cloned().collect();
    scalars.retain(|tag, _| tag.contains(wanted));
    if scalars.is_empty() {
        let message = format!("no tag contains '{wanted}'; there are {}", known.join(", "));
        return Err(Error::new(Code::NotFound, message));
    }
    Ok(scalars)
}

fn curves(scalars: &BTreeMap<String, Vec<Point>>, width: usize, height: usize) -> String {
    let mut out = String::new();
    for (tag, points) in scalars {
        if let [point] = points.as_slice() {
            let _ = writeln!(out, "{tag}: {} at step {}\n", plot::number(point.value), point.step);
            continue;
        }
        let last = points.last().map_or(f64::NAN, |point| point.value);
        let _ = writeln!(out, "{tag}: {} points, last {}", points.len(), plot::number(last));
        let points: Vec<(f64, f64)> = points.iter().map(|point| (point.step as f64, point.value)).collect();
        // As many as there are dots across.
        let _ = writeln!(out, "{}", plot::plot(&plot::smooth(&points, 2 * width), width, height));
    }
    out
}

fn csv(scalars: &BTreeMap<String, Vec<Point>>) -> String {
    let quote = |tag: &str| format!("\"{}\"", tag.replace('"', "\"\""));
    let rows = scalars.iter().flat_map(|(tag, points)| {
        points.iter().map(move |p| format!("{},{},{},{}\n", quote(tag), p.step, p.wall_time, p.value))
    });
    std::iter::once("tag,step,wall_time,value\n".to_string()).chain(rows).collect()
}
