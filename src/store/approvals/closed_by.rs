//! Who closed an approval.

use std::sync::Arc;

use crate::policy::Evidence;
use crate::policy::consent::Grant;
use crate::store::audit::RecordSlot;

/// The person who closed a prompt, and the channel.
#[derive(Debug)]
pub(super) struct By {
    pub(super) evidence: Evidence,
    pub(super) who: Arc<str>,
    /// The grant, if there is one.
    pub(super) grant: Option<Arc<str>>,
    /// The folder or site of the grant, and what it judges.
    pub(super) scope: Option<String>,
    /// The place that was kept for the record, if any.
    pub(super) slot: Option<RecordSlot>,
}

impl By {
    pub(super) fn of(grant: &Grant) -> Self {
        Self {
            evidence: grant.evidence(),
            who: Arc::clone(grant.by()),
            grant: Some(Arc::clone(grant.id())),
            scope: grant.arguments().below().map(|below| below.scope()),
            slot: None,
        }
    }

    /// The same, recorded in that place.
    pub(super) fn recording(self, slot: RecordSlot) -> Self {
        Self { slot: Some(slot), ..self }
    }
}
