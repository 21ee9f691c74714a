//! Which checkpoints there are: the file named `checkpoint` beside them, the latest, and those to be removed.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use storage::{CHECKPOINT_STATE_NAME, Files, LocalFiles};
use tensor::{Code, Result, invalid};

/// What the file named `checkpoint` in a directory says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointState {
    /// The checkpoint that was written last.
    pub latest: PathBuf,
    /// All that are kept, the oldest first.
    pub all: Vec<PathBuf>,
}

/// The latest checkpoint in a directory: the one its `checkpoint` file names, if that is still there.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// assert_eq!(ferroflow::train::latest_checkpoint(folder.path())?, None);
/// # Ok::<(), ferroflow::Error>(())
/// ```
pub fn latest_checkpoint(dir: impl AsRef<Path>) -> Result<Option<PathBuf>> {
    storage::latest_checkpoint(&LocalFiles, dir.as_ref())
}

/// Whether there is a checkpoint with this prefix.
pub fn checkpoint_exists(prefix: impl AsRef<Path>) -> Result<bool> {
    storage::checkpoint_exists(&LocalFiles, prefix.as_ref())
}

/// What the file named `checkpoint` in a directory says; nothing if there is none.
pub fn checkpoint_state(dir: impl AsRef<Path>) -> Result<Option<CheckpointState>> {
    let dir = dir.as_ref();
    let state = storage::read_checkpoint_state(&LocalFiles, &dir.join(CHECKPOINT_STATE_NAME))?;
    // An absolute path stays as it is.
    Ok(state.map(|state| CheckpointState {
        latest: dir.join(&state.model_checkpoint_path),
        all: state.all_model_checkpoint_paths.iter().map(|path| dir.join(path)).collect(),
    }))
}

/// Removes the files of a checkpoint, the index first: what is left of it after a failure is none.
pub fn remove_checkpoint(prefix: impl AsRef<Path>) -> Result<()> {
    remove(&LocalFiles, prefix.as_ref())
}

fn remove(files: &dyn Files, prefix: &Path) -> Result<()> {
    let (dir, name) = parts(prefix)?;
    let names = files.list(dir)?;
    // Also what a save that was interrupted left behind under a temporary name.
    let named = |start: &'static str| {
        names.iter().filter(move |file| file.strip_prefix(name).is_some_and(|end| end.starts_with(start)))
    };
    for file in named(".index").chain(named(".meta")).chain(named(".data-")) {
        match files.remove(&dir.join(file)) {
            Err(error) if error.code != Code::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The directory of a checkpoint and its name there.
fn parts(prefix: &Path) -> Result<(&Path, &str)> {
    let name = prefix.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| invalid!("'{}' cannot be the prefix of a checkpoint", prefix.display()))?;
    match prefix.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => Ok((dir, name)),
        _ => Ok((Path::new("."), name)),
    }
}

/// How many checkpoints are kept, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// How many; all of them, unlisted, if 0.
    pub max_to_keep: usize,
    /// One for each of this many hours is kept for good.
    pub every_n_hours: f64,
}

/// The checkpoints that a saver wrote and has not given up yet.
#[derive(Debug)]
pub(crate) struct Kept {
    policy: Policy,
    /// The oldest first, each with the time it was written.
    list: Vec<(PathBuf, SystemTime)>,
    /// A checkpoint written after this is kept for good.
    next_for_good: SystemTime,
    /// Those to be removed as soon as nobody names them any more.
    doomed: Vec<PathBuf>,
}

impl Kept {
    pub(crate) fn new(policy: Policy, now: SystemTime) -> Kept {
        Kept { policy, list: Vec::new(), next_for_good: later(now, policy.every_n_hours), doomed: Vec::new() }
    }

    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.list.iter().map(|(path, _)| path.clone()).collect()
    }

    /// Takes over those of an earlier run that are still there.
    pub(crate) fn recover(&mut self, files: &dyn Files, paths: &[PathBuf]) -> Result<()> {
        let mut list = Vec::new();
        for path in paths {
            if storage::checkpoint_exists(files, path)? {
                list.push((path.clone(), written(path)));
            }
        }
        self.list = list;
        Ok(())
    }

    /// Makes a new checkpoint the latest of its directory, and removes those that are now too many.
    pub(crate) fn record(&mut self, files: &dyn Files, path: PathBuf, now: SystemTime) -> Result<()> {
        if self.policy.max_to_keep > 0 {
            self.list.retain(|(known, _)| *known != path);
            self.doomed.retain(|known| *known != path);
            self.list.push((path.clone(), now));
            let too_many = self.list.len().saturating_sub(self.policy.max_to_keep);
            let old: Vec<_> = self.list.drain(..too_many).collect();
            let doomed: Vec<_> = old.into_iter().filter(|(_, time)| !self.stays(*time)).map(|(path, _)| path).collect();
            self.doomed.extend(doomed);
        }
        self.write_state(files, &path)?;
        // Only now: at no moment does the list name what is no longer there.
        for prefix in self.doomed.drain(..) {
            // One that cannot be removed is in nobody's way but the disk's.
            if let Err(error) = remove(files, &prefix) {
                tracing::warn!(checkpoint = %prefix.display(), "an old checkpoint could not be removed: {error}");
            }
        }
        Ok(())
    }

    fn stays(&mut self, time: SystemTime) -> bool {
        let stays = time > self.next_for_good;
        if stays {
            self.next_for_good = later(self.next_for_good, self.policy.every_n_hours);
        }
        stays
    }

    /// Writes the `checkpoint` file that names the latest checkpoint and those kept, relative to the directory they are in.
    fn write_state(&self, files: &dyn Files, latest: &Path) -> Result<()> {
        let (dir, _) = parts(latest)?;
        let relative = |path: &Path| {
            let path = match path.strip_prefix(dir) {
                Ok(name) => name.to_owned(),
                Err(_) => std::path::absolute(path)?,
            };
            path.to_str().map(str::to_string).ok_or_else(|| invalid!("'{}' is not UTF-8", path.display()))
        };
        let mut all = self.list.iter().map(|(path, _)| relative(path)).collect::<Result<Vec<_>>>()?;
        let latest = relative(latest)?;
        if all.is_empty() {
            all.push(latest.clone());
        }
        let state = proto::CheckpointState {
            model_checkpoint_path: latest,
            all_model_checkpoint_paths: all,
            ..Default::default()
        };
        storage::write_checkpoint_state(files, &dir.join(CHECKPOINT_STATE_NAME), &state)
    }
}

/// A time so many hours later; never, if that is beyond all clocks.
fn later(time: SystemTime, hours: f64) -> SystemTime {
    let far = Duration::from_secs(u32::MAX.into());
    let wait = Duration::try_from_secs_f64(hours * 3600.0).unwrap_or(far).min(far);
    time.checked_add(wait).unwrap_or(time)
}

/// When a checkpoint was written, as its index file tells.
fn written(prefix: &Path) -> SystemTime {
    let mut index = prefix.as_os_str().to_owned();
    index.push(".index");
    std::fs::metadata(index).and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::MemoryFiles;

    fn hours(n: f64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs_f64(n * 3600.0)
    }

    fn save(files: &MemoryFiles, kept: &mut Kept, prefix: &str, now: f64) {
        for end in [".index", ".meta", ".data-00000-of-00002", ".data-00001-of-00002"] {
            files.put(Path::new(&format!("{prefix}{end}")), b"x");
        }
        kept.record(files, prefix.into(), hours(now)).unwrap();
    }

    fn indexes(files: &MemoryFiles) -> Vec<String> {
        let paths = files.paths().into_iter().filter_map(|p| p.to_str().map(str::to_string));
        paths.filter_map(|p| p.strip_suffix(".index").map(str::to_string)).collect()
    }

    fn state(files: &MemoryFiles) -> (String, Vec<String>) {
        let state = storage::read_checkpoint_state(files, Path::new("/m/checkpoint")).unwrap().unwrap();
        (state.model_checkpoint_path, state.all_model_checkpoint_paths)
    }

    fn files() -> MemoryFiles {
        let files = MemoryFiles::new();
        files.create_dir_all(Path::new("/m")).unwrap();
        files
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let files = files();
        let mut kept = Kept::new(Policy { max_to_keep: 2, every_n_hours: 1e4 }, hours(0.0));
        for step in 0..3 {
            save(&files, &mut kept, &format!("/m/model-{step}"), 0.0);
        }
        assert_eq!(indexes(&files), ["/m/model-1", "/m/model-2"]);
        assert_eq!(files.paths().len(), 1 + 2 * 4);
        assert_eq!(state(&files), ("model-2".into(), vec!["model-1".into(), "model-2".into()]));
        save(&files, &mut kept, "/m/model-1", 0.0);
        assert_eq!(state(&files), ("model-1".into(), vec!["model-2".into(), "model-1".into()]));
    }

    #[test]
    fn what_could_not_be_removed_in_time_is_removed_later() {
        let files = files();
        let mut kept = Kept::new(Policy { max_to_keep: 1, every_n_hours: 1e4 }, hours(0.0));
        save(&files, &mut kept, "/m/model-1", 0.0);
        files.fail_after_bytes(0);
        files.put(Path::new("/m/model-2.index"), b"x");
        assert_eq!(kept.record(&files, "/m/model-2".into(), hours(0.0)).unwrap_err().code, Code::ResourceExhausted);
        assert_eq!(indexes(&files), ["/m/model-1", "/m/model-2"]);
        assert_eq!(state(&files).0, "model-1");
        files.fail_after_bytes(u64::MAX);
        save(&files, &mut kept, "/m/model-3", 0.0);
        assert_eq!(indexes(&files), ["/m/model-3"]);
    }

    #[test]
    fn a_name_that_begins_like_another_is_not_removed_with_it() {
        let files = files();
        let mut kept = Kept::new(Policy { max_to_keep: 1, every_n_hours: 1e4 }, hours(0.0));
        save(&files, &mut kept, "/m/model-1", 0.0);
        save(&files, &mut kept, "/m/model-10", 0.0);
        save(&files, &mut kept, "/m/model-2", 0.0);
        assert_eq!(indexes(&files), ["/m/model-2"]);
        save(&files, &mut kept, "/m/model-20", 0.0);
        assert_eq!(files.paths().len(), 5);
    }

    #[test]
    fn one_for_every_so_many_hours_is_kept_for_good() {
        let files = files();
        let mut kept = Kept::new(Policy { max_to_keep: 1, every_n_hours: 2.0 }, hours(0.0));
        for (step, now) in [(0, 0.5), (1, 1.5), (2, 2.5), (3, 3.5), (4, 4.5), (5, 5.0)] {
            save(&files, &mut kept, &format!("/m/model-{step}"), now);
        }
        assert_eq!(indexes(&files), ["/m/model-2", "/m/model-4", "/m/model-5"]);
        assert_eq!(state(&files), ("model-5".into(), vec!["model-5".into()]));
    }

    #[test]
    fn one_in_another_directory_is_named_by_its_whole_path() {
        let files = files();
        files.create_dir_all(Path::new("/other")).unwrap();
        let mut kept = Kept::new(Policy { max_to_keep: 5, every_n_hours: 1e4 }, hours(0.0));
        save(&files, &mut kept, "/other/model-1", 0.0);
        save(&files, &mut kept, "/m/model-2", 0.0);
        assert_eq!(state(&files), ("model-2".into(), vec!["/other/model-1".into(), "model-2".into()]));
    }

    #[test]
    fn without_a_limit_all_stay_and_the_latest_is_named() {
        let files = files();
        let mut kept = Kept::new(Policy { max_to_keep: 0, every_n_hours: 1.0 }, hours(0.0));
        save(&files, &mut kept, "/m/model-1", 0.0);
        save(&files, &mut kept, "/m/model-2", 9.0);
        assert_eq!(indexes(&files), ["/m/model-1", "/m/model-2"]);
        assert_eq!(state(&files), ("model-2".into(), vec!["model-2".into()]));
    }

    #[test]
    fn a_kill_at_any_moment_leaves_the_last_whole_checkpoint_named_and_readable() {
        let save = |files: &MemoryFiles, kept: &mut Kept, step: i64| -> Result<()> {
            let prefix = PathBuf::from(format!("/m/model-{step}"));
            let mut writer = storage::BundleWriter::create(std::sync::Arc::new(files.clone()), &prefix)?;
            writer.add("step", &tensor::Tensor::scalar(step))?;
            writer.finish()?;
            storage::replace(files, Path::new(&format!("/m/model-{step}.meta")), b"graph")?;
            kept.record(files, prefix, hours(0.0))
        };
        let step_of = |files: &MemoryFiles, prefix: &Path| {
            let reader = storage::BundleReader::open(std::sync::Arc::new(files.clone()), prefix).unwrap();
            let step = reader.read("step").unwrap().item::<i64>().unwrap();
            assert_eq!(prefix, Path::new(&format!("/m/model-{step}")));
            step
        };
        let mut kills = 0;
        for max_to_keep in [1, 2, 3] {
            let policy = Policy { max_to_keep, every_n_hours: 1e4 };
            for moment in 0.. {
                let files = files();
                let mut kept = Kept::new(policy, hours(0.0));
                files.kill_at(moment);
                let done = (1..=6).take_while(|&step| save(&files, &mut kept, step).is_ok()).count() as i64;
                files.lose_power();
                let state = storage::read_checkpoint_state(&files, Path::new("/m/checkpoint")).unwrap();
                let listed = state.unwrap_or_default().all_model_checkpoint_paths;
                let listed: Vec<i64> = listed.iter().map(|name| step_of(&files, &Path::new("/m").join(name))).collect();
                let latest = storage::latest_checkpoint(&files, Path::new("/m")).unwrap();
                let latest = latest.map_or(0, |prefix| step_of(&files, &prefix));
                assert_eq!(listed.last().copied().unwrap_or(0), latest, "kill {moment}: {listed:?}");
                // What was not finished may be whole all the same.
                assert!(latest == done || latest == done + 1, "kill {moment}: {done} saved, {latest} found");
                if done == 6 {
                    break;
                }
                kills += 1;
            }
        }
        assert!(kills >= 200, "{kills} kills");
    }

    #[test]
    fn those_of_an_earlier_run_are_taken_over_if_they_are_there() {
        let files = files();
        let mut kept = Kept::new(Policy { max_to_keep: 2, every_n_hours: 1e4 }, hours(0.0));
        files.put(Path::new("/m/model-1.index"), b"x");
        kept.recover(&files, &["/m/model-0".into(), "/m/model-1".into()]).unwrap();
        assert_eq!(kept.paths(), [PathBuf::from("/m/model-1")]);
        save(&files, &mut kept, "/m/model-2", 0.0);
        save(&files, &mut kept, "/m/model-3", 0.0);
        assert_eq!(indexes(&files), ["/m/model-2", "/m/model-3"]);
    }
}
