//! The reason why a request is not carried out.

/// Why a request is not carried out, as a sentence without its full stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The request lacks a parameter, or misspells one.
    #[error("{0}")]
    Params(String),
    #[error("{0}")]
    Refused(String),
    /// The store cannot be read or written.
    #[error("{0}")]
    Unusable(String),
    /// The login is not that of the browser. A stranger can try as often as it likes, so this
    /// leaves no record.
    #[error("no such login")]
    Stranger,
}

impl Refusal {
    pub(crate) fn refused(why: impl std::fmt::Display) -> Self {
        Self::Refused(why.to_string())
    }

    pub(crate) fn unusable(why: impl std::fmt::Display) -> Self {
        Self::Unusable(why.to_string())
    }
}
