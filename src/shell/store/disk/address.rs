//! The address of the daemon's admin socket, left as a file in the state directory. Commands whose
//! environment lacks the runtime directory find the daemon by it.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::config::source::guard;
use crate::store::disk::files;

/// Name of the address file.
const FILE: &str = "socket.json";
/// Size limit of the address file, in bytes. Longer content is cut and then does not parse.
const MAX_BYTES: u64 = 16 * 1024;

/// One boot of one host. A socket address is valid only on the machine and boot that it was written
/// on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostBoot {
    host: String,
    /// Random id of this boot, from the kernel; empty if the system has none.
    boot: String,
}

impl HostBoot {
    /// Reads host name and boot id of the running system from `/proc`.
    pub fn own() -> Self {
        let read = |name: &str| {
            let text = fs::read_to_string(Path::new("/proc/sys/kernel").join(name)).unwrap_or_default();
            text.trim().to_owned()
        };
        Self { host: read("hostname"), boot: read("random/boot_id") }
    }
}

/// The address file's content: the socket of a running daemon, with the machine and process that
/// serve it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonAddress {
    /// Absolute path of the socket.
    pub socket: PathBuf,
    #[serde(flatten)]
    machine: HostBoot,
    pub pid: u32,
}

impl DaemonAddress {
    /// Creates the address of a socket that this process serves.
    pub fn of(socket: &Path, machine: HostBoot) -> Self {
        let socket = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
        Self { socket, machine, pid: std::process::id() }
    }

    /// Writes the address file into a state directory with mode 0600, replacing an older one.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        files::write_and_place(dir, FILE, &text, |fresh| fs::rename(fresh, dir.join(FILE)))
    }

    /// Removes the address file from a state directory, unless another daemon has written its own
    /// meanwhile.
    pub fn remove(&self, dir: &Path) {
        if Self::read_any(dir).is_ok_and(|found| found == *self)
            && let Err(error) = fs::remove_file(dir.join(FILE))
        {
            tracing::debug!(error = %error, "the address of the admin socket stays in the state directory");
        }
    }

    /// Reads the address file of a state directory. Returns `None` if it is missing or malformed,
    /// if other users could have written it, or if it comes from another host or an earlier boot.
    pub fn find(dir: &Path, machine: &HostBoot) -> Option<Self> {
        match Self::read_any(dir) {
            Ok(found) => Some(found).filter(|found| found.machine == *machine && found.socket.is_absolute()),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::debug!(file = %dir.join(FILE).display(), error = %error, "no address of a daemon");
                }
                None
            }
        }
    }

    /// Reads the address file, which may come from another machine.
    ///
    /// # Errors
    /// When the directory or file is missing, malformed, or writable by other users.
    fn read_any(dir: &Path) -> io::Result<Self> {
        guard::check_directory(dir, false).map_err(|why| io::Error::new(io::ErrorKind::NotFound, why))?;
        let file = guard::open(&dir.join(FILE), OFlags::RDONLY, guard::SECRET)?;
        let mut text = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn address() -> DaemonAddress {
        DaemonAddress::of(Path::new("/run/user/1000/headend.sock"), HostBoot::own())
    }

    #[test]
    fn the_address_is_for_its_owner_alone_and_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(DaemonAddress::find(dir.path(), &HostBoot::own()), None);
        address().write(dir.path()).unwrap();
        let data = fs::symlink_metadata(dir.path().join(FILE)).unwrap();
        assert!(data.is_file() && data.permissions().mode() & 0o777 == 0o600, "{data:?}");
        assert_eq!(DaemonAddress::find(dir.path(), &HostBoot::own()), Some(address()));
        address().remove(dir.path());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_address_of_another_host_or_boot_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let own = HostBoot::own();
        let other_host = HostBoot { host: "another".to_owned(), ..own.clone() };
        let other_boot = HostBoot { boot: "0".to_owned(), ..own.clone() };
        for machine in [other_host, other_boot] {
            DaemonAddress::of(Path::new("/x.sock"), machine.clone()).write(dir.path()).unwrap();
            assert_eq!(DaemonAddress::find(dir.path(), &own), None, "{machine:?}");
        }
        let text = r#"{"socket":"x.sock","host":"","boot":"","pid":1}"#;
        fs::write(dir.path().join(FILE), text).unwrap();
        let nowhere = HostBoot { host: String::new(), boot: String::new() };
        assert_eq!(DaemonAddress::find(dir.path(), &nowhere), None, "a relative path");
    }

    #[test]
    fn an_address_that_others_could_have_written_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let own = HostBoot::own();
        let find = || DaemonAddress::find(dir.path(), &own);
        address().write(dir.path()).unwrap();
        let file = dir.path().join(FILE);
        let set = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o602] {
            set(&file, mode);
            assert_eq!(find(), None, "{mode:o}");
        }
        set(&file, 0o600);
        set(dir.path(), 0o770);
        assert_eq!(find(), None, "a directory that the group may write");
        set(dir.path(), 0o700);
        assert!(find().is_some());
        let elsewhere = tempfile::tempdir().unwrap();
        fs::rename(&file, elsewhere.path().join(FILE)).unwrap();
        symlink(elsewhere.path().join(FILE), &file).unwrap();
        assert_eq!(find(), None, "a symbolic link");
        fs::remove_file(&file).unwrap();
        for text in ["", "{", "[]", &"x".repeat(40_000)] {
            fs::write(&file, text).unwrap();
            set(&file, 0o600);
            assert_eq!(find(), None, "{text:.9}");
        }
    }

    #[test]
    fn the_end_of_a_daemon_leaves_the_address_of_its_successor() {
        let dir = tempfile::tempdir().unwrap();
        let successor = DaemonAddress { pid: 1, ..address() };
        successor.write(dir.path()).unwrap();
        address().remove(dir.path());
        assert_eq!(DaemonAddress::find(dir.path(), &HostBoot::own()), Some(successor));
    }
}
