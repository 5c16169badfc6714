//! One call at an upstream: its request, its progress, its deadline and its outcome.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::engine::askers::CallOrigin;
use crate::engine::failure::{CallFailure, FailureReason};
use crate::engine::fault::ProtocolFault;
use crate::mcp::log::LogLevel;
use crate::mcp::meta::{ClientFacts, HopMeta, Meta};
use crate::mcp::method::Method;
use crate::mcp::version::{Era, Revision};
use crate::wire::id::ClientId;
use crate::wire::json::raw::{RawJson, RawObject};
use crate::wire::message::{self, Response};

/// Room for a message besides the names and values of its body, in bytes; enough for most messages.
const ROOM_FOR_META: usize = 320;

/// A client's request on its way to an upstream of any era. Names in it are the catalog's, never
/// the client's text.
#[derive(Clone)]
pub struct OutgoingCall {
    pub method: Method,
    /// `params` without `_meta`.
    pub body: RawObject,
    pub meta: Meta,
    /// True if the client wants to hear of progress.
    pub wants_progress: bool,
    /// True if the request continues a call that asked for input. An upstream that does not know
    /// that call would take it for a second one.
    pub resumed: bool,
    /// Capabilities for input that the client declared for this call.
    pub capabilities: Option<RawJson>,
    /// True if a legacy server's questions can reach the client.
    pub can_be_asked: bool,
    /// Lowest level of the log messages that the client has asked for.
    pub log_level: Option<LogLevel>,
    /// The caller and the item of the call.
    pub party: CallOrigin,
}

impl OutgoingCall {
    /// Makes a request of the gateway itself, without a body.
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
            party: CallOrigin::default(),
        }
    }

    /// Returns the events that the caller wants besides the outcome.
    pub fn wants(&self) -> WantedEvents {
        let notices = self.wants_progress || self.log_level.is_some() || self.method == Method::Listen;
        WantedEvents { notices, requests: self.can_be_asked }
    }

    /// Encodes the request for an upstream of that revision. `id` is our own id, and the progress
    /// token too.
    pub fn message(&self, revision: Revision, id: &RawJson, hop: &HopMeta) -> Bytes {
        let token = self.wants_progress.then_some(id);
        let said = ClientFacts { capabilities: self.capabilities.as_ref(), log_level: self.log_level };
        let length = self.body.encoded_len() + ROOM_FOR_META;
        message::encode_request_by(id, self.method.as_str(), length, |out| {
            self.body.write_to(out);
            // Appended, not set: the body never has a `_meta`, and copying the list of members
            // would cost more.
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

impl std::fmt::Debug for OutgoingCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.method.as_str())
    }
}

/// The events that a caller wants besides the outcome.
#[derive(Clone, Copy, Debug)]
pub struct WantedEvents {
    /// Progress, log messages, and notifications of a `subscriptions/listen` stream.
    pub notices: bool,
    /// Questions of the server.
    pub requests: bool,
}

/// The end of a call.
#[derive(Clone, Debug)]
pub enum CallOutcome {
    /// The upstream answered with a result, which is an object.
    Result { raw: RawJson, era: Era },
    /// The upstream answered with an error object.
    Error { raw: RawJson },
    /// The call failed without an answer that counts.
    Failed(CallFailure),
}

impl CallOutcome {
    /// Makes the outcome from the response of an upstream. A result that is no object is a failure.
    pub fn of(response: Response, era: Era) -> Self {
        match response.outcome {
            _ if response.broken.is_some() => Self::Failed(CallFailure::too_large()),
            Ok(raw) if raw.is_object() => Self::Result { raw, era },
            Ok(_) => Self::Failed(CallFailure::malformed()),
            Err(raw) => Self::Error { raw },
        }
    }

    /// Returns the protocol fault of the response, if it had one.
    pub fn fault(&self) -> Option<ProtocolFault> {
        let is_malformed = matches!(self, Self::Failed(failure) if failure.reason == FailureReason::UpstreamProtocol);
        is_malformed.then_some(ProtocolFault::MalformedReply)
    }
}

/// The time at which a call is given up: after too long a silence, or after too long altogether.
///
/// Progress restarts the idle time and never the hard limit. Source: MCP 2026-07-28,
/// basic/patterns/cancellation, "Timeouts".
#[derive(Clone, Copy, Debug)]
pub struct CallDeadline {
    idle: Duration,
    idle_at: Instant,
    hard_at: Instant,
}

impl CallDeadline {
    /// Begins a deadline: `idle` is the longest silence, `max` the longest time altogether.
    pub fn new(now: Instant, idle: Duration, max: Duration) -> Self {
        Self { idle, idle_at: now + idle, hard_at: now + max }
    }

    /// Restarts the idle time.
    pub fn progressed(&mut self, now: Instant) {
        self.idle_at = now + self.idle;
    }

    /// Moves the hard limit by `time`, during which the client was being asked and the server
    /// waited, and restarts the idle time.
    pub fn asked_for(&mut self, time: Duration, now: Instant) {
        self.hard_at += time;
        self.progressed(now);
    }

    /// Returns when the call is given up.
    pub fn at(&self) -> Instant {
        self.idle_at.min(self.hard_at)
    }
}

/// The progress of one call as its client hears it: under the client's token, and strictly growing.
///
/// While the upstream starts, the gateway reports progress of its own: the seconds waited, divided
/// by 10^9, so that any progress of the upstream is more. Only a progress of 0 is not, and is
/// dropped.
#[derive(Debug)]
pub struct CallProgress {
    token: ClientId,
    /// The last progress of the upstream.
    last: Option<f64>,
    /// The last progress of the gateway's own.
    own: f64,
    revision: Revision,
}

impl CallProgress {
    pub fn new(token: ClientId, revision: Revision) -> Self {
        Self { token, last: None, own: -1.0, revision }
    }

    /// Makes the `params` that tell the client what its call waits for, and for how long by now.
    /// Returns `None` if such progress would not grow, or if the upstream has reported any.
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

    /// Returns whether progress that [`Self::relay`] has just dropped is a fault of the upstream.
    /// If it only lies below the gateway's own progress, it is none: the upstream does not know of
    /// that.
    pub fn is_fault(&self) -> bool {
        self.last.is_none_or(|last| last > self.own)
    }

    /// Rewrites the `params` of the upstream's progress for the client. Returns `None` if they are
    /// malformed, or if the progress does not grow, which the protocol forbids to send.
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
        let mut progress = CallProgress::new(token, Revision::V2024_11_05);
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
        let mut progress = CallProgress::new(token, Revision::V2025_11_25);
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
        let mut deadline = CallDeadline::new(start, s(60), s(100));
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
        let call = OutgoingCall {
            method: Method::ToolsCall,
            body,
            meta: Meta::default(),
            wants_progress: true,
            resumed: false,
            capabilities: None,
            can_be_asked: false,
            log_level: None,
            party: CallOrigin::default(),
        };
        let message =
            |call: &OutgoingCall| call.message(Revision::V2025_11_25, &RawJson::trusted("7"), &HopMeta::bare());
        let head = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":"#;
        let params = r#"{"name":"t","arguments":{"b": 1 , "a":2},"_meta":{"progressToken":7}}"#;
        assert_eq!(message(&call), format!("{head}{params}}}"));
        let quiet = OutgoingCall { wants_progress: false, ..call };
        assert_eq!(message(&quiet), format!(r#"{head}{{"name":"t","arguments":{{"b": 1 , "a":2}}}}}}"#));
        let bare = OutgoingCall { body: RawObject::default(), ..quiet };
        assert_eq!(message(&bare), format!("{head}{{}}}}"));
        let bare = OutgoingCall { wants_progress: true, ..bare };
        assert_eq!(message(&bare), format!(r#"{head}{{"_meta":{{"progressToken":7}}}}}}"#));
    }
}
