//! The time that each step of the end may take, so that neither an upstream nor a disk can keep headend from ending.
//!
//! `config::tests::examples` holds the sum against `TimeoutStopSec` of the shipped units.

use std::time::Duration;

/// How long a child that closed its pipes is waited for before it is asked to end.
pub(crate) const ENDED: Duration = Duration::from_millis(50);
/// How long the buffered lines of the log may take, see `telemetry::logs`.
const LOGS: Duration = Duration::from_millis(500);

/// The longest time for each step of the end, in their order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StopTimes {
    /// Calls in flight go on; `[server] drain-timeout` where that is shorter.
    pub(crate) drain: Duration,
    /// Cancelled calls send their answers.
    pub(crate) answers: Duration,
    /// The use of limits is written; once more for the audit log, at the very end.
    pub(crate) records: Duration,
    /// An upstream's program ends after its stdin has closed.
    pub(crate) polite: Duration,
    /// It ends after SIGTERM.
    pub(crate) firm: Duration,
    /// It and all that it started are gone after SIGKILL.
    pub(crate) killed: Duration,
    /// Threads return that wait for the system: for stdin, for the address of a host.
    pub(crate) threads: Duration,
    /// The store does what waits and closes its file.
    pub(crate) store: Duration,
}

impl StopTimes {
    /// A daemon's: its service manager waits for 45 s.
    pub(crate) const DAEMON: Self = Self {
        drain: Duration::MAX,
        answers: Duration::from_secs(2),
        records: Duration::from_secs(2),
        polite: Duration::from_secs(2),
        firm: Duration::from_secs(3),
        killed: Duration::from_secs(2),
        threads: Duration::from_secs(1),
        store: Duration::from_secs(2),
    };

    /// A stdio server's: its host waits for a few seconds, and then ends it by force.
    pub(crate) const PIPE: Self = Self {
        drain: Duration::from_millis(500),
        answers: Duration::from_millis(300),
        records: Duration::from_millis(200),
        polite: Duration::from_millis(700),
        firm: Duration::from_millis(700),
        killed: Duration::from_millis(800),
        threads: Duration::from_millis(100),
        store: Duration::from_millis(500),
    };

    /// All upstreams end together; a tenth more than one of them may take.
    pub(crate) fn upstreams(&self) -> Duration {
        let one = ENDED + self.polite + self.firm + self.killed;
        one + one / 10
    }

    /// From the signal to the last step.
    pub(crate) fn total(&self, drain: Duration) -> Duration {
        let records = self.records * 2;
        self.drain.min(drain) + self.answers + records + self.upstreams() + self.threads + self.store + LOGS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stdio_server_ends_within_five_seconds() {
        assert!(StopTimes::PIPE.total(Duration::from_secs(25)) < Duration::from_secs(5));
    }
}
