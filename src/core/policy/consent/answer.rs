//! A person's answers to approvals, and the reasons for which an answer does not count.

use std::sync::Arc;

use super::below::CannotBelow;
use super::grant::{Arguments, GrantRow, Lifetime};
use super::{Asked, Wall};
use crate::policy::evidence::Evidence;

/// A person's answer to an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Allow(Lifetime),
    /// Allows calls below this folder or for this site, until the definition or the launch changes.
    AllowBelow(Arc<str>),
    Deny,
    /// The client refused this call, and nothing says that a person did.
    Decline,
    /// The approval was closed without a yes or a no.
    Dismiss,
}

impl Answer {
    /// Returns the lifetime of a yes; `None` for a no.
    pub const fn lifetime(&self) -> Option<Lifetime> {
        match self {
            Self::Allow(lifetime) => Some(*lifetime),
            Self::AllowBelow(_) => Some(Lifetime::UntilChanged),
            Self::Deny | Self::Decline | Self::Dismiss => None,
        }
    }
}

/// The reason why an answer does not count. The approval stays as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotAnswer {
    #[error("no open approval with that id; it was answered or has expired")]
    Unknown,
    #[error("this needs evidence {} or more: {}", .0.into_str(), who_may(*.0))]
    Evidence(Evidence),
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
    Below(#[from] CannotBelow),
    #[error("the answer could not be kept, so it does not count: {0}")]
    NotKept(String),
}

/// Names the people who can give this evidence.
fn who_may(need: Evidence) -> &'static str {
    match need {
        Evidence::Client => "the client's user",
        Evidence::Page => "a person on the console page, or the operator on the command line",
        Evidence::Operator => "the operator on the command line",
    }
}

/// Returns the stored parts of a grant for one call with exactly the arguments of the action.
pub(super) fn once(asked: Asked, evidence: Evidence, by: &str, now: Wall, id: Arc<str>) -> GrantRow {
    let (lifetime, arguments) = (Lifetime::Once, Arguments::Exact);
    GrantRow { id, asked, arguments, lifetime, evidence, by: Arc::from(by), granted_at: now, last_used: 0, uses: 0 }
}

/// Checks that a yes with this lifetime may be given through a channel with this evidence.
pub(super) fn may_allow(asked: &Asked, lifetime: Lifetime, evidence: Evidence, now: Wall) -> Result<(), CannotAnswer> {
    if evidence < asked.need {
        return Err(CannotAnswer::Evidence(asked.need));
    }
    match lifetime {
        Lifetime::Once => Ok(()),
        Lifetime::Session if asked.session.is_none() => Err(CannotAnswer::NoSession),
        Lifetime::Session => Ok(()),
        Lifetime::Until(_) | Lifetime::UntilChanged if evidence == Evidence::Client => Err(CannotAnswer::TooLong),
        Lifetime::Until(until) if until <= now => Err(CannotAnswer::Past),
        Lifetime::Until(_) | Lifetime::UntilChanged => Ok(()),
    }
}
