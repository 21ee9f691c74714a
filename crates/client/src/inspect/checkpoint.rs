//! Looks into checkpoints.

use crate::train::latest_checkpoint;
use crate::{Graph, Session};
use linalg::number::Number;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use storage::{BundleReader, LocalFiles};
use tensor::{DType, Element, Error, Result, Shape, Tensor, bf16, not_found};

const INDEX: &str = ".index";

/// A checkpoint in a directory.
#[derive(Clone, Debug)]
pub struct CheckpointFiles {
    /// What its files' names begin with.
    pub prefix: PathBuf,
    /// The size of all its files.
    pub bytes: u64,
    /// When it was written.
    pub modified: SystemTime,
    /// Whether it is the one that training would go on from.
    pub is_latest: bool,
}

/// A tensor of a checkpoint.
#[derive(Clone, Debug)]
pub struct CheckpointTensor {
    /// Its name.
    pub name: String,
    /// Its element type.
    pub dtype: DType,
    /// Its shape.
    pub shape: Shape,
    /// In how many parts it is stored; 1 if whole.
    pub parts: usize,
}

/// A checkpoint, opened.
pub struct Checkpoint {
    prefix: PathBuf,
    reader: BundleReader,
}

/// The checkpoints in a directory, the oldest first.
pub fn checkpoints(dir: &Path) -> Result<Vec<CheckpointFiles>> {
    let latest = latest_checkpoint(dir)?;
    let files: Vec<(PathBuf, std::fs::Metadata)> = std::fs::read_dir(dir)
        .map_err(|e| at(dir, e.into()))?
        .filter_map(|entry| entry.ok().and_then(|entry| Some((entry.path(), entry.metadata().ok()?))))
        .collect();
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut found: Vec<CheckpointFiles> = files
        .iter()
        .filter_map(|(path, metadata)| Some((text(path).strip_suffix(INDEX)?.to_string(), metadata)))
        .map(|(prefix, metadata)| {
            let is_part = |path: &Path| {
                text(path).strip_prefix(&prefix).is_some_and(|rest| rest == INDEX || rest.starts_with(".data-"))
            };
            CheckpointFiles {
                bytes: files.iter().filter(|(path, _)| is_part(path)).map(|(_, metadata)| metadata.len()).sum(),
                modified: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                is_latest: latest.as_deref() == Some(Path::new(&prefix)),
                prefix: prefix.into(),
            }
        })
        .collect();
    found.sort_by(|a, b| (a.modified, &a.prefix).cmp(&(b.modified, &b.prefix)));
    Ok(found)
}

impl Checkpoint {
    /// Opens a checkpoint: by its prefix, by one of its files, or the latest of a directory.
    pub fn open(path: &Path) -> Result<Checkpoint> {
        let prefix = match path.is_dir() {
            true => latest_checkpoint(path)?.ok_or_else(|| nothing_in(path))?,
            false => prefix_of(path),
        };
        let reader = BundleReader::open(Arc::new(LocalFiles), &prefix).map_err(|e| with_neighbours(&prefix, e))?;
        Ok(Checkpoint { prefix, reader })
    }

    /// What its files' names begin with.
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// Its tensors, in order of their names.
    pub fn tensors(&self) -> Result<Vec<CheckpointTensor>> {
        let tensor = |name: String| {
            let info = self.reader.lookup(&name)?;
            Ok(CheckpointTensor { name, dtype: info.dtype, shape: info.shape, parts: info.slices.len().max(1) })
        };
        self.reader.names()?.into_iter().map(tensor).collect()
    }

    /// A tensor's value, its checksum verified.
    pub fn read(&self, name: &str) -> Result<Tensor> {
        if !self.reader.contains(name)? {
            let names = self.reader.names()?;
            let near = super::nearest(name, names.iter().map(String::as_str));
            let advice = near.map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
            return Err(not_found!("there is no tensor '{name}' in {}{advice}", self.prefix.display()));
        }
        self.reader.read(name)
    }
}

/// A tensor's elements as numbers, just as they are; none if they are not.
pub fn numbers(tensor: &Tensor) -> Result<Option<Vec<f64>>> {
    fn exactly<T: Element + Number>(tensor: &Tensor) -> Result<Option<Vec<f64>>> {
        Ok(Some(tensor.as_slice::<T>()?.iter().map(|value| value.to_f64()).collect()))
    }
    match tensor.dtype() {
        // To a kernel the smallest of these are zero.
        DType::F32 => exactly::<f32>(tensor),
        DType::F64 => exactly::<f64>(tensor),
        DType::BF16 => exactly::<bf16>(tensor),
        dtype if dtype.is_floating() || dtype.is_integer() || dtype == DType::Bool => {
            let g = Graph::new();
            let values = g.constant(tensor.clone()).cast::<f64>();
            Session::new(&g)?.run(&values)?.into_vec().map(Some)
        }
        _ => Ok(None),
    }
}

/// The prefix that a file of a checkpoint begins with.
fn prefix_of(path: &Path) -> PathBuf {
    let text = path.to_string_lossy();
    let data = text.rfind(".data-").map(|at| &text[..at]);
    PathBuf::from(text.strip_suffix(INDEX).or(data).unwrap_or(&text))
}

fn nothing_in(dir: &Path) -> Error {
    not_found!(
        "there is no checkpoint in {}; wanted a directory with a file named 'checkpoint', or a prefix",
        dir.display()
    )
}

/// The error of a checkpoint that is not there, with those that are.
fn with_neighbours(prefix: &Path, e: Error) -> Error {
    let index = PathBuf::from(format!("{}{INDEX}", prefix.display()));
    if index.exists() {
        return e;
    }
    let dir = prefix.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let names: Vec<String> =
        checkpoints(dir).unwrap_or_default().iter().map(|c| c.prefix.display().to_string()).collect();
    let advice = match names.as_slice() {
        [] => format!("; there is no other in {}", dir.display()),
        names => format!("; there is {}", names.join(", ")),
    };
    not_found!("there is no checkpoint {}{advice}", prefix.display())
}

fn at(path: &Path, e: Error) -> Error {
    Error { message: format!("{}: {}", path.display(), e.message), ..e }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::Saver;

    fn save(dir: &Path, steps: &[i64]) -> Vec<PathBuf> {
        let g = Graph::new();
        let _w = g.variable("w", vec![1.0f32, -2.0]);
        let _n = g.variable("n", 7i64);
        let (saver, init) = (Saver::new(&g), g.initialize_all());
        let session = Session::new(&g).unwrap();
        session.run(&init).unwrap();
        steps.iter().map(|step| saver.save(&session, dir.join("model"), Some(*step)).unwrap()).collect()
    }

    #[test]
    fn checkpoints_are_listed_and_opened_by_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let saved = save(folder.path(), &[1, 2]);
        let found = checkpoints(folder.path()).unwrap();
        let listed: Vec<_> = found.iter().map(|c| (c.prefix.clone(), c.is_latest)).collect();
        assert_eq!(listed, [(saved[0].clone(), false), (saved[1].clone(), true)]);
        let index = PathBuf::from(format!("{}.index", saved[1].display()));
        for path in [folder.path(), &saved[1], &index] {
            assert_eq!(Checkpoint::open(path).unwrap().prefix(), saved[1], "{}", path.display());
        }
    }

    #[test]
    fn tensors_are_described_and_read() {
        let folder = tempfile::tempdir().unwrap();
        save(folder.path(), &[5]);
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        let tensors: Vec<_> =
            checkpoint.tensors().unwrap().iter().map(|t| format!("{} {} {}", t.name, t.dtype, t.shape)).collect();
        assert_eq!(tensors, ["n int64 []", "w float [2]"]);
        assert_eq!(numbers(&checkpoint.read("w").unwrap()).unwrap(), Some(vec![1.0, -2.0]));
        let e = checkpoint.read("v").unwrap_err();
        assert!(e.message.contains("there is no tensor 'v'") && e.message.contains("did you mean"), "{e}");
        assert_eq!(numbers(&Tensor::string("x")).unwrap(), None);
    }

    #[test]
    fn the_smallest_numbers_are_shown_as_they_are() {
        let smallest =
            [Tensor::from(f32::from_bits(1)), Tensor::from(f64::from_bits(1)), Tensor::from(bf16::from_bits(1))];
        let values = smallest.map(|tensor| numbers(&tensor).unwrap().unwrap()[0]);
        assert_eq!(values, [f64::from(f32::from_bits(1)), f64::from_bits(1), f64::from(bf16::from_bits(1))]);
        assert_eq!(numbers(&Tensor::from(true)).unwrap(), Some(vec![1.0]));
    }

    #[test]
    fn a_checkpoint_that_is_not_there_is_answered_with_those_that_are() {
        let folder = tempfile::tempdir().unwrap();
        let e = Checkpoint::open(folder.path()).map(|_| ()).unwrap_err();
        assert!(e.message.contains("there is no checkpoint in"), "{e}");
        save(folder.path(), &[5]);
        let e = Checkpoint::open(&folder.path().join("model-6")).map(|_| ()).unwrap_err();
        assert!(e.message.contains("model-6; there is") && e.message.contains("model-5"), "{e}");
    }
}
