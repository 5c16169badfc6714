//! Keeps the connections of all listeners within the process's limit of file descriptors.
//!
//! At the start headend raises the limit of open files as far as its connection limits need and the
//! system allows. If that is not enough, it lowers the connection limits and logs a warning.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Limits;
use crate::listener::lobby::LEAVING;

/// Descriptors reserved for all other uses: the store, logs, timers, pipes of a few upstreams.
const OTHERS: usize = 256;
/// Descriptors reserved for the sockets and pipes of one upstream: its connection pool, event
/// streams and sessions.
const PER_UPSTREAM: usize = 16;
/// The smallest connection limit that a reduction leaves.
const FEWEST: usize = 8;

/// The process's limit of open files, and the part of it that the configured limits may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorRoom {
    /// Descriptors that the process may have open; `None` if there is no limit.
    limit: Option<usize>,
    /// Descriptors reserved for everything without a configured limit.
    kept: usize,
    /// Number of listeners whose connections the configuration limits.
    listeners: usize,
}

impl DescriptorRoom {
    /// Raises the soft limit of the process as far as needed and allowed, and returns the
    /// descriptors available. `fixed` is the number of connections of listeners without a
    /// configured limit.
    pub fn make(limits: &Limits, listeners: usize, upstreams: usize, fixed: usize) -> Self {
        let kept = OTHERS + fixed + upstreams * PER_UPSTREAM + limits.in_flight;
        let room = Self { limit: None, kept, listeners };
        let wanted = kept.saturating_add(listeners.saturating_mul(room.of_one(limits)));
        Self { limit: raise(wanted), ..room }
    }

    /// Returns the most descriptors that one listener uses.
    fn of_one(self, limits: &Limits) -> usize {
        limits.connections.saturating_add(limits.anonymous_connections).saturating_add(LEAVING)
    }

    /// Returns the limits, with fewer connections if descriptors are scarce.
    pub fn fit(self, limits: &Limits) -> Limits {
        let mut fitting = limits.clone();
        let Some(limit) = self.limit else { return fitting };
        // The reserved descriptors are hardly ever all in use.
        let each = limit.saturating_sub(self.kept).max(limit / 4) / self.listeners.max(1);
        if self.of_one(limits) <= each {
            return fitting;
        }
        let each = each.saturating_sub(LEAVING);
        // A third suffices for connections that are about to present a credential.
        fitting.anonymous_connections = limits.anonymous_connections.min(each / 3).max(FEWEST);
        fitting.connections = limits.connections.min(each.saturating_sub(fitting.anonymous_connections)).max(FEWEST);
        tracing::warn!(
            descriptors = limit,
            max_connections = fitting.connections,
            anonymous_connections = fitting.anonymous_connections,
            "fewer connections than configured: the process may not open enough files; raise its limit (`LimitNOFILE`, `ulimit -n`)"
        );
        fitting
    }
}

/// Raises the soft limit, and returns the limit then in force.
fn raise(wanted: usize) -> Option<usize> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let current = current?;
    let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
    let raised = maximum.map_or(wanted, |maximum| wanted.min(maximum));
    let in_force = if raised > current && setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }).is_ok()
    {
        raised
    } else {
        current
    };
    usize::try_from(in_force).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_cut_to_the_descriptors_that_are_left() {
        let limits = Limits { connections: 1024, anonymous_connections: 512, ..Limits::default() };
        for (label, limit, listeners, connections, anonymous) in [
            ("no limit", None, 2, 1024, 512),
            ("enough", Some(400 + 2 * (1024 + 512 + LEAVING)), 2, 1024, 512),
            ("one too few", Some(400 + 1024 + 512 + LEAVING - 1), 1, 1024, 511),
            ("half", Some(400 + 2 * (600 + LEAVING)), 2, 400, 200),
            ("hardly any", Some(400), 1, 56, 28),
            ("none", Some(20), 9, FEWEST, FEWEST),
        ] {
            let fit = DescriptorRoom { limit, kept: 400, listeners }.fit(&limits);
            assert_eq!((fit.connections, fit.anonymous_connections), (connections, anonymous), "{label}");
        }
    }
}
