//! Changes of pins that are made together, and their audit records.

use std::collections::HashSet;
use std::sync::Arc;

use crate::catalog::name::UpstreamName;
use crate::policy::{AuditEntry, AuditEvent, Digest, ListChange, ListChanges, PinState};
use crate::store::pin_record::{PinKey, PinKind, PinRecord};

/// A changed or new pin.
#[derive(Clone, Debug)]
pub struct PinChange {
    pub key: PinKey,
    /// Digest that is no longer pinned, and whose grants end.
    pub over: Option<Digest>,
    pub state: PinState,
    /// Digest of the waiting text, else of the pinned one.
    pub digest: Option<Digest>,
    /// The person or the circumstance behind the state.
    pub why: Arc<str>,
    /// The person who decided in this process; `None` for a circumstance.
    pub by: Option<Arc<str>>,
}

impl PinChange {
    /// Builds the audit record of the change.
    fn entry(&self) -> AuditEntry {
        let is_launch = self.key.kind == PinKind::Launch;
        AuditEntry {
            upstream: Some(self.key.upstream.shared()),
            item: Some(Arc::from(self.key.canonical())),
            definition: self.digest,
            result: self.state.into_str(),
            by: self.by.clone(),
            why: self.why.to_string().into(),
            ..AuditEntry::new(if is_launch { AuditEvent::Launch } else { AuditEvent::Pin })
        }
    }
}

/// Changes of one upstream's pins that are made together.
#[derive(Clone, Debug)]
pub struct PinNews {
    pub upstream: UpstreamName,
    pub changes: Vec<PinChange>,
    /// The summary, if one audit record stands for all changes.
    pub summary: Option<ListChanges>,
}

impl PinNews {
    /// Builds the audit records of the changes.
    pub fn entries(&self) -> Vec<AuditEntry> {
        match self.summary {
            Some(summary) => vec![AuditEntry::relisted(self.upstream.shared(), summary)],
            None => self.changes.iter().map(PinChange::entry).collect(),
        }
    }

    /// Returns the digests that are no longer pinned, each with true if it is a launch's.
    pub fn over(&self) -> HashSet<(bool, Digest)> {
        let over = |change: &PinChange| Some((change.key.kind == PinKind::Launch, change.over?));
        self.changes.iter().filter_map(over).collect()
    }
}

/// A callback for changes of pins, called without holding the lock.
pub type PinHook = Box<dyn Fn(&PinNews) + Send + Sync>;

/// A stored record, and the record before it.
#[derive(Clone, Debug)]
pub(super) struct StoredPin {
    pub(super) key: PinKey,
    pub(super) old: Option<PinRecord>,
    pub(super) new: PinRecord,
}

impl StoredPin {
    /// Returns the record before if its pin equals the new one; `None` for a new or changed pin.
    fn same(&self) -> Option<&PinRecord> {
        self.old.as_ref().filter(|old| old.pin == self.new.pin)
    }

    /// Returns true if the pin or its confirmations differ from the record before, or if there is
    /// none.
    pub(super) fn is_change(&self) -> bool {
        self.same().is_none_or(|old| old.confirmed != self.new.confirmed)
    }

    /// Returns true if a person has decided about the pin without changing it.
    fn is_decided(&self) -> bool {
        self.same().is_some_and(|old| (&old.by, old.at) != (&self.new.by, self.new.at))
    }

    /// Returns true if the change is passed to the hook. A pin at first sight is not, nor is a
    /// change by the first inventory of a launch; a person's confirmation is.
    pub(super) fn is_news(&self) -> bool {
        self.is_logged() && (self.old.is_some() || self.new.pin.state() != PinState::Pinned)
    }

    /// Returns true if the change is logged: the pin has changed, or a person has confirmed it.
    pub(super) fn is_logged(&self) -> bool {
        self.same().is_none_or(|old| old.confirmed != self.new.confirmed && self.is_decided())
    }

    /// Builds the change for the hook.
    pub(super) fn change(&self, by: Option<&Arc<str>>) -> PinChange {
        let Self { key, old, new } = self;
        let pinned = new.visible();
        let over = old.as_ref().and_then(PinRecord::visible).filter(|was| pinned != Some(*was));
        let digest = new.pin.waiting().or(new.pin.approved());
        let (state, why) = (new.pin.state(), Arc::clone(&new.by));
        PinChange { key: key.clone(), over, state, digest, why, by: by.cloned() }
    }

    /// Builds the change for the summary of a reading.
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
