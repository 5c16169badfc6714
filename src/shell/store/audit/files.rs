//! The files of the audit log: segments named `audit-<chain>-<number>.jsonl` in one folder, for
//! their owner alone.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags};

use crate::config::source::guard;
use crate::policy::records::chain::{LogPiece, date_of, timestamp};

/// Name of the daemon's chain.
pub const MAIN: &str = "main";
/// Extension of each segment's name.
const EXTENSION: &str = ".jsonl";
/// Bytes at the beginning of a record that always include its date.
const BEGIN: u64 = 256;
/// Attempts to lock the folder while another process has it: a daemon that has just ended holds its
/// files for a moment longer.
const LOOKS: u32 = 50;
/// Time between two attempts.
const LOOK: Duration = Duration::from_millis(20);

/// The folder of the audit log.
#[derive(Clone, Debug)]
pub struct LogFolder {
    path: PathBuf,
}

/// A segment, by its place in the log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogSegment {
    pub chain: String,
    /// Number in the chain, from one.
    pub number: u32,
}

impl LogSegment {
    pub fn name(&self) -> String {
        format!("audit-{}-{:06}{EXTENSION}", self.chain, self.number)
    }

    /// Parses the name that [`Self::name`] returns.
    pub fn parse(name: &str) -> Option<Self> {
        let (chain, number) = name.strip_prefix("audit-")?.strip_suffix(EXTENSION)?.rsplit_once('-')?;
        let segment = Self { chain: chain.to_owned(), number: number.parse().ok()? };
        (segment.name() == name).then_some(segment)
    }
}

impl LogFolder {
    /// The folder at this path, which need not exist.
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Creates the folder with mode 0700, or checks that an existing one cannot be written and is
    /// not owned by other users.
    pub(super) fn make(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.path)?;
        guard::check_directory(&self.path, false).map_err(guard::refusal_error)
    }

    /// Locks the folder for a daemon until the returned file is closed: two daemons would write the
    /// same chain, by any path they reach it. Chains of other processes need no lock. Blocks.
    /// Returns `None` if the folder is `state`, the state directory, which the daemon has locked
    /// already, and on a file system without locks.
    pub(super) fn lock(&self, state: Option<&Path>) -> io::Result<Option<File>> {
        let directory = File::open(&self.path)?;
        let inode = |data: fs::Metadata| (data.dev(), data.ino());
        let of_state = state.and_then(|state| fs::metadata(state).ok()).map(inode);
        if of_state == Some(inode(directory.metadata()?)) {
            return Ok(None);
        }
        for _ in 0..LOOKS {
            match directory.try_lock() {
                Ok(()) => return Ok(Some(directory)),
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK),
                Err(TryLockError::Error(error)) => {
                    tracing::warn!(error = %error, "the folder of the audit log cannot be locked; no other daemon may write there");
                    return Ok(None);
                }
            }
        }
        let text =
            "another headend daemon writes its log there; stop it, or give each its own folder with `[audit] path`";
        Err(io::Error::other(text))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lists the segments of each chain, in order. A missing folder has none.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn chains(&self) -> io::Result<BTreeMap<String, Vec<LogSegment>>> {
        let mut chains: BTreeMap<String, Vec<LogSegment>> = BTreeMap::new();
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(chains),
            entries => entries?,
        };
        for entry in entries {
            if let Some(segment) = entry?.file_name().to_str().and_then(LogSegment::parse) {
                chains.entry(segment.chain.clone()).or_default().push(segment);
            }
        }
        chains.values_mut().for_each(|segments| segments.sort_unstable());
        Ok(chains)
    }

    /// Opens a segment for reading. Its owner may be any user, since it may be in a copy of the
    /// folder.
    ///
    /// # Errors
    /// When the file cannot be opened, is a symbolic link, or is not a regular file.
    pub fn read(&self, segment: &LogSegment) -> io::Result<File> {
        // NONBLOCK: opening a pipe would block without it.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let path = self.path.join(segment.name());
        let file =
            File::from(rustix::fs::open(&path, flags, Mode::empty()).map_err(|error| guard::open_error(&path, error))?);
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not a file", segment.name())))
        }
    }

    /// Calls `each` with every line of a segment without its newline, and true; then with the bytes
    /// behind the last newline, if any, and false.
    pub(super) fn lines(&self, segment: &LogSegment, mut each: impl FnMut(&[u8], bool)) -> io::Result<()> {
        let mut file = BufReader::with_capacity(1 << 16, self.read(segment)?);
        let mut text = Vec::new();
        loop {
            text.clear();
            if file.read_until(b'\n', &mut text)? == 0 {
                return Ok(());
            }
            match text.strip_suffix(b"\n") {
                Some(line) => each(line, true),
                None => each(&text, false),
            }
        }
    }

    /// Opens a segment for appending, and locks it. Other users must not be able to write or own
    /// it.
    pub(super) fn append(&self, segment: &LogSegment) -> io::Result<File> {
        self.write(segment, OFlags::empty())
    }

    /// Creates a segment, which must not exist, and locks it. Syncs the folder, so that the file
    /// survives a power failure.
    pub(super) fn create(&self, segment: &LogSegment) -> io::Result<File> {
        let file = self.write(segment, OFlags::CREATE | OFlags::EXCL)?;
        File::open(&self.path)?.sync_all()?;
        Ok(file)
    }

    /// Returns the size of a segment and the time of its last write.
    pub(super) fn piece(&self, segment: &LogSegment) -> io::Result<LogPiece> {
        let data = fs::symlink_metadata(self.path.join(segment.name()))?;
        let last = data.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(LogPiece { bytes: data.len(), last: u64::try_from(last.as_millis()).unwrap_or(u64::MAX) })
    }

    /// Returns true if a segment's first record has the same date as `now`, in milliseconds since
    /// 1970.
    pub(super) fn is_of(&self, segment: &LogSegment, now: u64) -> bool {
        let mut begin = Vec::new();
        let read = self.read(segment).and_then(|file| file.take(BEGIN).read_to_end(&mut begin));
        let today = timestamp(now);
        read.is_ok() && date_of(&begin).is_some_and(|date| date.get(..10) == today.get(..10))
    }

    /// Removes segments, the first one first, and syncs the folder. Missing files do not matter.
    pub(super) fn remove(&self, segments: &[LogSegment]) -> io::Result<()> {
        for segment in segments {
            match fs::remove_file(self.path.join(segment.name())) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        File::open(&self.path)?.sync_all()
    }

    /// Opens a segment for writing, and locks it: the lock shows other processes that the chain has
    /// not ended.
    fn write(&self, segment: &LogSegment, flags: OFlags) -> io::Result<File> {
        let path = self.path.join(segment.name());
        let file = guard::open(&path, OFlags::RDWR | OFlags::APPEND | flags, guard::SHARED)?;
        // On a file system without locks this fails, and so does the other processes' test, which
        // they take for a lock.
        drop(file.try_lock());
        Ok(file)
    }
}
