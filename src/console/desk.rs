//! What the console shows and does, apart from how: plain values, and a trait that the gateway implements.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::policy::{Annotations, Evidence};
use crate::store::recent::DecisionView;

/// Unix seconds.
pub(crate) type Wall = u64;

/// Where the console gets what it shows, and who does what a person decides there.
///
/// Reading is quick and never waits for a disk. What changes something is durable when its future is ready; the error is a
/// sentence for the person.
pub(crate) trait Desk: Send + Sync + 'static {
    /// The clock that all times of the views are of.
    fn now(&self) -> Wall;
    /// What waits for an answer, oldest first.
    fn approvals(&self) -> Vec<Approval>;
    fn approval(&self, id: &str) -> Found;
    fn answer<'a>(&'a self, id: &'a str, reply: Reply) -> BoxFuture<'a, Result<Ending, String>>;
    /// Live ones, the latest first.
    fn grants(&self) -> Vec<GrantView>;
    /// Whether there was such a live grant.
    fn revoke<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, String>>;
    fn pins(&self) -> BoxFuture<'_, Vec<PinView>>;
    /// Approves what was shown, and nothing that came since: `digest` is that of the text that the person saw.
    fn approve_pin<'a>(&'a self, pin: &'a PinKey, digest: &'a str) -> BoxFuture<'a, Result<(), String>>;
    fn reject_pin<'a>(&'a self, pin: &'a PinKey, digest: &'a str) -> BoxFuture<'a, Result<(), String>>;
    fn upstreams(&self) -> Vec<UpstreamView>;
    /// The last ones, the latest first.
    fn decisions(&self, at_most: usize) -> Vec<DecisionView>;
    /// Each tells at once when a part has changed.
    fn watches(&self) -> Vec<(Part, watch::Receiver<u64>)>;
    /// Numbers of parts that change often or tell nobody; another number means that the part has changed. Looked at every
    /// few seconds while a page is open.
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

/// A question to a person, which is open.
#[derive(Clone, Debug)]
pub(crate) struct Approval {
    pub(crate) id: String,
    pub(crate) caller: String,
    pub(crate) upstream: String,
    /// The kind's word: tool, prompt, resource.
    pub(crate) kind: &'static str,
    /// As clients see it.
    pub(crate) exposed: String,
    /// As rules see it.
    pub(crate) canonical: String,
    pub(crate) rule: String,
    pub(crate) annotations: Annotations,
    /// JSON, indented; hidden characters may be escaped already.
    pub(crate) arguments: String,
    /// The arguments are longer than what is shown.
    pub(crate) is_cut: bool,
    /// How many characters in the arguments would not be seen or change what is seen.
    pub(crate) hidden_characters: usize,
    /// The digests that the answer is bound to, in eight digits each.
    pub(crate) arguments_digest: String,
    pub(crate) definition_digest: String,
    /// A grant for the session makes sense: the caller has one.
    pub(crate) has_session: bool,
    pub(crate) need: Evidence,
    pub(crate) opened_at: Wall,
    pub(crate) until: Wall,
}

/// What is known of an approval.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    Open(Box<Approval>),
    Closed(Ending),
    Unknown,
}

/// What became of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Granted,
    Denied,
    Dismissed,
    TimedOut,
    Superseded,
}

/// A person's answer.
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
    /// As the form sends it.
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

/// A permission that is in force.
#[derive(Clone, Debug)]
pub(crate) struct GrantView {
    pub(crate) id: String,
    pub(crate) caller: String,
    pub(crate) kind: &'static str,
    pub(crate) item: String,
    pub(crate) rule: String,
    pub(crate) lifetime: LifetimeView,
    /// Only these very arguments.
    pub(crate) exact: bool,
    pub(crate) destructive: bool,
    pub(crate) evidence: Evidence,
    pub(crate) by: String,
    pub(crate) granted_at: Wall,
    pub(crate) last_used: Option<Wall>,
    pub(crate) uses: u64,
}

/// How long a grant is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LifetimeView {
    Once,
    Session,
    Until(Wall),
    UntilChanged,
}

/// What a pin is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PinKey {
    pub(crate) upstream: String,
    /// `tool`, `prompt`, `resource`, `template` or `launch`.
    pub(crate) kind: String,
    /// The canonical name; the upstream's for the launch.
    pub(crate) name: String,
}

/// A definition, or a launch, and what was approved of it.
#[derive(Clone, Debug)]
pub(crate) struct PinView {
    pub(crate) key: PinKey,
    pub(crate) state: PinState,
    /// The approved text, lines that a person can read.
    pub(crate) approved: Option<String>,
    /// What the upstream says now, where that waits for a person.
    pub(crate) waiting: Option<String>,
    /// Who or what brought it there.
    pub(crate) why: String,
    /// Digest of the waiting definition, all of it.
    pub(crate) waiting_digest: String,
    pub(crate) since: Wall,
}

/// Whether clients see the definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PinState {
    Pinned,
    /// Never approved, so nobody sees it.
    New,
    /// Not what was approved, so nobody sees it.
    Changed,
    /// What waits was refused, until it changes again.
    Rejected,
}

/// One server behind the gateway.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamView {
    pub(crate) name: String,
    /// `idle`, `starting`, `ready`, `down` or `stopped`.
    pub(crate) state: &'static str,
    pub(crate) revision: Option<&'static str>,
    pub(crate) tools: usize,
    pub(crate) prompts: usize,
    /// With templates.
    pub(crate) resources: usize,
    pub(crate) in_flight: usize,
    pub(crate) restarts: u64,
    pub(crate) last_error: Option<Arc<String>>,
}
