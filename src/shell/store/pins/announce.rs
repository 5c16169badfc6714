//! Announcements of changed pins: log lines, and the hook that writes audit records.
//!
//! A server can change all of its items at every reading of its lists. A reading that changes more
//! than [`MAX_SINGLE_CHANGES`] pins gets one audit record and one log line for all of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::news::{PinChange, PinNews, StoredPin};
use super::{PinKind, PinRegistry};
use crate::base::clock;
use crate::base::tally::LogTally;
use crate::catalog::name::UpstreamName;
use crate::policy::{Digest, ListChanges, MAX_SINGLE_CHANGES, PinState};
use crate::wire::foreign;

impl PinRegistry {
    /// Logs changes and passes them to the hook. `by` is the person who decided, if there is one.
    /// `removed` is the number of items that were in the last reading and are not in this one;
    /// `None` if the changes come from no reading.
    pub(super) fn tell(&self, stored: &[StoredPin], by: Option<&Arc<str>>, removed: Option<u64>) {
        if !stored.iter().any(StoredPin::is_change) {
            return;
        }
        let mut groups: BTreeMap<&UpstreamName, Vec<&StoredPin>> = BTreeMap::new();
        for one in stored.iter().filter(|one| one.is_logged()) {
            groups.entry(&one.key.upstream).or_default().push(one);
        }
        for (upstream, group) in groups {
            let (launches, items): (Vec<&StoredPin>, Vec<&StoredPin>) =
                group.into_iter().partition(|one| one.key.kind == PinKind::Launch);
            let news = items.iter().filter(|one| one.is_news()).count();
            let summary = removed
                .filter(|_| news > MAX_SINGLE_CHANGES)
                .map(|removed| ListChanges::new(items.iter().map(|one| one.listed()).collect(), removed));
            match &summary {
                Some(summary) => log_reading(upstream, summary),
                None => items.iter().for_each(|one| log(one)),
            }
            launches.iter().for_each(|one| log(one));
            self.call_hook(upstream, &items, by, summary);
            self.call_hook(upstream, &launches, by, None);
        }
        self.0.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Passes the changes that are news to the hook, if there are any.
    fn call_hook(
        &self,
        upstream: &UpstreamName,
        stored: &[&StoredPin],
        by: Option<&Arc<str>>,
        summary: Option<ListChanges>,
    ) {
        let Some(hook) = self.0.hook.get() else { return };
        let news = stored.iter().filter(|one| one.is_news());
        let changes: Vec<PinChange> = news.map(|one| one.change(by)).collect();
        if !changes.is_empty() {
            hook(&PinNews { upstream: upstream.clone(), changes, summary });
        }
    }
}

/// Rate limit of log lines about changed definitions, which a server can change as often as it
/// likes.
static CHANGED: LogTally = LogTally::of(200);

/// Logs one change, with digests and without texts.
fn log(StoredPin { key, old, new }: &StoredPin) {
    let name = key.canonical();
    let short = |digest: Option<Digest>| digest.map_or_else(|| "none".to_owned(), |digest| digest.short());
    let (approved, waiting) = (short(new.pin.approved()), short(new.pin.waiting()));
    let (item, kind, why) = (foreign::line(&name), key.kind.into_str(), &*new.by);
    match (new.pin.state(), old) {
        (PinState::Pinned, None) => tracing::debug!(item = %item, kind, approved, "pinned at first sight"),
        (PinState::Pinned, Some(_)) => tracing::info!(item = %item, kind, approved, why, "pinned"),
        (PinState::Rejected, _) => tracing::info!(item = %item, kind, waiting, why, "rejected"),
        (PinState::Changed, _) => {
            if let Some(count) = CHANGED.count(clock::uptime()) {
                tracing::warn!(item = %item, kind, approved, waiting, why, count, "changed and withheld");
            }
        }
        // The supervisor logs withheld items.
        (PinState::Quarantined, _) => tracing::debug!(item = %item, kind, waiting, why, "waits for approval"),
    }
}

/// Logs all changes of one reading in one line, at a bounded rate.
fn log_reading(upstream: &UpstreamName, changes: &ListChanges) {
    let ListChanges { added, changed, withheld, removed, digest } = changes;
    if let Some(count) = CHANGED.count(clock::uptime()) {
        tracing::warn!(
            upstream.name = %upstream, added, changed, withheld, removed, digest = digest.short(), count,
            "one reading of the lists changed many items"
        );
    }
}
