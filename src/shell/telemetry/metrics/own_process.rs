//! The `process_*` metrics that Prometheus' client libraries have in common, of this process.
//!
//! Read from `/proc/self` at each scrape; elsewhere than on Linux there are none. Source:
//! `proc_pid_stat(5)`, and "Standard and runtime collectors" in Prometheus' guide for writers of
//! client libraries.

use std::fs;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge};
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// What the system says of this process.
#[derive(Debug)]
pub(super) struct OwnProcess {
    cpu_seconds: Counter,
    open_fds: Gauge,
    max_fds: Gauge,
    virtual_memory: Gauge,
    resident_memory: Gauge,
    start_time: Gauge,
    threads: Gauge,
}

/// The members of `/proc/self/stat` that are shown.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    /// User and system time, in ticks.
    ticks: u64,
    threads: u64,
    /// Ticks from the start of the system to that of the process.
    started: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name in parentheses may hold anything, parentheses too.
        let (_, rest) = text.rsplit_once(')')?;
        let members: Vec<u64> = rest.split_ascii_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
        // The first member after the name is the third of the line.
        let member = |number: usize| members.get(number - 3).copied();
        Some(Self {
            ticks: member(14)? + member(15)?,
            threads: member(20)?,
            started: member(22)?,
            virtual_bytes: member(23)?,
            resident_pages: member(24)?,
        })
    }
}

/// The start of the system, in seconds since 1970.
fn boot_time() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// Exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "a metric is a floating point number")]
const fn number(number: u64) -> f64 {
    number as f64
}

impl OwnProcess {
    /// # Errors
    /// Never: the names are fixed and different.
    pub(super) fn new() -> prometheus::Result<Self> {
        Ok(Self {
            cpu_seconds: Counter::new("process_cpu_seconds_total", "User and system time of the process in seconds.")?,
            open_fds: Gauge::new("process_open_fds", "Open file descriptors of the process.")?,
            max_fds: Gauge::new("process_max_fds", "File descriptors that the process may have open.")?,
            virtual_memory: Gauge::new("process_virtual_memory_bytes", "Virtual memory of the process in bytes.")?,
            resident_memory: Gauge::new("process_resident_memory_bytes", "Resident memory of the process in bytes.")?,
            start_time: Gauge::new("process_start_time_seconds", "Start of the process in seconds since 1970.")?,
            threads: Gauge::new("process_threads", "Threads of the process.")?,
        })
    }

    fn all(&self) -> [&dyn Collector; 7] {
        [
            &self.cpu_seconds,
            &self.open_fds,
            &self.max_fds,
            &self.virtual_memory,
            &self.resident_memory,
            &self.start_time,
            &self.threads,
        ]
    }

    fn look(&self) -> Option<()> {
        let stat = Stat::parse(&fs::read_to_string("/proc/self/stat").ok()?)?;
        let seconds = |ticks| number(ticks) / number(clock_ticks_per_second());
        // Two scrapes at once may both have read the time before.
        self.cpu_seconds.inc_by((seconds(stat.ticks) - self.cpu_seconds.get()).max(0.0));
        self.threads.set(number(stat.threads));
        self.virtual_memory.set(number(stat.virtual_bytes));
        self.resident_memory.set(number(stat.resident_pages) * number(page_size() as u64));
        self.start_time.set(number(boot_time()?) + seconds(stat.started));
        self.open_fds.set(number(fs::read_dir("/proc/self/fd").ok()?.count() as u64));
        if let Some(most) = getrlimit(Resource::Nofile).current {
            self.max_fds.set(number(most));
        }
        Some(())
    }
}

impl Collector for OwnProcess {
    fn desc(&self) -> Vec<&Desc> {
        self.all().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        match self.look() {
            Some(()) => self.all().into_iter().flat_map(Collector::collect).collect(),
            None => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_system_is_read_whatever_the_name_is() {
        let line = "7 (a) b) S 5 7 7 0 -1 4194560 1 0 0 0 30 12 0 0 20 0 9 0 4711 8192 3 18446744073709551615 1";
        let stat = Stat { ticks: 42, threads: 9, started: 4711, virtual_bytes: 8192, resident_pages: 3 };
        assert_eq!(Stat::parse(line), Some(stat));
        assert_eq!(Stat::parse("7 (a) S 1"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn this_process_runs_since_some_time_and_uses_something() {
        let own = OwnProcess::new().unwrap();
        let value = |name: &str| {
            let found = own.collect().into_iter().find(|family| family.name() == name).unwrap();
            let metric = &found.get_metric()[0];
            metric.get_gauge().get_value() + metric.get_counter().get_value()
        };
        assert!(value("process_start_time_seconds") > 1.7e9 && value("process_open_fds") > 2.0);
        assert!(value("process_resident_memory_bytes") > 1e6 && value("process_max_fds") > 2.0);
        assert!(value("process_threads") >= 1.0 && value("process_cpu_seconds_total") >= 0.0);
    }
}
