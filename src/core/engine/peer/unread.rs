//! Takes lines of an upstream that are no message. A line that names a request of ours ends it: no
//! better answer will come.

use std::time::Instant;

use super::{CallPort, Peer, PeerEvent, PeerState, RequestInFlight};
use crate::engine::call::CallOutcome;
use crate::engine::connection::attribution::CallEnd;
use crate::engine::connection::pending::PendingLookup;
use crate::engine::failure::CallFailure;
use crate::engine::fault::ProtocolFault;
use crate::engine::handshake::{EraHint, HandshakeReply};
use crate::wire::frame::Frame;
use crate::wire::id::WireId;
use crate::wire::json::raw::{RawJson, RawObject};
use crate::wire::message::{MessageError, Request};
use crate::wire::start::response_id;
use crate::wire::unreadable::{UnreadableBytes, plain_text};

/// Reason why a connection with a terminal in between is of no use.
const ECHO: &str = "the server sends back what it gets, as a terminal does; start it without one (no `-t` for `docker` and \
                    `ssh`, no `script`)";

impl<P: CallPort> Peer<P> {
    /// Reports a frame that is no message, and ends the request of ours that it answers, if any.
    pub(super) fn handle_malformed(&mut self, frame: &Frame, error: &MessageError, now: Instant) {
        if matches!(error, MessageError::Syntax) {
            return self.handle_no_json(frame.bytes(), now);
        }
        let object = RawJson::checked(frame.bytes().clone()).and_then(|text| RawObject::parse(&text)).ok();
        // If the message asks for something, its id is the server's own.
        let answers = |object: &RawObject| object.get("method").is_none() || object.get("result").is_some();
        let id = object.filter(answers).and_then(|object| WireId::from_raw(object.get("id")?));
        self.refuse(id, UnreadableBytes::new(frame.bytes(), error.to_string()), now);
    }

    /// Reports a line that is no JSON, and ends the request of ours that it answers, if it tells.
    pub(super) fn handle_no_json(&mut self, line: &[u8], now: Instant) {
        let text = plain_text(line);
        let digits = response_id(&text).map(|id| id.trim_ascii_start().strip_prefix(b"\"").unwrap_or(id));
        let digits = digits.map(|id| id.strip_suffix(b"\"").unwrap_or(id));
        let id = digits.and_then(|id| std::str::from_utf8(id).ok()?.parse().ok()).map(WireId);
        self.refuse(id, UnreadableBytes::no_json(line), now);
    }

    /// Reports a batch without messages.
    pub(super) fn handle_empty_batch(&mut self, frame: &Frame) {
        self.fault(ProtocolFault::Garbage);
        self.name(UnreadableBytes::new(frame.bytes(), "an empty batch"));
    }

    /// Reports a response that no request of ours waits for. If it is an error without an id, the
    /// server could not read a message of the gateway.
    pub(super) fn handle_unknown(&mut self, frame: &Frame) {
        self.fault(ProtocolFault::UnknownReply);
        // The response itself was readable, so it is no reason for a failed start.
        let why = "an answer to no request that is open";
        self.tell(PeerEvent::Unreadable(UnreadableBytes {
            is_meant: false,
            ..UnreadableBytes::new(frame.bytes(), why)
        }));
    }

    /// Reports bytes that are no message. During the handshake, keeps the first of them as part of
    /// the reason if the handshake fails.
    pub(super) fn name(&mut self, unreadable: UnreadableBytes) {
        if let PeerState::Opening { .. } = self.state
            && self.unread.as_ref().is_none_or(|first| !first.is_meant && unreadable.is_meant)
        {
            self.unread = Some(unreadable.clone());
        }
        self.tell(PeerEvent::Unreadable(unreadable));
    }

    /// Reports a line that is no message, and ends the request of ours that it answers, if it
    /// tells.
    fn refuse(&mut self, id: Option<WireId>, unreadable: UnreadableBytes, now: Instant) {
        self.fault(if id.is_some() { ProtocolFault::MalformedReply } else { ProtocolFault::Garbage });
        let why = unreadable.why.clone();
        self.name(unreadable);
        let Some(id) = id else { return };
        if !matches!(
            self.pending.get_mut(id),
            Some(RequestInFlight::Call(_) | RequestInFlight::List(..) | RequestInFlight::Handshake)
        ) {
            return;
        }
        match self.pending.take(id) {
            PendingLookup::Found(RequestInFlight::Call(port)) => {
                self.end_call(port, CallOutcome::Failed(CallFailure::malformed()), CallEnd::GivenUp, now);
                self.cancelled(id, "the answer cannot be read", now);
            }
            PendingLookup::Found(RequestInFlight::List(reading, _)) => {
                self.lists.failed(reading.list, &format!("its answer cannot be read: {why}"), now);
                self.read_lists(now);
            }
            PendingLookup::Found(RequestInFlight::Handshake) => {
                let why = format!("the answer to the handshake is no JSON-RPC message: {why}");
                self.opening(HandshakeReply::NoAnswer(why), now);
            }
            PendingLookup::Found(_) | PendingLookup::Late | PendingLookup::Unknown => {}
        }
    }

    /// Ends the handshake if the server only sends back what it gets, and returns whether it does.
    pub(super) fn ends_at_echo(&mut self, request: &Request) -> bool {
        let PeerState::Opening { handshake, .. } = &self.state else { return false };
        let (method, hint) = (handshake.question().method(), handshake.hint());
        let id = WireId::from_raw(request.id.raw());
        let is_ours = id.is_some_and(|id| matches!(self.pending.get_mut(id), Some(RequestInFlight::Handshake)));
        if request.method == method.as_str() && is_ours {
            self.fail(ECHO.to_owned(), hint);
            return true;
        }
        false
    }

    /// Ends the handshake as failed. The first line that was no message becomes part of the reason.
    pub(super) fn fail(&mut self, why: String, next: EraHint) {
        let why = match self.unread.take().filter(|unread| !why.contains(&unread.why)) {
            Some(unread) => format!("{why}; a line came that is no JSON-RPC message: {}", unread.why),
            None => why,
        };
        self.state = PeerState::Failed;
        self.events.push_back(PeerEvent::Failed { why, next });
    }
}
