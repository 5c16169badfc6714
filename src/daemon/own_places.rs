//! Finds the folders that no folder grant may cover: the home directory, and headend's own files.

use std::path::{Path, PathBuf};

use crate::config::{CONF_D, FileFingerprint, SYSTEM};
use crate::policy::consent::ReservedFolders;

/// Lists these folders. `path` is the configuration file, `files` are the files that were read for
/// it, and `state` is the state directory. Each path is listed as written and with links resolved.
pub(crate) fn find_protected_folders(
    path: Option<&Path>,
    files: &[FileFingerprint],
    state: Option<&Path>,
) -> ReservedFolders {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let mut own: Vec<PathBuf> = files.iter().map(|file| file.path().to_owned()).collect();
    own.extend(path.iter().flat_map(|path| [path.to_path_buf(), path.with_file_name(CONF_D)]));
    own.extend(state.map(Path::to_owned));
    own.extend(Path::new(SYSTEM).parent().map(Path::to_owned));
    ReservedFolders { homes: spelled(home.into_iter()), own: spelled(own.into_iter()) }
}

/// Returns each path in absolute form as written and with links resolved, sorted and without
/// duplicates.
fn spelled(paths: impl Iterator<Item = PathBuf>) -> Vec<String> {
    let both = paths.flat_map(|path| {
        let path = std::path::absolute(&path).unwrap_or(path);
        // A path that does not exist yet is resolved by its parent folder.
        let beside = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
        [path.canonicalize().ok().or_else(beside), Some(path)]
    });
    let mut texts: Vec<String> = both.flatten().map(|path| path.to_string_lossy().into_owned()).collect();
    texts.sort_unstable();
    texts.dedup();
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_its_parts_and_the_state_are_headends_own() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (real, link) = (root.join("real"), root.join("link"));
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let places = find_protected_folders(Some(&link.join("headend.toml")), &[], Some(&link));
        for own in [link.join("conf.d"), link.clone(), real.join("headend.toml"), real.join("conf.d"), real] {
            assert!(places.own.iter().any(|path| Path::new(path) == own), "{own:?}: {places:?}");
        }
        assert!(places.own.iter().any(|path| path == "/etc/headend"));
    }
}
