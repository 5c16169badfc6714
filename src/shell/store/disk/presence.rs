//! Gateways of `headend stdio` that run on a state directory. Each has a file there, which it locks
//! while it runs.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::base::clock;
use crate::config::source::guard;
use crate::wire::foreign;

const PREFIX: &str = "gateway-";
const SUFFIX: &str = ".json";
/// Size limit of a presence file, in bytes.
const MAX_BYTES: u64 = 4096;
/// Most files that one listing reads.
const MAX_FILES: usize = 256;

/// A running gateway of another process on the state directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherGateway {
    pub pid: u32,
    /// Name that the host claims for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

impl fmt::Display for OtherGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.host.as_deref().map(foreign::line);
        let host = host.map(|host| format!(" for {host}")).unwrap_or_default();
        write!(f, "`headend stdio`{host} (pid {})", self.pid)
    }
}

/// The locked presence file of this process. It is removed on drop; after a crash, the lock is gone
/// and another process removes the file.
#[derive(Debug)]
pub struct Presence {
    path: PathBuf,
    inner: Mutex<(File, OtherGateway)>,
}

impl Presence {
    /// Creates and locks the presence file of this process.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn announce(dir: &Path) -> io::Result<Self> {
        let unique = HEXLOWER.encode(&clock::random::<4>());
        let path = dir.join(format!("{PREFIX}{unique}{SUFFIX}"));
        // The file gets its final name only once it is locked: other processes remove unlocked
        // ones.
        let fresh = path.with_extension("new");
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        let made = file.try_lock().map_err(io::Error::from).and_then(|()| fs::rename(&fresh, &path));
        if let Err(error) = made {
            drop(fs::remove_file(&fresh));
            return Err(error);
        }
        let own = OtherGateway { pid: std::process::id(), host: None };
        let mut file = file;
        write(&mut file, &own)?;
        Ok(Self { path, inner: Mutex::new((file, own)) })
    }

    /// Adds the name of the host to the file, once the host has given one. A failure is logged.
    pub fn name_host(&self, name: &str) {
        let mut inner = self.inner.lock();
        let (file, own) = &mut *inner;
        if own.host.as_deref() == Some(name) {
            return;
        }
        own.host = Some(name.to_owned());
        if let Err(error) = write(file, own) {
            tracing::debug!(error = %error, "the state directory does not name the host of this gateway");
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        // If this fails, another process removes the file.
        drop(fs::remove_file(&self.path));
    }
}

/// Replaces the content of a presence file.
fn write(file: &mut File, own: &OtherGateway) -> io::Result<()> {
    let text = serde_json::to_vec(own)?;
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&text)
}

/// Lists the gateways of other processes on a state directory, by process id, and removes the files
/// of those that have ended.
pub fn others(dir: &Path) -> Vec<OtherGateway> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let is_one = |name: &str| name.starts_with(PREFIX) && name.ends_with(SUFFIX);
    let paths = entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_one)).map(|it| it.path());
    let mut found: Vec<_> = paths.take(MAX_FILES).filter_map(|path| running(&path)).collect();
    found.retain(|gateway| gateway.pid != std::process::id());
    found.sort_by_key(|gateway| gateway.pid);
    found
}

/// Reads the gateway of a presence file. Returns `None` if it has ended, and removes its file.
fn running(path: &Path) -> Option<OtherGateway> {
    let file = guard::open(path, OFlags::RDONLY, guard::SECRET).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {}
        Ok(()) => {
            // Another process may have removed it first.
            drop(fs::remove_file(path));
            return None;
        }
        Err(TryLockError::Error(_)) => return None,
    }
    let mut text = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut text).ok()?;
    // A file that is being written at this moment still counts, without its details.
    Some(serde_json::from_slice(&text).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_gateway_is_seen_with_its_host_until_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let presence = Presence::announce(dir.path()).unwrap();
        let path = fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let own = OtherGateway { pid: std::process::id(), host: None };
        assert_eq!(running(&path), Some(own.clone()));
        presence.name_host("codex");
        assert_eq!(running(&path), Some(OtherGateway { host: Some("codex".to_owned()), ..own }));
        assert_eq!(others(dir.path()), [], "it is not another one");
        drop(presence);
        assert_eq!(running(&path), None);
        assert!(!path.exists());
    }

    #[test]
    fn gateways_of_other_processes_are_listed_and_the_dead_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let text = |pid: u32| format!(r#"{{"pid":{pid},"host":"h{pid}"}}"#);
        let make = |name: &str, pid: u32| {
            let path = dir.path().join(name);
            fs::write(&path, text(pid)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            File::open(&path).unwrap()
        };
        let (living, earlier, _dead) =
            (make("gateway-1.json", 77), make("gateway-2.json", 5), make("gateway-3.json", 9));
        living.lock().unwrap();
        earlier.lock().unwrap();
        drop(make("other.json", 1));
        let found: Vec<_> = others(dir.path()).into_iter().map(|found| (found.pid, found.host.unwrap())).collect();
        assert_eq!(found, [(5, "h5".to_owned()), (77, "h77".to_owned())]);
        assert!(!dir.path().join("gateway-3.json").exists());
    }
}
