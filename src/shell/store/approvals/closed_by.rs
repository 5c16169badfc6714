//! Who closed an approval.

use std::sync::Arc;

use crate::policy::Evidence;
use crate::policy::consent::Grant;

/// The person who closed a prompt, and the channel.
#[derive(Debug)]
pub(super) struct By {
    pub(super) evidence: Evidence,
    pub(super) who: Arc<str>,
    /// The grant, if there is one.
    pub(super) grant: Option<Arc<str>>,
    /// The folder or site of the grant, and what it judges.
    pub(super) scope: Option<String>,
    /// Whether the log has the record already, as it has that of a grant before the grant counts.
    pub(super) is_recorded: bool,
}

impl By {
    pub(super) fn of(grant: &Grant) -> Self {
        Self {
            evidence: grant.evidence(),
            who: Arc::clone(grant.by()),
            grant: Some(Arc::clone(grant.id())),
            scope: grant.arguments().below().map(|below| below.scope()),
            is_recorded: false,
        }
    }

    /// The same, whose record is in the log.
    pub(super) fn recorded(self) -> Self {
        Self { is_recorded: true, ..self }
    }
}
