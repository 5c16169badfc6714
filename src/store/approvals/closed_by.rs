//! Who closed an approval.

use std::sync::Arc;

use crate::policy::Evidence;
use crate::policy::consent::Grant;

/// The person who closed a prompt, and the channel.
#[derive(Clone, Debug)]
pub(super) struct By {
    pub(super) evidence: Evidence,
    pub(super) who: Arc<str>,
    /// The grant, if there is one.
    pub(super) grant: Option<Arc<str>>,
}

impl By {
    pub(super) fn of(grant: &Grant) -> Self {
        Self { evidence: grant.evidence(), who: Arc::clone(grant.by()), grant: Some(Arc::clone(grant.id())) }
    }
}
