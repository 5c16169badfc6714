//! The console's data and actions, apart from their pages: plain values, and a trait that the gateway implements.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::login_desk::{LoginDesk, LoginView};
use crate::gateway::snapshot::LogLine;
use crate::policy::consent::{AgentWait, Below, Closed, Kept, Lifetime, Wall};
use crate::policy::{Caller, Evidence, PinState, Said};
use crate::store::audit::search::{CannotSearch, Page, Query};
use crate::store::recent::DecisionView;
use crate::telemetry::upstream_state::UpstreamState;

/// Source of the console's data, and the actions of a signed-in operator.
///
/// Reading is quick and never waits for a disk. A change is durable when its future is ready; the error is a sentence
/// for the operator.
pub(crate) trait Desk: LoginDesk + Send + Sync + 'static {
    /// The current time, on the clock of all times in the views.
    fn now(&self) -> Wall;
    /// Open approvals, oldest first.
    fn approvals(&self) -> Vec<Approval>;
    fn approval(&self, id: &str) -> Found;
    /// Answers an approval as it was shown. `base` is the folder or site of a grant below one.
    fn answer<'a>(&'a self, member: &'a Member, reply: Reply, base: &'a str) -> BoxFuture<'a, Result<Closed, String>>;
    /// Whether that approval was given when its agent had been told to stop.
    fn was_late(&self, id: &str) -> bool;
    /// Answers several approvals of one group: allows each once, or denies them. The inner errors are about one approval each, which
    /// stays open.
    fn answer_group<'a>(
        &'a self,
        members: &'a [Member],
        reply: Reply,
    ) -> BoxFuture<'a, Result<Vec<Result<Closed, String>>, String>>;
    /// Denies approvals of any callers and items; an error is about one of them, which stays open.
    fn deny<'a>(&'a self, members: &'a [Member]) -> BoxFuture<'a, Vec<Result<Closed, String>>>;
    /// Calls that are refused for a while, the first to end first.
    fn blocks(&self) -> Vec<BlockView>;
    /// Whether there was such a block.
    fn unblock<'a>(&'a self, id: &'a str) -> BoxFuture<'a, bool>;
    /// Live grants, latest first.
    fn grants(&self) -> Vec<GrantView>;
    /// Whether there was such a live grant.
    fn revoke<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, String>>;
    fn pins(&self) -> BoxFuture<'_, Vec<PinView>>;
    /// Approves the text that was shown and no later one: `digest` is that of the shown text.
    fn approve_pin<'a>(&'a self, pin: &'a PinKey, digest: &'a str) -> BoxFuture<'a, Result<(), String>>;
    fn reject_pin<'a>(&'a self, pin: &'a PinKey, digest: &'a str) -> BoxFuture<'a, Result<(), String>>;
    /// A sentence for each thing that does not work, but for upstreams, which [`Desk::upstreams`]
    /// has.
    fn troubles(&self) -> Vec<String>;
    fn upstreams(&self) -> Vec<UpstreamView>;
    fn upstream(&self, name: &str) -> Option<UpstreamDetail>;
    /// The command by which hosts reach this daemon, where one exists.
    fn host_command(&self) -> Option<String>;
    /// Acts on an upstream of the running daemon, and says what came of it. No file changes.
    fn steer<'a>(&'a self, name: &'a str, steer: Steer) -> BoxFuture<'a, Result<String, String>>;
    /// The last decisions, latest first.
    fn decisions(&self, at_most: usize) -> Vec<DecisionView>;
    /// One page of the decisions in the audit log.
    fn calls(&self, query: Query) -> BoxFuture<'_, Result<Page, CannotSearch>>;
    /// Channels that signal at once when a part has changed.
    fn watches(&self) -> Vec<(Part, watch::Receiver<u64>)>;
    /// Numbers for parts that change often or have no channel; another number means that the part has changed. An open
    /// page checks them every few seconds.
    fn counts(&self) -> Vec<(Part, u64)>;
}

/// An approval by its id, with the digest of what was shown of it.
pub(crate) type Member = (String, String);

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
    pub(crate) caller: Caller,
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
    /// Grants below a folder or for a site that are offered, the narrowest first.
    pub(crate) below: Vec<Offer>,
    pub(crate) need: Evidence,
    pub(crate) opened_at: Wall,
    pub(crate) until: Wall,
    pub(crate) agent: AgentWait,
}

/// A grant below a folder or for a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The folder, or the URL of the site.
    pub(crate) base: String,
    /// Sentences about what it covers.
    pub(crate) covers: String,
}

impl From<&Below> for Offer {
    fn from(below: &Below) -> Self {
        Self { base: below.base().to_owned(), covers: below.told() }
    }
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

/// The operator's answer, by its word in the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Reply {
    Deny,
    Once,
    Session,
    /// For one hour.
    Hour,
    /// Until the item or its server changes.
    Always,
    /// Likewise, for calls below a folder or for a site that the form names.
    Below,
}

/// A refusal of an item's calls for a while.
#[derive(Clone, Debug)]
pub(crate) struct BlockView {
    pub(crate) id: String,
    pub(crate) caller: String,
    /// The name that the client gives itself.
    pub(crate) client: Option<String>,
    pub(crate) item: String,
    pub(crate) until: Wall,
    /// The person who denied it; `None` where approvals were not answered.
    pub(crate) denied_by: Option<String>,
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
    /// The folder or site that it is for, where it is for one.
    pub(crate) below: Option<Offer>,
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
#[derive(Clone, Debug, Default)]
pub(crate) struct UpstreamView {
    pub(crate) name: String,
    pub(crate) state: UpstreamState,
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
    /// How long it has been in its state, and when it is tried again, in seconds.
    pub(crate) age: u64,
    pub(crate) next_try: Option<u64>,
    /// What the operator can do.
    pub(crate) advice: Option<String>,
}

/// One upstream with everything about it that has a page of its own.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamDetail {
    pub(crate) view: UpstreamView,
    /// Switched off for as long as this daemon runs.
    pub(crate) is_off: bool,
    /// Where a person can log in there.
    pub(crate) login: Option<LoginView>,
    /// The last lines of its log, the latest last.
    pub(crate) lines: Vec<LogLine>,
    pub(crate) tools: Vec<ToolView>,
    /// Names of items that are not offered, and why.
    pub(crate) withheld: Vec<(String, String)>,
}

/// A tool of an upstream.
#[derive(Clone, Debug)]
pub(crate) struct ToolView {
    pub(crate) name: String,
    pub(crate) said: Said,
    /// No operator has confirmed it.
    pub(crate) is_new: bool,
    /// For the caller `local`: `allow`, `ask`, `deny` or `limit`.
    pub(crate) effect: &'static str,
    /// As hosts hand it to a model.
    pub(crate) bytes: usize,
}

/// An action on an upstream, by its word in the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Steer {
    Restart,
    /// Until headend starts again.
    Disable,
    /// Takes a [`Self::Disable`] back.
    Enable,
}
