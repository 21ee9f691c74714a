//! The one door to the disk: everything in this crate that touches a file does so through [`Files`].
//!
//! [`LocalFiles`] is the operating system's file system; [`MemoryFiles`](crate::MemoryFiles) is a simulated one that
//! can be made to fail. What the bytes mean is not known here.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tensor::{Code, Error, Result};

/// A file system: the few operations that checkpoints, records and event files are made of.
pub trait Files: Send + Sync {
    /// Opens an existing file for reading.
    fn open_read(&self, path: &Path) -> Result<Arc<dyn ReadFile>>;
    /// Makes an empty file for writing, in place of any that had the name.
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>>;
    /// Gives a file another name, atomically and in place of any that had that name.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> Result<()>;
    /// Makes a directory and those above it that do not exist yet.
    fn create_dir_all(&self, path: &Path) -> Result<()>;
    /// Makes the names in a directory as durable as the files' contents.
    fn sync_dir(&self, path: &Path) -> Result<()>;
    /// The names of the files and directories in a directory, in order.
    fn list(&self, dir: &Path) -> Result<Vec<String>>;
    /// Whether a file or directory has this name.
    fn exists(&self, path: &Path) -> Result<bool>;
    /// The length of a file in bytes.
    fn size(&self, path: &Path) -> Result<u64>;
    /// A number for the name of a temporary file that no other writer will choose.
    fn unique(&self) -> u64;
}

/// A file open for reading at any place.
pub trait ReadFile: Send + Sync {
    /// The name under which it was opened.
    fn path(&self) -> &Path;
    /// Its length now; a file that is still being written grows.
    fn size(&self) -> Result<u64>;
    /// Reads into the front of `into` and returns how many bytes there were: 0 only at the end of the file.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize>;

    /// Fills `into`, or fails with `OutOfRange` where the file ends first.
    fn read_exact_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < into.len() {
            match self.read_at(offset + done as u64, &mut into[done..])? {
                0 => {
                    return Err(tensor::out_of_range!(
                        "{}: wanted {} bytes at offset {offset}, the file ends after {done}",
                        self.path().display(),
                        into.len()
                    ));
                }
                n => done += n,
            }
        }
        Ok(())
    }
}

/// A file being written from its beginning.
pub trait WriteFile: Send {
    /// The name under which it was made.
    fn path(&self) -> &Path;
    /// Appends bytes.
    fn write_all(&mut self, data: &[u8]) -> Result<()>;
    /// Returns when what was written would survive a loss of power.
    fn sync(&mut self) -> Result<()>;
}

/// The operating system's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalFiles;

impl Files for LocalFiles {
    fn open_read(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        let file = fs::File::open(path).map_err(|e| from_io(path, e))?;
        Ok(Arc::new(LocalFile { path: path.to_owned(), file }))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        let file = fs::File::create(path).map_err(|e| from_io(path, e))?;
        Ok(Box::new(LocalFile { path: path.to_owned(), file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let replaced = hold(to);
        fs::rename(from, to).map_err(|e| from_io(from, e))?;
        close_aside(replaced);
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let removed = hold(path);
        fs::remove_file(path).map_err(|e| from_io(path, e))?;
        close_aside(removed);
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        fs::remove_dir(path).map_err(|e| from_io(path, e))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        fs::create_dir_all(path).map_err(|e| from_io(path, e))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        // Only Unix opens a directory as a file; elsewhere a rename is as durable as it gets.
        if cfg!(unix) {
            fs::File::open(path).and_then(|dir| dir.sync_all()).map_err(|e| from_io(path, e))?;
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir).map_err(|e| from_io(dir, e))? {
            let name = entry.map_err(|e| from_io(dir, e))?.file_name();
            names.push(name.to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        path.try_exists().map_err(|e| from_io(path, e))
    }

    fn size(&self, path: &Path) -> Result<u64> {
        Ok(fs::metadata(path).map_err(|e| from_io(path, e))?.len())
    }

    fn unique(&self) -> u64 {
        // Each `RandomState` is seeded by the operating system, and differs from the last one of its thread.
        RandomState::new().hash_one(std::process::id())
    }
}

/// Opens a file that is about to lose its name, if it takes much: to free that takes a while, which nobody need wait for.
fn hold(path: &Path) -> Option<fs::File> {
    const MUCH: u64 = 16 << 20;
    let found = fs::symlink_metadata(path).ok()?;
    if cfg!(unix) && found.is_file() && found.len() >= MUCH { fs::File::open(path).ok() } else { None }
}

/// Closes a file on a thread of its own, where there is one to be had.
fn close_aside(file: Option<fs::File>) {
    if let Some(file) = file {
        let _ = std::thread::Builder::new().spawn(move || drop(file));
    }
}

struct LocalFile {
    path: PathBuf,
    file: fs::File,
}

impl ReadFile for LocalFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn size(&self) -> Result<u64> {
        Ok(self.file.metadata().map_err(|e| from_io(&self.path, e))?.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        loop {
            match read_file_at(&self.file, offset, into) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return done.map_err(|e| from_io(&self.path, e)),
            }
        }
    }
}

#[cfg(unix)]
fn read_file_at(file: &fs::File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, into, offset)
}

#[cfg(windows)]
fn read_file_at(file: &fs::File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, into, offset)
}

impl WriteFile for LocalFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn write_all(&mut self, data: &[u8]) -> Result<()> {
        self.file.write_all(data).map_err(|e| from_io(&self.path, e))
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync_all().map_err(|e| from_io(&self.path, e))
    }
}

/// Turns a failure of the operating system, or one of ours on its way through `std::io`, into our error.
pub(crate) fn from_io(path: &Path, error: io::Error) -> Error {
    if error.get_ref().is_some_and(|inner| inner.is::<Error>()) {
        let inner = error.into_inner().expect("an inner error was just seen");
        return *inner.downcast::<Error>().expect("it was just seen to be ours");
    }
    let code = match error.kind() {
        io::ErrorKind::NotFound => Code::NotFound,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Code::PermissionDenied,
        io::ErrorKind::AlreadyExists => Code::AlreadyExists,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::ResourceExhausted,
        io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory | io::ErrorKind::DirectoryNotEmpty => {
            Code::FailedPrecondition
        }
        io::ErrorKind::UnexpectedEof => Code::OutOfRange,
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => Code::InvalidArgument,
        _ => Code::Unknown,
    };
    Error::new(code, format!("{}: {error}", path.display()))
}

/// `path` with `suffix` after its last character.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The directory a file is in; `.` for a bare name.
pub(crate) fn parent_dir(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        Some(_) => Path::new("."),
        None => path,
    }
}

/// Writes a small file whole: after a failure at any moment the name has its old contents or the new ones.
pub fn replace(files: &dyn Files, path: &Path, contents: &[u8]) -> Result<()> {
    let temporary = with_suffix(path, &format!(".tmp{:016x}", files.unique()));
    let written = files.create(&temporary).and_then(|mut file| {
        file.write_all(contents)?;
        file.sync()
    });
    if let Err(error) = written.and_then(|()| files.rename(&temporary, path)) {
        // The first failure is the one to tell; what is left of the temporary file does no harm.
        let _ = files.remove(&temporary);
        return Err(error);
    }
    files.sync_dir(parent_dir(path))
}

/// Reads a [`ReadFile`] from front to back as `std::io` wants it.
pub(crate) struct Cursor {
    pub file: Arc<dyn ReadFile>,
    pub offset: u64,
}

impl Read for Cursor {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(self.offset, into).map_err(io::Error::other)?;
        self.offset += count as u64;
        Ok(count)
    }
}

impl Seek for Cursor {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, delta) = match to {
            SeekFrom::Start(offset) => (offset, 0),
            SeekFrom::Current(delta) => (self.offset, delta),
            SeekFrom::End(delta) => (self.file.size().map_err(io::Error::other)?, delta),
        };
        self.offset = base.checked_add_signed(delta).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.offset)
    }
}

/// Writes a [`WriteFile`] as `std::io` wants it.
///
/// After a failure nothing more is written: what came later would stand in the wrong place.
pub(crate) struct Sink {
    file: Box<dyn WriteFile>,
    failed: Option<Error>,
}

impl Sink {
    pub fn new(file: Box<dyn WriteFile>) -> Self {
        Self { file, failed: None }
    }

    /// Makes the file durable, unless it is not whole.
    pub fn finish(mut self) -> Result<()> {
        self.failed.map_or_else(|| self.file.sync(), Err)
    }
}

impl Write for Sink {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.failed.is_none() {
            self.failed = self.file.write_all(data).err();
        }
        self.failed.clone().map_or(Ok(data.len()), |error| Err(io::Error::other(error)))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryFiles;

    /// What every file system must do alike.
    fn check(files: &dyn Files, root: &Path) {
        let dir = root.join("a/b");
        let file = dir.join("one");
        assert_eq!(files.create(&file).err().map(|e| e.code), Some(Code::NotFound), "no directory yet");
        files.create_dir_all(&dir).unwrap();
        files.create_dir_all(&dir).unwrap();

        let mut writer = files.create(&file).unwrap();
        writer.write_all(b"hello").unwrap();
        writer.write_all(b" world").unwrap();
        writer.sync().unwrap();
        let reader = files.open_read(&file).unwrap();
        assert_eq!(reader.size().unwrap(), 11);
        let mut into = [0; 5];
        reader.read_exact_at(6, &mut into).unwrap();
        assert_eq!(&into, b"world");
        assert_eq!(reader.read_at(9, &mut into).unwrap(), 2);
        assert_eq!(reader.read_at(11, &mut into).unwrap(), 0);
        assert_eq!(reader.read_at(99, &mut into).unwrap(), 0);
        assert_eq!(reader.read_exact_at(9, &mut into).unwrap_err().code, Code::OutOfRange);

        let other = dir.join("two");
        files.create(&other).unwrap().write_all(b"old").unwrap();
        files.rename(&file, &other).unwrap();
        files.sync_dir(&dir).unwrap();
        assert!(!files.exists(&file).unwrap());
        assert_eq!(files.size(&other).unwrap(), 11);
        assert_eq!(files.list(&dir).unwrap(), ["two"]);
        assert_eq!(files.list(&root.join("a")).unwrap(), ["b"]);

        replace(files, &other, b"new").unwrap();
        assert_eq!(files.size(&other).unwrap(), 3);
        assert_eq!(files.list(&dir).unwrap(), ["two"]);

        assert_eq!(files.remove_dir(&dir).unwrap_err().code, Code::FailedPrecondition);
        files.remove(&other).unwrap();
        assert_eq!(files.remove(&other).unwrap_err().code, Code::NotFound);
        assert_eq!(files.size(&other).unwrap_err().code, Code::NotFound);
        assert_eq!(files.open_read(&other).err().map(|e| e.code), Some(Code::NotFound));
        files.remove_dir(&dir).unwrap();
        assert!(!files.exists(&dir).unwrap());
        assert_eq!(files.list(&dir).unwrap_err().code, Code::NotFound);
        assert_ne!(files.unique(), files.unique());
    }

    #[test]
    fn the_disk_and_the_simulated_disk_behave_alike() {
        let dir = tempfile::tempdir().unwrap();
        check(&LocalFiles, dir.path());
        check(&MemoryFiles::new(), Path::new("/"));
    }

    #[test]
    fn a_bare_name_lives_in_the_current_directory() {
        assert_eq!(parent_dir(Path::new("model.ckpt")), Path::new("."));
        assert_eq!(parent_dir(Path::new("a/model.ckpt")), Path::new("a"));
    }
}
