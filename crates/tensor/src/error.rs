//! The one error type: a code for programs, a sentence for people.

use std::fmt;

/// `std::result::Result` with our error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Status codes, numbered as they travel on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Code {
    /// The caller went away or asked to stop.
    Cancelled = 1,
    /// Something failed and nobody knows more.
    Unknown = 2,
    /// The request itself is wrong, whatever the state of the system.
    InvalidArgument = 3,
    /// Time ran out.
    DeadlineExceeded = 4,
    /// A named thing does not exist.
    NotFound = 5,
    /// A named thing exists already.
    AlreadyExists = 6,
    /// The caller is known but may not do this.
    PermissionDenied = 7,
    /// Memory, quota or space is used up.
    ResourceExhausted = 8,
    /// The system is not in the state this needs.
    FailedPrecondition = 9,
    /// A conflict or a restart: start over at a higher level.
    Aborted = 10,
    /// Past the valid range, such as reading beyond the end.
    OutOfRange = 11,
    /// Not something this server does.
    Unimplemented = 12,
    /// A broken invariant of ours.
    Internal = 13,
    /// The peer cannot be reached now; trying again may help.
    Unavailable = 14,
    /// Data is corrupt beyond repair.
    DataLoss = 15,
    /// The caller is not known.
    Unauthenticated = 16,
}

impl Code {
    /// The code with this number; unknown numbers are `Unknown`, zero is not an error.
    pub fn from_i32(number: i32) -> Option<Code> {
        use Code::*;
        Some(match number {
            0 => return None,
            1 => Cancelled,
            3 => InvalidArgument,
            4 => DeadlineExceeded,
            5 => NotFound,
            6 => AlreadyExists,
            7 => PermissionDenied,
            8 => ResourceExhausted,
            9 => FailedPrecondition,
            10 => Aborted,
            11 => OutOfRange,
            12 => Unimplemented,
            13 => Internal,
            14 => Unavailable,
            15 => DataLoss,
            16 => Unauthenticated,
            _ => Unknown,
        })
    }
}

/// What crosses the wire on failure.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    /// For programs: whether to retry, recover or give up.
    pub code: Code,
    /// For people: what was wanted, what was found, which one it was.
    pub message: String,
    /// This error merely follows from another one, which must not be hidden by it.
    pub derived: bool,
}

impl Error {
    /// An error of this code.
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error { code, message: message.into(), derived: false }
    }

    /// The same error, marked as a consequence of another one.
    pub fn into_derived(mut self) -> Error {
        self.derived = true;
        self
    }

    /// The same error with a line of context after its sentence; the first context added stays the first.
    pub fn context(mut self, line: impl fmt::Display) -> Error {
        self.message = format!("{}\n\t {line}", self.message);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.code, self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Error {
        use std::io::ErrorKind;
        let code = match e.kind() {
            ErrorKind::NotFound => Code::NotFound,
            ErrorKind::PermissionDenied => Code::PermissionDenied,
            ErrorKind::AlreadyExists => Code::AlreadyExists,
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Code::ResourceExhausted,
            ErrorKind::UnexpectedEof => Code::OutOfRange,
            _ => Code::Unknown,
        };
        Error::new(code, e.to_string())
    }
}

/// An [`Error`] of code `Cancelled`, formatted like `format!`.
#[macro_export]
macro_rules! cancelled {
    ($($arg:tt)*) => { $crate::Error::new($crate::Code::Cancelled, ::std::format!($($arg)*)) };
}
/// An [`Error`] of code `InvalidArgument`, formatted like `format!`.
#[macro_export]
macro_rules! invalid {
    ($($arg:tt)*) => { $crate::Error::new($crate::Code::InvalidArgument, ::std::format!($($arg)*)) };
}
/// An [`Error`] of code `NotFound`, formatted like `format!`.
#[macro_export]
macro_rules! not_found {
    ($($arg:tt)*) => { $crate::Error::new($crate::Code::NotFound, ::std::format!($($arg)*)) };
}
/// An [`Error`] of code `AlreadyExists`, formatted like `format!`.
#[macro_export]
macro_rules! already_exists {
    ($($arg:tt)*) => { $crate::Error::new($crate::Code::AlreadyExists, ::std::format!($($arg)*)) };
}
/// An [`Error`] of code `ResourceExhausted`, formatted like `format!`.
#[macro_export]
macro_rules! exhausted {
    ($($arg:tt)*) => { $crate::Error::new($crate::Code::ResourceExhausted, ::std::format!($($arg)*)) };
}
/// An [`Error`] of code `FailedPrecondition`, formatted like `format!`.
#[macro_export]
macro_rules! failed_precondition {
    ($($arg:tt)*) => { $crate::Error::new($crate::Code::FailedPrecondition, ::std::format!($($arg)*)) };
}
/// An [`Error`] of code `Aborted`, formatted like `format!`.
#[macro_export]
macro_rules! aborted {
    ($($arg:tt)*) => { $crate::Error::new($crate::Code::Aborted, ::std::format!($($arg)*)) };
}
/// An [`Error`] of code `OutOfRange`, formatted like `format!`.
#[macro_export]
macro_rules! out_of_range {
    ($($arg:tt)*) => { $crate::Error::new($crate::Code::OutOfRange, ::std::format!($($arg)*)) };
}
/// An [`Error`] of code `Unimplemented`, formatted like `format!`.
#[macro_export]
macro_rules! unsupported {
    ($($arg:tt)*) => { $crate::Error::new($crate::Code::Unimplemented, ::std::format!($($arg)*)) };
}
/// An [`Error`] of code `Internal`, formatted like `format!`.
#[macro_export]
macro_rules! internal {
    ($($arg:tt)*) => { $crate::Error::new($crate::Code::Internal, ::std::format!($($arg)*)) };
}
/// An [`Error`] of code `Unavailable`, formatted like `format!`.
#[macro_export]
macro_rules! unavailable {
    ($($arg:tt)*) => { $crate::Error::new($crate::Code::Unavailable, ::std::format!($($arg)*)) };
}
/// An [`Error`] of code `DataLoss`, formatted like `format!`.
#[macro_export]
macro_rules! data_loss {
    ($($arg:tt)*) => { $crate::Error::new($crate::Code::DataLoss, ::std::format!($($arg)*)) };
}
/// An [`Error`] of code `DeadlineExceeded`, formatted like `format!`.
#[macro_export]
macro_rules! deadline_exceeded {
    ($($arg:tt)*) => { $crate::Error::new($crate::Code::DeadlineExceeded, ::std::format!($($arg)*)) };
}
