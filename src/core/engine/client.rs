//! The protocol state of one client on any transport: what it may say next, and what its transport
//! must do about it.
//!
//! A request passes two checks: [`Asked`] judges it by itself and its head, [`Client::asked`] by
//! what was agreed and what is still open. `T` is the ticket by which a transport ends a request;
//! here it is only kept.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::engine::answer::Answer;
use crate::engine::client::asked::{Asked, Head};
use crate::engine::client::heard::{Said, Unreadable};
use crate::engine::route::{Params, params_object};
use crate::mcp::client_name::ClientName;
use crate::mcp::method::Method;
use crate::mcp::version::{Era, Revision};
use crate::wire::code;
use crate::wire::id::{ClientId, IdKey};
use crate::wire::message::{Message, Notification, Request, Response, error_object};
use crate::wire::raw::RawJson;
use crate::wire::start::Start;

pub mod asked;
pub mod heard;
#[cfg(test)]
mod tests;

/// Most subscriptions that one client may have open.
const MAX_LISTENS: usize = 16;
/// Shortest time between two errors without an id: answering garbage with garbage would feed a
/// storm.
const COMPLAINTS_APART: Duration = Duration::from_secs(1);

/// The protocol state of one client.
#[derive(Debug, Default)]
pub struct Client<T> {
    /// The revision that `initialize` agreed on.
    agreed: Option<Revision>,
    /// True once the client has sent `notifications/initialized`.
    is_initialized: bool,
    /// Requests without an answer.
    open: HashMap<IdKey, Open<T>>,
    /// Time of the last error without an id.
    complained: Option<Instant>,
}

/// A request without an answer.
#[derive(Debug)]
struct Open<T> {
    ticket: T,
    /// True for a subscription.
    listens: bool,
}

/// The action of a transport that follows from a message.
#[derive(Debug)]
pub enum Step<T> {
    Nothing,
    Answer(ClientId, Answer),
    /// Send an error without an id, if [`Client::complains`] allows it.
    Complain(RawJson),
    /// Begin the session of a client with these capabilities and this name, and answer.
    Initialize(ClientId, Revision, Option<RawJson>, Option<ClientName>),
    Serve(Served<T>),
    /// Cancel the request with this ticket, which the client withdraws.
    Cancel(T),
    /// Tell the client of changes from now on.
    Initialized,
    /// Pass on the client's answer to a question.
    Answered(Response),
}

/// A request to be served. It is open until [`Client::close`].
#[derive(Debug)]
pub struct Served<T> {
    pub request: Request,
    pub revision: Revision,
    pub params: Params,
    /// True for a subscription.
    pub listens: bool,
    pub ticket: T,
}

impl<T: Clone + Default> Client<T> {
    /// Creates the state of a client whose session is open.
    pub fn agreed(revision: Revision) -> Self {
        Self { agreed: Some(revision), ..Self::default() }
    }

    /// Takes one message, over HTTP with its head, and returns what to do about it.
    pub fn heard(&mut self, said: Said, head: Option<&dyn Head>) -> Step<T> {
        match said {
            Ok(Message::Request(request)) => match Asked::of(&request, head) {
                Ok(asked) => self.asked(request, asked),
                Err(refused) => Step::Answer(request.id, refused),
            },
            Ok(Message::Notification(notification)) => self.told(&notification),
            Ok(Message::Response(response)) => Step::Answered(response),
            Err(Unreadable { id: Some(id), error }) => Step::Answer(id, Answer { outcome: Err(error), status: None }),
            Err(Unreadable { id: None, error }) => Step::Complain(error),
        }
    }

    /// Takes a request that passed the first check, and opens it if it may be served. A request
    /// that claims a modern revision in `_meta` needs no session; any other needs the revision that
    /// `initialize` agreed on.
    pub fn asked(&mut self, request: Request, asked: Asked) -> Step<T> {
        let refused = |code, text: &str| Answer::error(code, text, None).with_status(400);
        let (revision, params, listens) = match (asked, self.agreed) {
            (Asked::Modern { revision, method, params }, _) => (revision, params, method == Method::Listen),
            (Asked::Legacy(params), Some(revision)) => (revision, params, false),
            (Asked::Initialize { revision, capabilities, name }, None) => {
                self.agreed = Some(revision);
                return Step::Initialize(request.id, revision, capabilities, name);
            }
            (Asked::Initialize { .. }, Some(_)) => {
                return Step::Answer(request.id, refused(code::INVALID_REQUEST, "this session is initialized already"));
            }
            (Asked::Legacy(_), None) if request.method == Method::Ping.as_str() => {
                return Step::Answer(request.id, Answer::ok(RawJson::EMPTY_OBJECT));
            }
            (Asked::Legacy(_), None) => {
                let text = format!(
                    "start with `initialize` (revisions up to {}) or send params._meta of {}",
                    Revision::preferred(Era::Legacy),
                    Revision::preferred(Era::Modern)
                );
                return Step::Answer(request.id, refused(code::INVALID_PARAMS, &text));
            }
        };
        let is_full = listens && self.listens().count() >= MAX_LISTENS;
        let why = match self.open.entry(request.id.key()) {
            Entry::Vacant(place) if !is_full => {
                let ticket = T::default();
                place.insert(Open { ticket: ticket.clone(), listens });
                return Step::Serve(Served { request, revision, params, listens, ticket });
            }
            Entry::Vacant(_) => "too many subscriptions; end one of them first",
            Entry::Occupied(_) => "a request with this id is still in progress",
        };
        Step::Answer(request.id, refused(code::INVALID_REQUEST, why))
    }

    /// Takes a notification.
    fn told(&mut self, notification: &Notification) -> Step<T> {
        match (notification.method.as_str(), self.agreed) {
            ("notifications/cancelled", _) => {
                let params = params_object(notification.params.as_ref()).unwrap_or_default();
                let id = params.get("requestId").cloned().and_then(ClientId::from_raw);
                let open = id.and_then(|id| self.open.get(&id.key()));
                open.map_or(Step::Nothing, |open| Step::Cancel(open.ticket.clone()))
            }
            ("notifications/initialized", Some(_)) if !self.is_initialized => {
                self.is_initialized = true;
                Step::Initialized
            }
            _ => Step::Nothing,
        }
    }

    /// Takes a message on a pipe of which only the start was kept, because of its size or for lack
    /// of room. Returns what to do about it, and `Break` if the connection must end: the client
    /// would otherwise wait for ever for an answer to a request whose id is not known.
    pub fn skipped(start: &[u8], no_room: bool) -> (Step<T>, ControlFlow<()>) {
        let (code, text) = match no_room {
            true => (code::INTERNAL, "the gateway's memory for messages is used up; try again"),
            false => (code::INVALID_REQUEST, "the message is too large"),
        };
        let error = error_object(code, text, None);
        let id = |raw: &[u8]| RawJson::trusted(Bytes::copy_from_slice(raw));
        match Start::of(start) {
            Start::Request(raw) if let Some(id) = ClientId::from_raw(id(raw)) => {
                (Step::Answer(id, Answer { outcome: Err(error), status: None }), ControlFlow::Continue(()))
            }
            Start::Answer(raw) => {
                let response = Response { id: Some(id(raw)), outcome: Err(error), broken: None };
                (Step::Answered(response), ControlFlow::Continue(()))
            }
            Start::Notifies => (Step::Nothing, ControlFlow::Continue(())),
            // The start of this line names no request, so no answer is known to be waited for.
            Start::Unknown if !no_room => (Step::Complain(error), ControlFlow::Continue(())),
            Start::Request(_) | Start::Asks | Start::Unknown => (Step::Complain(error), ControlFlow::Break(())),
        }
    }

    /// Returns whether an error without an id may be sent now, and if so counts it as sent.
    pub fn complains(&mut self, now: Instant) -> bool {
        let quiet = self.complained.is_some_and(|at| now.duration_since(at) < COMPLAINTS_APART);
        if !quiet {
            self.complained = Some(now);
        }
        !quiet
    }

    /// Frees the id of a request that is answered, or never will be.
    pub fn close(&mut self, key: &IdKey) {
        self.open.remove(key);
    }

    /// Returns the tickets of open subscriptions.
    pub fn listens(&self) -> impl Iterator<Item = &T> {
        self.open.values().filter(|open| open.listens).map(|open| &open.ticket)
    }

    /// Returns whether no request is open.
    pub fn is_idle(&self) -> bool {
        self.open.is_empty()
    }
}
