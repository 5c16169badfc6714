//! Why an operation of the store failed, as the operator reads it.

use std::path::{Path, PathBuf};

use rusqlite::{ErrorCode, ffi};

use super::schema;

/// Why a value could not be stored.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DbError {
    #[error(
        "{path} is damaged or no database of headend ({why}); move it away together with the -wal and -shm files beside it, \
         and start again: all grants and pins are then asked for again"
    )]
    Corrupt { path: PathBuf, why: String },
    #[error(
        "{path} was written by a newer headend (its version is {found}, this program knows {known}); run that one, or move the \
         file away together with the -wal and -shm files beside it: all grants and pins are then asked for again",
        known = schema::VERSION
    )]
    Newer { path: PathBuf, found: i64 },
    #[error(
        "{path} cannot be written ({why}); its directory must belong to the user that headend runs as, and have space"
    )]
    NotWritable { path: PathBuf, why: String },
    #[error("{path} can be neither written ({why}) nor read ({also}); its disk must have space, then start again")]
    Unreadable { path: PathBuf, why: String, also: String },
    #[error("{path} {why}")]
    Refused { path: PathBuf, why: String },
    #[error("{0}")]
    Key(String),
    #[error("{path} is held by another process for too long; try again")]
    Busy { path: PathBuf },
    #[error("{path}: {why}")]
    Failed { path: PathBuf, why: String },
    #[error("too much waits to be written to {path}")]
    Full { path: PathBuf },
    #[error("{path} is closed")]
    Closed { path: PathBuf },
}

impl DbError {
    /// Whether nothing is wrong with the file, but that it takes no writes.
    pub const fn is_unwritable(&self) -> bool {
        matches!(self, Self::NotWritable { .. })
    }
}

/// The meaning of a `SQLite` error for the operator.
pub(super) fn told(path: &Path, error: &rusqlite::Error) -> DbError {
    let (path, why) = (path.to_owned(), error.to_string());
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => DbError::Corrupt { path, why },
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::DiskFull) => {
            DbError::NotWritable { path, why }
        }
        Some(ErrorCode::SystemIoFailure) if !is_reading(error) => DbError::NotWritable { path, why },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => DbError::Busy { path },
        _ => DbError::Failed { path, why },
    }
}

/// Whether an I/O error came of reading. The others come of a disk that takes nothing, the index of the journal included.
fn is_reading(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    code.is_some_and(|code| matches!(code, ffi::SQLITE_IOERR_READ | ffi::SQLITE_IOERR_SHORT_READ))
}
