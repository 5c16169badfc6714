//! The size of the store's and the audit log's files, for metrics.

use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use crate::telemetry::metrics::DiskUse;

/// Adds up the sizes of files and finds the time of the last write. Missing files count as empty.
/// Blocks.
pub(in crate::store) fn measure(files: impl Iterator<Item = PathBuf>) -> DiskUse {
    let mut used = DiskUse::default();
    for data in files.filter_map(|file| std::fs::symlink_metadata(file).ok()) {
        used.bytes = used.bytes.saturating_add(data.len());
        let written = data.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        used.written = used.written.max(written.unwrap_or_default());
    }
    used
}
