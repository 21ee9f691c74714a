//! Reads the scalars of event files.

use proto::{event, summary};
use std::collections::BTreeMap;
use std::path::Path;
use storage::{EventReader, LocalFiles, event_files};
use tensor::{Result, Tensor, not_found};

/// A scalar at a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The step.
    pub step: i64,
    /// When it was written, in seconds since 1970.
    pub wall_time: f64,
    /// Its value.
    pub value: f64,
}

/// How deep folders of runs are looked into.
const DEPTH_MAX: usize = 8;

/// The scalars of all runs under a directory, by tag: `loss`, or `RUN/loss` for a run in a folder of its own. Of two
/// values for one step the later one counts: training was taken up again there.
pub fn scalars(logdir: &Path) -> Result<BTreeMap<String, Vec<Point>>> {
    let mut found = BTreeMap::new();
    read_run(logdir, "", DEPTH_MAX, &mut found)?;
    if found.is_empty() {
        return Err(not_found!("there are no scalars in event files under {}", logdir.display()));
    }
    Ok(found.into_iter().map(|(tag, points)| (tag, in_order(points))).collect())
}

fn read_run(dir: &Path, run: &str, depth: usize, found: &mut BTreeMap<String, Vec<Point>>) -> Result<()> {
    for file in event_files(&LocalFiles, dir)? {
        let mut reader = EventReader::open(&LocalFiles, &file)?;
        while let Some(event) = reader.next_event()? {
            let (step, wall_time) = (event.step, event.wall_time);
            let Some(event::What::Summary(summary)) = event.what else { continue };
            for value in summary.value {
                let Some(number) = scalar(&value) else { continue };
                let tag = format!("{run}{}", value.tag);
                found.entry(tag).or_default().push(Point { step, wall_time, value: number });
            }
        }
    }
    let folders = std::fs::read_dir(dir).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir());
    for folder in folders.filter(|_| depth > 0) {
        let name = format!("{run}{}/", folder.file_name().to_string_lossy());
        read_run(&folder.path(), &name, depth - 1, found)?;
    }
    Ok(())
}

/// The number in a value, written in the old way or as a tensor.
fn scalar(value: &summary::Value) -> Option<f64> {
    match value.value.as_ref()? {
        summary::value::Value::SimpleValue(number) => Some(f64::from(*number)),
        summary::value::Value::Tensor(message) => {
            let tensor = Tensor::from_proto(message).ok().filter(|tensor| tensor.num_elements() == 1)?;
            super::numbers(&tensor).ok()??.first().copied()
        }
        _ => None,
    }
}

fn in_order(mut points: Vec<Point>) -> Vec<Point> {
    points.sort_by(|a, b| a.step.cmp(&b.step).then(b.wall_time.total_cmp(&a.wall_time)));
    points.dedup_by_key(|point| point.step);
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileWriter;

    #[test]
    fn scalars_of_all_runs_are_found_by_tag() {
        let folder = tempfile::tempdir().unwrap();
        for (run, from) in [("", 0), ("eval", 10)] {
            let writer = FileWriter::create(folder.path().join(run)).unwrap();
            for step in [2, 1] {
                writer.add_scalar("loss", (from + step) as f32, step).unwrap();
            }
            writer.close().unwrap();
        }
        let found = scalars(folder.path()).unwrap();
        let values = |tag: &str| found[tag].iter().map(|p| (p.step, p.value)).collect::<Vec<_>>();
        assert_eq!(values("loss"), [(1, 1.0), (2, 2.0)]);
        assert_eq!(values("eval/loss"), [(1, 11.0), (2, 12.0)]);
        assert!(scalars(&folder.path().join("nowhere")).is_err());
    }
}
