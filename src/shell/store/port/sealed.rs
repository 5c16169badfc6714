//! Operations on all sealed values of a store.

use super::operation::DbOperation;

/// The place in a store up to which values were sealed anew; the default is the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResealPosition {
    /// Number of the column, in the engine's own order.
    pub column: usize,
    /// Rows of that column that do not open, which are skipped.
    pub skipped: usize,
}

/// The outcome of one step over the sealed values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResealedPart {
    /// Values that this step sealed anew.
    pub sealed: usize,
    /// Names of the values that do not open; they stay as they are.
    pub lost: Vec<String>,
    /// Position of the next step; `None` after the last one.
    pub next: Option<ResealPosition>,
}

/// Operations on all sealed values. Any process with the keys may begin them at any time, and a
/// process that ends in the middle leaves nothing undone: each step is whole, and the next run
/// finds what is left.
pub trait SealOperations {
    /// Seals at most `most` values of earlier keys with the current key, from a position on. Fails
    /// if there is no key.
    fn reseal(&self, from: ResealPosition, most: usize) -> DbOperation<'_, ResealedPart>;

    /// Removes replaced values from the journal of the engine. It fails while another process reads
    /// the journal, which changes nothing.
    fn forget_resealed(&self) -> DbOperation<'_, ()>;
}
