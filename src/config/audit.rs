//! The `[audit]` table.

use std::ops::RangeInclusive;
use std::path::{Component, PathBuf};
use std::time::Duration;

use super::file::Table;
use crate::policy::chain::Retain;

/// Default of `path`.
const PATH: &str = "audit";
/// Default of `max-segment`: some hundred thousand records, which a search reads in a second.
const MAX_SEGMENT: usize = 64 << 20;
/// Smaller segments mean too many files; larger ones take long to verify at a start.
const SEGMENT_RANGE: RangeInclusive<usize> = (64 << 10)..=(4 << 30);

/// Files are kept by the day.
const AGE_RANGE: RangeInclusive<Duration> = Duration::from_secs(DAY)..=Duration::from_secs(36_500 * DAY);
const DAY: u64 = 24 * 3600;
const SIZE_RANGE: RangeInclusive<usize> = (64 << 10)..=(1 << 50);

/// The `[audit]` table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Relative to the state directory.
    pub path: PathBuf,
    /// Records hold the arguments themselves, not only their digest.
    pub capture_arguments: bool,
    /// Every record is on disk before its call goes on.
    pub strict: bool,
    pub on_failure: OnFailure,
    /// Bytes after which the log continues in a new file.
    pub max_segment: usize,
    /// How long records are kept.
    pub retain: Retain,
}

/// The fate of a call that the log cannot record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum OnFailure {
    /// The call is refused.
    Deny,
    /// The call goes on.
    Continue,
}

impl Default for Audit {
    fn default() -> Self {
        Self {
            path: PathBuf::from(PATH),
            capture_arguments: false,
            strict: false,
            on_failure: OnFailure::Deny,
            max_segment: MAX_SEGMENT,
            retain: Retain::default(),
        }
    }
}

impl Audit {
    /// Reads the table. An absent or invalid key has its default.
    pub(super) fn read(table: Option<Table<'_>>) -> Self {
        let mut audit = Self::default();
        let Some(mut table) = table else { return audit };
        if let Some(node) = table.take("path") {
            let path = PathBuf::from(node.string().unwrap_or_default());
            if path.as_os_str().is_empty() || path.components().any(|part| part == Component::ParentDir) {
                node.problem("must be a path, in the state directory or absolute, without `..`");
            }
            audit.path = path;
        }
        let words = [("none", false), ("full", true)];
        audit.capture_arguments =
            table.take("capture-arguments").and_then(|node| node.choice_of(&words)).unwrap_or(audit.capture_arguments);
        audit.strict = table.boolean("strict").unwrap_or(audit.strict);
        audit.on_failure = table.choice("on-failure").unwrap_or(audit.on_failure);
        let size = table.take("max-segment").and_then(|node| node.size(&SEGMENT_RANGE));
        audit.max_segment = size.unwrap_or(audit.max_segment);
        if let Some(mut retain) = table.table("retain") {
            let age = retain.take("age").and_then(|node| node.duration(&AGE_RANGE));
            let size = retain.take("size");
            let bytes = size.as_ref().and_then(|node| node.size(&SIZE_RANGE));
            if let (Some(node), Some(bytes)) = (size, bytes)
                && bytes < audit.max_segment
            {
                node.problem("must not be less than max-segment: the file that is written always stays");
            }
            retain.finish();
            audit.retain = Retain { age, size: bytes.map(|bytes| bytes as u64) };
        }
        table.finish();
        audit
    }
}
