//! Writes a backup of a state directory, with or without a running daemon.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::OperatorRefusal;
use crate::config::source::guard;
use crate::store::backup::{self, BackupError};
use crate::store::db::Db;
use crate::store::seal::KEY_FILE;

/// Location of the key that opens the sealed values of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum BackupKeyLocation {
    /// The key is in the backup.
    Included,
    /// The key is in the state directory alone.
    LeftOut,
    /// The key is in the configuration.
    Configured,
    /// There is no key, so no value is sealed.
    None,
}

/// A finished backup.
#[derive(Debug, Serialize)]
pub(crate) struct BackupView {
    /// Folder of the backup, with symbolic links resolved.
    pub(crate) dir: PathBuf,
    pub(crate) state: PathBuf,
    pub(crate) key: BackupKeyLocation,
    /// Names of the files in the backup.
    pub(crate) files: Vec<String>,
    /// Number of live grants.
    pub(crate) grants: usize,
    pub(crate) pins: usize,
    /// Number of logins at upstreams, which are sealed.
    pub(crate) logins: usize,
}

/// Writes a backup of the state directory `state` to `to`, which must be absent or an empty folder.
/// `is_configured` is true if the key is in the configuration. Blocks the thread.
///
/// # Errors
/// If no backup is written; nothing is left in `to` then.
pub(crate) fn write(
    state: &Path,
    to: &Path,
    with_key: bool,
    is_configured: bool,
) -> Result<BackupView, OperatorRefusal> {
    if !Db::is_in(state) {
        let text = format!("there is no store in {}, so there is nothing to back up", state.display());
        return Err(OperatorRefusal::Refused(text));
    }
    let unsafe_place = |why| OperatorRefusal::unusable(format!("the state directory {} {why}", state.display()));
    guard::check_directory(state, false).map_err(unsafe_place)?;
    let done = backup::write(state, to, with_key).map_err(|error| match error {
        BackupError::Place(why) => OperatorRefusal::Params(why),
        BackupError::Taken(why) => OperatorRefusal::Refused(why),
        BackupError::Failed(why) => OperatorRefusal::Unusable(why),
    })?;
    let key = if done.files.iter().any(|name| name == KEY_FILE) {
        BackupKeyLocation::Included
    } else if is_configured {
        BackupKeyLocation::Configured
    } else if state.join(KEY_FILE).exists() {
        BackupKeyLocation::LeftOut
    } else {
        BackupKeyLocation::None
    };
    let (rows, state) = (done.rows, state.to_owned());
    let (grants, pins, logins) = (rows.grants, rows.pins, rows.logins);
    Ok(BackupView { dir: done.dir, state, key, files: done.files, grants, pins, logins })
}
