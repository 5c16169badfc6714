//! The console's data and actions, apart from their pages: plain values, and a trait that the gateway implements.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::policy::consent::{Closed, Kept, Lifetime, Wall};
use crate::policy::{Evidence, PinState, Said};
use crate::store::recent::DecisionView;

/// Source of the console's data, and the actions of a signed-in operator.
///
/// Reading is quick and never waits for a disk. A change is durable when its future is ready; the error is a sentence
/// for the operator.
pub(crate) trait Desk: Send + Sync + 'static {
    /// The current time, on the clock of all times in the views.
    fn now(&self) -> Wall;
    /// Open approvals, oldest first.
    fn approvals(&self) -> Vec<Approval>;
    fn approval(&self, id: &str) -> Found;
    fn answer<'a>(&'a self, id: &'a str, reply: Reply) -> BoxFuture<'a, Result<Closed, String>>;
    /// Answers several approvals, each by its id and the digest of what was shown: allows once, or denies. The inner errors are about
    /// one approval each, which stays open.
    fn answer_group<'a>(
        &'a self,
        members: &'a [(String, String)],
        reply: Reply,
    ) -> BoxFuture<'a, Result<Vec<Result<Closed, String>>, String>>;
    /// Live grants, latest first.
    fn grants(&self) -> Vec<GrantView>;
    /// Whether there was such a live grant.
    fn revoke<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, String>>;
    fn pins(&self) -> BoxFuture<'_, Vec<PinView>>;
    /// Approves the text that was shown and no later one: `digest` is that of the shown text.
    fn approve_pin<'a>(&'a self, pin: &'a PinKey, digest: &'a str) -> BoxFuture<'a, Result<(), String>>;
    fn reject_pin<'a>(&'a self, pin: &'a PinKey, digest: &'a str) -> BoxFuture<'a, Result<(), String>>;
    fn upstreams(&self) -> Vec<UpstreamView>;
    /// The last decisions, latest first.
    fn decisions(&self, at_most: usize) -> Vec<DecisionView>;
    /// Channels that signal at once when a part has changed.
    fn watches(&self) -> Vec<(Part, watch::Receiver<u64>)>;
    /// Numbers for parts that change often or have no channel; another number means that the part has changed. An open
    /// page checks them every few seconds.
    fn counts(&self) -> Vec<(Part, u64)>;
}

/// A part of the console that changes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub(crate) enum Part {
    Approvals,
    Grants,
    Pins,
    Upstreams,
    Decisions,
}

/// An open approval.
#[derive(Clone, Debug)]
pub(crate) struct Approval {
    pub(crate) id: String,
    /// Digest of everything that is shown of it.
    pub(crate) digest: String,
    pub(crate) caller: String,
    pub(crate) upstream: String,
    /// Word for the kind: tool, prompt, resource.
    pub(crate) kind: &'static str,
    /// Name for clients.
    pub(crate) exposed: String,
    /// Name in rules.
    pub(crate) canonical: String,
    pub(crate) rule: String,
    /// The hints on a tool.
    pub(crate) said: Said,
    /// Its server or the operator says that it destroys.
    pub(crate) destructive: bool,
    pub(crate) arguments: Kept,
    /// Bytes of the arguments as they were received.
    pub(crate) arguments_bytes: usize,
    /// Remark on hidden characters in arguments and name.
    pub(crate) hidden: Option<String>,
    pub(crate) mixed: Option<String>,
    /// The name that the client gives itself.
    pub(crate) client: Option<String>,
    /// The item's own description.
    pub(crate) description: Option<String>,
    /// One sentence: what a yes would do.
    pub(crate) outcome: String,
    /// First eight digits of the digests that the answer is bound to.
    pub(crate) arguments_digest: String,
    pub(crate) definition_digest: String,
    /// Whether a session grant makes sense: the caller has a session.
    pub(crate) has_session: bool,
    pub(crate) need: Evidence,
    pub(crate) opened_at: Wall,
    pub(crate) until: Wall,
}

impl Approval {
    /// Whether both are of one group: one caller, one item.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        self.caller == other.caller && self.kind == other.kind && self.canonical == other.canonical
    }
}

/// State of an approval.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    Open(Box<Approval>),
    Closed(Closed),
    Unknown,
}

/// The operator's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Deny,
    Once,
    Session,
    /// For one hour.
    Hour,
    UntilChanged,
}

impl Reply {
    /// Parses the word of the form.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "deny" => Self::Deny,
            "once" => Self::Once,
            "session" => Self::Session,
            "hour" => Self::Hour,
            "until-changed" => Self::UntilChanged,
            _ => return None,
        })
    }
}

/// A grant in force.
#[derive(Clone, Debug)]
pub(crate) struct GrantView {
    pub(crate) id: String,
    pub(crate) caller: String,
    pub(crate) kind: &'static str,
    pub(crate) item: String,
    pub(crate) rule: String,
    pub(crate) lifetime: Lifetime,
    /// Only exactly these arguments.
    pub(crate) exact: bool,
    pub(crate) destructive: bool,
    pub(crate) evidence: Evidence,
    pub(crate) by: String,
    pub(crate) granted_at: Wall,
    pub(crate) last_used: Option<Wall>,
    pub(crate) uses: u64,
}

/// Subject of a pin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PinKey {
    pub(crate) upstream: String,
    /// `tool`, `prompt`, `resource`, `template` or `launch`.
    pub(crate) kind: String,
    /// Canonical name; for a launch the upstream's name.
    pub(crate) name: String,
}

/// A definition or launch, with its approved text.
#[derive(Clone, Debug)]
pub(crate) struct PinView {
    pub(crate) key: PinKey,
    pub(crate) state: PinState,
    /// The approved text, in readable lines.
    pub(crate) approved: Option<String>,
    /// The upstream's current text, if it waits for approval.
    pub(crate) waiting: Option<String>,
    /// Reason for the state.
    pub(crate) why: String,
    /// A pinned tool that its server added after its first list, and that waits for a confirmation.
    pub(crate) is_new: bool,
    /// Digest of the whole definition that waits for a decision.
    pub(crate) waiting_digest: String,
    pub(crate) since: Wall,
}

/// One upstream.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamView {
    pub(crate) name: String,
    /// `idle` (lazy, and at rest), `starting`, `ready`, `needs-login`, `misconfigured`, `down` or `stopped`.
    pub(crate) state: &'static str,
    pub(crate) revision: Option<&'static str>,
    pub(crate) tools: usize,
    pub(crate) prompts: usize,
    /// Including templates.
    pub(crate) resources: usize,
    /// Items beyond `max-inventory`.
    pub(crate) not_offered: usize,
    pub(crate) in_flight: usize,
    pub(crate) restarts: u64,
    pub(crate) last_error: Option<Arc<String>>,
    /// How long it has been in that state, and when it is tried again, in seconds.
    pub(crate) age: u64,
    pub(crate) next_try: Option<u64>,
    /// What the operator can do.
    pub(crate) advice: Option<String>,
    /// The last lines of a program that failed.
    pub(crate) stderr: Arc<Vec<String>>,
}
