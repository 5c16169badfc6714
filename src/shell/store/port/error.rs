//! Errors of store operations, as the operator reads them.

use std::path::PathBuf;

/// The reason why an operation of the store failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DbError {
    #[error(
        "{path} is damaged or no database of headend ({why}); move it away together with the -wal and -shm files beside it, \
         and start again: all grants and pins are then asked for again"
    )]
    Corrupt { path: PathBuf, why: String },
    #[error(
        "{path} was written by a newer headend (its version is {found}, this program knows {known}); run that one, or move the \
         file away together with the -wal and -shm files beside it: all grants and pins are then asked for again"
    )]
    Newer { path: PathBuf, found: i64, known: usize },
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
    #[error("the store of the cluster cannot be used ({why}); headend tries again by itself")]
    Unavailable { why: String },
    #[error("too much waits to be written to {path}")]
    Full { path: PathBuf },
    #[error("the store is closed")]
    Closed,
}

impl DbError {
    /// Returns the error for the operator of a process that ends with it, and so does not try
    /// again.
    pub fn text_at_end(&self) -> String {
        let Self::Unavailable { why } = self else { return self.to_string() };
        format!(
            "the store of the cluster cannot be used ({why}); start its database or correct `store` in [cluster], then try again"
        )
    }

    /// Returns whether the store is one of a server that does not answer.
    pub const fn is_away(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// Returns whether the only fault of the store is that it takes no writes for the time being.
    pub const fn is_unwritable(&self) -> bool {
        matches!(self, Self::NotWritable { .. } | Self::Unavailable { .. })
    }
}
