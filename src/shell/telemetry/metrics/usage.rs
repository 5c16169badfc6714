//! CPU time and memory of the processes of upstreams.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::family::signed;
use super::table::Families;

/// The CPU time and memory of all processes below a guard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time since the guard started, including processes that have ended.
    pub cpu: Duration,
    /// Resident memory in bytes.
    pub memory: u64,
}

/// The guards that run, and the series of what the processes below them use.
#[derive(Debug)]
pub struct UsageMetrics {
    families: Arc<Families>,
    table: Mutex<GuardTable>,
}

/// The running guards, and the upstreams that have series.
#[derive(Debug, Default)]
struct GuardTable {
    /// Running guards, by their number.
    guards: HashMap<u32, GuardEntry>,
    /// Upstreams that have series.
    upstreams: BTreeSet<String>,
}

/// A guard, with the CPU time below it that the counter already includes.
#[derive(Debug)]
struct GuardEntry {
    upstream: String,
    counted: Duration,
}

impl UsageMetrics {
    pub(super) fn new(families: Arc<Families>) -> Self {
        Self { families, table: Mutex::default() }
    }

    /// Forgets an upstream, so that no scrape creates its series again.
    pub fn forget(&self, name: &str) {
        self.table.lock().upstreams.remove(name);
    }

    /// Removes a guard that has ended.
    pub fn remove_guard(&self, guard: u32) {
        self.table.lock().guards.remove(&guard);
    }

    /// Adds a guard that runs a process of the upstream.
    pub fn add_guard(&self, name: &str, guard: u32) {
        let mut table = self.table.lock();
        table.upstreams.insert(name.to_owned());
        table.guards.insert(guard, GuardEntry { upstream: name.to_owned(), counted: Duration::ZERO });
    }

    /// Returns the numbers of the running guards.
    pub fn guards(&self) -> Vec<u32> {
        self.table.lock().guards.keys().copied().collect()
    }

    /// Updates the series from what the processes below each guard use, just before a scrape.
    pub fn observe(&self, used: &HashMap<u32, Usage>) {
        let GuardTable { guards, upstreams } = &mut *self.table.lock();
        let mut sums: BTreeMap<&str, Usage> =
            upstreams.iter().map(|upstream| (upstream.as_str(), Usage::default())).collect();
        for (guard, GuardEntry { upstream, counted }) in guards {
            let (Some(used), Some(sum)) = (used.get(guard), sums.get_mut(upstream.as_str())) else { continue };
            sum.memory = sum.memory.saturating_add(used.memory);
            // A process whose parent does not wait for it takes its CPU time along, and a counter
            // must not go back.
            sum.cpu = sum.cpu.saturating_add(used.cpu.saturating_sub(*counted));
            *counted = used.cpu.max(*counted);
        }
        for (upstream, sum) in sums {
            self.families.upstream_cpu.with_label_values(&[upstream]).inc_by(sum.cpu.as_secs_f64());
            self.families.upstream_memory.with_label_values(&[upstream]).set(signed(sum.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::Metrics;

    #[test]
    fn processes_of_one_upstream_are_added_up_and_its_cpu_time_never_goes_back() {
        let metrics = Metrics::new().unwrap();
        let (git, crm) = (metrics.upstream("git"), metrics.upstream("crm"));
        let running = [git.process(Some(7)), git.process(Some(8)), crm.process(None)];
        let mut guards = metrics.usage().guards();
        guards.sort_unstable();
        assert_eq!(guards, [7, 8], "a child without a guard has no number");
        let used = |one: u64, other: u64| {
            let usage = |seconds| Usage { cpu: Duration::from_secs(seconds), memory: 1000 * seconds };
            metrics.usage().observe(&HashMap::from([(7, usage(one)), (8, usage(other)), (9, usage(99))]));
            let page = metrics.render();
            let value = |name: &str| {
                let series = format!("{name}{{upstream=\"git\"}} ");
                page.lines().find_map(|line| line.strip_prefix(&series)).unwrap().to_owned()
            };
            (value("headend_upstream_cpu_seconds_total"), value("headend_upstream_resident_memory_bytes"))
        };
        assert_eq!(used(2, 3), ("5".to_owned(), "5000".to_owned()));
        assert_eq!(used(1, 4), ("6".to_owned(), "5000".to_owned()), "one has lost a second, the other has one more");
        let [one, other, _] = running;
        drop(one);
        assert_eq!(used(9, 4), ("6".to_owned(), "4000".to_owned()), "a later process of that number is another");
        drop(other);
        assert_eq!(used(9, 9), ("6".to_owned(), "0".to_owned()));
        assert!(metrics.usage().guards().is_empty());
    }
}
