//! The meaning of the database's errors.

use std::error::Error as _;
use std::path::PathBuf;

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::store::port::DbError;

/// The store's name in errors.
const STORE: &str = "the store of the cluster";

/// Returns the error of an operation that failed by itself.
pub(super) fn failed(why: impl Into<String>) -> DbError {
    DbError::Failed { path: PathBuf::from(STORE), why: why.into() }
}

/// Returns the error for a database that must not be used.
pub(super) fn refused(why: impl Into<String>) -> DbError {
    DbError::Refused { path: PathBuf::from(STORE), why: why.into() }
}

/// Returns the error for a value that must be sealed while there is no key; it is not written.
pub(super) fn no_key() -> DbError {
    failed("the key of the sealed values is missing; set [secrets] key as the daemon has it")
}

/// Returns the meaning of an error of the client library for the operator. The text never contains
/// the URL or values of an operation.
pub(super) fn describe_error(error: &Error) -> DbError {
    let Some(code) = error.code() else {
        let source = error.source().map(ToString::to_string);
        // The library has no other sign of a URL that lacks something, such as a password.
        let is_of_url = error.to_string().starts_with("invalid configuration");
        return match source {
            Some(why) if is_of_url => refused(format!("cannot be opened ({why}); correct [cluster] store")),
            source => {
                let source = source.map(|source| format!(": {source}")).unwrap_or_default();
                DbError::Unavailable { why: format!("{error}{source}") }
            }
        };
    };
    let why = error.as_db_error().map_or_else(String::new, |error| error.message().to_owned());
    // The first two characters are the class. Source: PostgreSQL, appendix A.
    let class = code.code().get(..2).unwrap_or_default();
    match class {
        _ if *code == SqlState::READ_ONLY_SQL_TRANSACTION => DbError::Unavailable { why },
        // Connections, resources, an operator's intervention, the system, a damaged database.
        "08" | "53" | "58" | "XX" => DbError::Unavailable { why },
        "57" if *code != SqlState::QUERY_CANCELED => DbError::Unavailable { why },
        "55" | "40" | "57" => DbError::Busy { path: PathBuf::from(STORE) },
        // Authentication, and a database that is not there.
        "28" | "3D" => refused(format!("cannot be opened ({why}); correct [cluster] store")),
        _ => failed(why),
    }
}

/// Returns the error for operations while there is no connection, because of that one.
pub(super) fn unavailable(error: DbError) -> DbError {
    if error.is_away() { error } else { DbError::Unavailable { why: error.to_string() } }
}
