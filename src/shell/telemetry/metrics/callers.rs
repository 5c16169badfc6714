//! Calls by caller. A caller has a series of its own if the configuration names it; all others
//! share one.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;
use prometheus::IntCounterVec;

/// The label of all callers that the configuration does not name. No name of a caller may contain a
/// parenthesis.
const OTHERS: &str = "(other)";

#[derive(Debug)]
pub struct CallerMetrics {
    calls: IntCounterVec,
    published: Mutex<PublishedCalls>,
}

#[derive(Debug, Default)]
struct PublishedCalls {
    /// The counts of the last scrape, by the number of the caller.
    counts: HashMap<usize, usize>,
    /// Callers with a series.
    names: BTreeSet<String>,
}

impl CallerMetrics {
    pub(super) fn new(calls: IntCounterVec) -> Self {
        calls.with_label_values(&[OTHERS]);
        Self { calls, published: Mutex::default() }
    }

    /// Sets the calls of all callers, just before a scrape: for each number of a caller the name
    /// that the configuration has for it, and the calls so far.
    pub fn observe<'a>(&self, callers: impl Iterator<Item = (usize, Option<&'a str>, usize)>) {
        let Self { calls, published } = self;
        let mut published = published.lock();
        let PublishedCalls { counts, names } = &mut *published;
        let mut gone = std::mem::take(names);
        for (number, name, count) in callers {
            // Only what is new is added: a caller whose name left the configuration leaves its
            // earlier calls behind.
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
