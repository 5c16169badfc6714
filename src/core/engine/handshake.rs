//! The handshake with an upstream, on every transport: finds its era, its revision and its
//! capabilities.
//!
//! Questions are asked one after the other, and each reply decides what follows.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::connection::ask::DeclaredCapabilities;
use crate::mcp::extension::{ExtensionSet, TASKS};
use crate::mcp::instructions::read_instructions;
use crate::mcp::meta::{HopMeta, implementation};
use crate::mcp::method::Method;
use crate::mcp::task;
use crate::mcp::version::{Era, Revision};
use crate::wire::code;
use crate::wire::foreign;
use crate::wire::json::raw::{RawJson, RawObject};

/// Time that a process of unknown era has to answer `server/discover` before it is asked
/// `initialize` as well. The start of a package runner is part of it. A later answer still counts.
pub const PROBE_TIME: Duration = Duration::from_secs(10);

/// Advice for the operator when a server of unknown era fails at `server/discover`.
pub const LEGACY_ADVICE: &str = "; if the server is older than 2026-07-28, write `era = \"legacy\"` in its table";

/// Time that the answer to `server/discover` has after that to `initialize`. Even a slow server has
/// read both by then.
const MOMENT: Duration = Duration::from_millis(500);

/// The era of an upstream, as far as it is known before the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EraHint {
    /// Unknown: ask `server/discover`, then `initialize`.
    Probe,
    /// Legacy, as configured or remembered: ask `initialize` at once.
    Legacy,
    /// Modern, as configured or as learned from a late answer: ask `server/discover` only.
    Modern,
}

/// The result of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandshakeAgreement {
    pub revision: Revision,
    pub offers: ServerOffers,
}

/// The server capabilities that the gateway acts on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerOffers {
    pub prompts: bool,
    pub resources: bool,
    pub completions: bool,
    /// The extensions that it declared. [`TASKS`] stands for tasks as its era has them: the
    /// extension of 2026-07-28, or the core feature of 2025-11-25.
    pub extensions: ExtensionSet,
    /// Log messages, at a level that legacy clients set.
    pub logging: bool,
    /// Updates of resources.
    pub subscriptions: bool,
    /// Any `listChanged`, which makes a subscription worthwhile.
    pub changes: bool,
}

/// The transport of an upstream, as far as the handshake depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeTransport {
    /// Lines. A server that does not know a request may leave it unanswered, or exit.
    Lines,
    /// HTTP. A server that does not know a request says so, and one that says nothing is not there.
    Http {
        /// True if the URL may be one of HTTP+SSE, the transport of 2024-11-05.
        may_be_older: bool,
    },
}

/// A question of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeQuestion {
    Discover(Revision),
    Initialize,
}

impl HandshakeQuestion {
    pub fn method(self) -> Method {
        match self {
            Self::Discover(_) => Method::Discover,
            Self::Initialize => Method::Initialize,
        }
    }

    pub fn params(self, hop: &HopMeta, declared: &DeclaredCapabilities) -> RawJson {
        match self {
            Self::Discover(revision) => discover_params(hop, revision),
            Self::Initialize => initialize_params(declared),
        }
    }
}

/// The reply to a question of the handshake, or the lack of one.
#[derive(Debug)]
pub enum HandshakeReply {
    /// A response of the protocol: the result or the error object.
    Answer(Result<RawJson, RawJson>),
    /// Something else than a response of the protocol; with the reason.
    NoAnswer(String),
    /// The connection failed, or the server refused to look at the question; with the reason.
    Lost(String),
    /// No reply in time.
    Silence,
}

/// The step that follows a reply.
#[derive(Debug, PartialEq, Eq)]
pub enum HandshakeAction {
    Ask(HandshakeQuestion),
    /// Another answer decides, which may come within this time; `None` stands for the deadline that
    /// is set already.
    Wait(Option<Duration>),
    Agreed(HandshakeAgreement),
    Failed {
        /// A sentence for the operator.
        why: String,
        /// How the next start should ask.
        hint: EraHint,
        /// True if the server may speak the HTTP+SSE transport of 2024-11-05.
        older: bool,
    },
}

/// The handshake with one upstream.
#[derive(Debug)]
pub struct Handshake {
    hint: EraHint,
    carrier: HandshakeTransport,
    question: HandshakeQuestion,
    /// True once `server/discover` was repeated in the revision that the server named.
    again: bool,
    /// True if `server/discover` was not answered in time, and may still be.
    is_unanswered: bool,
    /// The agreement from a late answer to `server/discover`, which only a modern server gives.
    late: Option<HandshakeAgreement>,
    /// The outcome of `initialize`, while the other answer may still come.
    initialized: Option<Result<HandshakeAgreement, String>>,
    results: HandshakeResults,
}

/// The server's results so far, as it sent them.
#[derive(Debug, Default)]
struct HandshakeResults {
    discovered: Option<RawJson>,
    initialized: Option<RawJson>,
}

impl Handshake {
    pub fn new(hint: EraHint, carrier: HandshakeTransport) -> Self {
        let question = match hint {
            EraHint::Legacy => HandshakeQuestion::Initialize,
            EraHint::Probe | EraHint::Modern => HandshakeQuestion::Discover(Revision::preferred(Era::Modern)),
        };
        Self {
            hint,
            carrier,
            question,
            again: false,
            is_unanswered: false,
            late: None,
            initialized: None,
            results: HandshakeResults::default(),
        }
    }

    /// Returns the question to ask now.
    pub fn question(&self) -> HandshakeQuestion {
        self.question
    }

    /// Returns what was known of the era when the handshake began.
    pub const fn hint(&self) -> EraHint {
        self.hint
    }

    /// Returns the server's instructions, cleaned, from the answer that this agreement is of.
    pub fn instructions(&self, agreed: HandshakeAgreement) -> Option<Arc<str>> {
        self.result(agreed).and_then(read_instructions)
    }

    /// Returns the server's result that this agreement is of.
    pub fn result(&self, agreed: HandshakeAgreement) -> Option<&RawJson> {
        match agreed.revision.era() {
            Era::Modern => self.results.discovered.as_ref(),
            Era::Legacy => self.results.initialized.as_ref(),
        }
    }

    /// Takes the reply to the current question, over HTTP with its status, and returns the next
    /// step. Source: MCP 2026-07-28, versioning and streamable HTTP, "Backward Compatibility".
    pub fn heard(&mut self, status: Option<u16>, reply: HandshakeReply) -> HandshakeAction {
        if let HandshakeReply::Answer(Ok(result)) = &reply {
            match self.question {
                HandshakeQuestion::Discover(_) => self.results.discovered = Some(result.clone()),
                HandshakeQuestion::Initialize => self.results.initialized = Some(result.clone()),
            }
        }
        let next = match self.question {
            HandshakeQuestion::Discover(_) => self.discovered(status, reply),
            HandshakeQuestion::Initialize => self.initialized(status, reply),
        };
        if let HandshakeAction::Ask(question) = next {
            self.question = question;
        }
        next
    }

    /// Takes an answer to `server/discover` that came after its time, and returns the next step. A
    /// slow modern server must not be taken for a legacy one.
    pub fn heard_late(&mut self, answer: &Result<RawJson, RawJson>) -> HandshakeAction {
        if !std::mem::take(&mut self.is_unanswered) {
            return HandshakeAction::Wait(None);
        }
        if let Ok(result) = answer {
            self.results.discovered = Some(result.clone());
        }
        match (judge_discover(answer), self.initialized.take()) {
            (DiscoverVerdict::Modern(agreed), Some(Err(_))) => HandshakeAction::Agreed(agreed),
            (DiscoverVerdict::Modern(_), Some(Ok(_))) | (DiscoverVerdict::Again(_), _) => self.modern_after_all(),
            (DiscoverVerdict::Modern(agreed), None) => {
                self.late = Some(agreed);
                HandshakeAction::Wait(Some(PROBE_TIME))
            }
            (DiscoverVerdict::Legacy | DiscoverVerdict::Unspeakable, Some(Ok(agreed))) => {
                HandshakeAction::Agreed(agreed)
            }
            (DiscoverVerdict::Legacy | DiscoverVerdict::Unspeakable, Some(Err(why))) => self.over(why),
            (DiscoverVerdict::Legacy | DiscoverVerdict::Unspeakable, None) => HandshakeAction::Wait(None),
        }
    }

    /// Fails the handshake, so that the next start asks in the modern era: some servers that know
    /// both eras stay in that of `initialize` until they end.
    fn modern_after_all(&self) -> HandshakeAction {
        let why = "it answered `server/discover` late, as a modern server does; it is started again as one".to_owned();
        HandshakeAction::Failed { why, hint: EraHint::Modern, older: false }
    }

    /// Fails a handshake that broke off.
    fn over(&self, why: String) -> HandshakeAction {
        HandshakeAction::Failed { why, hint: self.taught(), older: false }
    }

    /// Takes the reply to `server/discover`.
    fn discovered(&mut self, status: Option<u16>, reply: HandshakeReply) -> HandshakeAction {
        // A server that is overloaded or fails says nothing about its era. A server that answers
        // with an error of the protocol works, and does not know the method.
        let answers = matches!(reply, HandshakeReply::Answer(Err(_))) && matches!(status, Some(500 | 501));
        if let Some(status @ (408 | 425 | 429 | 500..)) = status.filter(|_| !answers) {
            return self.failed(format!("`server/discover`: HTTP status {status}{}", self.advice()));
        }
        match reply {
            HandshakeReply::Answer(answer) => match judge_discover(&answer) {
                DiscoverVerdict::Modern(agreed) => HandshakeAction::Agreed(agreed),
                DiscoverVerdict::Legacy => self.legacy(None),
                DiscoverVerdict::Again(revision) if !self.again => {
                    self.again = true;
                    HandshakeAction::Ask(HandshakeQuestion::Discover(revision))
                }
                DiscoverVerdict::Again(_) => {
                    self.failed("it refuses the protocol version that it lists itself".to_owned())
                }
                DiscoverVerdict::Unspeakable => {
                    let spoken: Vec<&str> = Revision::ALL.iter().map(|revision| revision.as_str()).collect();
                    let spoken = spoken.join(", ");
                    self.failed(format!("it speaks no protocol revision that headend speaks ({spoken})"))
                }
            },
            HandshakeReply::NoAnswer(why) => self.legacy(Some(&why)),
            HandshakeReply::Silence if self.carrier == HandshakeTransport::Lines && self.hint == EraHint::Probe => {
                self.is_unanswered = true;
                HandshakeAction::Ask(HandshakeQuestion::Initialize)
            }
            HandshakeReply::Silence => self.failed(format!("no answer to `server/discover` in time{}", self.advice())),
            HandshakeReply::Lost(why) => self.over(why),
        }
    }

    /// Returns advice for the operator of a legacy server that fails at the question for its era.
    /// Over HTTP, a server of unknown era is not asked `initialize` after a failure or silence: an
    /// overloaded modern server would be taken for a legacy one.
    fn advice(&self) -> &'static str {
        if self.hint == EraHint::Probe { LEGACY_ADVICE } else { "" }
    }

    /// Goes on after an answer that no modern server gives: asks `initialize`, or fails if the
    /// server is configured as modern.
    fn legacy(&self, why: Option<&str>) -> HandshakeAction {
        if self.hint == EraHint::Modern {
            let more = why.map(|why| format!(": {why}")).unwrap_or_default();
            let why =
                format!("configured as modern, but `server/discover` is not answered as 2026-07-28 demands{more}");
            return HandshakeAction::Failed { why, hint: self.doubted(), older: false };
        }
        HandshakeAction::Ask(HandshakeQuestion::Initialize)
    }

    /// Takes the reply to `initialize`.
    fn initialized(&mut self, status: Option<u16>, reply: HandshakeReply) -> HandshakeAction {
        let (why, hint) = match reply {
            HandshakeReply::Answer(answer) => match (judge_initialize(&answer), self.late) {
                (Ok(_), Some(_)) => return self.modern_after_all(),
                (Err(_), Some(late)) => return HandshakeAction::Agreed(late),
                (judged, None) if self.is_unanswered => {
                    let time = if judged.is_ok() { MOMENT } else { PROBE_TIME };
                    self.initialized = Some(judged);
                    return HandshakeAction::Wait(Some(time));
                }
                (Ok(agreed), None) => return HandshakeAction::Agreed(agreed),
                (Err(why), None) => (why, self.doubted()),
            },
            HandshakeReply::Lost(_) if self.late.is_some() => return self.modern_after_all(),
            HandshakeReply::NoAnswer(why) | HandshakeReply::Lost(why) => (why, self.taught()),
            HandshakeReply::Silence => match (self.late, self.initialized.take()) {
                (Some(agreed), _) | (None, Some(Ok(agreed))) => return HandshakeAction::Agreed(agreed),
                (None, Some(Err(why))) => (why, self.taught()),
                (None, None) => ("no answer to the handshake in time".to_owned(), self.doubted()),
            },
        };
        // A server of 2024-11-05 answers so to a POST at the URL of its stream.
        let older =
            self.carrier == HandshakeTransport::Http { may_be_older: true } && matches!(status, Some(400 | 404 | 405));
        HandshakeAction::Failed { why, hint, older }
    }

    /// Fails the handshake; the next start asks as this one did.
    fn failed(&self, why: String) -> HandshakeAction {
        HandshakeAction::Failed { why, hint: self.hint, older: false }
    }

    /// Returns how the next start should ask after an answer, or a silence, that contradicts the
    /// hint.
    fn doubted(&self) -> EraHint {
        match (self.carrier, self.hint) {
            (HandshakeTransport::Lines, EraHint::Legacy | EraHint::Modern) => EraHint::Probe,
            (HandshakeTransport::Lines, EraHint::Probe) | (HandshakeTransport::Http { .. }, _) => self.taught(),
        }
    }

    /// Returns how the next start should ask after a handshake that broke off. A process may have
    /// taken the probe for a broken handshake, and many exit at a request before `initialize`.
    fn taught(&self) -> EraHint {
        match (self.carrier, self.hint) {
            (HandshakeTransport::Lines, EraHint::Probe) => EraHint::Legacy,
            (HandshakeTransport::Lines | HandshakeTransport::Http { .. }, hint) => hint,
        }
    }
}

/// The verdict on an answer to `server/discover`. Source: MCP 2026-07-28, stdio and versioning;
/// protocol 3.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiscoverVerdict {
    Modern(HandshakeAgreement),
    /// The server is not modern, or prefers a legacy revision: ask `initialize`.
    Legacy,
    /// The server refused the requested version and speaks this one: ask once more.
    Again(Revision),
    /// The server speaks no revision that this gateway speaks.
    Unspeakable,
}

/// Returns the `params` of `server/discover` in that revision.
fn discover_params(hop: &HopMeta, revision: Revision) -> RawJson {
    RawJson::trusted(format!(r#"{{"_meta":{}}}"#, hop.envelope(revision).text()))
}

/// Returns the `params` of the `subscriptions/listen` that reports changed lists.
pub fn listen_params(hop: &HopMeta, revision: Revision) -> RawJson {
    RawJson::trusted(format!(
        r#"{{"notifications":{{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}},"_meta":{}}}"#,
        hop.envelope(revision).text()
    ))
}

/// Returns the `params` of `initialize`, with the capabilities that the server may use.
fn initialize_params(declared: &DeclaredCapabilities) -> RawJson {
    RawJson::trusted(format!(
        r#"{{"protocolVersion":"{}","capabilities":{},"clientInfo":{}}}"#,
        Revision::preferred(Era::Legacy),
        declared.capabilities().text(),
        implementation().text()
    ))
}

/// Judges the answer to `server/discover`.
fn judge_discover(answer: &Result<RawJson, RawJson>) -> DiscoverVerdict {
    match answer {
        Ok(result) => {
            let Ok(result) = RawObject::parse(result) else { return DiscoverVerdict::Legacy };
            let Some(versions) = result.get("supportedVersions").and_then(|raw| raw.parse::<Vec<String>>().ok()) else {
                return DiscoverVerdict::Legacy;
            };
            match pick(&versions) {
                RevisionPick::Modern(revision) => {
                    let offers = result.get("capabilities").map(|raw| offers(raw, Era::Modern)).unwrap_or_default();
                    DiscoverVerdict::Modern(HandshakeAgreement { revision, offers })
                }
                RevisionPick::Legacy => DiscoverVerdict::Legacy,
                RevisionPick::Nothing => DiscoverVerdict::Unspeakable,
            }
        }
        Err(error) => {
            let Ok(error) = RawObject::parse(error) else { return DiscoverVerdict::Legacy };
            if error.get("code").and_then(|raw| raw.parse::<i64>().ok()) != Some(code::UNSUPPORTED_VERSION) {
                return DiscoverVerdict::Legacy;
            }
            let supported = error.object("data");
            let supported = supported.and_then(|data| data.get("supported")?.parse::<Vec<String>>().ok());
            match supported.map(|versions| pick(&versions)) {
                Some(RevisionPick::Modern(revision)) => DiscoverVerdict::Again(revision),
                Some(RevisionPick::Nothing) => DiscoverVerdict::Unspeakable,
                Some(RevisionPick::Legacy) | None => DiscoverVerdict::Legacy,
            }
        }
    }
}

/// The best known one of the revisions that a server lists.
enum RevisionPick {
    Modern(Revision),
    Legacy,
    Nothing,
}

/// Picks the newest of the revisions that the gateway knows.
fn pick(versions: &[String]) -> RevisionPick {
    let known: Vec<Revision> = versions.iter().filter_map(|v| Revision::parse(v)).collect();
    match known.iter().max() {
        Some(best) if best.era() == Era::Modern => RevisionPick::Modern(*best),
        Some(_) => RevisionPick::Legacy,
        None => RevisionPick::Nothing,
    }
}

/// Judges the answer to `initialize`.
///
/// # Errors
/// A sentence for the operator.
fn judge_initialize(answer: &Result<RawJson, RawJson>) -> Result<HandshakeAgreement, String> {
    let result = answer.as_ref().map_err(|error| format!("`initialize` was refused: {}", message_of(error)))?;
    let result = RawObject::parse(result).map_err(|_| "the answer to `initialize` is no object".to_owned())?;
    let version = result.string("protocolVersion").ok_or("the answer to `initialize` names no protocolVersion")?;
    let revision = Revision::parse(&version).filter(|revision| revision.era() == Era::Legacy).ok_or_else(|| {
        let spoken: Vec<&str> = Revision::of(Era::Legacy).map(Revision::as_str).collect();
        let spoken = spoken.join(", ");
        let version = foreign::quoted(&version, 60);
        format!("the server answered `initialize` with protocol version {version}; headend speaks {spoken} there")
    })?;
    let mut offers = result.get("capabilities").map(|raw| offers(raw, Era::Legacy)).unwrap_or_default();
    // In a revision without this capability, the method may simply exist.
    offers.completions |= !revision.features().completions && offers.prompts;
    Ok(HandshakeAgreement { revision, offers })
}

/// Returns the message of an error object, shortened for the operator.
pub(crate) fn message_of(error: &RawJson) -> String {
    let message = RawObject::parse(error).ok().and_then(|error| error.string("message")).unwrap_or_default();
    foreign::short(&message, 200)
}

/// Reads the capabilities that the gateway acts on.
fn offers(capabilities: &RawJson, era: Era) -> ServerOffers {
    let Ok(capabilities) = RawObject::parse(capabilities) else { return ServerOffers::default() };
    let extensions = ExtensionSet::declared_in(&capabilities, era);
    let has_core_tasks = era == Era::Legacy && task::accepts_task_calls(&capabilities);
    let changes = |name: &str| capabilities.object(name).is_some_and(|s| s.is_true("listChanged"));
    ServerOffers {
        prompts: capabilities.object("prompts").is_some(),
        resources: capabilities.object("resources").is_some(),
        completions: capabilities.object("completions").is_some(),
        extensions: if has_core_tasks { extensions.with(&TASKS) } else { extensions },
        logging: capabilities.object("logging").is_some(),
        subscriptions: capabilities.object("resources").is_some_and(|s| s.is_true("subscribe")),
        changes: ["tools", "prompts", "resources"].into_iter().any(changes),
    }
}

#[cfg(test)]
mod tests;
