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

/// How long an upstream of unknown era may take to answer `server/discover`: the start of a package runner is in it.
pub const PROBE_TIME: Duration = Duration::from_secs(10);

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
}

impl Handshake {
    pub fn new(hint: EraHint, carrier: Carrier) -> Self {
        let question = match hint {
            EraHint::Legacy => Question::Initialize,
            EraHint::Probe | EraHint::Modern => Question::Discover(Revision::preferred(Era::Modern)),
        };
        Self { hint, carrier, question, again: false }
    }

    /// What is to be asked now.
    pub fn question(&self) -> Question {
        self.question
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

    fn discovered(&mut self, status: Option<u16>, reply: Reply) -> Next {
        // A server that is overloaded or fails says nothing of its era, whatever the body.
        if let Some(status @ (429 | 500..)) = status {
            return self.failed(format!("`server/discover`: HTTP status {status}"));
        }
        match reply {
            Reply::Answer(answer) => match judge_discover(&answer) {
                Discovered::Modern(agreed) => Next::Agreed(agreed),
                Discovered::Legacy => self.legacy(),
                Discovered::Again(revision) if !self.again => {
                    self.again = true;
                    Next::Ask(Question::Discover(revision))
                }
                Discovered::Again(_) => self.failed("it refuses the protocol version that it lists itself".to_owned()),
                Discovered::Unspeakable => {
                    self.failed("it speaks no protocol revision that this gateway speaks".to_owned())
                }
            },
            Reply::NoAnswer(_) => self.legacy(),
            Reply::Silence if self.carrier == Carrier::Lines && self.hint == EraHint::Probe => {
                Next::Ask(Question::Initialize)
            }
            Reply::Silence => self.failed("no answer to `server/discover` in time".to_owned()),
            Reply::Lost(why) => Next::Failed { why, hint: self.taught(), older: false },
        }
    }

    /// It does not answer as a modern server does.
    fn legacy(&self) -> Next {
        if self.hint == EraHint::Modern {
            let why = "configured as modern, but `server/discover` is not answered as 2026-07-28 demands";
            return self.failed(why.to_owned());
        }
        Next::Ask(Question::Initialize)
    }

    fn initialized(&self, status: Option<u16>, reply: Reply) -> Next {
        let why = match reply {
            Reply::Answer(answer) => match judge_initialize(&answer) {
                Ok(agreed) => return Next::Agreed(agreed),
                Err(why) => why,
            },
            Reply::NoAnswer(why) | Reply::Lost(why) => why,
            Reply::Silence => "no answer to the handshake in time".to_owned(),
        };
        // What a server of 2024-11-05 says to a POST at the URL of its stream.
        let older = self.carrier == Carrier::Http { may_be_older: true } && matches!(status, Some(400 | 404 | 405));
        Next::Failed { why, hint: self.taught(), older }
    }

    fn failed(&self, why: String) -> Next {
        Next::Failed { why, hint: self.hint, older: false }
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
    let revision = Revision::parse(&version)
        .filter(|revision| revision.era() == Era::Legacy)
        .ok_or_else(|| format!("the server wants protocol version {version:?}, which has no `initialize`"))?;
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
mod tests {
    use super::*;

    fn ok(text: &'static str) -> Result<RawJson, RawJson> {
        Ok(RawJson::trusted(text))
    }

    fn err(text: &'static str) -> Result<RawJson, RawJson> {
        Err(RawJson::trusted(text))
    }

    #[test]
    fn the_era_is_judged_by_the_whole_answer_not_by_one_code() {
        for (label, answer, want) in [
            ("no versions", ok("{}"), Discovered::Legacy),
            ("only legacy listed", ok(r#"{"supportedVersions":["2025-11-25"]}"#), Discovered::Legacy),
            ("only unknown listed", ok(r#"{"supportedVersions":["2031-01-01"]}"#), Discovered::Unspeakable),
            ("method not found", err(r#"{"code":-32601}"#), Discovered::Legacy),
            ("bad params", err(r#"{"code":-32602}"#), Discovered::Legacy),
            ("code zero", err(r#"{"code":0}"#), Discovered::Legacy),
            (
                "refused with our version",
                err(r#"{"code":-32022,"data":{"supported":["2026-07-28"]}}"#),
                Discovered::Again(Revision::V2026_07_28),
            ),
            (
                "refused with a later version",
                err(r#"{"code":-32022,"data":{"supported":["2025-11-25","2099-12-31"]}}"#),
                Discovered::Again(Revision::Later),
            ),
            ("refused with legacy", err(r#"{"code":-32022,"data":{"supported":["2025-06-18"]}}"#), Discovered::Legacy),
            (
                "refused, disjoint",
                err(r#"{"code":-32022,"data":{"supported":["2031-01-01"]}}"#),
                Discovered::Unspeakable,
            ),
            ("refused without data", err(r#"{"code":-32022}"#), Discovered::Legacy),
        ] {
            assert_eq!(judge_discover(&answer), want, "{label}");
        }
        let modern =
            ok(r#"{"supportedVersions":["2025-11-25","2026-07-28"],"capabilities":{"tools":{"listChanged":true}}}"#);
        let Discovered::Modern(agreed) = judge_discover(&modern) else { panic!() };
        assert_eq!(agreed.revision, Revision::V2026_07_28);
        assert!(agreed.offers.changes && !agreed.offers.resources && !agreed.offers.tasks);
    }

    #[test]
    fn the_questions_follow_from_what_came_of_the_one_before() {
        const OFFERS: &str = r#"{"supportedVersions":["2026-07-28"],"protocolVersion":"2025-11-25","capabilities":{}}"#;
        const OTHER: &str = r#"{"code":-32022,"data":{"supported":["2099-12-31"]}}"#;
        const UNKNOWN: &str = r#"{"code":-32022,"data":{"supported":["2031-01-01"]}}"#;
        let (lines, http) = (Carrier::Lines, Carrier::Http { may_be_older: true });
        let (probe, legacy, modern) = (EraHint::Probe, EraHint::Legacy, EraHint::Modern);
        let answer = |text| Reply::Answer(ok(text));
        let refusal = |text| Reply::Answer(err(text));
        let no_answer = || Reply::NoAnswer("HTML".to_owned());
        let lost = || Reply::Lost("gone".to_owned());
        for (label, carrier, hint, replies, want) in [
            ("modern", lines, probe, vec![(None, answer(OFFERS))], "2026-07-28"),
            ("legacy", lines, legacy, vec![(None, answer(OFFERS))], "2025-11-25"),
            ("asked again", http, modern, vec![(None, refusal(OTHER)), (None, refusal(OTHER))], "Modern"),
            ("another modern one", http, probe, vec![(Some(200), refusal(UNKNOWN))], "Probe"),
            ("not modern", http, probe, vec![(Some(200), refusal("{}")), (Some(200), answer(OFFERS))], "2025-11-25"),
            ("not as configured", lines, modern, vec![(None, refusal("{}"))], "Modern"),
            ("no answer", http, probe, vec![(Some(404), no_answer()), (Some(200), answer(OFFERS))], "2025-11-25"),
            ("overloaded, in JSON", http, probe, vec![(Some(429), refusal("{}"))], "Probe"),
            ("failing", http, probe, vec![(Some(502), no_answer())], "Probe"),
            ("no connection", http, probe, vec![(None, lost())], "Probe"),
            ("silence of a process", lines, probe, vec![(None, Reply::Silence), (None, Reply::Silence)], "Legacy"),
            ("silence of a modern process", lines, modern, vec![(None, Reply::Silence)], "Modern"),
            ("silence over HTTP", http, probe, vec![(None, Reply::Silence)], "Probe"),
            ("the process ended", lines, probe, vec![(None, lost())], "Legacy"),
            ("a refused initialize", lines, probe, vec![(None, refusal("{}")), (None, refusal("{}"))], "Legacy"),
            ("no POST there", http, probe, vec![(Some(405), no_answer()), (Some(405), no_answer())], "Probe, older"),
            ("an unknown session", http, legacy, vec![(Some(404), refusal("{}"))], "Legacy, older"),
            ("not found, lines", lines, legacy, vec![(Some(404), refusal("{}"))], "Legacy"),
        ] {
            let mut handshake = Handshake::new(hint, carrier);
            let mut next = Next::Ask(handshake.question());
            for (status, reply) in replies {
                assert_eq!(next, Next::Ask(handshake.question()), "{label}");
                next = handshake.heard(status, reply);
            }
            let got = match next {
                Next::Agreed(agreed) => agreed.revision.to_string(),
                Next::Failed { hint, older, .. } => format!("{hint:?}{}", if older { ", older" } else { "" }),
                Next::Ask(question) => format!("{question:?}"),
            };
            assert_eq!(got, want, "{label}");
        }
    }

    #[test]
    fn each_era_offers_tasks_in_its_own_words_alone() {
        const CORE: &str = r#""tasks":{"requests":{"tools":{"call":{}}}}"#;
        const EXTENSION: &str = r#""extensions":{"io.modelcontextprotocol/tasks":{}}"#;
        for (words, modern, legacy) in [(CORE, false, true), (EXTENSION, true, false)] {
            let text = format!(r#"{{"supportedVersions":["2026-07-28"],"capabilities":{{{words}}}}}"#);
            let Discovered::Modern(agreed) = judge_discover(&Ok(RawJson::trusted(text))) else { panic!() };
            assert_eq!(agreed.offers.tasks, modern, "{words}");
            let text = format!(r#"{{"protocolVersion":"2025-11-25","capabilities":{{{words}}}}}"#);
            assert_eq!(judge_initialize(&Ok(RawJson::trusted(text))).unwrap().offers.tasks, legacy, "{words}");
        }
    }

    #[test]
    fn initialize_must_end_in_a_known_legacy_revision() {
        for (text, ok_) in [
            (r#"{"protocolVersion":"2024-11-05","capabilities":{}}"#, true),
            (r#"{"protocolVersion":"2026-07-28"}"#, false),
            (r#"{"protocolVersion":"1.0"}"#, false),
            ("{}", false),
        ] {
            assert_eq!(judge_initialize(&ok(text)).is_ok(), ok_, "{text}");
        }
    }
}
