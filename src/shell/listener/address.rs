//! Network addresses of clients, and the rate limit for wrong credentials from each address. The
//! limit exists only if there can be several callers.
//!
//! Wrong credentials never keep right ones out, since many processes and clients share an address.
//! Too many wrong ones get 429 instead of 401; guessing 16 characters is hopeless at any rate. The
//! log has at most one line a minute about them, with a count.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use crate::base::tally::LogTally;
use crate::config::Limits;
use crate::policy::CallerLimiter;

/// The unit that counts as one client: an IPv4 address, or the first 64 bits of an IPv6 address,
/// since a client can choose the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network(IpAddr);

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

impl Network {
    /// Returns whether this is the local machine. The first 64 bits of `::1` are zero, and no other
    /// machine has them.
    pub fn is_loopback(self) -> bool {
        match self.0 {
            IpAddr::V4(address) => address.is_loopback(),
            IpAddr::V6(address) => address.is_unspecified(),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The rate limit for wrong credentials, by address. It decides how a wrong credential is answered
/// and never blocks a right one.
#[derive(Debug, Default)]
pub struct CredentialFailures {
    limit: Option<CallerLimiter>,
    told: LogTally,
}

impl CredentialFailures {
    /// Creates the limit of the configuration; there is no limit if every client is the local user.
    pub fn new(limits: &Limits, many_callers: bool) -> Self {
        let failures = limits.auth_failures;
        let limit = many_callers.then(|| CallerLimiter::new(failures, failures.count)).flatten();
        Self { limit, told: LogTally::default() }
    }

    /// Counts a wrong credential, and logs about once a minute. Returns the time to wait if there
    /// were too many.
    pub fn count(&self, network: Network, now: Duration) -> Option<Duration> {
        if let Some(count) = self.told.count(now) {
            tracing::warn!(client.address = %network, count, "wrong access tokens; the address is that of the latest");
        }
        self.limit.as_ref()?.take(&network.to_string(), 1, now).err()
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::{Rate, RateUnit};

    use super::*;

    const NOW: Duration = Duration::from_secs(1000);

    fn failures(many_callers: bool) -> CredentialFailures {
        CredentialFailures::new(
            &Limits { auth_failures: Rate { count: 2, per: RateUnit::Minute }, ..Limits::default() },
            many_callers,
        )
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
    fn too_many_wrong_credentials_of_an_address_are_told_to_wait() {
        let failures = failures(true);
        let (ours, theirs) = (network("192.0.2.1"), network("192.0.2.2"));
        for _ in 0..2 {
            assert_eq!(failures.count(ours, NOW), None);
        }
        assert_eq!(failures.count(ours, NOW), Some(Duration::from_secs(30)));
        assert_eq!(failures.count(theirs, NOW), None);
        assert_eq!(failures.count(ours, NOW + Duration::from_secs(30)), None, "refusals did not count");
    }

    #[test]
    fn the_local_user_alone_has_no_such_limit() {
        let failures = failures(false);
        assert!((0..100).all(|_| failures.count(network("127.0.0.1"), NOW).is_none()));
    }
}
