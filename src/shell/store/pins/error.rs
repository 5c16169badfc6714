//! Errors of decisions about pins.

use crate::policy::PinDecisionError;
use crate::store::db::DbError;

/// The reason why an operator's decision did not apply.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    #[error("no pin has the name {0:?}; `headend pins` lists them")]
    Unknown(String),
    #[error("{0:?} is the name of several things; say which with --kind")]
    Several(String),
    #[error(transparent)]
    Undecided(#[from] PinDecisionError),
    #[error(transparent)]
    Db(#[from] DbError),
}
