//! News of pins: changes that were made together, and their audit records.

use std::collections::HashSet;
use std::sync::Arc;

use crate::catalog::name::UpstreamName;
use crate::policy::{Digest, Entry, Event, ListChange, ListChanges, PinState};
use crate::store::pin_record::{PinKey, PinKind, Record};

/// A pin has changed, or is new.
#[derive(Clone, Debug)]
pub struct PinChange {
    pub key: PinKey,
    /// The digest that is no longer pinned: its grants end.
    pub over: Option<Digest>,
    pub state: PinState,
    /// Digest of the pinned or waiting text.
    pub digest: Option<Digest>,
    /// Who, or which circumstance.
    pub why: Arc<str>,
    /// The person who decided in this process; `None` for a circumstance.
    pub by: Option<Arc<str>>,
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
pub struct PinNews {
    pub upstream: UpstreamName,
    pub changes: Vec<PinChange>,
    /// Set if one record stands for all changes.
    pub summary: Option<ListChanges>,
}

impl PinNews {
    /// The audit records of the changes.
    pub fn entries(&self) -> Vec<Entry> {
        match self.summary {
            Some(summary) => vec![Entry::relisted(self.upstream.shared(), summary)],
            None => self.changes.iter().map(PinChange::entry).collect(),
        }
    }

    /// The digests that are no longer pinned, each with whether it is a launch's.
    pub fn over(&self) -> HashSet<(bool, Digest)> {
        let over = |change: &PinChange| Some((change.key.kind == PinKind::Launch, change.over?));
        self.changes.iter().filter_map(over).collect()
    }
}

/// Called with all changes, outside of the lock.
pub type PinHook = Box<dyn Fn(&PinNews) + Send + Sync>;

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

    pub(super) fn is_change(&self) -> bool {
        self.same().is_none_or(|old| old.confirmed != self.new.confirmed)
    }

    /// Whether a person confirmed the pin as it was.
    fn is_decided(&self) -> bool {
        self.same().is_some_and(|old| (&old.by, old.at) != (&self.new.by, self.new.at))
    }

    /// Whether the change is announced. The first inventory of a launch is not, nor is a pin at
    /// first sight; an operator's confirmation is.
    pub(super) fn is_news(&self) -> bool {
        self.is_logged() && (self.old.is_some() || self.new.pin.state() != PinState::Pinned)
    }

    pub(super) fn is_logged(&self) -> bool {
        self.same().is_none_or(|old| old.confirmed != self.new.confirmed && self.is_decided())
    }

    pub(super) fn change(&self, by: Option<&Arc<str>>) -> PinChange {
        let Self { key, old, new } = self;
        let pinned = new.visible();
        let over = old.as_ref().and_then(Record::visible).filter(|was| pinned != Some(*was));
        let digest = new.pin.waiting().or(new.pin.approved());
        let (state, why) = (new.pin.state(), Arc::clone(&new.by));
        PinChange { key: key.clone(), over, state, digest, why, by: by.cloned() }
    }

    pub(super) fn listed(&self) -> ListChange<'_> {
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
