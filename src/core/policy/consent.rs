//! Approvals and grants: a person's answers and their effects. Pure; time and ids are passed in.
//!
//! An *approval* is the open question whether a call may run ([`ApprovalDesk`]). A *grant* is a
//! remembered yes that lets actions pass ([`LiveGrants`]). [`GrantProof`] is the proof that a live
//! grant covers an action. An action is caller, kind, item, upstream, definition, launch, arguments
//! and the id of the rule that asks.
//!
//! A yes makes a grant, from any channel, and the call is decided again from the start: the
//! decision finds the grant or asks anew.
//!
//! An approval changes as follows:
//!
//! - A call needs an approval: one is opened. The call is refused instead if the same action was
//!   denied in the last 10 minutes, if the item is under an embargo for the client, or if the
//!   caller has too many approvals.
//! - An equal call comes while no call waits for the open approval: it joins the approval. Equal
//!   calls that wait at the same time have an approval each.
//! - It is allowed by sufficient evidence: granted.
//! - Another approval is allowed for longer than once, and that grant covers this action too:
//!   granted.
//! - It is denied, declined by its client, dismissed, or its time is over: closed. The last three
//!   count towards the embargo.
//! - A person, not the client, allows a denied action once after all, within its 10 minutes:
//!   granted. An operator may also just end the denial.
//! - Definition or launch change: superseded, which counts towards nothing.
//!
//! A grant changes as follows:
//!
//! - A call claims a once-grant: no other call gets it. The call that was asked about goes first.
//! - The claiming call is refused, for example by a limit: the grant is live again.
//! - The claiming call goes on: the grant is consumed, on disk and by one process of all, before
//!   the call is sent.
//! - Its time is over, or it was not used for long: expired.
//! - It is revoked, definition or launch change, or its session ends: gone.
//!
//! A grant names its rule by id and outlives other changes of the rule, but covers nothing while
//! the rule needs more evidence than the grant has. A grant is for the exact arguments, for any, or
//! for those below a folder ([`below`]). Session grants are never on disk. Approvals and the memory
//! of denials and dismissals end with the process. A continuation of a permitted call needs no
//! other approval: deny rules and pins are checked again (`decide_again`). A state that is sent a
//! second time is a call of its own.

use std::fmt;
use std::sync::Arc;

use data_encoding::BASE32_NOPAD;

use super::action::PolicyAction;
use super::caller::Caller;
use super::evidence::ApprovalEvidence;
use super::kind::ActionKind;
use crate::wire::digest::Digest;

mod answer;
mod approval;
pub mod below;
mod desk;
mod fatigue;
mod grant;
pub mod hold;
mod shown;
pub mod unattended;
pub mod view;
mod views;

pub use self::answer::{AnswerError, PersonAnswer};
pub use self::approval::OpenApproval;
pub use self::below::{FolderScope, ReservedFolders, ScopeError};
pub use self::desk::{AgentWait, ApprovalDesk, ApprovalEnd, ApprovalRefusal, DeskLimits, PassedApproval, SharedAnswer};
pub use self::fatigue::{CallBlock, DENIED, Denial};
pub use self::grant::{ApprovalGrant, GrantArguments, GrantLifetime, GrantProof, GrantRow, LiveGrants, ONCE_LIFE};
pub use self::shown::{CallDetails, KeptArguments};
pub use self::views::{ApprovalView, BlockView, GrantView, OfferView};

/// Seconds since 1970, by a clock that never goes back, not even over restarts.
pub type SteadySeconds = u64;

/// An action that needs an approval, under the rule that asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalSubject {
    pub caller: Caller,
    /// The number of the client's session or pipe, unique within this process; `None` once the
    /// session has ended.
    pub session: Option<u64>,
    pub upstream: Arc<str>,
    pub kind: ActionKind,
    /// The item's canonical name.
    pub item: Arc<str>,
    pub definition: Digest,
    pub launch: Digest,
    pub arguments: Digest,
    /// Id of the rule that asks.
    pub rule: Arc<str>,
    /// The least evidence that suffices.
    pub need: ApprovalEvidence,
    /// Whether the item is known to be destructive.
    pub destructive: bool,
}

impl ApprovalSubject {
    /// Describes an action for an approval that `rule` asks for, with at least the evidence `need`.
    pub fn new(action: &PolicyAction, rule: &Arc<str>, need: ApprovalEvidence) -> Self {
        Self {
            caller: action.caller.clone(),
            session: Some(action.session),
            upstream: Arc::clone(&action.upstream),
            kind: action.kind,
            item: Arc::clone(&action.canonical),
            definition: action.definition,
            launch: action.launch,
            arguments: Digest::of_arguments(action.arguments.as_ref()),
            rule: Arc::clone(rule),
            need,
            destructive: action.annotations.known_destructive,
        }
    }

    /// Returns the digest of everything that makes two requests the same action. Session and need
    /// are no part of it.
    pub fn action(&self) -> Digest {
        let mut bytes = Vec::with_capacity(256);
        for text in [self.caller.key(), &*self.upstream, self.kind.into_str(), &*self.item, &*self.rule] {
            bytes.extend_from_slice(&(text.len() as u64).to_be_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        for digest in [&self.definition, &self.launch, &self.arguments] {
            bytes.extend_from_slice(digest.bytes());
        }
        Digest::of(&bytes)
    }
}

/// The kinds of items that a person can be asked about, and the only kinds that grants name.
const ASKABLE: [ActionKind; 3] = [ActionKind::Tool, ActionKind::Prompt, ActionKind::Resource];

/// Parses the word of a kind that a person can be asked about.
pub fn parse_askable_kind(word: &str) -> Option<ActionKind> {
    ASKABLE.into_iter().find(|kind| kind.into_str() == word)
}

/// The id of an approval: 128 random bits, so that it cannot be guessed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApprovalId([u8; 16]);

impl ApprovalId {
    pub const fn new(random: [u8; 16]) -> Self {
        Self(random)
    }

    pub const fn bytes(&self) -> [u8; 16] {
        self.0
    }

    /// Parses the text that `Display` writes, in either case.
    pub fn parse(text: &str) -> Option<Self> {
        BASE32_NOPAD.decode(text.to_ascii_uppercase().as_bytes()).ok()?.try_into().ok().map(Self)
    }
}

impl fmt::Display for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE32_NOPAD.encode(&self.0).to_ascii_lowercase())
    }
}

impl fmt::Debug for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PromptId({self})")
    }
}

#[cfg(test)]
mod tests;
