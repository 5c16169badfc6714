//! The removal of old records of a chain, as recorded in the log.

use crate::wire::digest::Digest;

/// Old records of a chain whose files were removed because their retention ended.
///
/// A record with the result [`RecordRemoval::RESULT`] contains it. A log without its oldest files
/// is sound if such a record covers them, and not if they were merely deleted.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RecordRemoval {
    /// The chain that the records belonged to.
    pub chain: String,
    /// Number of the first removed record. Records before it were removed earlier.
    pub from: u64,
    /// Number of the last removed record.
    pub until: u64,
    /// Hash of the last removed record, which the record after it follows.
    #[serde(with = "hex")]
    pub hash: Digest,
    /// Date of the first removed record.
    pub since: String,
    /// Date of the last removed record.
    pub to: String,
    /// Number of removed files.
    pub files: u64,
    /// Defects of the removed records, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bad: Option<String>,
    /// Proof that this installation made the removal, since anyone with write access can add a line
    /// to a chain; see `chain::Form::vouch`.
    #[serde(default)]
    pub mac: String,
}

impl RecordRemoval {
    /// The result word of the record.
    pub const RESULT: &'static str = "removed";

    /// Parses the removal in a line of the log; `None` for any other line. Does not check that the
    /// line belongs to a sound chain.
    pub fn of_line(line: &[u8]) -> Option<Self> {
        /// The members of such a record that are needed here.
        #[derive(serde::Deserialize)]
        struct Line<'l> {
            event: &'l str,
            result: &'l str,
            removed: RecordRemoval,
        }
        // Nearly every line has no removal, and need not be parsed to see that.
        memchr::memmem::find(line, b",\"removed\":{")?;
        let Line { event, result, removed } = serde_json::from_slice(line).ok()?;
        (event == "gateway" && result == Self::RESULT).then_some(removed)
    }
}

/// The serialization of a digest as hexadecimal digits.
mod hex {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    use crate::wire::digest::Digest;

    pub(super) fn serialize<S: Serializer>(digest: &Digest, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&digest.hex())
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Digest, D::Error> {
        let text = String::deserialize(from)?;
        Digest::from_hex(&text).ok_or_else(|| D::Error::custom("not a digest"))
    }
}
