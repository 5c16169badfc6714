//! Processes single messages of an upstream: counts them, reports unreadable ones, and returns the
//! rest.

use super::{Answer, DUE, Gauge};
use crate::engine::call::Outcome;
use crate::engine::fault::Fault;
use crate::mcp::version::{Era, Revision};
use crate::mcp::voice::Heard;
use crate::upstream::http::unspoken::Unspoken;
use crate::upstream::state::http_error::HttpError;
use crate::wire::frame::Frame;
use crate::wire::message::{Message, MessageError};
use crate::wire::quirk::Quirk;
use crate::wire::unreadable::Unreadable;

impl Gauge {
    /// Parses a message, and counts reserved words and faults in it.
    pub(super) fn hear(&self, frame: &Frame) -> Result<Message, (Fault, Unreadable)> {
        let heard = self.ear.hear(frame).map_err(|error| match error {
            MessageError::Syntax => (Fault::Garbage, Unreadable::no_json(frame.bytes())),
            MessageError::Shape { ref id, .. } => {
                let fault = if id.is_some() { Fault::MalformedReply } else { Fault::Garbage };
                (fault, Unreadable::new(frame.bytes(), error.to_string()))
            }
        });
        let Heard { message, broken, quirk, taken } = heard?;
        self.metrics.reserved(taken);
        quirk.into_iter().for_each(|quirk| self.read(quirk));
        if let Some(broken) = broken {
            self.metrics.fault(Fault::Complex);
            if !matches!(message, Message::Response(_)) {
                self.flaws.unread(&Unreadable::new(frame.bytes(), broken.to_string()));
            }
        }
        Ok(message)
    }

    /// Converts a response to the outcome of its call, and counts faults in it.
    pub fn outcome(&self, response: Answer) -> Outcome {
        response.unreadable().into_iter().for_each(|unreadable| self.flaws.unread(&unreadable));
        let outcome = Outcome::of(response, self.revision.map_or(Era::Legacy, Revision::era));
        if let Some(fault) = outcome.fault() {
            self.metrics.fault(fault);
        }
        outcome
    }

    /// Counts a message that broke the protocol but could be read.
    pub(super) fn read(&self, quirk: Quirk) {
        self.metrics.fault(Fault::Lenient);
        self.flaws.read(quirk);
    }

    /// Counts and reports bytes that are no message, which ends the exchange.
    pub(super) fn unread(&self, fault: Fault, message: &Unreadable) -> HttpError {
        self.flaws.unread(message);
        self.wrong(fault, message.why.clone())
    }

    /// Returns the error for an answer without a message. An answer with a success status is also
    /// counted and reported.
    pub fn unspoken(&self, answer: &Unspoken) -> HttpError {
        match answer.coded {
            Some(why) => HttpError::Protocol(why.to_owned()),
            None if answer.status.is_success() => {
                self.unread(Fault::Garbage, &Unreadable::new(answer.start(), answer.why(DUE)))
            }
            None => HttpError::Status(answer.status),
        }
    }

    /// Counts a fault of the upstream that ends the exchange.
    pub fn wrong(&self, fault: Fault, why: impl Into<String>) -> HttpError {
        self.metrics.fault(fault);
        HttpError::Protocol(why.into())
    }

    /// Counts and reports an answer that names another request, and returns the error.
    pub fn other_id(&self, response: &Answer) -> HttpError {
        let why = "the answer has another request's id";
        self.flaws.unread(&Unreadable::unasked(response, why));
        self.wrong(Fault::UnknownReply, why)
    }

    pub(super) fn over_limit(&self, start: &[u8]) -> HttpError {
        self.unread(Fault::Oversize, &Unreadable::new(start, "the answer is over the size limit"))
    }
}
