//! One daemon for each state directory.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use tokio::time::sleep;

use crate::config::guard;

/// A new daemon waits so long for the lock of one that has ended: a process that it was about to start has the lock too, until
/// that process runs its program.
const ENDED: Duration = Duration::from_secs(5);

/// Between two looks at the lock.
const LOOK: Duration = Duration::from_millis(20);

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
    /// When another daemon has it, or the file cannot be made.
    pub(crate) async fn take(dir: &Path) -> Result<Self, LockError> {
        let path = dir.join("headend.lock");
        let failed = |source| LockError::File { path: path.clone(), source };
        let opened = guard::open(&path, OFlags::RDWR | OFlags::CREATE, guard::SHARED);
        // A disk that takes no writes gives the lock all the same.
        let opened = opened.or_else(|error| guard::open(&path, OFlags::RDONLY, guard::SHARED).map_err(|_| error));
        let mut file = opened.map_err(failed)?;
        let mut patience = ENDED;
        while let Err(error) = file.try_lock() {
            if let TryLockError::Error(error) = error {
                return Err(failed(error));
            }
            let holder = holder(&mut file);
            if holder.is_some() || patience.is_zero() {
                let who = holder.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
                return Err(LockError::Taken { dir: dir.to_owned(), who });
            }
            sleep(LOOK).await;
            patience = patience.saturating_sub(LOOK);
        }
        let pid = format!("{}\n", std::process::id());
        let noted = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(pid.as_bytes()));
        if let Err(error) = noted {
            // It only helps the next daemon to name this one, and to know whether it has ended.
            tracing::debug!(error = %error, "the lock of the state directory does not name this process");
        }
        Ok(Self { _file: file })
    }
}

/// The process that the file names, unless it has ended.
fn holder(file: &mut File) -> Option<Pid> {
    let mut pid = String::new();
    file.rewind().ok()?;
    file.take(20).read_to_string(&mut pid).ok()?;
    let pid = Pid::from_raw(pid.trim().parse::<u32>().ok()?.try_into().ok()?)?;
    (test_kill_process(pid) != Err(Errno::SRCH)).then_some(pid)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::base::clock;

    #[tokio::test]
    async fn one_daemon_has_a_state_directory() {
        let dir = tempfile::tempdir().unwrap();
        let lock = StateLock::take(dir.path()).await.unwrap();
        let text = StateLock::take(dir.path()).await.unwrap_err().to_string();
        assert!(text.contains(&format!("pid {}", std::process::id())), "{text}");
        assert!(text.contains(&dir.path().display().to_string()), "{text}");
        drop(lock);
        // A process that another test starts has the lock's file until it runs its program, and this one goes on.
        let until = clock::now() + Duration::from_secs(60);
        while let Err(error) = StateLock::take(dir.path()).await {
            assert!(clock::now() < until, "{error}");
            sleep(LOOK).await;
        }
    }

    /// A state directory whose lock a process has that lives so long, and whose daemon has ended.
    fn left_to(seconds: &str) -> (tempfile::TempDir, std::process::Child) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("headend.lock");
        let mut daemon = Command::new("true").spawn().unwrap();
        daemon.wait().unwrap();
        fs::write(&path, format!("{}\n", daemon.id())).unwrap();
        let file = File::open(&path).unwrap();
        file.try_lock().unwrap();
        let child = Command::new("sleep").arg(seconds).stdin(Stdio::from(file)).spawn().unwrap();
        (dir, child)
    }

    #[tokio::test]
    async fn what_an_ended_daemon_was_starting_is_waited_for() {
        let (dir, mut child) = left_to("1");
        let lock = StateLock::take(dir.path()).await;
        assert!(lock.is_ok(), "{lock:?}");
        child.wait().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_of_nobody_that_is_seen_is_not_waited_for_without_end() {
        let (dir, mut child) = left_to("600");
        let text = StateLock::take(dir.path()).await.unwrap_err().to_string();
        assert!(text.starts_with("another headend daemon runs with"), "{text}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
