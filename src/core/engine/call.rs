//! One call at an upstream: the request, its progress, its outcome, its time-outs.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::engine::askers::Party;
use crate::engine::fault::Fault;
use crate::mcp::log::LogLevel;
use crate::mcp::meta::{HopMeta, Meta, Said};
use crate::mcp::method::Method;
use crate::mcp::version::{Era, Revision};
use crate::mcp::voice::REFUSAL;
use crate::wire::id::ClientId;
use crate::wire::message::{self, Response};
use crate::wire::raw::{RawJson, RawObject};

/// Bytes of a message besides the names and values of its body, as most have them.
const ROOM_FOR_META: usize = 320;

/// A client's request as it goes upstream, whatever the upstream's era: the name is the catalog's, never the client's text.
#[derive(Clone)]
pub struct Outgoing {
    pub method: Method,
    /// `params` without `_meta`.
    pub body: RawObject,
    pub meta: Meta,
    /// The client wants to hear of progress.
    pub wants_progress: bool,
    /// It continues a call that asked for input: an upstream that does not know that call would take it for a second
    /// one.
    pub resumed: bool,
    /// The client's capabilities for input during this call.
    pub capabilities: Option<RawJson>,
    /// Whether a legacy server's questions can reach the client.
    pub can_be_asked: bool,
    /// The level from which on the client has asked for log messages.
    pub log_level: Option<LogLevel>,
    /// Whose call it is, and of what.
    pub party: Party,
}

impl Outgoing {
    /// A request of the gateway itself.
    pub fn own(method: Method, meta: Meta) -> Self {
        Self {
            method,
            body: RawObject::default(),
            meta,
            wants_progress: false,
            resumed: false,
            capabilities: None,
            can_be_asked: false,
            log_level: None,
            party: Party::default(),
        }
    }

    /// The events that the caller wants besides the outcome.
    pub fn wants(&self) -> Wants {
        let notices = self.wants_progress || self.log_level.is_some() || self.method == Method::Listen;
        Wants { notices, requests: self.can_be_asked }
    }

    /// The message for an upstream of that revision, by our own id, which is its progress token too.
    pub fn message(&self, revision: Revision, id: &RawJson, hop: &HopMeta) -> Bytes {
        let token = self.wants_progress.then_some(id);
        let said = Said { capabilities: self.capabilities.as_ref(), log_level: self.log_level };
        let length = self.body.encoded_len() + ROOM_FOR_META;
        message::encode_request_by(id, self.method.as_str(), length, |out| {
            self.body.write_to(out);
            // Appended rather than set: the body never has a `_meta`, and copying the member list would cost more.
            let end = out.len() - 1;
            out.truncate(end);
            out.extend_from_slice(if self.body.is_empty() { b"\"_meta\":" } else { b",\"_meta\":" });
            if !self.meta.write_upstream(out, revision, token, hop, said) {
                out.truncate(end);
            }
            out.push(b'}');
        })
    }
}

impl std::fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.method.as_str())
    }
}

/// The events that a caller wants besides the outcome.
#[derive(Clone, Copy, Debug)]
pub struct Wants {
    pub notices: bool,
    pub requests: bool,
}

/// How a call ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The upstream answered; the result is an object.
    Result { raw: RawJson, era: Era },
    /// The upstream answered with an error object.
    Error { raw: RawJson },
    /// The call failed on the way.
    Failed(Failure),
}

/// Why a call got no answer of its upstream, and whether the upstream may have executed it.
///
/// A failure of `tools/call` on which a model could act is a result with `isError` and `_meta["headend/refusal"] = {reason,
/// executed: "no"|"unknown", retryable, retry-after-ms, call-id}`. A protocol violation of the upstream, and every failure
/// of another method, is a JSON-RPC error with the same object in `data`: -32603, or our own 1001 (denied), 1002 (limited)
/// and 1003 (awaiting approval). The reason `awaiting_approval` comes with `approval = {id, command, url}`: the open approval, the
/// operator's command and the page if there is a console; the reason `needs_login` with `login = {upstream, command}`; where too many are open or were not answered, with `counted`, the numbers.
/// The text is for a model and has none of them: an agent with a shell can run a command that it is shown. `unrecorded` means that the audit log takes no records, or that the use of a once-grant could
/// not be kept. `gone` means that a list of this client has shown the tool, and that it is not offered any more. An upstream's
/// HTTP status never becomes ours: HTTP 429 and 503 speak of the transport alone. These words are reserved for the gateway, see
/// [`crate::mcp::voice`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub reason: Reason,
    pub executed: Executed,
    /// For the person: what happened.
    pub detail: Box<str>,
    pub retry_after: Option<Duration>,
    /// Where a person has to agree first.
    pub approval: Option<Box<Approval>>,
    /// Where the operator has to log in first: the name of the upstream.
    pub login: Option<Box<str>>,
    /// The numbers that it was refused for, by name.
    pub counted: Option<Box<[(&'static str, u64)]>>,
}

/// The open prompt that a call waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    pub id: String,
    /// Its page in the console, where there is one.
    pub url: Option<String>,
}

/// The closed set of reasons for a call that the gateway itself answers. See [`Failure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "snake_case")]
pub enum Reason {
    UpstreamDown,
    UpstreamCrashed,
    UpstreamTimeout,
    UpstreamProtocol,
    ResultTooLarge,
    Busy,
    Denied,
    Limited,
    /// A person has to agree first.
    AwaitingApproval,
    /// The upstream wants a login, which the operator gives.
    NeedsLogin,
    /// The audit log cannot be written, or a consent's use cannot be kept.
    Unrecorded,
    ShuttingDown,
    /// The client's own list showed the tool within the last hour, and it is not offered any more.
    Gone,
}

/// Whether the upstream executed the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum Executed {
    /// Certainly not.
    No,
    /// It may have.
    Unknown,
}

impl Outcome {
    /// The outcome of the call that an upstream's response answers.
    pub fn of(response: Response, era: Era) -> Self {
        match response.outcome {
            _ if response.broken.is_some() => Self::Failed(Failure::too_large()),
            Ok(raw) if raw.is_object() => Self::Result { raw, era },
            Ok(_) => Self::Failed(Failure::malformed()),
            Err(raw) => Self::Error { raw },
        }
    }

    /// The fault of the response, if it had one.
    pub fn fault(&self) -> Option<Fault> {
        let is_malformed = matches!(self, Self::Failed(failure) if failure.reason == Reason::UpstreamProtocol);
        is_malformed.then_some(Fault::MalformedReply)
    }
}

impl Failure {
    /// The upstream is not there.
    pub fn down() -> Self {
        Self::new(Reason::UpstreamDown, Executed::No, "The server behind this item is not running.")
    }

    /// The answer is over a bound of its size, its depth or its number of values.
    pub fn too_large() -> Self {
        Self::new(Reason::ResultTooLarge, Executed::Unknown, "The server sent an answer over the size limit.")
    }

    /// The answer is no answer.
    pub fn malformed() -> Self {
        Self::new(Reason::UpstreamProtocol, Executed::Unknown, "The server sent an answer that breaks the protocol.")
    }

    pub fn new(reason: Reason, executed: Executed, detail: impl Into<Box<str>>) -> Self {
        Self { reason, executed, detail: detail.into(), retry_after: None, approval: None, login: None, counted: None }
    }

    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    pub fn approval(mut self, id: String, url: Option<String>) -> Self {
        self.approval = Some(Box::new(Approval { id, url }));
        self
    }

    pub fn counted(mut self, numbers: impl Into<Box<[(&'static str, u64)]>>) -> Self {
        self.counted = Some(numbers.into());
        self
    }

    /// The object that tells a program what the text tells a person: `headend/refusal` in `_meta`, or `data` of an error.
    fn facts(&self, call: u64) -> String {
        let retryable = self.executed == Executed::No && !matches!(self.reason, Reason::Denied | Reason::Gone);
        let wait = self.retry_after.map(|d| format!(r#","retry-after-ms":{}"#, d.as_millis())).unwrap_or_default();
        let approval = self.approval.as_ref().map(|approval| {
            let url = approval.url.as_ref().map(|url| format!(r#","url":{}"#, RawJson::string(url).text()));
            let id = RawJson::string(&approval.id);
            let command = RawJson::string(&format!("headend approve {}", approval.id));
            format!(r#","approval":{{"id":{},"command":{}{}}}"#, id.text(), command.text(), url.unwrap_or_default())
        });
        let login = self.login.as_ref().map(|upstream| {
            let command = RawJson::string(&format!("headend login {upstream}"));
            format!(r#","login":{{"upstream":{},"command":{}}}"#, RawJson::string(upstream).text(), command.text())
        });
        let counted = self.counted.as_ref().map(|numbers| {
            let numbers: Vec<String> = numbers.iter().map(|(name, number)| format!(r#""{name}":{number}"#)).collect();
            format!(r#","counted":{{{}}}"#, numbers.join(","))
        });
        format!(
            r#"{{"reason":"{}","executed":"{}","retryable":{retryable}{wait}{}{}{},"call-id":"{call:x}"}}"#,
            self.reason.into_str(),
            self.executed.into_str(),
            approval.unwrap_or_default(),
            login.unwrap_or_default(),
            counted.unwrap_or_default()
        )
    }

    /// The answer of a tool call: a result that a model can read and act on.
    pub fn tool_result(&self, call: u64, revision: Revision) -> RawJson {
        let head = revision.features().result_head;
        let text = RawJson::string(&self.sentence());
        RawJson::trusted(format!(
            r#"{{{head}"content":[{{"type":"text","text":{}}}],"isError":true,"_meta":{{"{REFUSAL}":{}}}}}"#,
            text.text(),
            self.facts(call)
        ))
    }

    /// The answer of any other method.
    pub fn error_object(&self, call: u64) -> RawJson {
        use crate::wire::code;
        let code = match self.reason {
            Reason::Denied => code::DENIED,
            Reason::Limited => code::LIMITED,
            Reason::AwaitingApproval => code::AWAITING_APPROVAL,
            Reason::UpstreamDown
            | Reason::UpstreamCrashed
            | Reason::UpstreamTimeout
            | Reason::UpstreamProtocol
            | Reason::ResultTooLarge
            | Reason::Busy
            | Reason::NeedsLogin
            | Reason::Unrecorded
            | Reason::ShuttingDown
            | Reason::Gone => code::INTERNAL,
        };
        let data = RawJson::trusted(self.facts(call));
        message::error_object(code, &self.sentence(), Some(&data))
    }

    fn sentence(&self) -> String {
        let mut text = self.detail.to_string();
        // A model that is to stop is not told to try again.
        if let Some(wait) = self.retry_after.filter(|_| self.reason != Reason::AwaitingApproval) {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            text.push_str(&format!(" Try again in {} s.", seconds.max(1)));
        }
        if self.executed == Executed::Unknown {
            text.push_str(" The call may have been executed; check before you repeat it.");
        }
        text
    }
}

/// When a call is given up: silence for too long, or too long altogether.
///
/// Progress restarts the idle time and never the hard limit. Source: MCP 2026-07-28, basic/patterns/cancellation, "Timeouts".
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    idle: Duration,
    idle_at: Instant,
    hard_at: Instant,
}

impl Deadline {
    pub fn new(now: Instant, idle: Duration, max: Duration) -> Self {
        Self { idle, idle_at: now + idle, hard_at: now + max }
    }

    pub fn progressed(&mut self, now: Instant) {
        self.idle_at = now + self.idle;
    }

    /// The client was being asked for so long, which is not the server's time.
    pub fn asked_for(&mut self, time: Duration, now: Instant) {
        self.hard_at += time;
        self.progressed(now);
    }

    pub fn at(&self) -> Instant {
        self.idle_at.min(self.hard_at)
    }
}

/// Passes an upstream's progress on under the client's token, strictly growing.
///
/// The gateway's own progress, while the upstream starts, counts nanoseconds as wholes, so that whatever the upstream counts is
/// more; only a nought is not, and stays away.
#[derive(Debug)]
pub struct Progress {
    token: ClientId,
    last: Option<f64>,
    /// The last progress of the gateway's own.
    own: f64,
    revision: Revision,
}

impl Progress {
    pub fn new(token: ClientId, revision: Revision) -> Self {
        Self { token, last: None, own: -1.0, revision }
    }

    /// The `params` that tell the client what its call waits for, and since when.
    pub fn waiting(&mut self, waited: Duration, message: &str) -> Option<RawJson> {
        let progress = waited.as_secs_f64() / 1e9;
        if self.last.is_some() || progress <= self.own {
            return None;
        }
        self.own = progress;
        let message = if self.revision.features().progress_message {
            format!(r#","message":{}"#, RawJson::string(message).text())
        } else {
            String::new()
        };
        let token = self.token.raw().text();
        Some(RawJson::trusted(format!(r#"{{"progressToken":{token},"progress":{progress:.12}{message}}}"#)))
    }

    /// Whether progress that was not relayed is a fault of the upstream, which does not know of the gateway's own.
    pub fn is_fault(&self) -> bool {
        self.last.is_none_or(|last| last > self.own)
    }

    /// The `params` to send to the client; `None` for progress that does not grow, which the protocol forbids to send.
    pub fn relay(&mut self, params: &RawJson) -> Option<RawJson> {
        let mut object = RawObject::parse(params).ok()?;
        let progress: f64 = object.get("progress")?.parse().ok()?;
        if self.last.is_some_and(|last| progress <= last) {
            return None;
        }
        self.last = Some(progress);
        if progress <= self.own {
            return None;
        }
        object.retain(|name| matches!(name, "progressToken" | "progress" | "total" | "message"));
        if !self.revision.features().progress_message {
            object.remove("message");
        }
        object.set("progressToken", self.token.raw().clone());
        Some(object.encode())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::voice;

    #[test]
    fn progress_grows_and_carries_the_clients_own_token() {
        let token = ClientId::from_raw(RawJson::trusted("\"p\"")).unwrap();
        let mut progress = Progress::new(token, Revision::V2024_11_05);
        let mut send = |text: &'static str| progress.relay(&RawJson::trusted(text)).map(|raw| raw.text().into_owned());
        assert_eq!(
            send(r#"{"progressToken":42,"progress":1,"message":"m","x":1}"#).as_deref(),
            Some(r#"{"progressToken":"p","progress":1}"#)
        );
        assert_eq!(send(r#"{"progressToken":42,"progress":1}"#), None);
        assert_eq!(send(r#"{"progressToken":42,"progress":0.5}"#), None);
        assert_eq!(
            send(r#"{"progressToken":42,"progress":1.5,"total":3}"#).as_deref(),
            Some(r#"{"progressToken":"p","progress":1.5,"total":3}"#)
        );
    }

    #[test]
    fn progress_of_the_gateway_s_own_comes_before_any_of_the_upstream() {
        let token = ClientId::from_raw(RawJson::trusted("7")).unwrap();
        let mut progress = Progress::new(token, Revision::V2025_11_25);
        let text = |raw: Option<RawJson>| raw.map(|raw| raw.text().into_owned());
        assert_eq!(
            text(progress.waiting(Duration::from_secs(5), "starting")).as_deref(),
            Some(r#"{"progressToken":7,"progress":0.000000005000,"message":"starting"}"#)
        );
        assert_eq!(progress.waiting(Duration::from_secs(5), "starting"), None, "it does not grow");
        assert!(progress.waiting(Duration::from_secs(6), "starting").is_some());
        assert_eq!(progress.relay(&RawJson::trusted(r#"{"progress":0}"#)), None);
        assert!(!progress.is_fault(), "it grows for the upstream");
        assert_eq!(progress.waiting(Duration::from_secs(7), "starting"), None, "the upstream has begun");
        assert!(progress.relay(&RawJson::trusted(r#"{"progress":0.1}"#)).is_some());
        assert_eq!(progress.relay(&RawJson::trusted(r#"{"progress":0.1}"#)), None);
        assert!(progress.is_fault());
    }

    #[test]
    fn progress_restarts_the_idle_time_but_never_the_hard_limit() {
        let start = crate::engine::sim::epoch();
        let s = Duration::from_secs;
        let mut deadline = Deadline::new(start, s(60), s(100));
        assert_eq!(deadline.at(), start + s(60));
        deadline.progressed(start + s(30));
        assert_eq!(deadline.at(), start + s(90));
        deadline.progressed(start + s(80));
        assert_eq!(deadline.at(), start + s(100));
    }

    #[test]
    fn a_refusal_tells_person_and_program_the_same() {
        let failure = Failure::new(Reason::Limited, Executed::No, "Limit `x` is used up.")
            .retry_after(Duration::from_millis(1500));
        assert_eq!(
            failure.tool_result(10, Revision::V2026_07_28).text(),
            r#"{"resultType":"complete","content":[{"type":"text","text":"Limit `x` is used up. Try again in 2 s."}],"isError":true,"_meta":{"headend/refusal":{"reason":"limited","executed":"no","retryable":true,"retry-after-ms":1500,"call-id":"a"}}}"#
        );
    }

    #[test]
    fn ids_commands_and_addresses_are_for_programs_alone() {
        let failure = Failure::new(Reason::AwaitingApproval, Executed::No, "Stop.")
            .approval("abc".to_owned(), Some("http://[::1]/approvals/abc".to_owned()))
            .counted([("open", 20), ("max-open", 20)])
            .retry_after(Duration::from_secs(60));
        let facts = r#"{"reason":"awaiting_approval","executed":"no","retryable":true,"retry-after-ms":60000,"approval":{"id":"abc","command":"headend approve abc","url":"http://[::1]/approvals/abc"},"counted":{"open":20,"max-open":20},"call-id":"a"}"#;
        let result = RawObject::parse(&failure.tool_result(10, Revision::V2025_11_25)).unwrap();
        assert_eq!(result.get("content").unwrap().text(), r#"[{"type":"text","text":"Stop."}]"#);
        assert_eq!(result.object("_meta").unwrap().get("headend/refusal").unwrap().text(), facts);
        let error = RawObject::parse(&failure.error_object(10)).unwrap();
        assert_eq!(error.string("message").as_deref(), Some("Stop."));
        assert_eq!(error.get("data").unwrap().text(), facts);
    }

    #[test]
    fn whatever_the_gateway_refuses_with_is_taken_from_servers() {
        for reason in [Reason::Denied, Reason::Limited, Reason::AwaitingApproval, Reason::Busy, Reason::UpstreamDown] {
            let failure = Failure::new(reason, Executed::No, "no").approval("a".to_owned(), None);
            let error = failure.error_object(1);
            let mut taken = voice::Taken::default();
            assert!(voice::instead_of(&error, "git", &mut taken).is_some() && taken.errors == 1, "{}", error.text());
            let data = RawObject::parse(&error).unwrap().get("data").cloned();
            let data = message::error_object(-1, "no", data.as_ref());
            assert!(voice::instead_of(&data, "git", &mut taken).is_some(), "{}: by its data alone", error.text());
        }
    }

    #[test]
    fn params_are_rebuilt_with_our_token_and_without_the_clients() {
        let mut body = RawObject::default();
        body.set("name", RawJson::string("t"));
        body.set("arguments", RawJson::trusted(r#"{"b": 1 , "a":2}"#));
        let call = Outgoing {
            method: Method::ToolsCall,
            body,
            meta: Meta::default(),
            wants_progress: true,
            resumed: false,
            capabilities: None,
            can_be_asked: false,
            log_level: None,
            party: Party::default(),
        };
        let message = |call: &Outgoing| call.message(Revision::V2025_11_25, &RawJson::trusted("7"), &HopMeta::bare());
        let head = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":"#;
        let params = r#"{"name":"t","arguments":{"b": 1 , "a":2},"_meta":{"progressToken":7}}"#;
        assert_eq!(message(&call), format!("{head}{params}}}"));
        let quiet = Outgoing { wants_progress: false, ..call };
        assert_eq!(message(&quiet), format!(r#"{head}{{"name":"t","arguments":{{"b": 1 , "a":2}}}}}}"#));
        let bare = Outgoing { body: RawObject::default(), ..quiet };
        assert_eq!(message(&bare), format!("{head}{{}}}}"));
        let bare = Outgoing { wants_progress: true, ..bare };
        assert_eq!(message(&bare), format!(r#"{head}{{"_meta":{{"progressToken":7}}}}}}"#));
    }
}
