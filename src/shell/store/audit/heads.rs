//! The last record of each chain, kept outside of the log, so that a log that was cut or rolled back is noticed.

use crate::policy::chain::Head;

/// The last record of a chain that is known to be on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub chain: String,
    pub head: Head,
    /// The file that it stands in.
    pub segment: String,
}
