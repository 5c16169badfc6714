//! The lock that allows one daemon at a time on a state directory.

use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use tokio::time::sleep;

use crate::config::source::guard;

/// How long a new daemon waits for the lock if the process that the lock file names has ended. A
/// child that it was about to start holds the lock too, until the child executes its program.
const ENDED: Duration = Duration::from_secs(5);

/// How long a new daemon waits if the lock's holder still exists: a killed process exists until the
/// system has released its files.
const SEEN: Duration = Duration::from_secs(1);

/// Time between two attempts to take the lock.
const LOOK: Duration = Duration::from_millis(20);

/// The reason why the lock could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error(
        "another headend daemon{who} runs with the state directory {dir}; stop it, or give this one its own with $STATE_DIRECTORY",
        who = holder.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
    )]
    Taken { dir: PathBuf, holder: Option<Pid> },
    #[error("the lock {path} {source}")]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The lock of a daemon on its state directory; the system releases it when the process ends in any
/// way.
#[derive(Debug)]
pub struct StateLock {
    directory: File,
    file: File,
}

impl StateLock {
    /// Locks the directory and the file `headend.lock` in it, and writes the process id into the
    /// file. Retries for up to [`ENDED`] while another process holds the lock. The file names the
    /// daemon and keeps daemons of earlier versions out; removing it does not unlock the directory.
    ///
    /// # Errors
    /// When another daemon holds the lock, or the file cannot be created.
    pub async fn take(dir: &Path) -> Result<Self, LockError> {
        let mut waited = Duration::ZERO;
        loop {
            match Self::try_take(dir) {
                Err(LockError::Taken { holder, .. }) if waited < if holder.is_some() { SEEN } else { ENDED } => {}
                taken => return taken,
            }
            sleep(LOOK).await;
            waited += LOOK;
        }
    }

    /// Takes the lock if it is free now. The directory is opened anew each time, since it may have
    /// been replaced.
    fn try_take(dir: &Path) -> Result<Self, LockError> {
        let path = dir.join("headend.lock");
        let failed = |source| LockError::File { path: path.clone(), source };
        let directory = File::open(dir).map_err(failed)?;
        match directory.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = guard::open(&path, OFlags::RDONLY, guard::SHARED).ok().and_then(read_live_holder);
                return Err(LockError::Taken { dir: dir.to_owned(), holder });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let opened = guard::open(&path, OFlags::RDWR | OFlags::CREATE, guard::SHARED);
        // On a read-only disk the lock file is opened for reading, which is enough for a lock.
        let opened = opened.or_else(|error| guard::open(&path, OFlags::RDONLY, guard::SHARED).map_err(|_| error));
        let file = opened.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::Taken { dir: dir.to_owned(), holder: read_live_holder(file) });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let lock = Self { directory, file };
        lock.name_holder();
        Ok(lock)
    }

    /// Duplicates both files for another process, which then holds the lock too.
    ///
    /// # Errors
    /// The process may open no more files.
    pub fn pass(&self) -> io::Result<[OwnedFd; 2]> {
        Ok([self.directory.as_fd().try_clone_to_owned()?, self.file.as_fd().try_clone_to_owned()?])
    }

    /// Takes the lock of `dir` over by the files that its holder has passed.
    ///
    /// # Errors
    /// The files are not those of the directory, or are not locked.
    pub fn adopt(dir: &Path, passed: [OwnedFd; 2]) -> io::Result<Self> {
        let [directory, file] = passed.map(File::from);
        let inode = |data: Metadata| (data.dev(), data.ino());
        let is_of =
            |file: &File, path: &Path| Ok::<_, io::Error>(inode(file.metadata()?) == inode(fs::metadata(path)?));
        if !is_of(&directory, dir)? || !is_of(&file, &dir.join("headend.lock"))? {
            return Err(io::Error::other("the daemon that answers has another state directory"));
        }
        // A lock belongs to the open file, so a file that was passed locked can be locked again.
        directory.try_lock()?;
        file.try_lock()?;
        Ok(Self { directory, file })
    }

    /// Writes this process's id into the lock file. It only helps the next daemon to name this
    /// process and to see whether it has ended, so a failure is only logged.
    pub fn name_holder(&self) {
        let pid = format!("{}\n", std::process::id());
        let mut file = &self.file;
        let noted = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(pid.as_bytes()));
        if let Err(error) = noted {
            tracing::debug!(error = %error, "the lock of the state directory does not name this process");
        }
    }
}

/// Runs `work` under the lock, so that no daemon runs or starts meanwhile. Returns `None` without
/// running it if the directory is locked or cannot be opened.
pub(in crate::store) fn run_while_unlocked<T>(dir: &Path, work: impl FnOnce() -> T) -> Option<T> {
    let directory = File::open(dir).ok()?;
    directory.try_lock().is_ok().then(work)
}

/// Returns true while a daemon holds the lock: it starts, runs or ends.
pub(in crate::store) fn is_held(dir: &Path) -> bool {
    // A shared lock, so that two processes that check at once do not see each other.
    File::open(dir).is_ok_and(|directory| matches!(directory.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Returns the process that the lock file names, unless it has ended.
fn read_live_holder(file: File) -> Option<Pid> {
    let mut pid = String::new();
    file.take(20).read_to_string(&mut pid).ok()?;
    let pid = Pid::from_raw(pid.trim().parse::<u32>().ok()?.try_into().ok()?)?;
    (test_kill_process(pid) != Err(Errno::SRCH)).then_some(pid)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use tokio::time::Instant;

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
        // A child that another test is starting holds the lock's file until it executes its
        // program.
        let until = clock::now() + Duration::from_secs(60);
        while let Err(error) = StateLock::take(dir.path()).await {
            assert!(clock::now() < until, "{error}");
            sleep(LOOK).await;
        }
    }

    #[tokio::test]
    async fn a_daemon_is_seen_by_its_lock_on_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_held(dir.path()) && !is_held(&dir.path().join("none")));
        let _lock = StateLock::take(dir.path()).await.unwrap();
        fs::remove_file(dir.path().join("headend.lock")).unwrap();
        assert!(is_held(dir.path()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_file_that_is_removed_lets_no_second_daemon_in() {
        let dir = tempfile::tempdir().unwrap();
        let _lock = StateLock::take(dir.path()).await.unwrap();
        fs::remove_file(dir.path().join("headend.lock")).unwrap();
        assert!(matches!(StateLock::take(dir.path()).await, Err(LockError::Taken { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_about_to_end_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let until = clock::now() + Duration::from_secs(60);
        let next = async || {
            let lock = StateLock::take(dir.path()).await?;
            let end = async {
                sleep(SEEN / 2).await;
                drop(lock);
            };
            tokio::join!(StateLock::take(dir.path()), end).0
        };
        // A child of another test may hold the lock, as above.
        while let Err(error) = next().await {
            assert!(clock::now() < until, "{error}");
            std::thread::yield_now();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_is_passed_is_held_until_both_have_ended() {
        let dir = tempfile::tempdir().unwrap();
        let lock = StateLock::take(dir.path()).await.unwrap();
        let other = tempfile::tempdir().unwrap();
        assert!(StateLock::adopt(other.path(), lock.pass().unwrap()).is_err(), "another directory");
        let adopted = StateLock::adopt(dir.path(), lock.pass().unwrap()).unwrap();
        drop(lock);
        assert!(is_held(dir.path()));
        drop(adopted);
        let unlocked = [dir.path().to_owned(), dir.path().join("headend.lock")].map(|path| File::open(path).unwrap());
        let _other_holder = StateLock::take(dir.path()).await;
        assert!(
            StateLock::adopt(dir.path(), unlocked.map(OwnedFd::from)).is_err(),
            "not locked by the one that passed it"
        );
    }

    /// Tries to take the lock after its daemon has ended, while a child of that daemon holds it for
    /// this many seconds.
    async fn after(seconds: &str) -> Result<StateLock, LockError> {
        let dir = tempfile::tempdir().unwrap();
        drop(StateLock::take(dir.path()).await.unwrap());
        let path = dir.path().join("headend.lock");
        let mut daemon = Command::new("true").spawn().unwrap();
        daemon.wait().unwrap();
        fs::write(&path, format!("{}\n", daemon.id())).unwrap();
        let file = File::open(&path).unwrap();
        file.lock().unwrap();
        let mut child = Command::new("sleep").arg(seconds).stdin(file).stdout(Stdio::null()).spawn().unwrap();
        let taken = StateLock::take(dir.path()).await;
        child.kill().unwrap();
        child.wait().unwrap();
        taken
    }

    #[tokio::test]
    async fn what_an_ended_daemon_was_starting_is_waited_for() {
        let taken = after("1").await;
        assert!(taken.is_ok(), "{taken:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_of_nobody_that_is_seen_is_not_waited_for_without_end() {
        let began = Instant::now();
        let text = after("60").await.unwrap_err().to_string();
        assert!(began.elapsed() >= ENDED, "{:?}", began.elapsed());
        assert!(text.starts_with("another headend daemon runs with"), "{text}");
    }
}
