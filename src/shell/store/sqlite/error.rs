//! The meaning of `SQLite` errors.

use std::path::Path;

use rusqlite::{ErrorCode, ffi};

use crate::store::port::DbError;

/// Returns the meaning of a `SQLite` error for the operator.
pub(super) fn describe_error(path: &Path, error: &rusqlite::Error) -> DbError {
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

/// Returns whether an I/O error came from reading. The others come from a disk that takes no
/// writes, the index of the journal included.
fn is_reading(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    code.is_some_and(|code| matches!(code, ffi::SQLITE_IOERR_READ | ffi::SQLITE_IOERR_SHORT_READ))
}
