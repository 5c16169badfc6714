//! The standard `process_*` metrics of Prometheus client libraries, for this process.
//!
//! The values are read from `/proc/self` at each scrape; systems without it have none. Source:
//! `proc_pid_stat(5)`, and "Standard and runtime collectors" in Prometheus' guide "Writing client
//! libraries".

use std::fs;

use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge, Registry};
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

use super::family::{Family, FamilyTable, MetricRow, families};

families! {
    /// The numbers that the system keeps about this process.
    struct ProcessFamilies;

    cpu_seconds: Counter [] "process_cpu_seconds_total" "User and system time of the process in seconds.";
    open_fds: Gauge [] "process_open_fds" "Open file descriptors of the process.";
    max_fds: Gauge [] "process_max_fds" "File descriptors that the process may have open.";
    virtual_memory: Gauge [] "process_virtual_memory_bytes" "Virtual memory of the process in bytes.";
    resident_memory: Gauge [] "process_resident_memory_bytes" "Resident memory of the process in bytes.";
    start_time: Gauge [] "process_start_time_seconds" "Start of the process in seconds since 1970.";
    threads: Gauge [] "process_threads" "Threads of the process.";
}

/// The families about this process, in a registry of their own.
#[derive(Debug)]
pub(super) struct OwnProcess {
    registry: Registry,
    families: ProcessFamilies,
}

/// The fields of `/proc/self/stat` that are exported.
#[derive(Debug, PartialEq, Eq)]
struct ProcessStat {
    /// User and system time, in clock ticks.
    ticks: u64,
    threads: u64,
    /// Time from the start of the system to the start of the process, in clock ticks.
    started: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl ProcessStat {
    fn parse(text: &str) -> Option<Self> {
        // The name in parentheses may contain anything, parentheses too.
        let (_, rest) = text.rsplit_once(')')?;
        let members: Vec<u64> = rest.split_ascii_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
        // The first field after the name is the third of the line.
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

/// Returns the start of the system, in seconds since 1970.
fn boot_time() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// Converts a number to a metric's value. Exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "a metric is a floating point number")]
const fn number(number: u64) -> f64 {
    number as f64
}

impl OwnProcess {
    /// Creates the families.
    ///
    /// # Errors
    /// Never: the names are fixed and different.
    pub(super) fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        Ok(Self { families: ProcessFamilies::register(&registry)?, registry })
    }

    /// Reads the current values and returns the families; none if the system has no `/proc`.
    pub(super) fn gather(&self) -> Vec<MetricFamily> {
        self.look().map(|()| self.registry.gather()).unwrap_or_default()
    }

    /// Reads the values into the families; `None` if the system has no `/proc`.
    fn look(&self) -> Option<()> {
        let own = &self.families;
        let stat = ProcessStat::parse(&fs::read_to_string("/proc/self/stat").ok()?)?;
        let seconds = |ticks| number(ticks) / number(clock_ticks_per_second());
        // Two scrapes at once may both have read the older value.
        own.cpu_seconds.inc_by((seconds(stat.ticks) - own.cpu_seconds.get()).max(0.0));
        own.threads.set(number(stat.threads));
        own.virtual_memory.set(number(stat.virtual_bytes));
        own.resident_memory.set(number(stat.resident_pages) * number(page_size() as u64));
        own.start_time.set(number(boot_time()?) + seconds(stat.started));
        own.open_fds.set(number(fs::read_dir("/proc/self/fd").ok()?.count() as u64));
        if let Some(most) = getrlimit(Resource::Nofile).current {
            own.max_fds.set(number(most));
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_system_is_read_whatever_the_name_is() {
        let line = "7 (a) b) S 5 7 7 0 -1 4194560 1 0 0 0 30 12 0 0 20 0 9 0 4711 8192 3 18446744073709551615 1";
        let stat = ProcessStat { ticks: 42, threads: 9, started: 4711, virtual_bytes: 8192, resident_pages: 3 };
        assert_eq!(ProcessStat::parse(line), Some(stat));
        assert_eq!(ProcessStat::parse("7 (a) S 1"), None);
        assert_eq!(ProcessStat::parse(""), None);
    }

    #[test]
    fn this_process_runs_since_some_time_and_uses_something() {
        let own = OwnProcess::new().unwrap();
        let value = |name: &str| {
            let found = own.gather().into_iter().find(|family| family.name() == name).unwrap();
            let metric = &found.get_metric()[0];
            metric.get_gauge().get_value() + metric.get_counter().get_value()
        };
        assert!(value("process_start_time_seconds") > 1.7e9 && value("process_open_fds") > 2.0);
        assert!(value("process_resident_memory_bytes") > 1e6 && value("process_max_fds") > 2.0);
        assert!(value("process_threads") >= 1.0 && value("process_cpu_seconds_total") >= 0.0);
    }
}
