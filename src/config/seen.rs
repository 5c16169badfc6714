//! What a configuration was read from, as it was then: whether something else would be read now.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256};
use data_encoding::HEXLOWER;

use super::{folder, guard};

/// One file as it was read, or the names in a folder. It holds a digest of the content, never the content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    path: PathBuf,
    is_folder: bool,
    /// `None`: it was not readable.
    content: Option<String>,
}

impl Seen {
    /// A file that was just read, or was to be read.
    pub(super) fn file(path: &Path, read: &io::Result<String>) -> Self {
        let content = read.as_ref().ok().map(|text| digest_of([text.as_bytes()]));
        Self { path: path.to_owned(), is_folder: false, content }
    }

    /// A folder whose files were just listed, or were to be listed.
    pub(super) fn folder(path: &Path, listed: &io::Result<Vec<OsString>>) -> Self {
        let content = listed.as_ref().ok().map(|names| digest_of(names.iter().map(|name| name.as_bytes())));
        Self { path: path.to_owned(), is_folder: true, content }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) const fn is_folder(&self) -> bool {
        self.is_folder
    }

    /// Reads the file, or lists the folder, again.
    pub(crate) fn again(&self) -> Self {
        if self.is_folder {
            Self::folder(&self.path, &folder::names(&self.path))
        } else {
            Self::file(&self.path, &guard::read(&self.path))
        }
    }

    /// Whether reading it again would give something else.
    pub(crate) fn is_stale(&self) -> bool {
        *self != self.again()
    }
}

/// SHA-256 over parts, each with its length before it.
pub(super) fn digest_of<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> String {
    let mut hash = Context::new(&SHA256);
    for part in parts {
        hash.update(&(part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    HEXLOWER.encode(hash.finish().as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_stale_once_it_says_something_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.toml");
        let file = || Seen::file(&path, &guard::read(&path));
        let folder = || Seen::folder(dir.path(), &folder::names(dir.path()));
        let (missing, empty) = (file(), folder());
        assert!(!missing.is_stale() && !empty.is_stale());
        std::fs::write(&path, "one").unwrap();
        assert!(missing.is_stale() && empty.is_stale());
        let (seen, full) = (file(), folder());
        std::fs::write(&path, "one").unwrap();
        std::fs::write(dir.path().join(".x.toml.swp"), "").unwrap();
        assert!(!seen.is_stale() && !full.is_stale(), "the same text, written again");
        std::fs::write(&path, "two").unwrap();
        assert!(seen.is_stale() && !full.is_stale());
        std::fs::remove_file(&path).unwrap();
        assert!(seen.is_stale() && full.is_stale());
    }
}
