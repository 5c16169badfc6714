//! Calls by caller. A caller has a series of its own if the configuration names it; all others
//! share one.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;
use prometheus::IntCounterVec;

/// Label of all callers that the configuration does not name. The names of callers never contain a
/// parenthesis.
const OTHERS: &str = "(other)";

/// The series of calls by caller.
#[derive(Debug)]
pub struct CallerMetrics {
    calls: IntCounterVec,
    published: Mutex<PublishedCalls>,
}

/// The values of the last scrape.
#[derive(Debug, Default)]
struct PublishedCalls {
    /// Counts at the last scrape, by the number of the caller.
    counts: HashMap<usize, usize>,
    /// Callers with a series.
    names: BTreeSet<String>,
}

impl CallerMetrics {
    pub(super) fn new(calls: IntCounterVec) -> Self {
        calls.with_label_values(&[OTHERS]);
        Self { calls, published: Mutex::default() }
    }

    /// Updates the counters just before a scrape. Each item is a caller's number, its name if the
    /// configuration has one for it, and its calls so far.
    pub fn observe<'a>(&self, callers: impl Iterator<Item = (usize, Option<&'a str>, usize)>) {
        let Self { calls, published } = self;
        let mut published = published.lock();
        let PublishedCalls { counts, names } = &mut *published;
        let mut gone = std::mem::take(names);
        for (number, name, count) in callers {
            // Only the difference to the last scrape is added: a caller whose name has left the
            // configuration leaves its earlier calls in the old series.
            let before = counts.insert(number, count).unwrap_or_default();
            let added = u64::try_from(count.saturating_sub(before)).unwrap_or(u64::MAX);
            calls.with_label_values(&[name.unwrap_or(OTHERS)]).inc_by(added);
            if let Some(name) = name {
                gone.remove(name);
                names.insert(name.to_owned());
            }
        }
        gone.iter().for_each(|name| drop(calls.remove_label_values(&[name])));
    }
}

#[cfg(test)]
mod tests {
    use crate::telemetry::metrics::Metrics;

    #[test]
    fn a_caller_has_a_series_while_the_configuration_names_it_and_no_counter_goes_back() {
        let metrics = Metrics::new().unwrap();
        let series = || -> Vec<String> {
            let page = metrics.render();
            page.lines().filter_map(|line| line.strip_prefix("headend_caller_calls_total")).map(str::to_owned).collect()
        };
        metrics.callers().observe([(0, Some("local"), 3), (1, Some("ci"), 5), (2, None, 1)].into_iter());
        assert_eq!(series(), [r#"{caller="(other)"} 1"#, r#"{caller="ci"} 5"#, r#"{caller="local"} 3"#]);
        metrics.callers().observe([(0, Some("local"), 4), (1, None, 7), (2, None, 1)].into_iter());
        assert_eq!(series(), [r#"{caller="(other)"} 3"#, r#"{caller="local"} 4"#]);
        metrics.callers().observe([(0, Some("local"), 4), (1, Some("ci"), 8), (2, None, 1)].into_iter());
        assert_eq!(series(), [r#"{caller="(other)"} 3"#, r#"{caller="ci"} 1"#, r#"{caller="local"} 4"#]);
    }
}
