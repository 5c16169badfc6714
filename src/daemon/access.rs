//! Decides which system users may connect to the admin socket, and which of them are the operator.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::unistd::{Gid, Group, User};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::base::access::{self, Credential};
use crate::config::AdminSettings;
use crate::listener::callers::credentials::CallerAccess;
use crate::listener::lobby::LobbyLimits;
use crate::policy::{Caller, CallerRights};

/// Limits of connections that have not sent their hello: of all users and of one user.
pub(super) const UNGREETED: LobbyLimits = LobbyLimits { all: 64, per_origin: 32 };
/// File descriptors reserved for connections before their hello. After the hello, our own user's
/// connections have no limit, and those of another user count against the quota of that caller.
pub(super) const DESCRIPTORS: usize = UNGREETED.descriptors();

/// Users who may connect to the admin socket, in addition to our own user and root.
#[derive(Clone, Debug, Default)]
pub(crate) struct SocketUsers {
    uids: Vec<u32>,
    /// Group of the socket's file; its members may connect.
    gid: Option<u32>,
}

impl SocketUsers {
    /// Looks up the users and the group of the configuration. A number is accepted without an entry
    /// in the system's tables.
    ///
    /// # Errors
    /// A user or group name that the system does not know.
    pub(crate) fn of(admin: &AdminSettings) -> Result<Self, String> {
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

    /// Sets mode and group of the socket's file so that the group, if one is configured, can
    /// connect, and otherwise our own user alone.
    pub(crate) fn open(&self, socket: &Path) -> io::Result<()> {
        let mode = match self.gid {
            None => 0o600,
            Some(gid) => {
                nix::unistd::chown(socket, None, Some(Gid::from_raw(gid)))?;
                0o660
            }
        };
        std::fs::set_permissions(socket, std::fs::Permissions::from_mode(mode))
    }

    /// Returns the caller for a user id; `None` if the user may not connect. If a group is
    /// configured, every user is accepted here: the kernel has checked the group by the socket's
    /// mode.
    fn caller(&self, uid: u32) -> Option<Caller> {
        if uid == rustix::process::getuid().as_raw() {
            return Some(Caller::local().clone());
        }
        (uid == 0 || self.uids.contains(&uid) || self.gid.is_some()).then(|| Caller::user(uid))
    }
}

/// Returns the callers for the users of `[admin] users`; empty if a name is unknown to the system.
pub(super) fn socket_callers(admin: &AdminSettings) -> Vec<Caller> {
    let access = SocketUsers::of(admin).unwrap_or_default();
    access.uids.iter().map(|uid| Caller::user(*uid)).collect()
}

/// Users of a running admin socket, each with the access that a reload can withdraw. The number of
/// users of the system bounds the table.
#[derive(Debug)]
pub(crate) struct SocketUserTable(Mutex<(SocketUsers, HashMap<u32, CallerAccess>)>);

impl SocketUserTable {
    pub(crate) fn new(access: SocketUsers) -> Self {
        Self(Mutex::new((access, HashMap::new())))
    }

    /// Returns the caller for a user id, with an access that ends when it is withdrawn or
    /// `giving_up` fires; `None` if the user may not connect. All connections of a user share one
    /// access.
    pub(super) fn caller(&self, uid: u32, giving_up: &CancellationToken) -> Option<CallerAccess> {
        let mut inner = self.0.lock();
        let caller = inner.0.caller(uid)?;
        let access = || access::Access::by(&caller, Credential::User, CallerRights::all(), giving_up);
        let with_access = || CallerAccess { caller: caller.clone(), access: access() };
        Some(inner.1.entry(uid).or_insert_with(with_access).clone())
    }

    /// Replaces the rules about who may connect. Removes and returns the callers who no longer may;
    /// their access is still to be withdrawn by the caller of this function.
    pub(super) fn change(&self, access: SocketUsers) -> Vec<CallerAccess> {
        let mut inner = self.0.lock();
        inner.0 = access;
        let (access, known) = &mut *inner;
        known.extract_if(|uid, _| access.caller(*uid).is_none()).map(|(_, caller)| caller).collect()
    }
}

/// Returns the operator's name for grants and audit records; `None` if the caller is not the
/// operator.
pub(crate) fn operator_name(caller: &Caller) -> Option<String> {
    let uid = || format!("uid:{}", rustix::process::getuid().as_raw());
    caller.is_operator().then(|| if caller.is_local() { uid() } else { caller.name().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admin(users: &[&str], group: Option<&str>) -> AdminSettings {
        let users = users.iter().map(|user| (*user).to_owned()).collect();
        AdminSettings { socket: None, group: group.map(str::to_owned), users }
    }

    #[test]
    fn the_operator_is_our_own_user_or_root() {
        assert_eq!(operator_name(Caller::local()), Some(format!("uid:{}", rustix::process::getuid().as_raw())));
        assert_eq!(operator_name(&Caller::user(0)).as_deref(), Some("uid:0"));
        for other in [Caller::user(1000), Caller::anyone().clone(), Caller::named("ci")] {
            assert_eq!(operator_name(&other), None, "{other:?}");
        }
    }

    #[test]
    fn a_user_who_may_not_connect_any_more_loses_access() {
        let end = CancellationToken::new();
        let users = SocketUserTable::new(SocketUsers::of(&admin(&["4711", "4712"], None)).unwrap());
        let [gone, stays, own] = [4711, 4712, rustix::process::getuid().as_raw()].map(|uid| users.caller(uid, &end));
        let withdrawn = users.change(SocketUsers::of(&admin(&["4712"], None)).unwrap());
        assert_eq!(withdrawn.iter().map(|gone| gone.caller.name()).collect::<Vec<_>>(), ["uid:4711"]);
        withdrawn.iter().for_each(|caller| caller.access.withdraw());
        let is_withdrawn = |caller: Option<CallerAccess>| caller.unwrap().access.is_withdrawn();
        assert_eq!([gone, stays, own].map(is_withdrawn), [true, false, false]);
        assert!(users.caller(4711, &end).is_none());
        drop(users.change(SocketUsers::of(&admin(&["4711"], None)).unwrap()));
        assert!(!is_withdrawn(users.caller(4711, &end)), "access that is given again is new");
    }

    #[test]
    fn users_are_known_by_name_or_number() {
        let access = SocketUsers::of(&admin(&["nobody", "4711"], None)).unwrap();
        let nobody = User::from_name("nobody").unwrap().unwrap().uid.as_raw();
        for (uid, is_let_in) in [(nobody, true), (4711, true), (0, true), (4712, false)] {
            assert_eq!(access.caller(uid).is_some(), is_let_in, "{uid}");
        }
        assert!(SocketUsers::of(&admin(&["no such user"], None)).unwrap_err().contains("no such user"));
        assert!(SocketUsers::of(&admin(&[], Some("no such group"))).unwrap_err().contains("no such group"));
    }
}
