//! What one network address may do where there are many callers: hold connections, and present wrong credentials.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::config::Limits;
use crate::policy::CallerLimiter;

/// Who is counted as one: an IPv4 address, or the 64 bits of an IPv6 address that its owner does not choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Network(IpAddr);

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The limits of all addresses, and what they have used of them.
///
/// The table of connections has an entry for each address that holds one, so the number of connections bounds it.
#[derive(Debug, Default)]
pub(crate) struct AddressLimits {
    connections: Option<usize>,
    failures: Option<CallerLimiter>,
    held: Mutex<HashMap<Network, Held>>,
}

#[derive(Debug, Default)]
struct Held {
    connections: usize,
    /// Whether the log knows that the address wants more.
    told: bool,
}

/// A connection that counts for its address until this is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Option<(Arc<AddressLimits>, Network)>);

impl AddressLimits {
    /// The limits of the configuration; none where all clients are the local user.
    pub(crate) fn new(limits: &Limits, many_callers: bool) -> Self {
        if !many_callers {
            return Self::default();
        }
        let failures = limits.auth_failures;
        Self {
            connections: Some(limits.connections_per_ip),
            failures: CallerLimiter::new(failures, failures.count),
            held: Mutex::default(),
        }
    }

    /// Counts one more connection; `None` when the address holds its share already.
    pub(crate) fn connect(self: &Arc<Self>, network: Network) -> Option<Counted> {
        let Some(limit) = self.connections else { return Some(Counted(None)) };
        let mut table = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let held = table.entry(network).or_default();
        if held.connections >= limit {
            if !std::mem::replace(&mut held.told, true) {
                tracing::warn!(client.address = %network, "connections refused: their address holds its share");
            }
            return None;
        }
        held.connections += 1;
        Some(Counted(Some((Arc::clone(self), network))))
    }

    /// How long credentials from an address are not looked at, because too many were wrong.
    pub(crate) fn locked_out(&self, network: Network, now: Duration) -> Option<Duration> {
        self.failures.as_ref()?.wait(&network.to_string(), now)
    }

    /// Counts wrong credentials; the time to wait when there were too many before.
    pub(crate) fn failed(&self, network: Network, now: Duration) -> Option<Duration> {
        self.failures.as_ref()?.take(&network.to_string(), now).err()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let Some((limits, network)) = self.0.take() else { return };
        let mut table = limits.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = table.get_mut(&network) {
            held.connections = held.connections.saturating_sub(1);
            if held.connections == 0 {
                table.remove(&network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::{Per, Rate};

    use super::*;

    const NOW: Duration = Duration::from_secs(1000);

    fn limits(many_callers: bool) -> Arc<AddressLimits> {
        let auth_failures = Rate { count: 2, per: Per::Minute };
        let limits = Limits { connections_per_ip: 2, auth_failures, ..Limits::default() };
        Arc::new(AddressLimits::new(&limits, many_callers))
    }

    fn network(text: &str) -> Network {
        Network::from(text.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn an_address_is_told_apart_by_what_its_owner_cannot_choose() {
        for (label, one, other, same) in [
            ("IPv4", "192.0.2.1", "192.0.2.2", false),
            ("IPv4 and the same mapped", "192.0.2.1", "::ffff:192.0.2.1", true),
            ("two of one /64", "2001:db8:0:1::1", "2001:db8:0:1:ffff::2", true),
            ("two of neighbouring /64", "2001:db8:0:1::1", "2001:db8:0:2::1", false),
        ] {
            assert_eq!(network(one) == network(other), same, "{label}");
        }
    }

    #[test]
    fn an_address_holds_its_share_of_connections_and_leaves_nothing_behind() {
        let limits = limits(true);
        let (ours, theirs) = (network("192.0.2.1"), network("192.0.2.2"));
        let held = [limits.connect(ours), limits.connect(ours)];
        assert!(held.iter().all(Option::is_some));
        assert!(limits.connect(ours).is_none());
        assert!(limits.connect(theirs).is_some(), "another address has its own share");
        drop(held);
        assert!(limits.held.lock().unwrap().is_empty());
        assert!(limits.connect(ours).is_some());
    }

    #[test]
    fn wrong_credentials_shut_their_address_out_for_a_while() {
        let limits = limits(true);
        let (ours, theirs) = (network("192.0.2.1"), network("192.0.2.2"));
        for _ in 0..2 {
            assert_eq!(limits.locked_out(ours, NOW), None);
            assert_eq!(limits.failed(ours, NOW), None);
        }
        let wait = limits.locked_out(ours, NOW);
        assert_eq!(wait, Some(Duration::from_secs(30)));
        assert_eq!(limits.failed(ours, NOW), wait, "right and wrong credentials wait alike");
        assert_eq!(limits.locked_out(theirs, NOW), None);
        assert_eq!(limits.locked_out(ours, NOW + Duration::from_secs(30)), None, "refusals did not count");
    }

    #[test]
    fn the_local_user_alone_has_no_such_limits() {
        let limits = limits(false);
        let ours = network("127.0.0.1");
        let held: Vec<_> = (0..100).map(|_| limits.connect(ours)).collect();
        assert!(held.iter().all(Option::is_some));
        assert!((0..100).all(|_| limits.failed(ours, NOW).is_none()));
        assert_eq!(limits.locked_out(ours, NOW), None);
    }
}
