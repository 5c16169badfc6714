//! The folder `conf.d` beside the configuration file, whose files are parts of the configuration.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;

use super::guard;

pub const NAME: &str = "conf.d";
/// The limit of files: more than any operator writes.
const MAX_FILES: usize = 256;

/// Returns the path of the folder beside a configuration file; the folder may not exist.
pub(crate) fn conf_d_path(config: &Path) -> PathBuf {
    let folder = config.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    folder.join(NAME)
}

/// Returns the paths of the listed files, if the folder can be trusted. A folder that does not
/// exist has none.
///
/// # Errors
/// The reason why the folder cannot be used, to follow its name in a message.
pub(crate) fn conf_d_files(folder: &Path, listed: &io::Result<Vec<OsString>>) -> Result<Vec<PathBuf>, String> {
    match listed {
        Ok(names) if names.len() > MAX_FILES => Err(format!("has more than {MAX_FILES} files")),
        Ok(names) => check_folder(folder).map(|()| names.iter().map(|name| folder.join(name)).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(format!("cannot be read: {error}")),
    }
}

/// Lists the files of the configuration, sorted by name: names that end with `.toml` and do not
/// begin with a dot. Editors and Kubernetes keep other files there.
///
/// # Errors
/// The system's error.
pub(crate) fn names(folder: &Path) -> io::Result<Vec<OsString>> {
    let counts = |name: &OsStr| {
        let name = name.as_bytes();
        name.ends_with(b".toml") && !name.starts_with(b".")
    };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        if counts(&name) {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Refuses a folder in which another user can place files. A mounted `ConfigMap` has mode 0777 but
/// is read-only.
fn check_folder(folder: &Path) -> Result<(), String> {
    guard::check_directory(folder, false).or_else(|why| {
        let read_only = rustix::fs::statvfs(folder).is_ok_and(|data| data.f_flag.contains(StatVfsMountFlags::RDONLY));
        if read_only { Ok(()) } else { Err(why) }
    })
}
