//! Unattended hosts: programs without a person that answer forms faster than a person can read
//! them.
//!
//! Such an answer says nothing about a person's wish. The call is therefore held for the console
//! and the terminal, and for 10 minutes so are the later calls of the same session, pipe or
//! connection. A quick choice in the form still counts as the client's word: it proves neither that
//! there is a person nor that there is none.

use std::collections::HashMap;
use std::time::Duration;

use super::hold::ClientKey;

/// Time that a person takes at least to answer a form.
pub const REACTION: Duration = Duration::from_millis(300);
/// Time for which a host counts as unattended.
pub const REMEMBERED: Duration = Duration::from_secs(600);
/// Most hosts that are remembered. Beyond that the oldest is forgotten, and is asked again.
const MAX_HOSTS: usize = 1024;

/// The host that a call comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AskingHost {
    /// The number of the session, pipe or connection. Clients behind a proxy share one.
    pub connection: u64,
    /// The caller, and the name that the client gives itself.
    pub holder: ClientKey,
}

/// The hosts that were found to be unattended, each with the time of that. Times are of any clock
/// that never goes back.
#[derive(Debug, Default)]
pub struct UnattendedHosts(HashMap<AskingHost, Duration>);

impl UnattendedHosts {
    /// Whether the host was found to be unattended in the last 10 minutes.
    pub fn contains(&self, host: &AskingHost, now: Duration) -> bool {
        self.0.get(host).is_some_and(|since| now < *since + REMEMBERED)
    }

    /// Remembers that the host is unattended. For a host that is remembered already the first time
    /// stays, so that it is asked again after 10 minutes.
    pub fn insert(&mut self, host: AskingHost, now: Duration) {
        self.0.retain(|_, since| now < *since + REMEMBERED);
        if self.0.len() >= MAX_HOSTS
            && !self.0.contains_key(&host)
            && let Some(oldest) = self.0.iter().min_by_key(|(_, since)| **since).map(|(oldest, _)| oldest.clone())
        {
            self.0.remove(&oldest);
        }
        self.0.entry(host).or_insert(now);
    }

    /// Forgets the host, because a choice came through it.
    pub fn remove(&mut self, host: &AskingHost) {
        self.0.remove(host);
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::caller::Caller;
    use std::sync::Arc;

    use super::*;

    fn host(connection: u64, client: &str) -> AskingHost {
        AskingHost { connection, holder: ClientKey { caller: Caller::local().clone(), client: Arc::from(client) } }
    }

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_host_without_a_person_is_remembered_for_ten_minutes_and_no_other_for_it() {
        let mut hosts = UnattendedHosts::default();
        hosts.insert(host(1, "codex"), s(10));
        hosts.insert(host(1, "codex"), s(500));
        assert!(hosts.contains(&host(1, "codex"), s(609)) && !hosts.contains(&host(1, "codex"), s(610)));
        for other in [host(2, "codex"), host(1, "claude-code")] {
            assert!(!hosts.contains(&other, s(11)), "{other:?}");
        }
        hosts.insert(host(2, "codex"), s(700));
        hosts.remove(&host(2, "codex"));
        assert!(!hosts.contains(&host(2, "codex"), s(701)));
    }

    #[test]
    fn the_oldest_of_too_many_hosts_gives_way() {
        let mut hosts = UnattendedHosts::default();
        for connection in 0..=u64::try_from(MAX_HOSTS).unwrap() {
            hosts.insert(host(connection, "codex"), Duration::from_millis(connection));
        }
        assert!(!hosts.contains(&host(0, "codex"), s(2)) && hosts.contains(&host(1, "codex"), s(2)));
        assert_eq!(hosts.0.len(), MAX_HOSTS);
    }
}
