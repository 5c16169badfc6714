//! Where the last record of each chain is kept, outside of the log, so that a log that was cut or rolled back is noticed.

use std::fmt;

use crate::policy::chain::Head;

/// The last record of a chain that is known to be on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) chain: String,
    pub(crate) head: Head,
    /// The file that it stands in.
    pub(crate) segment: String,
}

/// The store, as far as the log needs it. Calls block.
pub(crate) trait Heads: fmt::Debug + Send {
    /// All chains.
    ///
    /// # Errors
    /// Why they could not be read.
    fn load(&self) -> Result<Vec<Kept>, String>;

    /// Replaces the head of its chain.
    ///
    /// # Errors
    /// Why it could not be written.
    fn save(&self, kept: &Kept) -> Result<(), String>;

    /// The secret of the installation, made at the first use.
    ///
    /// # Errors
    /// Why there is none.
    fn key(&self) -> Result<[u8; 32], String>;
}
