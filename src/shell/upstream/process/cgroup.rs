//! A control group for each child, if headend's own group is delegated to it: one write kills all
//! processes in it at once, even while they fork.
//!
//! Only a group that its manager has marked as delegated is divided (`Delegate=` of systemd). The
//! guard does the rest, as on systems without such groups. Source: the kernel's `cgroup-v2.rst`,
//! and `CGROUP_DELEGATION.md` of systemd.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::base::clock;

/// Prefix of a group's name, followed by the mark of its start.
const PREFIX: &str = "headend-";
/// Attributes that a manager sets on a delegated group; before version 251 systemd set only the
/// second one, which only root can read.
const DELEGATED: [&str; 2] = ["user.delegate", "trusted.delegate"];
/// How long a group may take to become empty after it was killed, and how often to check.
const EMPTY: Duration = Duration::from_millis(200);
const AGAIN: Duration = Duration::from_millis(5);

/// The group of one child.
#[derive(Debug)]
pub(super) struct Cgroup {
    dir: PathBuf,
}

impl Cgroup {
    /// Creates the group for the start with this mark and moves this process into it, so that its
    /// next child begins there. [`Self::leave`] has to follow.
    pub(super) fn enter(mark: &str) -> Option<Self> {
        Self::within(&delegated()?, mark)
    }

    fn within(parent: &Path, mark: &str) -> Option<Self> {
        let dir = parent.join(format!("{PREFIX}{mark}"));
        fs::create_dir(&dir).ok()?;
        let group = Self { dir };
        // Before Linux 5.14 a group cannot be killed at once, and is of no use.
        let entered = group.dir.join("cgroup.kill").exists() && enter(&group.dir).is_ok();
        if !entered {
            drop(fs::remove_dir(&group.dir));
        }
        entered.then_some(group)
    }

    /// Moves this process back to headend's own group.
    ///
    /// # Errors
    /// The process stays in the group, which then must not be killed or removed.
    pub(super) fn leave(&self) -> io::Result<()> {
        enter(self.dir.parent().unwrap_or(&self.dir))
    }

    /// Kills all processes in the group.
    pub(super) fn kill(&self) {
        // If this fails, signals do the work.
        drop(fs::write(self.dir.join("cgroup.kill"), "1"));
    }

    /// Removes the group once it is empty.
    pub(super) fn remove(&self) {
        let until = clock::now() + EMPTY;
        while fs::remove_dir(&self.dir).is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy)
            && clock::now() < until
        {
            std::thread::sleep(AGAIN);
        }
    }

    /// Lists the groups of other starts below our own group, with their marks.
    pub(super) fn others() -> Vec<(String, Self)> {
        let entries = delegated().and_then(|own| fs::read_dir(own).ok()).into_iter().flatten().flatten();
        let marked = |entry: fs::DirEntry| {
            let mark = entry.file_name().to_str()?.strip_prefix(PREFIX)?.to_owned();
            Some((mark, Self { dir: entry.path() }))
        };
        entries.filter_map(marked).collect()
    }
}

fn enter(dir: &Path) -> io::Result<()> {
    fs::write(dir.join("cgroup.procs"), "0")
}

/// Returns our own group, if it is delegated to us.
fn delegated() -> Option<PathBuf> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let own = place(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?)?;
    let says_so = |name: &str| {
        let mut value = [0; 1];
        rustix::fs::getxattr(&own, name, &mut value[..]) == Ok(1) && value == *b"1"
    };
    DELEGATED.iter().any(|name| says_so(name)).then_some(own)
}

/// Returns the directory of a process's group, from the contents of its `mountinfo` and `cgroup`
/// files.
fn place(mounts: &str, groups: &str) -> Option<PathBuf> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        kind.starts_with("cgroup2 ").then_some(())?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let below = Path::new(group).strip_prefix(root).ok()?;
        Some(Path::new(point).join(below))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_below_the_mount_of_the_second_version() {
        let mounts = "25 1 0:22 / /sys rw - sysfs sysfs rw\n\
                      30 25 0:26 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n\
                      31 25 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let groups = "4:memory:/x\n0::/system.slice/headend.service\n";
        let unit = PathBuf::from("/sys/fs/cgroup/system.slice/headend.service");
        assert_eq!(place(mounts, groups), Some(unit));
        assert_eq!(place(mounts, "0::/\n"), Some(PathBuf::from("/sys/fs/cgroup/")));
        assert_eq!(place(mounts, "4:memory:/x\n"), None);
        let bound = mounts.replace("0:27 / ", "0:27 /system.slice ");
        assert_eq!(place(&bound, groups), Some(PathBuf::from("/sys/fs/cgroup/headend.service")));
        assert_eq!(place(&bound, "0::/user.slice\n"), None, "outside of the mount");
        assert_eq!(place(&mounts.replace("cgroup2 ", "cgroup "), groups), None);
    }

    #[test]
    fn a_group_that_cannot_be_ended_is_not_used() {
        let parent = tempfile::tempdir().unwrap();
        assert!(Cgroup::within(parent.path(), "1").is_none());
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
        assert!(Cgroup::within(&parent.path().join("absent"), "1").is_none());
    }
}
