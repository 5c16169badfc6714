//! All records of pins in memory.

use std::collections::HashMap;

use crate::catalog::name::UpstreamName;
use crate::store::pin_record::{PinKey, PinKind, PinRecord};

/// All records in memory, by key.
#[derive(Debug, Default)]
pub(super) struct PinRecords {
    records: HashMap<UpstreamName, HashMap<PinKind, HashMap<String, PinRecord>>>,
    /// Number of the last change in the store that the records include.
    pub(super) epoch: u64,
}

impl PinRecords {
    pub(super) fn get(&self, upstream: &UpstreamName, kind: PinKind, name: &str) -> Option<&PinRecord> {
        self.records.get(upstream)?.get(&kind)?.get(name)
    }

    pub(super) fn of(&self, key: &PinKey) -> Option<&PinRecord> {
        self.get(&key.upstream, key.kind, &key.name)
    }

    /// Returns the launch record of an upstream.
    pub(super) fn launch(&self, upstream: &UpstreamName) -> Option<&PinRecord> {
        self.get(upstream, PinKind::Launch, "")
    }

    /// Returns the launch record of a tool's upstream; `None` for other kinds of pins, which are
    /// never new.
    pub(super) fn launch_of_tool(&self, key: &PinKey) -> Option<&PinRecord> {
        self.launch(&key.upstream).filter(|_| key.kind == PinKind::Tool)
    }

    pub(super) fn put(&mut self, key: PinKey, record: PinRecord) -> Option<PinRecord> {
        self.records.entry(key.upstream).or_default().entry(key.kind).or_default().insert(key.name, record)
    }

    pub(super) fn remove(&mut self, key: &PinKey) {
        if let Some(names) = self.records.get_mut(&key.upstream).and_then(|kinds| kinds.get_mut(&key.kind)) {
            names.remove(&key.name);
        }
    }

    /// Returns the records of one kind of an upstream, by name.
    pub(super) fn kind(&self, upstream: &UpstreamName, kind: PinKind) -> impl Iterator<Item = (&String, &PinRecord)> {
        self.records.get(upstream).and_then(|kinds| kinds.get(&kind)).into_iter().flatten()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PinKey, &PinRecord)> {
        self.records.iter().flat_map(|(upstream, kinds)| {
            kinds.iter().flat_map(move |(kind, names)| {
                names.iter().map(move |(name, record)| {
                    (PinKey { upstream: upstream.clone(), kind: *kind, name: name.clone() }, record)
                })
            })
        })
    }
}
