//! Who closed an approval.

use std::sync::Arc;

use crate::policy::Evidence;
use crate::policy::consent::Grant;

/// Who closed a prompt, and over which channel.
#[derive(Clone, Debug)]
pub(super) struct By {
    pub(super) evidence: Evidence,
    pub(super) who: Arc<str>,
    /// What was granted.
    pub(super) grant: Option<Arc<str>>,
}

impl By {
    pub(super) fn of(grant: &Grant) -> Self {
        Self { evidence: grant.evidence(), who: Arc::clone(grant.by()), grant: Some(Arc::clone(grant.id())) }
    }
}
