//! The protocol state of one client on any transport: what it may say next, and what its transport
//! must do about it.
//!
//! A request passes two checks: [`CheckedRequest`] judges it by itself and its head,
//! [`ClientProtocol::asked`] by what was agreed and what is still open. `T` is the ticket by which
//! a transport ends a request; here it is only kept.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::engine::answer::RequestAnswer;
use crate::engine::client::asked::{CheckedRequest, RequestHead};
use crate::engine::client::heard::{ClientMessage, MessageRefusal};
use crate::engine::route::{RequestParams, params_object};
use crate::mcp::client_name::ClientName;
use crate::mcp::method::Method;
use crate::mcp::version::{Era, Revision};
use crate::wire::code;
use crate::wire::id::{ClientId, IdKey};
use crate::wire::json::raw::RawJson;
use crate::wire::message::{Message, Notification, Request, Response, error_object};
use crate::wire::start::MessageStart;

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
pub struct ClientProtocol<T> {
    /// The revision that `initialize` agreed on.
    agreed: Option<Revision>,
    /// True once the client has sent `notifications/initialized`.
    is_initialized: bool,
    /// Requests without an answer.
    open: HashMap<IdKey, OpenClientRequest<T>>,
    /// Time of the last error without an id.
    complained: Option<Instant>,
}

/// A request without an answer.
#[derive(Debug)]
struct OpenClientRequest<T> {
    ticket: T,
    /// True for a subscription.
    listens: bool,
}

/// The action of a transport that follows from a message.
#[derive(Debug)]
pub enum ClientAction<T> {
    Nothing,
    Answer(ClientId, RequestAnswer),
    /// Send an error without an id, if [`ClientProtocol::complains`] allows it.
    Complain(RawJson),
    /// Begin the session of a client with these capabilities and this name, and answer.
    Initialize(ClientId, Revision, Option<RawJson>, Option<ClientName>),
    Serve(ServedRequest<T>),
    /// Cancel the request with this ticket, which the client withdraws.
    Cancel(T),
    /// Tell the client of changes from now on.
    Initialized,
    /// Pass on the client's answer to a question.
    Answered(Response),
}

/// A request to be served. It is open until [`ClientProtocol::close`].
#[derive(Debug)]
pub struct ServedRequest<T> {
    pub request: Request,
    pub revision: Revision,
    pub params: RequestParams,
    /// True for a subscription.
    pub listens: bool,
    pub ticket: T,
}

impl<T: Clone + Default> ClientProtocol<T> {
    /// Creates the state of a client whose session is open.
    pub fn agreed(revision: Revision) -> Self {
        Self { agreed: Some(revision), ..Self::default() }
    }

    /// Takes one message, over HTTP with its head, and returns what to do about it.
    pub fn heard(&mut self, said: ClientMessage, head: Option<&dyn RequestHead>) -> ClientAction<T> {
        match said {
            Ok(Message::Request(request)) => match CheckedRequest::of(&request, head) {
                Ok(asked) => self.asked(request, asked),
                Err(refused) => ClientAction::Answer(request.id, refused),
            },
            Ok(Message::Notification(notification)) => self.told(&notification),
            Ok(Message::Response(response)) => ClientAction::Answered(response),
            Err(MessageRefusal { id: Some(id), error }) => ClientAction::Answer(id, RequestAnswer::failed(error)),
            Err(MessageRefusal { id: None, error }) => ClientAction::Complain(error),
        }
    }

    /// Takes a request that passed the first check, and opens it if it may be served. A request
    /// that claims a modern revision in `_meta` needs no session; any other needs the revision that
    /// `initialize` agreed on.
    pub fn asked(&mut self, request: Request, asked: CheckedRequest) -> ClientAction<T> {
        let refused = |code, text: &str| RequestAnswer::error(code, text, None).with_status(400);
        let (revision, params, listens) = match (asked, self.agreed) {
            (CheckedRequest::Modern { revision, method, params }, _) => (revision, params, method == Method::Listen),
            (CheckedRequest::Legacy(params), Some(revision)) => (revision, params, false),
            (CheckedRequest::Initialize { revision, capabilities, name }, None) => {
                self.agreed = Some(revision);
                return ClientAction::Initialize(request.id, revision, capabilities, name);
            }
            (CheckedRequest::Initialize { .. }, Some(_)) => {
                return ClientAction::Answer(
                    request.id,
                    refused(code::INVALID_REQUEST, "this session is initialized already"),
                );
            }
            (CheckedRequest::Legacy(_), None) if request.method == Method::Ping.as_str() => {
                return ClientAction::Answer(request.id, RequestAnswer::ok(RawJson::EMPTY_OBJECT));
            }
            (CheckedRequest::Legacy(_), None) => {
                let text = format!(
                    "start with `initialize` (revisions up to {}) or send params._meta of {}",
                    Revision::preferred(Era::Legacy),
                    Revision::preferred(Era::Modern)
                );
                return ClientAction::Answer(request.id, refused(code::INVALID_PARAMS, &text));
            }
        };
        let is_full = listens && self.listens().count() >= MAX_LISTENS;
        let why = match self.open.entry(request.id.key()) {
            Entry::Vacant(place) if !is_full => {
                let ticket = T::default();
                place.insert(OpenClientRequest { ticket: ticket.clone(), listens });
                return ClientAction::Serve(ServedRequest { request, revision, params, listens, ticket });
            }
            Entry::Vacant(_) => "too many subscriptions; end one of them first",
            Entry::Occupied(_) => "a request with this id is still in progress",
        };
        ClientAction::Answer(request.id, refused(code::INVALID_REQUEST, why))
    }

    /// Takes a notification.
    fn told(&mut self, notification: &Notification) -> ClientAction<T> {
        match (notification.method.as_str(), self.agreed) {
            ("notifications/cancelled", _) => {
                let params = params_object(notification.params.as_ref()).unwrap_or_default();
                let id = params.get("requestId").cloned().and_then(ClientId::from_raw);
                let open = id.and_then(|id| self.open.get(&id.key()));
                open.map_or(ClientAction::Nothing, |open| ClientAction::Cancel(open.ticket.clone()))
            }
            ("notifications/initialized", Some(_)) if !self.is_initialized => {
                self.is_initialized = true;
                ClientAction::Initialized
            }
            _ => ClientAction::Nothing,
        }
    }

    /// Takes a message on a pipe of which only the start was kept, because of its size or for lack
    /// of room. Returns what to do about it, and `Break` if the connection must end: the client
    /// would otherwise wait for ever for an answer to a request whose id is not known.
    pub fn skipped(start: &[u8], no_room: bool) -> (ClientAction<T>, ControlFlow<()>) {
        let (code, text) = match no_room {
            true => (code::INTERNAL, "the gateway's memory for messages is used up; try again"),
            false => (code::INVALID_REQUEST, "the message is too large"),
        };
        let error = error_object(code, text, None);
        let id = |raw: &[u8]| RawJson::trusted(Bytes::copy_from_slice(raw));
        match MessageStart::of(start) {
            MessageStart::Request(raw) if let Some(id) = ClientId::from_raw(id(raw)) => {
                (ClientAction::Answer(id, RequestAnswer::failed(error)), ControlFlow::Continue(()))
            }
            MessageStart::Answer(raw) => {
                let response = Response { id: Some(id(raw)), outcome: Err(error), broken: None };
                (ClientAction::Answered(response), ControlFlow::Continue(()))
            }
            MessageStart::Notifies => (ClientAction::Nothing, ControlFlow::Continue(())),
            // The start of this line names no request, so no answer is known to be waited for.
            MessageStart::Unknown if !no_room => (ClientAction::Complain(error), ControlFlow::Continue(())),
            MessageStart::Request(_) | MessageStart::Asks | MessageStart::Unknown => {
                (ClientAction::Complain(error), ControlFlow::Break(()))
            }
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
