//! Time limits for each step of a shutdown, so that neither an upstream nor a disk can keep headend
//! from ending.
//!
//! The test `config::tests::examples` compares the sum with `TimeoutStopSec` of the shipped units.

use std::time::Duration;

/// How long to wait for a child that closed its pipes to exit, before it is asked to.
pub const ENDED: Duration = Duration::from_millis(50);
/// Time limit for writing the buffered lines of the log, see `telemetry::logs`.
const LOGS: Duration = Duration::from_millis(500);

/// Time limits for the steps of a shutdown, in the order of the steps.
#[derive(Clone, Copy, Debug)]
pub struct StopTimes {
    /// Time for calls in flight to complete; `[server] drain-timeout` applies if it is shorter.
    pub drain: Duration,
    /// Time for cancelled calls to send their answers.
    pub answers: Duration,
    /// Time for writing the use of limits to the store, and the same time again at the very end for
    /// the audit log.
    pub records: Duration,
    /// Time for an upstream's program to exit by itself after its stdin was closed.
    pub polite: Duration,
    /// Time for the program to exit after SIGTERM.
    pub firm: Duration,
    /// Time until the program and everything that it started are gone after SIGKILL.
    pub killed: Duration,
    /// Time for threads to return from blocking system calls, such as reading stdin or resolving a
    /// host name.
    pub threads: Duration,
    /// Time for the store to complete queued operations and to close its file.
    pub store: Duration,
}

impl StopTimes {
    /// Limits for the daemon, whose service manager waits for 45 s.
    pub const DAEMON: Self = Self {
        drain: Duration::MAX,
        answers: Duration::from_secs(2),
        records: Duration::from_secs(2),
        polite: Duration::from_secs(2),
        firm: Duration::from_secs(3),
        killed: Duration::from_secs(2),
        threads: Duration::from_secs(1),
        store: Duration::from_secs(2),
    };

    /// Limits for `headend stdio`, whose host waits for a few seconds and then kills it.
    pub const PIPE: Self = Self {
        drain: Duration::from_millis(500),
        answers: Duration::from_millis(300),
        records: Duration::from_millis(200),
        polite: Duration::from_millis(700),
        firm: Duration::from_millis(700),
        killed: Duration::from_millis(800),
        threads: Duration::from_millis(100),
        store: Duration::from_millis(500),
    };

    /// Returns the time limit for ending all upstreams, which end in parallel: a tenth more than
    /// one of them may take.
    pub fn upstreams(&self) -> Duration {
        let one = ENDED + self.polite + self.firm + self.killed;
        one + one / 10
    }

    /// Returns the time from the signal to the last step, if calls may take `drain` to complete.
    pub fn total(&self, drain: Duration) -> Duration {
        let records = self.records * 2;
        self.drain.min(drain) + self.answers + records + self.upstreams() + self.threads + self.store + LOGS
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config;

    #[test]
    fn systemd_waits_longer_than_the_end_takes() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let no_file = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
        let (config, _) = config::parse("", "test.toml", &|_| None, &no_file).unwrap();
        let needed = StopTimes::DAEMON.total(config.server.drain_timeout);
        for unit in ["systemd/headend.service", "systemd/headend-user.service"] {
            let text = std::fs::read_to_string(root.join(unit)).unwrap();
            let seconds = text.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).unwrap();
            let stop = Duration::from_secs(seconds.parse().unwrap());
            assert!(needed < stop, "{unit}: {needed:?}");
            assert!(text.contains("Type=notify\n") && text.contains("RestartPreventExitStatus=78\n"), "{unit}");
            let reloads = |line: &str| line.starts_with("ExecReload=") && line.ends_with("headend reload");
            assert!(text.lines().any(reloads), "{unit}");
        }
    }

    #[test]
    fn a_stdio_server_ends_within_five_seconds() {
        assert!(StopTimes::PIPE.total(Duration::from_secs(25)) < Duration::from_secs(5));
    }
}
