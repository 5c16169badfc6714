//! One call at an upstream: the request, its progress, its outcome, its time-outs.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::engine::askers::Party;
use crate::engine::failure::{Failure, Reason};
use crate::engine::fault::Fault;
use crate::mcp::log::LogLevel;
use crate::mcp::meta::{HopMeta, Meta, Said};
use crate::mcp::method::Method;
use crate::mcp::version::{Era, Revision};
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
