//! News of pins: changes that were made together, and their lines in the log and the audit log.
//!
//! A server can change all of its items at every reading of its lists. A reading that changes more
//! than [`MAX_SINGLE_CHANGES`] pins has one audit record and one log line for all of them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::{PinKey, PinKind, Pins, Record};
use crate::base::clock;
use crate::base::tally::Tally;
use crate::catalog::name::UpstreamName;
use crate::policy::{Digest, Entry, Event, ListChange, ListChanges, MAX_SINGLE_CHANGES, PinState};
use crate::wire::foreign;

/// A pin has changed, or is new.
#[derive(Clone, Debug)]
pub(crate) struct PinChange {
    pub(crate) key: PinKey,
    /// The digest that is no longer pinned: its grants end.
    pub(crate) over: Option<Digest>,
    pub(crate) state: PinState,
    /// Digest of the pinned or waiting text.
    pub(crate) digest: Option<Digest>,
    /// Who, or which circumstance.
    pub(crate) why: Arc<str>,
    /// The person who decided in this process; `None` for a circumstance.
    pub(crate) by: Option<Arc<str>>,
}

impl PinChange {
    /// The audit record of the change.
    fn entry(&self) -> Entry {
        let is_launch = self.key.kind == PinKind::Launch;
        Entry {
            upstream: Some(self.key.upstream.shared()),
            item: Some(Arc::from(self.key.canonical())),
            definition: self.digest,
            result: self.state.into_str(),
            by: self.by.clone(),
            why: self.why.to_string().into(),
            ..Entry::new(if is_launch { Event::Launch } else { Event::Pin })
        }
    }
}

/// Changes of one upstream's pins that were made together.
#[derive(Clone, Debug)]
pub(crate) struct PinNews {
    pub(crate) upstream: UpstreamName,
    pub(crate) changes: Vec<PinChange>,
    /// Set if one record stands for all changes.
    pub(crate) summary: Option<ListChanges>,
}

impl PinNews {
    /// The audit records of the changes.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        match self.summary {
            Some(summary) => vec![Entry::relisted(self.upstream.shared(), summary)],
            None => self.changes.iter().map(PinChange::entry).collect(),
        }
    }

    /// The digests that are no longer pinned, each with whether it is a launch's.
    pub(crate) fn over(&self) -> HashSet<(bool, Digest)> {
        let over = |change: &PinChange| Some((change.key.kind == PinKind::Launch, change.over?));
        self.changes.iter().filter_map(over).collect()
    }
}

/// Called with all changes, outside of the lock.
pub(crate) type PinHook = Box<dyn Fn(&PinNews) + Send + Sync>;

/// A record that was stored, and the one before it.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) key: PinKey,
    pub(super) old: Option<Record>,
    pub(super) new: Record,
}

impl Stored {
    /// The record before, if only the rest of the record has changed and not the pin.
    fn same(&self) -> Option<&Record> {
        self.old.as_ref().filter(|old| old.pin == self.new.pin)
    }

    fn is_change(&self) -> bool {
        self.same().is_none_or(|old| old.confirmed != self.new.confirmed)
    }

    /// Whether a person confirmed the pin as it was.
    fn is_decided(&self) -> bool {
        self.same().is_some_and(|old| (&old.by, old.at) != (&self.new.by, self.new.at))
    }

    /// Whether the change is announced. The first inventory of a launch is not, nor is a pin at
    /// first sight; an operator's confirmation is.
    fn is_news(&self) -> bool {
        self.is_logged() && (self.old.is_some() || self.new.pin.state() != PinState::Pinned)
    }

    fn is_logged(&self) -> bool {
        self.same().is_none_or(|old| old.confirmed != self.new.confirmed && self.is_decided())
    }

    fn change(&self, by: Option<&Arc<str>>) -> PinChange {
        let Self { key, old, new } = self;
        let pinned = new.visible();
        let over = old.as_ref().and_then(Record::visible).filter(|was| pinned != Some(*was));
        let digest = new.pin.waiting().or(new.pin.approved());
        let (state, why) = (new.pin.state(), Arc::clone(&new.by));
        PinChange { key: key.clone(), over, state, digest, why, by: by.cloned() }
    }

    fn listed(&self) -> ListChange<'_> {
        let (key, pin) = (&self.key, self.new.pin);
        ListChange {
            kind: key.kind.into_str(),
            name: &key.name,
            is_added: self.old.is_none(),
            state: pin.state(),
            approved: pin.approved(),
            waiting: pin.waiting(),
        }
    }
}

impl Pins {
    /// Logs changes and hands them to the hook. `by` is the person who decided, if one did. `removed`
    /// is the number of items that the reading before had, if a reading made the changes.
    pub(super) fn tell(&self, stored: &[Stored], by: Option<&Arc<str>>, removed: u64) {
        if !stored.iter().any(Stored::is_change) {
            return;
        }
        let mut groups: BTreeMap<&UpstreamName, Vec<&Stored>> = BTreeMap::new();
        for one in stored.iter().filter(|one| one.is_logged()) {
            groups.entry(&one.key.upstream).or_default().push(one);
        }
        for (upstream, group) in groups {
            let (launches, items): (Vec<&Stored>, Vec<&Stored>) =
                group.into_iter().partition(|one| one.key.kind == PinKind::Launch);
            let news = items.iter().filter(|one| one.is_news()).count();
            let summary = (by.is_none() && news > MAX_SINGLE_CHANGES)
                .then(|| ListChanges::new(items.iter().map(|one| one.listed()).collect(), removed));
            match &summary {
                Some(summary) => log_many(upstream, summary),
                None => items.iter().for_each(|one| log(one)),
            }
            launches.iter().for_each(|one| log(one));
            self.call_hook(upstream, &items, by, summary);
            self.call_hook(upstream, &launches, by, None);
        }
        self.0.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    fn call_hook(
        &self,
        upstream: &UpstreamName,
        stored: &[&Stored],
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

/// Lines about definitions that changed, which a server can do as often as it likes.
static CHANGED: Tally = Tally::of(200);

/// Writes one line for a change, with digests and never a text.
fn log(Stored { key, old, new }: &Stored) {
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

/// Writes one line for all changes of a reading.
fn log_many(upstream: &UpstreamName, changes: &ListChanges) {
    let ListChanges { added, changed, withheld, removed, digest } = changes;
    if let Some(count) = CHANGED.count(clock::uptime()) {
        tracing::warn!(
            upstream.name = %upstream, added, changed, withheld, removed, digest = digest.short(), count,
            "one reading of the lists changed many items"
        );
    }
}
