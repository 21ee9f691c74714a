//! The file named `checkpoint` beside checkpoints, which says what is there and which is the latest.
//!
//! It is a `CheckpointState` message in protobuf's text form, of which as much is read here as that message needs.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use proto::CheckpointState;
use tensor::{Code, Result};

use crate::bundle::index_path;
use crate::files::{Files, replace};

/// The name of the file, unless a saver was told another one.
pub const CHECKPOINT_STATE_NAME: &str = "checkpoint";

/// More than any real one has; a file beyond it is not read into memory.
const STATE_LEN_MAX: u64 = 64 * 1024 * 1024;

/// The latest checkpoint in a directory: the one its `checkpoint` file names, if that checkpoint exists.
pub fn latest_checkpoint(files: &dyn Files, dir: &Path) -> Result<Option<PathBuf>> {
    let Some(state) = read_checkpoint_state(files, &dir.join(CHECKPOINT_STATE_NAME))? else { return Ok(None) };
    if state.model_checkpoint_path.is_empty() {
        return Ok(None);
    }
    // An absolute path stays as it is.
    let prefix = dir.join(&state.model_checkpoint_path);
    Ok(checkpoint_exists(files, &prefix)?.then_some(prefix))
}

/// Whether there is a checkpoint with this prefix: an index file, or a file of the old format with this very name.
pub fn checkpoint_exists(files: &dyn Files, prefix: &Path) -> Result<bool> {
    Ok(files.exists(&index_path(prefix))? || (files.exists(prefix)? && files.size(prefix)? > 0))
}

/// Reads a `checkpoint` file; `None` if there is none. Paths in it may be relative to its directory.
pub fn read_checkpoint_state(files: &dyn Files, path: &Path) -> Result<Option<CheckpointState>> {
    let file = match files.open_read(path) {
        Err(error) if error.code == Code::NotFound => return Ok(None),
        file => file?,
    };
    let len = file.size()?;
    if len > STATE_LEN_MAX {
        return Err(tensor::data_loss!("{}: {len} bytes are too many for a checkpoint state", path.display()));
    }
    let mut text = vec![0; len as usize];
    file.read_exact_at(0, &mut text)?;
    parse(&text).map(Some).map_err(|bad| tensor::data_loss!("{}:{}: {}", path.display(), bad.line, bad.why))
}

/// Writes a `checkpoint` file whole: a reader finds the old one or the new one.
pub fn write_checkpoint_state(files: &dyn Files, path: &Path, state: &CheckpointState) -> Result<()> {
    replace(files, path, print(state).as_bytes())
}

fn print(state: &CheckpointState) -> String {
    let mut text = String::new();
    let mut field = |name: &str, value: String| {
        writeln!(text, "{name}: {value}").expect("a string takes everything");
    };
    if !state.model_checkpoint_path.is_empty() {
        field("model_checkpoint_path", quote(&state.model_checkpoint_path));
    }
    for path in &state.all_model_checkpoint_paths {
        field("all_model_checkpoint_paths", quote(path));
    }
    for time in &state.all_model_checkpoint_timestamps {
        field("all_model_checkpoint_timestamps", format!("{time:?}"));
    }
    if state.last_preserved_timestamp != 0.0 {
        field("last_preserved_timestamp", format!("{:?}", state.last_preserved_timestamp));
    }
    text
}

fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '"' | '\'' | '\\' => quoted.extend(['\\', c]),
            c if c.is_ascii_control() => write!(quoted, "\\{:03o}", c as u32).expect("a string takes everything"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn parse(text: &[u8]) -> Result<CheckpointState, Bad> {
    let mut scanner = Scanner { rest: text, line: 1 };
    let mut state = CheckpointState::default();
    while let Some(name) = scanner.name()? {
        scanner.expect(b':')?;
        match name {
            b"model_checkpoint_path" => state.model_checkpoint_path = scanner.string()?,
            b"all_model_checkpoint_paths" => state.all_model_checkpoint_paths.push(scanner.string()?),
            b"all_model_checkpoint_timestamps" => state.all_model_checkpoint_timestamps.push(scanner.number()?),
            b"last_preserved_timestamp" => state.last_preserved_timestamp = scanner.number()?,
            _ => return Err(scanner.bad(format!("there is no field \"{}\"", String::from_utf8_lossy(name)))),
        }
        scanner.skip_space();
        if let [b',' | b';', rest @ ..] = scanner.rest {
            scanner.rest = rest;
        }
    }
    Ok(state)
}

/// What is wrong with the text, and where.
#[derive(Debug, PartialEq)]
struct Bad {
    line: usize,
    why: String,
}

struct Scanner<'t> {
    rest: &'t [u8],
    line: usize,
}

impl<'t> Scanner<'t> {
    fn bad(&self, why: impl Into<String>) -> Bad {
        Bad { line: self.line, why: why.into() }
    }

    fn skip_space(&mut self) {
        let mut comment = false;
        while let [first, rest @ ..] = self.rest {
            match first {
                b'\n' => {
                    self.line += 1;
                    comment = false;
                }
                b'#' => comment = true,
                _ if comment || first.is_ascii_whitespace() => {}
                _ => return,
            }
            self.rest = rest;
        }
    }

    /// Takes the bytes up to the first that is not wanted.
    fn take_while(&mut self, wanted: impl Fn(u8) -> bool) -> &'t [u8] {
        let len = self.rest.iter().position(|&byte| !wanted(byte)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        taken
    }

    /// The name of the next field, unless this is the end.
    fn name(&mut self) -> Result<Option<&'t [u8]>, Bad> {
        self.skip_space();
        if self.rest.is_empty() {
            return Ok(None);
        }
        match self.take_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            [] => Err(self.bad("wanted the name of a field")),
            name => Ok(Some(name)),
        }
    }

    fn expect(&mut self, wanted: u8) -> Result<(), Bad> {
        self.skip_space();
        match self.rest {
            [first, rest @ ..] if *first == wanted => {
                self.rest = rest;
                Ok(())
            }
            _ => Err(self.bad(format!("wanted '{}'", wanted as char))),
        }
    }

    fn number(&mut self) -> Result<f64, Bad> {
        self.skip_space();
        let text = self.take_while(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
        let text = String::from_utf8_lossy(text);
        text.parse().map_err(|_| self.bad(format!("\"{text}\" is not a number")))
    }

    /// One string, which may be written as several, one after the other.
    fn string(&mut self) -> Result<String, Bad> {
        let mut value = Vec::new();
        self.skip_space();
        if !matches!(self.rest, [b'"' | b'\'', ..]) {
            return Err(self.bad("wanted a string in quotes"));
        }
        while let [quote @ (b'"' | b'\''), rest @ ..] = self.rest {
            self.rest = rest;
            self.string_until(*quote, &mut value)?;
            self.skip_space();
        }
        String::from_utf8(value).map_err(|_| self.bad("a string is not UTF-8"))
    }

    fn string_until(&mut self, quote: u8, value: &mut Vec<u8>) -> Result<(), Bad> {
        loop {
            match self.rest {
                [] | [b'\n', ..] => return Err(self.bad("a string has no end")),
                [b'\\', rest @ ..] => {
                    self.rest = rest;
                    self.escape(value)?;
                }
                [byte, rest @ ..] => {
                    self.rest = rest;
                    if *byte == quote {
                        return Ok(());
                    }
                    value.push(*byte);
                }
            }
        }
    }

    /// What follows a backslash.
    fn escape(&mut self, value: &mut Vec<u8>) -> Result<(), Bad> {
        let [first, rest @ ..] = self.rest else { return Err(self.bad("a string has no end")) };
        let byte = match first {
            b'0'..=b'7' => return self.code(3, 8, value),
            b'x' | b'X' => {
                self.rest = rest;
                return self.code(2, 16, value);
            }
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'a' => 0x07,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'v' => 0x0b,
            b'\\' | b'\'' | b'"' | b'?' => *first,
            _ => return Err(self.bad(format!("\\{} means nothing in a string", *first as char))),
        };
        self.rest = rest;
        value.push(byte);
        Ok(())
    }

    /// A byte by its number, of at most so many digits.
    fn code(&mut self, len_max: usize, radix: u32, value: &mut Vec<u8>) -> Result<(), Bad> {
        let is_digit = |byte: &&u8| (**byte as char).is_digit(radix);
        let len = self.rest.iter().take(len_max).take_while(is_digit).count();
        let (digits, rest) = self.rest.split_at(len);
        let number = std::str::from_utf8(digits).ok().and_then(|digits| u8::from_str_radix(digits, radix).ok());
        value.push(number.ok_or_else(|| self.bad("wanted the number of a byte in a string"))?);
        self.rest = rest;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryFiles;

    fn sample() -> CheckpointState {
        CheckpointState {
            model_checkpoint_path: "model \"ü\"\n'\\.ckpt-20\u{7f}".into(),
            all_model_checkpoint_paths: vec!["model.ckpt-10".into(), "".into()],
            all_model_checkpoint_timestamps: vec![1571234567.25, 1e300, 0.0],
            last_preserved_timestamp: 1571230000.5,
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let files = MemoryFiles::new();
        let path = Path::new("/checkpoint");
        for state in [CheckpointState::default(), sample()] {
            write_checkpoint_state(&files, path, &state).unwrap();
            assert_eq!(read_checkpoint_state(&files, path).unwrap(), Some(state));
        }
        assert_eq!(files.paths(), [path]);
    }

    #[test]
    fn the_text_form_may_vary() {
        let text = "# a comment: \"\n model_checkpoint_path : 'a' \"b\\x41\\102\\n\" ;\r\n\
                    all_model_checkpoint_timestamps:1 all_model_checkpoint_timestamps: -2e3,";
        let state = parse(text.as_bytes()).unwrap();
        assert_eq!(state.model_checkpoint_path, "abAB\n");
        assert_eq!(state.all_model_checkpoint_timestamps, [1.0, -2000.0]);
    }

    #[test]
    fn bad_text_is_told_with_its_line() {
        let check = |text: &str, line, why: &str| {
            let bad = parse(text.as_bytes()).unwrap_err();
            assert_eq!((bad.line, bad.why.as_str()), (line, why), "{text}");
        };
        check("model_checkpoint_path", 1, "wanted ':'");
        check("\n\nmodel_checkpoint_path: 7", 3, "wanted a string in quotes");
        check("model_checkpoint_path: \"a", 1, "a string has no end");
        check("model_checkpoint_path: \"a\\", 1, "a string has no end");
        check("model_checkpoint_path: \"\\q\"", 1, "\\q means nothing in a string");
        check("model_checkpoint_path: \"\\777\"", 1, "wanted the number of a byte in a string");
        check("model_checkpoint_path: \"\\xff\"", 1, "a string is not UTF-8");
        check("last_preserved_timestamp: soon", 1, "\"soon\" is not a number");
        check("colour: 3", 1, "there is no field \"colour\"");
        check("{", 1, "wanted the name of a field");
    }

    #[test]
    fn the_latest_checkpoint_is_one_that_exists() {
        let files = MemoryFiles::new();
        let dir = Path::new("/model");
        let latest = || latest_checkpoint(&files, dir).unwrap();
        let name = |prefix: &str| {
            let state = CheckpointState { model_checkpoint_path: prefix.into(), ..Default::default() };
            write_checkpoint_state(&files, &dir.join("checkpoint"), &state).unwrap();
        };
        assert_eq!(latest(), None);
        files.create_dir_all(dir).unwrap();
        name("model.ckpt-1");
        assert_eq!(latest(), None);
        files.put(&dir.join("model.ckpt-1.index"), b"");
        assert_eq!(latest(), Some("/model/model.ckpt-1".into()));
        files.put(Path::new("/other/old-format"), b"table");
        name("/other/old-format");
        assert_eq!(latest(), Some("/other/old-format".into()));
        name("");
        assert_eq!(latest(), None);
    }
}
