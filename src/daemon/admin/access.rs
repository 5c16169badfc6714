//! Access to the admin socket: who may connect, and who is the operator.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use nix::unistd::{Gid, Group, User};

use crate::config::Admin;
use crate::policy::LOCAL;

/// Root may do everything anyway.
const ROOT: &str = "uid:0";

/// Users who may connect, in addition to our own and root.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    uids: Vec<u32>,
    /// Group of the socket, whose members may connect.
    gid: Option<u32>,
}

impl Access {
    /// Looks up users and group of the configuration; numbers need no entry.
    ///
    /// # Errors
    /// A name unknown to the system.
    pub(crate) fn of(admin: &Admin) -> Result<Self, String> {
        let uid = |name: &String| {
            let known = || User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
            name.parse().ok().or_else(known).ok_or_else(|| format!("admin.users: there is no user {name:?}"))
        };
        let gid = |name: &String| {
            let known = || Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw());
            name.parse().ok().or_else(known).ok_or_else(|| format!("admin.group: there is no group {name:?}"))
        };
        let uids = admin.users.iter().map(uid).collect::<Result<_, _>>()?;
        Ok(Self { uids, gid: admin.group.as_ref().map(gid).transpose()? })
    }

    /// Gives the socket's file the mode and group that let these users connect, and no others.
    pub(super) fn open(&self, socket: &Path) -> io::Result<()> {
        let mode = match self.gid {
            None => 0o600,
            Some(gid) => {
                nix::unistd::chown(socket, None, Some(Gid::from_raw(gid)))?;
                0o660
            }
        };
        std::fs::set_permissions(socket, std::fs::Permissions::from_mode(mode))
    }

    /// The caller of a user; `None` for one who may not connect. The kernel checked groups by the socket's mode.
    pub(super) fn caller(&self, uid: u32) -> Option<Arc<str>> {
        if uid == rustix::process::getuid().as_raw() {
            return Some(Arc::from(LOCAL));
        }
        (uid == 0 || self.uids.contains(&uid) || self.gid.is_some()).then(|| Arc::from(format!("uid:{uid}")))
    }
}

/// Name of an operator in grants and records; `None` for other users of the socket.
pub(super) fn operator(caller: &str) -> Option<String> {
    match caller {
        LOCAL => Some(format!("uid:{}", rustix::process::getuid().as_raw())),
        ROOT => Some(ROOT.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admin(users: &[&str], group: Option<&str>) -> Admin {
        let users = users.iter().map(|user| (*user).to_owned()).collect();
        Admin { socket: None, group: group.map(str::to_owned), users }
    }

    #[test]
    fn the_operator_is_our_own_user_or_root() {
        assert_eq!(operator(LOCAL), Some(format!("uid:{}", rustix::process::getuid().as_raw())));
        assert_eq!(operator("uid:0").as_deref(), Some("uid:0"));
        for other in ["uid:1000", "uid:00", "ci", ""] {
            assert_eq!(operator(other), None, "{other:?}");
        }
    }

    #[test]
    fn users_are_known_by_name_or_number() {
        let access = Access::of(&admin(&["nobody", "4711"], None)).unwrap();
        let nobody = User::from_name("nobody").unwrap().unwrap().uid.as_raw();
        for (uid, is_let_in) in [(nobody, true), (4711, true), (0, true), (4712, false)] {
            assert_eq!(access.caller(uid).is_some(), is_let_in, "{uid}");
        }
        assert!(Access::of(&admin(&["no such user"], None)).unwrap_err().contains("no such user"));
        assert!(Access::of(&admin(&[], Some("no such group"))).unwrap_err().contains("no such group"));
    }
}
