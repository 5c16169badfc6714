//! Errors of decisions about pins.

use crate::policy::PinDecisionError;
use crate::store::db::DbError;

/// The reason why a pin was not found by its name, or why an operator's decision about it was not
/// applied.
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
