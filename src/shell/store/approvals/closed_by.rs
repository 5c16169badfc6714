//! The author of an approval's end.

use std::sync::Arc;

use crate::policy::ApprovalEvidence;
use crate::policy::consent::{ApprovalEnd, ApprovalGrant, SharedAnswer};

/// The person or client that closed an approval, and the channel's evidence.
#[derive(Debug)]
pub(super) struct ApprovalCloser {
    pub(super) evidence: ApprovalEvidence,
    /// Name of the person or client.
    pub(super) who: Arc<str>,
    /// Id of the grant, if there is one.
    pub(super) grant: Option<Arc<str>>,
    /// The folder or site of the grant, and the arguments that it judges.
    pub(super) scope: Option<String>,
    /// Whether the audit log has the record already. The record of a grant precedes the grant.
    pub(super) is_recorded: bool,
}

impl ApprovalCloser {
    /// The author of a grant.
    pub(super) fn of(grant: &ApprovalGrant) -> Self {
        Self {
            evidence: grant.evidence(),
            who: Arc::clone(grant.by()),
            grant: Some(Arc::clone(grant.id())),
            scope: grant.arguments().below().map(|below| below.scope()),
            is_recorded: false,
        }
    }

    /// Returns the answer that ends an approval for all replicas, if this end is one.
    pub(super) fn shared_answer(&self, how: ApprovalEnd) -> Option<SharedAnswer> {
        let is_denial = match how {
            ApprovalEnd::Granted => false,
            ApprovalEnd::Denied => true,
            ApprovalEnd::Declined | ApprovalEnd::Dismissed | ApprovalEnd::TimedOut | ApprovalEnd::Superseded => {
                return None;
            }
        };
        Some(SharedAnswer { is_denial, evidence: self.evidence, by: self.who.to_string() })
    }

    /// Marks the end as recorded.
    pub(super) fn recorded(self) -> Self {
        Self { is_recorded: true, ..self }
    }
}
