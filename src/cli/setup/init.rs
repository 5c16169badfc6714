//! `headend init`: writes a first configuration file with comments.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::cli::exit::{NO, TEMPFAIL, USAGE};
use crate::cli::reach::source;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, print};
use crate::wire::foreign;

/// Text of the file.
pub(super) const FIRST: &str = include_str!("../../../config/init.toml");

/// Runs the command.
pub(in crate::cli) fn run(common: &CommonOptions) -> Result<u8, CommandFailure> {
    let path = source::user_file(common).ok_or_else(|| {
        CommandFailure::new(USAGE, "no place for the file: set $HOME, or name the file with --config PATH")
    })?;
    let shown = foreign::line(&path.display().to_string()).into_owned();
    let mut file = create(&path).map_err(|error| {
        if error.kind() == ErrorKind::AlreadyExists {
            let text =
                format!("{shown} exists and was left as it is; edit it, or name another file with --config PATH");
            return CommandFailure::new(NO, text);
        }
        CommandFailure::new(TEMPFAIL, format!("{shown}: {error}"))
    })?;
    if let Err(error) = file.write_all(FIRST.as_bytes()).and_then(|()| file.sync_all()) {
        // Half a file would be in force at the next start.
        drop(std::fs::remove_file(&path));
        return Err(CommandFailure::new(TEMPFAIL, format!("{shown}: {error}")));
    }
    print(&format!("wrote {shown}\nadd your servers to it, then run `headend check` and `headend serve`\n"))
}

/// Creates the file and the missing folders above it, for our user alone. Does not follow a
/// symbolic link at the file's path.
fn create(path: &Path) -> std::io::Result<File> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}
