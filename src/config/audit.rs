//! The `[audit]` table.

use std::ops::RangeInclusive;
use std::path::{Component, PathBuf};

use super::file::Table;

/// Default of `path`.
const PATH: &str = "audit";
/// Default of `max-segment`: some hundred thousand records, which a search reads in a second.
const MAX_SEGMENT: usize = 64 << 20;
/// Smaller segments mean too many files; larger ones take long to verify at a start.
const SEGMENT_RANGE: RangeInclusive<usize> = (64 << 10)..=(4 << 30);

/// The `[audit]` table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Audit {
    /// Relative to the state directory.
    pub(crate) path: PathBuf,
    /// Records hold the arguments themselves, not only their digest.
    pub(crate) capture_arguments: bool,
    /// Every record is on disk before its call goes on.
    pub(crate) strict: bool,
    pub(crate) on_failure: OnFailure,
    /// Bytes after which the log continues in a new file.
    pub(crate) max_segment: usize,
}

/// The fate of a call that the log cannot record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub(crate) enum OnFailure {
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
        table.finish();
        audit
    }
}
