//! The handshake with an upstream: its era and its capabilities, by questions in order and their answers, for every
//! transport.

use std::time::Duration;

use crate::engine::ask::Declared;
use crate::mcp::extension::TASKS;
use crate::mcp::meta::{HopMeta, implementation};
use crate::mcp::method::Method;
use crate::mcp::task;
use crate::mcp::version::{Era, Revision};
use crate::wire::code;
use crate::wire::foreign;
use crate::wire::raw::{RawJson, RawObject};

/// How long a process of unknown era may take to answer `server/discover` before it is asked `initialize` as well: the start of a
/// package runner is in it. The answer still counts when it comes later.
pub const PROBE_TIME: Duration = Duration::from_secs(10);

/// Advice for the operator of a legacy server that fails at the question for its era.
pub const LEGACY_ADVICE: &str = "; if the server is older than 2026-07-28, write `era = \"legacy\"` in its table";

/// How long the answer to `server/discover` may come after that to `initialize`: a slow server has read both by then.
const MOMENT: Duration = Duration::from_millis(500);

/// Knowledge of an upstream's era before the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EraHint {
    /// Ask `server/discover`, then `initialize`.
    Probe,
    /// Ask `initialize` at once: configured, or remembered.
    Legacy,
    /// Ask `server/discover` only: configured.
    Modern,
}

/// The agreement with an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    pub revision: Revision,
    pub offers: Offers,
}

/// The server capabilities that the gateway acts on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    pub prompts: bool,
    pub resources: bool,
    pub completions: bool,
    /// Tool calls may become tasks: the extension of 2026-07-28, or the core feature of 2025-11-25.
    pub tasks: bool,
    /// Log messages, at a level that legacy clients set.
    pub logging: bool,
    /// Updates of resources.
    pub subscriptions: bool,
    /// Any `listChanged`, which is worth a subscription.
    pub changes: bool,
}

/// What carries the messages of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A server that does not know a request may leave it unanswered, or end.
    Lines,
    /// A server that does not know a request says so; one that says nothing is not there.
    Http {
        /// Its URL may be one of HTTP+SSE, the transport of 2024-11-05.
        may_be_older: bool,
    },
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    Discover(Revision),
    Initialize,
}

impl Question {
    pub fn method(self) -> Method {
        match self {
            Self::Discover(_) => Method::Discover,
            Self::Initialize => Method::Initialize,
        }
    }

    pub fn params(self, hop: &HopMeta, declared: &Declared) -> RawJson {
        match self {
            Self::Discover(revision) => discover_params(hop, revision),
            Self::Initialize => initialize_params(declared),
        }
    }
}

/// What came of a question.
#[derive(Debug)]
pub enum Reply {
    Answer(Result<RawJson, RawJson>),
    /// Something else than an answer of the protocol.
    NoAnswer(String),
    /// The connection failed, or the server refused to look at the question.
    Lost(String),
    /// Nothing came in time.
    Silence,
}

/// What follows from a reply.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    Ask(Question),
    /// Another answer decides, which may come within that time; `None` for the time that there was.
    Wait(Option<Duration>),
    Agreed(Agreed),
    Failed {
        /// A sentence for the operator.
        why: String,
        /// How the next start should ask.
        hint: EraHint,
        /// It may speak the HTTP+SSE transport of 2024-11-05.
        older: bool,
    },
}

/// The handshake with one upstream.
#[derive(Debug)]
pub struct Handshake {
    hint: EraHint,
    carrier: Carrier,
    question: Question,
    /// It was asked in the revision that it named itself.
    again: bool,
    /// `server/discover` was not answered in time, and may be yet.
    is_unanswered: bool,
    /// It was answered late, as a modern server does.
    late: Option<Agreed>,
    /// The outcome of `initialize`, while the other answer may come.
    initialized: Option<Result<Agreed, String>>,
}

impl Handshake {
    pub fn new(hint: EraHint, carrier: Carrier) -> Self {
        let question = match hint {
            EraHint::Legacy => Question::Initialize,
            EraHint::Probe | EraHint::Modern => Question::Discover(Revision::preferred(Era::Modern)),
        };
        Self { hint, carrier, question, again: false, is_unanswered: false, late: None, initialized: None }
    }

    /// What is to be asked now.
    pub fn question(&self) -> Question {
        self.question
    }

    /// How the server is asked.
    pub const fn hint(&self) -> EraHint {
        self.hint
    }

    /// Goes on with what came of the question; over HTTP with the status of the answer. Source: MCP 2026-07-28, versioning and
    /// streamable HTTP, "Backward Compatibility".
    pub fn heard(&mut self, status: Option<u16>, reply: Reply) -> Next {
        let next = match self.question {
            Question::Discover(_) => self.discovered(status, reply),
            Question::Initialize => self.initialized(status, reply),
        };
        if let Next::Ask(question) = next {
            self.question = question;
        }
        next
    }

    /// Goes on with the answer to `server/discover` that came after its time. A server that is only slow is no legacy one.
    pub fn heard_late(&mut self, answer: &Result<RawJson, RawJson>) -> Next {
        if !std::mem::take(&mut self.is_unanswered) {
            return Next::Wait(None);
        }
        match (judge_discover(answer), self.initialized.take()) {
            (Discovered::Modern(agreed), Some(Err(_))) => Next::Agreed(agreed),
            (Discovered::Modern(_), Some(Ok(_))) | (Discovered::Again(_), _) => self.modern_after_all(),
            (Discovered::Modern(agreed), None) => {
                self.late = Some(agreed);
                Next::Wait(Some(PROBE_TIME))
            }
            (Discovered::Legacy | Discovered::Unspeakable, Some(Ok(agreed))) => Next::Agreed(agreed),
            (Discovered::Legacy | Discovered::Unspeakable, Some(Err(why))) => self.over(why),
            (Discovered::Legacy | Discovered::Unspeakable, None) => Next::Wait(None),
        }
    }

    /// Some servers that know both eras stay in that of `initialize` until they end, so the next start asks for the other one.
    fn modern_after_all(&self) -> Next {
        let why = "it answered `server/discover` late, as a modern server does; it is started again as one".to_owned();
        Next::Failed { why, hint: EraHint::Modern, older: false }
    }

    fn over(&self, why: String) -> Next {
        Next::Failed { why, hint: self.taught(), older: false }
    }

    fn discovered(&mut self, status: Option<u16>, reply: Reply) -> Next {
        // A server that is overloaded or fails says nothing of its era. One that answers with an
        // error of the protocol works, and does not know the method.
        let answers = matches!(reply, Reply::Answer(Err(_))) && matches!(status, Some(500 | 501));
        if let Some(status @ (408 | 425 | 429 | 500..)) = status.filter(|_| !answers) {
            return self.failed(format!("`server/discover`: HTTP status {status}{}", self.advice()));
        }
        match reply {
            Reply::Answer(answer) => match judge_discover(&answer) {
                Discovered::Modern(agreed) => Next::Agreed(agreed),
                Discovered::Legacy => self.legacy(None),
                Discovered::Again(revision) if !self.again => {
                    self.again = true;
                    Next::Ask(Question::Discover(revision))
                }
                Discovered::Again(_) => self.failed("it refuses the protocol version that it lists itself".to_owned()),
                Discovered::Unspeakable => {
                    let spoken: Vec<&str> = Revision::ALL.iter().map(|revision| revision.as_str()).collect();
                    let spoken = spoken.join(", ");
                    self.failed(format!("it speaks no protocol revision that headend speaks ({spoken})"))
                }
            },
            Reply::NoAnswer(why) => self.legacy(Some(&why)),
            Reply::Silence if self.carrier == Carrier::Lines && self.hint == EraHint::Probe => {
                self.is_unanswered = true;
                Next::Ask(Question::Initialize)
            }
            Reply::Silence => self.failed(format!("no answer to `server/discover` in time{}", self.advice())),
            Reply::Lost(why) => self.over(why),
        }
    }

    /// The way out for a legacy server that fails at the question for its era. A server of unknown
    /// era is asked no other one over HTTP after a failure or silence, since a modern server that
    /// is overloaded would be taken for a legacy one.
    fn advice(&self) -> &'static str {
        if self.hint == EraHint::Probe { LEGACY_ADVICE } else { "" }
    }

    /// It does not answer as a modern server does.
    fn legacy(&self, why: Option<&str>) -> Next {
        if self.hint == EraHint::Modern {
            let more = why.map(|why| format!(": {why}")).unwrap_or_default();
            let why =
                format!("configured as modern, but `server/discover` is not answered as 2026-07-28 demands{more}");
            return Next::Failed { why, hint: self.doubted(), older: false };
        }
        Next::Ask(Question::Initialize)
    }

    fn initialized(&mut self, status: Option<u16>, reply: Reply) -> Next {
        let (why, hint) = match reply {
            Reply::Answer(answer) => match (judge_initialize(&answer), self.late) {
                (Ok(_), Some(_)) => return self.modern_after_all(),
                (Err(_), Some(late)) => return Next::Agreed(late),
                (judged, None) if self.is_unanswered => {
                    let time = if judged.is_ok() { MOMENT } else { PROBE_TIME };
                    self.initialized = Some(judged);
                    return Next::Wait(Some(time));
                }
                (Ok(agreed), None) => return Next::Agreed(agreed),
                (Err(why), None) => (why, self.doubted()),
            },
            Reply::Lost(_) if self.late.is_some() => return self.modern_after_all(),
            Reply::NoAnswer(why) | Reply::Lost(why) => (why, self.taught()),
            Reply::Silence => match (self.late, self.initialized.take()) {
                (Some(agreed), _) | (None, Some(Ok(agreed))) => return Next::Agreed(agreed),
                (None, Some(Err(why))) => (why, self.taught()),
                (None, None) => ("no answer to the handshake in time".to_owned(), self.doubted()),
            },
        };
        // What a server of 2024-11-05 says to a POST at the URL of its stream.
        let older = self.carrier == Carrier::Http { may_be_older: true } && matches!(status, Some(400 | 404 | 405));
        Next::Failed { why, hint, older }
    }

    fn failed(&self, why: String) -> Next {
        Next::Failed { why, hint: self.hint, older: false }
    }

    /// How the next start should ask after an answer, or a silence, that speaks against what was taken for known.
    fn doubted(&self) -> EraHint {
        match (self.carrier, self.hint) {
            (Carrier::Lines, EraHint::Legacy | EraHint::Modern) => EraHint::Probe,
            (Carrier::Lines, EraHint::Probe) | (Carrier::Http { .. }, _) => self.taught(),
        }
    }

    /// How the next start should ask after one that broke off. A process may have taken the probe for a broken handshake, and
    /// many end at a request before `initialize`.
    fn taught(&self) -> EraHint {
        match (self.carrier, self.hint) {
            (Carrier::Lines, EraHint::Probe) => EraHint::Legacy,
            (Carrier::Lines | Carrier::Http { .. }, hint) => hint,
        }
    }
}

/// The verdict on an answer to `server/discover`. Source: MCP 2026-07-28, stdio and versioning; protocol 3.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Discovered {
    Modern(Agreed),
    /// Not modern, or not in a revision that both know: ask `initialize`.
    Legacy,
    /// The server refused the requested version and speaks this one: ask once more.
    Again(Revision),
    /// Modern, but in revisions that this gateway does not speak.
    Unspeakable,
}

/// `params` of `server/discover`, asked in that revision.
fn discover_params(hop: &HopMeta, revision: Revision) -> RawJson {
    RawJson::trusted(format!(r#"{{"_meta":{}}}"#, hop.envelope(revision).text()))
}

/// `params` of the `subscriptions/listen` that tells of changed lists.
pub fn listen_params(hop: &HopMeta, revision: Revision) -> RawJson {
    RawJson::trusted(format!(
        r#"{{"notifications":{{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}},"_meta":{}}}"#,
        hop.envelope(revision).text()
    ))
}

/// `params` of `initialize`, with what the server may ask for.
fn initialize_params(declared: &Declared) -> RawJson {
    RawJson::trusted(format!(
        r#"{{"protocolVersion":"{}","capabilities":{},"clientInfo":{}}}"#,
        Revision::preferred(Era::Legacy),
        declared.kinds.capabilities().text(),
        implementation().text()
    ))
}

/// Judges the answer to `server/discover`.
fn judge_discover(answer: &Result<RawJson, RawJson>) -> Discovered {
    match answer {
        Ok(result) => {
            let Ok(result) = RawObject::parse(result) else { return Discovered::Legacy };
            let Some(versions) = result.get("supportedVersions").and_then(|raw| raw.parse::<Vec<String>>().ok()) else {
                return Discovered::Legacy;
            };
            match pick(&versions) {
                Pick::Modern(revision) => {
                    let capabilities = result.get("capabilities");
                    let tasks = capabilities.is_some_and(|raw| TASKS.is_in(raw));
                    let offers = capabilities.map(offers).unwrap_or_default();
                    Discovered::Modern(Agreed { revision, offers: Offers { tasks, ..offers } })
                }
                Pick::Legacy => Discovered::Legacy,
                Pick::Nothing => Discovered::Unspeakable,
            }
        }
        Err(error) => {
            let Ok(error) = RawObject::parse(error) else { return Discovered::Legacy };
            if error.get("code").and_then(|raw| raw.parse::<i64>().ok()) != Some(code::UNSUPPORTED_VERSION) {
                return Discovered::Legacy;
            }
            let supported = error.object("data");
            let supported = supported.and_then(|data| data.get("supported")?.parse::<Vec<String>>().ok());
            match supported.map(|versions| pick(&versions)) {
                Some(Pick::Modern(revision)) => Discovered::Again(revision),
                Some(Pick::Nothing) => Discovered::Unspeakable,
                Some(Pick::Legacy) | None => Discovered::Legacy,
            }
        }
    }
}

enum Pick {
    Modern(Revision),
    Legacy,
    Nothing,
}

fn pick(versions: &[String]) -> Pick {
    let known: Vec<Revision> = versions.iter().filter_map(|v| Revision::parse(v)).collect();
    match known.iter().max() {
        Some(best) if best.era() == Era::Modern => Pick::Modern(*best),
        Some(_) => Pick::Legacy,
        None => Pick::Nothing,
    }
}

/// Judges the answer to `initialize`.
///
/// # Errors
/// A sentence for the operator.
fn judge_initialize(answer: &Result<RawJson, RawJson>) -> Result<Agreed, String> {
    let result = answer.as_ref().map_err(|error| format!("`initialize` was refused: {}", message_of(error)))?;
    let result = RawObject::parse(result).map_err(|_| "the answer to `initialize` is no object".to_owned())?;
    let version = result.string("protocolVersion").ok_or("the answer to `initialize` names no protocolVersion")?;
    let revision = Revision::parse(&version).filter(|revision| revision.era() == Era::Legacy).ok_or_else(|| {
        let spoken: Vec<&str> = Revision::of(Era::Legacy).map(Revision::as_str).collect();
        let spoken = spoken.join(", ");
        let version = foreign::quoted(&version, 60);
        format!("the server answered `initialize` with protocol version {version}; headend speaks {spoken} there")
    })?;
    let mut offers = result.get("capabilities").map(offers).unwrap_or_default();
    // Where there is no such capability, the method may simply exist.
    offers.completions |= !revision.features().completions && offers.prompts;
    Ok(Agreed { revision, offers })
}

/// The message of an error object, shortened, for the operator.
pub(crate) fn message_of(error: &RawJson) -> String {
    let message = RawObject::parse(error).ok().and_then(|error| error.string("message")).unwrap_or_default();
    foreign::short(&message, 200)
}

fn offers(capabilities: &RawJson) -> Offers {
    let Ok(capabilities) = RawObject::parse(capabilities) else { return Offers::default() };
    let changes = |name: &str| capabilities.object(name).is_some_and(|s| s.is_true("listChanged"));
    Offers {
        prompts: capabilities.object("prompts").is_some(),
        resources: capabilities.object("resources").is_some(),
        completions: capabilities.object("completions").is_some(),
        tasks: task::takes_calls(&capabilities),
        logging: capabilities.object("logging").is_some(),
        subscriptions: capabilities.object("resources").is_some_and(|s| s.is_true("subscribe")),
        changes: ["tools", "prompts", "resources"].into_iter().any(changes),
    }
}

#[cfg(test)]
mod tests;
