//! Serialises names with values, in the order of the file.

use serde::{Serialize, Serializer};

/// Writes a list of pairs as a table.
pub(super) fn pairs<V: Serialize, S: Serializer>(pairs: &[(String, V)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}
