//! A person's answers to approvals, and the reasons for which an answer does not count.

use std::sync::Arc;

use super::below::ScopeError;
use super::grant::{GrantArguments, GrantLifetime, GrantRow};
use super::{ApprovalSubject, SteadySeconds};
use crate::policy::evidence::ApprovalEvidence;

/// A person's answer to an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PersonAnswer {
    Allow(GrantLifetime),
    /// Allows calls below this folder or for this site, until the definition or the launch changes.
    AllowBelow(Arc<str>),
    Deny,
    /// The client refused this call, and nothing says that a person did.
    Decline,
    /// The approval was closed without a yes or a no.
    Dismiss,
}

impl PersonAnswer {
    /// Returns the lifetime of a yes; `None` for a no.
    pub const fn lifetime(&self) -> Option<GrantLifetime> {
        match self {
            Self::Allow(lifetime) => Some(*lifetime),
            Self::AllowBelow(_) => Some(GrantLifetime::UntilChanged),
            Self::Deny | Self::Decline | Self::Dismiss => None,
        }
    }
}

/// The reason why an answer does not count. The approval stays as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    #[error("no open approval with that id; it was answered or has expired")]
    Unknown,
    #[error("this needs evidence {} or more: {}", .0.into_str(), who_may(*.0))]
    Evidence(ApprovalEvidence),
    #[error("it is not what was shown; look at it again")]
    NotShown,
    #[error("they are of several callers or items, or too many; answer them one by one")]
    NotAGroup,
    #[error("several approvals are allowed once or denied; give longer grants one by one")]
    OnlyOnce,
    #[error("an answer that came through the client may allow once or for its session, nothing longer")]
    TooLong,
    #[error("this call was denied; it can be allowed once, and for longer when it is asked about again")]
    Denied,
    #[error("the caller has no session, or it has ended; allow once, for a time, or always")]
    NoSession,
    #[error("that time is over already")]
    Past,
    #[error("there are too many grants; revoke some with `headend grants revoke`")]
    Full,
    #[error(transparent)]
    Below(#[from] ScopeError),
    #[error("the answer could not be kept, so it does not count: {0}")]
    NotKept(String),
}

/// Names the people who can give this evidence.
fn who_may(need: ApprovalEvidence) -> &'static str {
    match need {
        ApprovalEvidence::Client => "the client's user",
        ApprovalEvidence::Page => "a person on the console page, or the operator on the command line",
        ApprovalEvidence::Operator => "the operator on the command line",
    }
}

/// Builds the row of a grant for one call with exactly the arguments of the action.
pub(super) fn once_grant(
    asked: ApprovalSubject,
    evidence: ApprovalEvidence,
    by: &str,
    now: SteadySeconds,
    id: Arc<str>,
) -> GrantRow {
    let (lifetime, arguments) = (GrantLifetime::Once, GrantArguments::Exact);
    GrantRow { id, asked, arguments, lifetime, evidence, by: Arc::from(by), granted_at: now, last_used: 0, uses: 0 }
}

/// Checks that the call may be allowed for this lifetime by an answer with this evidence. A
/// lifetime that is over at `now` is refused.
pub(super) fn check_answer(
    asked: &ApprovalSubject,
    lifetime: GrantLifetime,
    evidence: ApprovalEvidence,
    now: SteadySeconds,
) -> Result<(), AnswerError> {
    if evidence < asked.need {
        return Err(AnswerError::Evidence(asked.need));
    }
    match lifetime {
        GrantLifetime::Once => Ok(()),
        GrantLifetime::Session if asked.session.is_none() => Err(AnswerError::NoSession),
        GrantLifetime::Session => Ok(()),
        GrantLifetime::Until(_) | GrantLifetime::UntilChanged if evidence == ApprovalEvidence::Client => {
            Err(AnswerError::TooLong)
        }
        GrantLifetime::Until(until) if until <= now => Err(AnswerError::Past),
        GrantLifetime::Until(_) | GrantLifetime::UntilChanged => Ok(()),
    }
}
