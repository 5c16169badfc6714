//! One daemon for each state directory.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::config::guard;

/// Why the lock is not ours.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    #[error(
        "another headend daemon{who} runs with the state directory {dir}; stop it, or give this one its own with $STATE_DIRECTORY"
    )]
    Taken { dir: PathBuf, who: String },
    #[error("the lock {path} {source}")]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The daemon's hold on its state directory; the system gives it back when the process ends, however that happens.
#[derive(Debug)]
pub(crate) struct StateLock {
    _file: File,
}

impl StateLock {
    /// Takes `headend.lock` in this directory.
    ///
    /// # Errors
    /// When another process has it, or the file cannot be made.
    pub(crate) fn take(dir: &Path) -> Result<Self, LockError> {
        let path = dir.join("headend.lock");
        let failed = |source| LockError::File { path: path.clone(), source };
        let opened = guard::open(&path, OFlags::RDWR | OFlags::CREATE, guard::SHARED);
        // A disk that takes no writes gives the lock all the same.
        let opened = opened.or_else(|error| guard::open(&path, OFlags::RDONLY, guard::SHARED).map_err(|_| error));
        let mut file = opened.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                // The pid in the message only helps to find the process.
                drop(file.take(20).read_to_string(&mut pid));
                let who = pid.trim().parse::<u32>().map(|pid| format!(" (pid {pid})")).unwrap_or_default();
                return Err(LockError::Taken { dir: dir.to_owned(), who });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let pid = format!("{}\n", std::process::id());
        let noted = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(pid.as_bytes()));
        if let Err(error) = noted {
            // It only helps the next daemon to name this one.
            tracing::debug!(error = %error, "the lock of the state directory does not name this process");
        }
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock;

    #[test]
    fn one_daemon_has_a_state_directory() {
        let dir = tempfile::tempdir().unwrap();
        let lock = StateLock::take(dir.path()).unwrap();
        let text = StateLock::take(dir.path()).unwrap_err().to_string();
        assert!(text.contains(&format!("pid {}", std::process::id())), "{text}");
        assert!(text.contains(&dir.path().display().to_string()), "{text}");
        drop(lock);
        // A process that another test starts has the lock's file until it has become its program.
        let until = clock::now() + std::time::Duration::from_secs(60);
        while let Err(error) = StateLock::take(dir.path()) {
            assert!(clock::now() < until, "{error}");
            std::thread::yield_now();
        }
    }
}
