//! Approvals and grants: a person's answers and their effects. Pure; time and ids are passed in.
//!
//! An *action* is one caller doing one thing with one item as it is defined and launched, under the rule that asks. A *prompt*
//! is the open question about an action ([`Desk`]); a *grant* is the answer that lets actions pass ([`Grants`]). [`Consented`]
//! is the proof that a live grant covers an action.
//!
//! An action is caller, kind, item, upstream, definition, launch, arguments and the rule's id. Allowing a prompt makes
//! a grant, whatever the channel, and the call is decided again from the start: the decision finds the grant or asks
//! anew.
//!
//! | prompt | event | then |
//! |---|---|---|
//! | none | a call needs an approval | open; refused after a denial of the same action in the last 10 minutes, under an embargo, or over the caller's numbers |
//! | open | the very same action, while no call waits for the prompt | joined; beside a call that waits, each call has its own prompt |
//! | open | allowed, by sufficient evidence | granted |
//! | open | another prompt was allowed for longer than once, and that grant covers this one too | granted |
//! | open | denied; declined by its client; dismissed; its time is over | denied; declined; dismissed; timed out. The last three count towards the embargo |
//! | denied, within its 10 minutes | a person, not the client, allows it once after all; or takes the denial back | granted; none |
//! | open | definition or launch changed | superseded, which counts towards nothing |
//!
//! | grant | event | then |
//! |---|---|---|
//! | live | a call claims a once-grant | claimed, so that one of two calls has it; the call that was asked about goes first |
//! | claimed | the call is refused, for example by a limit | live |
//! | claimed | the call goes on | consumed: on disk before the call is sent, by one process of all |
//! | live | its time is over, or unused for long | expired |
//! | live | revoked; definition or launch changed; its session is over | gone |
//!
//! Grants know a rule by its id and outlive other changes of it, except that evidence which no longer suffices covers
//! nothing. A grant is for the exact arguments, for any, or for those below a folder ([`below`]).
//! Session grants are never on disk. Prompts and the memory of denials and dismissals end with the
//! process. A continuation of a permitted call needs no other approval: it is held against deny
//! rules and pins again (`decide_again`). A state that is sent a second time is a call of its own.

use std::fmt;
use std::sync::Arc;

use data_encoding::BASE32_NOPAD;

use super::{Action, Caller, Digest, Evidence, Kind};

mod answer;
pub mod below;
mod desk;
mod fatigue;
mod grant;
pub mod hold;
mod prompt;
mod shown;
pub mod unattended;
pub mod view;
mod views;

pub use self::answer::{Answer, CannotAnswer};
pub use self::below::{Below, CannotBelow, Places};
pub use self::desk::{AgentWait, Closed, Desk, DeskLimits, Refused};
pub use self::fatigue::{CallBlock, DENIED, Denial};
pub use self::grant::{Arguments, Consented, Grant, GrantRow, Grants, Lifetime, ONCE_LIFE};
pub use self::prompt::Prompt;
pub use self::shown::{Kept, Shown};
pub use self::views::{ApprovalView, BlockView, GrantView, OfferView};

/// Seconds since 1970 by a clock that never goes back, not even over restarts.
pub type Wall = u64;

/// An action that needs consent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub caller: Caller,
    /// The number of the client's session or pipe, where it has one. Unique within this process.
    pub session: Option<u64>,
    pub upstream: Arc<str>,
    pub kind: Kind,
    /// The canonical name.
    pub item: Arc<str>,
    pub definition: Digest,
    pub launch: Digest,
    pub arguments: Digest,
    /// Id of the rule that asks.
    pub rule: Arc<str>,
    /// The least evidence that suffices.
    pub need: Evidence,
    /// The item is known to be destructive.
    pub destructive: bool,
}

impl Asked {
    /// What a consent to an action would be about, where that rule asks.
    pub fn new(action: &Action, rule: &Arc<str>, need: Evidence) -> Self {
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

    /// One digest for everything that makes two requests the same action; session and need are no part of it.
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

/// The kinds of items that consent can be asked for, and the only ones that grants name.
const ASKABLE: [Kind; 3] = [Kind::Tool, Kind::Prompt, Kind::Resource];

/// Reads the word of a kind that consent can be asked for.
pub fn askable(word: &str) -> Option<Kind> {
    ASKABLE.into_iter().find(|kind| kind.into_str() == word)
}

/// Name of a prompt: 128 random bits, so that nobody finds one by guessing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PromptId([u8; 16]);

impl PromptId {
    pub const fn new(random: [u8; 16]) -> Self {
        Self(random)
    }

    pub const fn bytes(&self) -> [u8; 16] {
        self.0
    }

    /// Reads what `Display` wrote, in either case.
    pub fn parse(text: &str) -> Option<Self> {
        BASE32_NOPAD.decode(text.to_ascii_uppercase().as_bytes()).ok()?.try_into().ok().map(Self)
    }
}

impl fmt::Display for PromptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE32_NOPAD.encode(&self.0).to_ascii_lowercase())
    }
}

impl fmt::Debug for PromptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PromptId({self})")
    }
}

#[cfg(test)]
mod tests;
