//! The removal of old records of a chain, as a record says it.

use crate::wire::digest::Digest;

/// Old records of a chain whose files were removed since they are kept no longer.
///
/// It stands in a record with the result [`Removal::RESULT`], so that a log whose oldest files are missing is sound where
/// they were removed so, and not where they were merely deleted.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Removal {
    /// The chain that they belonged to.
    pub chain: String,
    /// The first removed record. Those before it were removed earlier.
    pub from: u64,
    /// The last one, and its hash, which the record after it follows.
    pub until: u64,
    #[serde(with = "hex")]
    pub hash: Digest,
    /// The dates of both.
    pub since: String,
    pub to: String,
    /// The number of files.
    pub files: u64,
    /// What was wrong with them, where something was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bad: Option<String>,
    /// Proof that an installation says so, since any hand can add a line to a chain; see `chain::Form::vouch`.
    #[serde(default)]
    pub mac: String,
}

impl Removal {
    /// The result of its record.
    pub const RESULT: &'static str = "removed";

    /// The removal that a line of the log tells of. Whether the line is a record of a sound chain is not looked at.
    pub fn of_line(line: &[u8]) -> Option<Self> {
        /// The members of such a record that count here.
        #[derive(serde::Deserialize)]
        struct Line<'l> {
            event: &'l str,
            result: &'l str,
            removed: Removal,
        }
        // Nearly every line is none, and need not be parsed for that.
        memchr::memmem::find(line, b",\"removed\":{")?;
        let Line { event, result, removed } = serde_json::from_slice(line).ok()?;
        (event == "gateway" && result == Self::RESULT).then_some(removed)
    }
}

/// A digest as hexadecimal digits.
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
