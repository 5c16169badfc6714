//! The errors of operator requests.

use crate::store::db::DbError;

/// Why a request is not carried out. The text is a sentence without its full stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OperatorRefusal {
    /// The request lacks a parameter, or has an invalid one.
    #[error("{0}")]
    Params(String),
    /// The request cannot be carried out in the present state, or may not be.
    #[error("{0}")]
    Refused(String),
    /// The store cannot be read or written.
    #[error("{0}")]
    Unusable(String),
    /// No login is bound to this browser. Anyone who reaches the console can cause this any number
    /// of times, so it leaves no audit record.
    #[error("no such login")]
    Stranger,
}

impl OperatorRefusal {
    pub(crate) fn refused(why: impl std::fmt::Display) -> Self {
        Self::Refused(why.to_string())
    }

    /// Returns the refusal for a process without a daemon, which ends with this error.
    pub(crate) fn of_ended(error: &DbError) -> Self {
        Self::Unusable(error.text_at_end())
    }

    pub(crate) fn unusable(why: impl std::fmt::Display) -> Self {
        Self::Unusable(why.to_string())
    }
}
