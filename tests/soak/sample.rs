//! Figures of the daemon over time.

use std::fs;
use std::time::Duration;

use crate::stage::SoakFacts;

/// Figures at one moment. Those that the daemon's metrics lack are absent.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessSample {
    pub(crate) at: Duration,
    pub(crate) rss_kib: u64,
    pub(crate) descriptors: u64,
    pub(crate) threads: u64,
    pub(crate) processes: u64,
    pub(crate) tasks: Option<u64>,
    pub(crate) sessions: Option<u64>,
    pub(crate) upstream_sessions: Option<u64>,
    pub(crate) connections: Option<u64>,
    pub(crate) in_flight: Option<u64>,
    /// Totals of the load so far.
    pub(crate) visits: u64,
    pub(crate) sent: u64,
    pub(crate) ended: u64,
}

/// A figure by its name.
type NamedFigure = (&'static str, fn(&ProcessSample) -> Option<u64>);

/// Figures that must return to their start when the clients are gone.
pub(crate) const GIVEN_BACK: [NamedFigure; 5] = [
    ("descriptors", |sample| Some(sample.descriptors)),
    ("tasks", |sample| sample.tasks),
    ("processes", |sample| Some(sample.processes)),
    ("sessions", |sample| sample.sessions),
    ("sessions with servers", |sample| sample.upstream_sessions),
];

impl ProcessSample {
    /// Takes the figures of the daemon with that process id.
    pub(crate) async fn take(facts: &SoakFacts, pid: u32, at: Duration, visits: u64) -> Self {
        let page = facts.page("/metrics").await.unwrap_or_default();
        let total = facts.ledger.total();
        Self {
            at,
            rss_kib: status(pid, "VmRSS:"),
            descriptors: fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |entries| entries.count() as u64),
            threads: status(pid, "Threads:"),
            processes: descendants(pid).len() as u64,
            tasks: metric(&page, "headend_tasks"),
            sessions: metric(&page, "headend_client_sessions"),
            upstream_sessions: metric(&page, "headend_upstream_sessions"),
            connections: metric(&page, "headend_client_connections"),
            in_flight: metric(&page, "headend_calls_in_flight"),
            visits,
            sent: total.sent,
            ended: total.ended(),
        }
    }

    /// Returns these figures, with the larger value of both samples for each of [`GIVEN_BACK`].
    pub(crate) fn most(self, other: &Self) -> Self {
        Self {
            descriptors: self.descriptors.max(other.descriptors),
            tasks: self.tasks.max(other.tasks),
            processes: self.processes.max(other.processes),
            sessions: self.sessions.max(other.sessions),
            upstream_sessions: self.upstream_sessions.max(other.upstream_sessions),
            ..self
        }
    }

    pub(crate) fn heading() -> &'static str {
        "    time  sessions/s  requests     ended   RSS MiB    fds  threads  procs  tasks  sessions  upstream  conns  in flight"
    }

    /// Returns one line of the table; `before` is the sample before this one.
    pub(crate) fn line(&self, before: &Self) -> String {
        let seconds = self.at.saturating_sub(before.at).as_secs_f64().max(0.001);
        let rate = (self.visits.saturating_sub(before.visits)) as f64 / seconds;
        let shown = |figure: Option<u64>| figure.map_or_else(|| "-".to_owned(), |figure| figure.to_string());
        format!(
            "{:>7.0}s {rate:>11.1} {:>9} {:>9} {:>9.1} {:>6} {:>8} {:>6} {:>6} {:>9} {:>9} {:>6} {:>10}",
            self.at.as_secs_f64(),
            self.sent,
            self.ended,
            self.rss_kib as f64 / 1024.0,
            self.descriptors,
            self.threads,
            self.processes,
            shown(self.tasks),
            shown(self.sessions),
            shown(self.upstream_sessions),
            shown(self.connections),
            shown(self.in_flight),
        )
    }
}

/// Returns the sum of all series of a family; `None` without one.
fn metric(page: &str, name: &str) -> Option<u64> {
    let series = page.lines().filter_map(|line| line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' '])));
    let values: Vec<f64> = series.filter_map(|rest| rest.rsplit(' ').next()?.parse().ok()).collect();
    // Gauges of this daemon count things, so they are whole and not negative.
    (!values.is_empty()).then(|| values.iter().sum::<f64>().max(0.0).round() as u64)
}

fn status(pid: u32, field: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    value.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// Returns the processes that have this one as an ancestor.
pub(crate) fn descendants(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        next += 1;
        for task in fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    found.remove(0);
    found
}
