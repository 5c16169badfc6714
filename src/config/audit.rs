//! The `[audit]` table.

use std::ops::RangeInclusive;
use std::path::{Component, PathBuf};
use std::time::Duration;

use super::keys::{keys, read_value, read_whole, shown_value};
use crate::policy::records::chain::RetentionBounds;
use crate::source::file::ConfigTable;

/// The default of `path`.
const PATH: &str = "audit";
/// The default of `max-segment` in bytes: some hundred thousand records, which a search reads in a
/// second.
const MAX_SEGMENT: usize = 64 << 20;
/// The limits of `max-segment` in bytes: smaller segments mean too many files, larger ones take
/// long to verify at a start.
const SEGMENT_RANGE: RangeInclusive<usize> = (64 << 10)..=(4 << 30);

/// The limits of `age`. Whole days, since files are kept by the day.
const AGE_RANGE: RangeInclusive<Duration> = Duration::from_secs(DAY)..=Duration::from_secs(36_500 * DAY);
const DAY: u64 = 24 * 3600;
const SIZE_RANGE: RangeInclusive<usize> = (64 << 10)..=(1 << 50);

keys! {
    /// The `[audit]` table.
    struct AuditSettings {
        /// True if every record must be on disk before its call is made.
        strict: bool as boolean = "strict", false;
        on_failure: OnFailure as choice = "on-failure", OnFailure::Deny;
        /// The size in bytes after which the log continues in a new file.
        max_segment: usize as size = "max-segment", MAX_SEGMENT, SEGMENT_RANGE;
    }
    besides {
        /// The folder of the log, relative to the state directory.
        path: PathBuf = PathBuf::from(PATH);
        /// True if records hold the arguments themselves, not only their digest.
        capture_arguments: bool = false;
        /// The age and size up to which records are kept.
        retain: RetentionBounds = RetentionBounds::default();
    }
}

/// The fate of a call that the log cannot record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum OnFailure {
    /// The call is refused.
    Deny,
    /// The call is made.
    Continue,
}

impl AuditSettings {
    /// Reads the table. An absent or invalid key has its default.
    pub(crate) fn read(table: Option<ConfigTable<'_>>) -> Self {
        read_whole(table, |table| {
            let mut audit = Self::read_keys(table);
            if let Some(node) = table.take("path") {
                let path = PathBuf::from(node.string().unwrap_or_default());
                if path.as_os_str().is_empty() || path.components().any(|part| part == Component::ParentDir) {
                    node.problem("must be a path, in the state directory or absolute, without `..`");
                }
                audit.path = path;
            }
            let words = [("none", false), ("full", true)];
            let capture = table.take("capture-arguments").and_then(|node| node.choice_of(&words));
            audit.capture_arguments = capture.unwrap_or(audit.capture_arguments);
            audit.retain = retain(table.table("retain"), audit.max_segment);
            audit
        })
    }
}

/// Reads the table `retain`, the age and size up to which records are kept. The file that is
/// written always stays.
fn retain(table: Option<ConfigTable<'_>>, max_segment: usize) -> RetentionBounds {
    read_whole(table, |table| {
        let age = table.take("age").and_then(|node| node.duration(&AGE_RANGE));
        let size = table.take("size");
        let bytes = size.as_ref().and_then(|node| node.size(&SIZE_RANGE));
        if let (Some(node), Some(bytes)) = (size, bytes)
            && bytes < max_segment
        {
            node.problem("must not be less than max-segment: the file that is written always stays");
        }
        RetentionBounds { age, size: bytes.map(|bytes| bytes as u64) }
    })
}
