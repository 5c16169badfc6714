//! Processes single messages of an upstream: counts them, reports unreadable ones, and returns the
//! rest.

use super::{Answer, AnswerRules, DUE};
use crate::engine::call::CallOutcome;
use crate::engine::fault::ProtocolFault;
use crate::mcp::version::{Era, Revision};
use crate::mcp::voice::UpstreamMessage;
use crate::upstream::http::unspoken::NonMessageAnswer;
use crate::upstream::state::http_error::HttpError;
use crate::wire::frame::Frame;
use crate::wire::message::{Message, MessageError};
use crate::wire::quirk::Quirk;
use crate::wire::unreadable::UnreadableBytes;

impl AnswerRules {
    /// Parses a message, and counts reserved words and faults in it.
    pub(super) fn hear(&self, frame: &Frame) -> Result<Message, (ProtocolFault, UnreadableBytes)> {
        let heard = self.ear.hear(frame).map_err(|error| match error {
            MessageError::Syntax => (ProtocolFault::Garbage, UnreadableBytes::no_json(frame.bytes())),
            MessageError::Shape { ref id, .. } => {
                let fault = if id.is_some() { ProtocolFault::MalformedReply } else { ProtocolFault::Garbage };
                (fault, UnreadableBytes::new(frame.bytes(), error.to_string()))
            }
        });
        let UpstreamMessage { message, broken, quirk, taken } = heard?;
        self.metrics.reserved(taken);
        quirk.into_iter().for_each(|quirk| self.read(quirk));
        if let Some(broken) = broken {
            self.metrics.fault(ProtocolFault::Complex);
            if !matches!(message, Message::Response(_)) {
                self.flaws.unread(&UnreadableBytes::new(frame.bytes(), broken.to_string()));
            }
        }
        Ok(message)
    }

    /// Converts a response to the outcome of its call, and counts faults in it.
    pub fn outcome(&self, response: Answer) -> CallOutcome {
        response.unreadable().into_iter().for_each(|unreadable| self.flaws.unread(&unreadable));
        let outcome = CallOutcome::of(response, self.revision.map_or(Era::Legacy, Revision::era));
        if let Some(fault) = outcome.fault() {
            self.metrics.fault(fault);
        }
        outcome
    }

    /// Counts a message that broke the protocol but could be read.
    pub(super) fn read(&self, quirk: Quirk) {
        self.metrics.fault(ProtocolFault::Lenient);
        self.flaws.read(quirk);
    }

    /// Counts and reports bytes that are no message, which ends the exchange.
    pub(super) fn unread(&self, fault: ProtocolFault, message: &UnreadableBytes) -> HttpError {
        self.flaws.unread(message);
        self.wrong(fault, message.why.clone())
    }

    /// Returns the error for an answer without a message. An answer with a success status is also
    /// counted and reported.
    pub fn unspoken(&self, answer: &NonMessageAnswer) -> HttpError {
        match answer.coded {
            Some(why) => HttpError::Protocol(why.to_owned()),
            None if answer.status.is_success() => {
                self.unread(ProtocolFault::Garbage, &UnreadableBytes::new(answer.start(), answer.why(DUE)))
            }
            None => HttpError::Status(answer.status),
        }
    }

    /// Counts a fault of the upstream that ends the exchange.
    pub fn wrong(&self, fault: ProtocolFault, why: impl Into<String>) -> HttpError {
        self.metrics.fault(fault);
        HttpError::Protocol(why.into())
    }

    /// Counts and reports an answer that names another request, and returns the error.
    pub fn other_id(&self, response: &Answer) -> HttpError {
        let why = "the answer has another request's id";
        self.flaws.unread(&UnreadableBytes::unasked(response, why));
        self.wrong(ProtocolFault::UnknownReply, why)
    }

    pub(super) fn over_limit(&self, start: &[u8]) -> HttpError {
        self.unread(ProtocolFault::Oversize, &UnreadableBytes::new(start, "the answer is over the size limit"))
    }
}
