//! A simulated disk, for tests: it forgets what was not synced and fails where it is told to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tensor::{Code, Error, Result};

use crate::files::{Files, ReadFile, WriteFile, parent_dir};

/// A file system in memory; a clone is another handle to the same one.
///
/// ```
/// use std::path::Path;
/// use storage::{Files, MemoryFiles};
///
/// let files = MemoryFiles::new();
/// let mut file = files.create(Path::new("/a"))?;
/// file.write_all(b"kept")?;
/// file.sync()?;
/// file.write_all(b" lost")?;
/// files.lose_power();
/// assert_eq!(files.contents(Path::new("/a"))?, b"kept");
/// # Ok::<(), tensor::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryFiles {
    disk: Arc<Mutex<Disk>>,
}

#[derive(Debug, Default)]
struct Disk {
    files: BTreeMap<PathBuf, Arc<Mutex<Contents>>>,
    dirs: BTreeSet<PathBuf>,
    /// How many changes were asked for so far: creations, writes, syncs, renames, removals.
    operations: u64,
    /// The change at which the power fails.
    kill_at: Option<u64>,
    /// How many more bytes fit.
    bytes_free: Option<u64>,
    unique: u64,
}

#[derive(Debug, Default)]
struct Contents {
    data: Vec<u8>,
    synced_len: usize,
}

impl MemoryFiles {
    /// An empty disk on which only `/` and `.` exist.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the disk be full after so many more bytes.
    pub fn fail_after_bytes(&self, bytes_max: u64) {
        lock(&self.disk).bytes_free = Some(bytes_max);
    }

    /// Lets the `n`th change from now (0 is the next one) fail half done, and every one after it.
    pub fn kill_at(&self, n: u64) {
        let mut disk = lock(&self.disk);
        disk.kill_at = Some(disk.operations + n);
    }

    /// How many changes were asked for so far: creations, writes, syncs, renames, removals.
    pub fn operations(&self) -> u64 {
        lock(&self.disk).operations
    }

    /// Forgets what was written and not synced, and every fault that was arranged: the machine starts again.
    pub fn lose_power(&self) {
        let mut disk = lock(&self.disk);
        disk.kill_at = None;
        disk.bytes_free = None;
        for contents in disk.files.values() {
            let mut contents = lock(contents);
            let synced_len = contents.synced_len;
            contents.data.truncate(synced_len);
        }
    }

    /// The contents of a file.
    pub fn contents(&self, path: &Path) -> Result<Vec<u8>> {
        let contents = lock(&self.disk).file(path)?;
        let data = lock(&contents).data.clone();
        Ok(data)
    }

    /// Puts a file there, durable at once and without counting as a change.
    pub fn put(&self, path: &Path, data: &[u8]) {
        let mut disk = lock(&self.disk);
        disk.add_dirs(parent_dir(path));
        let contents = Contents { data: data.to_vec(), synced_len: data.len() };
        disk.files.insert(path.to_owned(), Arc::new(Mutex::new(contents)));
    }

    /// The names of all files.
    pub fn paths(&self) -> Vec<PathBuf> {
        lock(&self.disk).files.keys().cloned().collect()
    }
}

impl Disk {
    /// Counts a change, and refuses it from the arranged moment on.
    fn change(&mut self, path: &Path) -> Result<()> {
        let operation = self.operations;
        self.operations += 1;
        match self.kill_at {
            Some(kill_at) if operation >= kill_at => Err(killed(path)),
            _ => Ok(()),
        }
    }

    fn file(&self, path: &Path) -> Result<Arc<Mutex<Contents>>> {
        self.files.get(path).cloned().ok_or_else(|| no_such(path))
    }

    fn is_dir(&self, path: &Path) -> bool {
        path == Path::new(".") || path == Path::new("/") || self.dirs.contains(path)
    }

    fn add_dirs(&mut self, path: &Path) {
        for dir in path.ancestors().filter(|dir| !dir.as_os_str().is_empty()) {
            self.dirs.insert(dir.to_owned());
        }
    }

    /// The names right under a directory.
    fn names_in(&self, dir: &Path) -> Vec<String> {
        let inside = |path: &&PathBuf| parent_dir(path) == dir && path.as_path() != dir;
        let names: BTreeSet<String> = self
            .files
            .keys()
            .filter(inside)
            .chain(self.dirs.iter().filter(inside))
            .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
            .collect();
        names.into_iter().collect()
    }
}

impl Files for MemoryFiles {
    fn open_read(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        let contents = lock(&self.disk).file(path)?;
        Ok(Arc::new(MemoryFile { path: path.to_owned(), contents, disk: self.disk.clone() }))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        let mut disk = lock(&self.disk);
        disk.change(path)?;
        if !disk.is_dir(parent_dir(path)) {
            return Err(no_such(path));
        }
        let contents = Arc::<Mutex<Contents>>::default();
        disk.files.insert(path.to_owned(), contents.clone());
        Ok(Box::new(MemoryFile { path: path.to_owned(), contents, disk: self.disk.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut disk = lock(&self.disk);
        disk.change(from)?;
        if !disk.is_dir(parent_dir(to)) {
            return Err(no_such(to));
        }
        let contents = disk.files.remove(from).ok_or_else(|| no_such(from))?;
        disk.files.insert(to.to_owned(), contents);
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let mut disk = lock(&self.disk);
        disk.change(path)?;
        disk.files.remove(path).map(drop).ok_or_else(|| no_such(path))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        let mut disk = lock(&self.disk);
        disk.change(path)?;
        if !disk.names_in(path).is_empty() {
            return Err(tensor::failed_precondition!("{}: directory is not empty", path.display()));
        }
        if disk.dirs.remove(path) { Ok(()) } else { Err(no_such(path)) }
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        let mut disk = lock(&self.disk);
        disk.change(path)?;
        disk.add_dirs(path);
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        lock(&self.disk).change(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let disk = lock(&self.disk);
        if disk.is_dir(dir) { Ok(disk.names_in(dir)) } else { Err(no_such(dir)) }
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let disk = lock(&self.disk);
        Ok(disk.files.contains_key(path) || disk.is_dir(path))
    }

    fn size(&self, path: &Path) -> Result<u64> {
        let contents = lock(&self.disk).file(path)?;
        let len = lock(&contents).data.len();
        Ok(len as u64)
    }

    fn unique(&self) -> u64 {
        let mut disk = lock(&self.disk);
        disk.unique += 1;
        disk.unique
    }
}

struct MemoryFile {
    path: PathBuf,
    contents: Arc<Mutex<Contents>>,
    disk: Arc<Mutex<Disk>>,
}

impl ReadFile for MemoryFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn size(&self) -> Result<u64> {
        Ok(lock(&self.contents).data.len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let contents = lock(&self.contents);
        let rest = usize::try_from(offset).ok().and_then(|start| contents.data.get(start..)).unwrap_or(&[]);
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

impl WriteFile for MemoryFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn write_all(&mut self, data: &[u8]) -> Result<()> {
        let mut disk = lock(&self.disk);
        let mut contents = lock(&self.contents);
        if let Err(error) = disk.change(&self.path) {
            contents.data.extend_from_slice(&data[..data.len() / 2]);
            return Err(error);
        }
        let fits = disk.bytes_free.map_or(data.len(), |free| data.len().min(free as usize));
        contents.data.extend_from_slice(&data[..fits]);
        disk.bytes_free = disk.bytes_free.map(|free| free - fits as u64);
        if fits < data.len() {
            let message = format!("{}: no space left on device", self.path.display());
            return Err(Error::new(Code::ResourceExhausted, message));
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        lock(&self.disk).change(&self.path)?;
        let mut contents = lock(&self.contents);
        contents.synced_len = contents.data.len();
        Ok(())
    }
}

fn no_such(path: &Path) -> Error {
    tensor::not_found!("{}: no such file or directory", path.display())
}

fn killed(path: &Path) -> Error {
    Error::new(Code::Aborted, format!("{}: the power failed", path.display()))
}

/// A test that panicked while it held the lock has said what went wrong; the next one need not.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
