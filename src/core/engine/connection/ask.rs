//! Judges the requests of a legacy server to clients (elicitation, sampling, roots), and keeps
//! those that are open.
//!
//! A request is tied to a call only where there is no doubt: it came on the call's own stream, or
//! the call is the only one on its connection, or the only one that is left of those that ran when
//! the request came ([`super::attribution`]). Every other request is refused; nothing is guessed,
//! and nothing is sent to several clients.
//!
//! A parked call asks nothing while it waits for its client. Calls of items that ask pass one at a
//! time ([`crate::engine::askers`]). Servers learn roots only if the operator allows it.

use crate::engine::connection::doubt::CancellationDoubt;
use crate::mcp::asking::input::{Roots, cancel, decline, roots_result};
use crate::mcp::asking::kinds::InputKinds;
use crate::mcp::extension::APPS;
use crate::mcp::meta::HopMeta;
use crate::mcp::method::Method;
use crate::wire::code;
use crate::wire::json::raw::RawJson;
use crate::wire::message::{Request, error_object};

/// Most requests of one server that may be open at once.
const MAX_OPEN: usize = 64;

/// A request of a server that belongs to one call.
#[derive(Clone, Debug)]
pub struct ServerRequest {
    /// The server's own id.
    pub id: RawJson,
    pub method: String,
    pub params: Option<RawJson>,
}

/// A client's answer: a result or an error object.
pub type ClientAnswer = Result<RawJson, RawJson>;

/// The client capabilities that were declared to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredCapabilities {
    pub kinds: InputKinds,
    pub roots: Roots,
    /// The settings under which Apps are declared.
    pub apps: Option<RawJson>,
}

impl DeclaredCapabilities {
    /// Makes the declaration from the kinds of input that clients offer. The operator's setting
    /// decides whether it has roots.
    pub fn new(offered: InputKinds, roots: &Roots) -> Self {
        let shown = match roots {
            Roots::Hidden => false,
            Roots::Fixed(_) => true,
            Roots::Client => offered.roots,
        };
        Self { kinds: InputKinds { roots: shown, ..offered }, roots: roots.clone(), apps: None }
    }

    /// Returns the declaration with Apps under these settings.
    #[must_use]
    pub fn with_apps(self, apps: Option<RawJson>) -> Self {
        Self { apps, ..self }
    }

    /// Writes the declaration as the capabilities of a legacy client.
    pub fn capabilities(&self) -> RawJson {
        let input = self.kinds.capabilities();
        self.apps.as_ref().map_or_else(|| input.clone(), |settings| APPS.added_with(settings, Some(&input)))
    }

    /// Returns the facts about the gateway for a modern server, which learns of a client's
    /// capabilities with each of its requests.
    pub fn hop(&self) -> HopMeta {
        HopMeta::declaring(self.apps.as_ref().map(|settings| APPS.added_with(settings, None)))
    }
}

/// The calls that a request may belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallCandidates {
    None,
    One(u64),
    Several,
    /// A call in flight, or one that was cancelled just now.
    Doubtful,
    /// Calls of several callers share the connection.
    Foreign,
    /// A call in flight, or an ended one of an item that asks late.
    Late,
}

impl CallCandidates {
    fn of(mut calls: impl Iterator<Item = u64>) -> Self {
        match (calls.next(), calls.next()) {
            (None, _) => Self::None,
            (Some(call), None) => Self::One(call),
            (Some(_), Some(_)) => Self::Several,
        }
    }
}

/// The verdict on a request of a server.
#[derive(Debug)]
pub enum RequestVerdict {
    /// The request is answered at once, and nothing is wrong with it.
    Answer(ClientAnswer),
    /// The request is refused: the server had no reason to ask.
    Refuse(ClientAnswer),
    /// The request is refused: it may belong to several calls.
    Ambiguous(ClientAnswer),
    /// The request belongs to this call.
    Tied(u64),
}

/// Judges a server's request by the declared capabilities and by the calls that it may belong to.
pub fn judge_request(request: &Request, declared: &DeclaredCapabilities, candidates: CallCandidates) -> RequestVerdict {
    let is_declared = match request.method.as_str() {
        "elicitation/create" => declared.kinds.form || declared.kinds.url,
        "sampling/createMessage" => declared.kinds.sampling,
        "roots/list" => match &declared.roots {
            Roots::Fixed(uris) => return RequestVerdict::Answer(Ok(roots_result(uris))),
            // Many servers ask right after the handshake, when there is no call, and would keep a
            // list for good, even an empty one.
            Roots::Client if candidates == CallCandidates::None && declared.kinds.roots => {
                let text =
                    "the roots are those of a call's client, and no call is in progress; ask again in the next call";
                return RequestVerdict::Answer(Err(error_object(code::INVALID_PARAMS, text, None)));
            }
            Roots::Client => declared.kinds.roots,
            Roots::Hidden => false,
        },
        method if Method::parse(method) == Method::Ping => return RequestVerdict::Answer(Ok(RawJson::EMPTY_OBJECT)),
        _ => false,
    };
    let error = |code, text| Err(error_object(code, text, None));
    match candidates {
        _ if !is_declared => RequestVerdict::Refuse(error(
            code::METHOD_NOT_FOUND,
            "this client declared no capability for such a request",
        )),
        CallCandidates::One(call) => RequestVerdict::Tied(call),
        CallCandidates::None => {
            let text = "a request must belong to a call, and none is in progress";
            RequestVerdict::Refuse(error(code::METHOD_NOT_FOUND, text))
        }
        CallCandidates::Several => RequestVerdict::Ambiguous(error(
            code::INVALID_PARAMS,
            "several calls are in progress and nothing says which one this belongs to; ask again in the next call",
        )),
        CallCandidates::Doubtful => RequestVerdict::Ambiguous(error(
            code::INVALID_PARAMS,
            "a call was cancelled just now and nothing says whether this belongs to it; ask again in a moment",
        )),
        CallCandidates::Foreign => RequestVerdict::Ambiguous(error(
            code::INVALID_PARAMS,
            "several callers share this connection and nothing says whom this is for; it cannot be asked here",
        )),
        CallCandidates::Late => RequestVerdict::Ambiguous(error(
            code::INVALID_PARAMS,
            "this server asks after its calls have ended, so nothing says which call this belongs to; ask before a call ends",
        )),
    }
}

/// Returns the answer for a client that cannot be asked this.
pub fn unable_answer(method: &str) -> ClientAnswer {
    match method {
        "sampling/createMessage" => {
            Err(error_object(code::METHOD_NOT_FOUND, "the client of this call cannot be asked for that", None))
        }
        _ => unanswered_answer(method),
    }
}

/// Returns the answer to a question that people are not shown. As far as the server knows, the
/// person declined.
pub fn refusal_answer(method: &str) -> ClientAnswer {
    if method == "elicitation/create" { Ok(decline()) } else { unable_answer(method) }
}

/// Returns the answer for a client that does not answer.
pub fn unanswered_answer(method: &str) -> ClientAnswer {
    match method {
        "elicitation/create" => Ok(cancel()),
        "roots/list" => Ok(roots_result(&[])),
        _ => Err(error_object(code::REJECTED, "nobody answered", None)),
    }
}

/// Converts a client's answer for a modern server, which takes no errors: an error becomes the
/// answer for a client that does not answer. Returns `None` if that is an error too.
pub fn modern_response(method: &str, answer: ClientAnswer) -> Option<RawJson> {
    answer.ok().filter(RawJson::is_object).or_else(|| unanswered_answer(method).ok())
}

/// The requests of one server that wait for an answer, each with the call that it belongs to.
#[derive(Debug, Default)]
pub struct OpenRequests {
    open: Vec<(ServerRequest, u64)>,
    /// Calls that do nothing but wait for an answer, which may take a person minutes.
    parked: Vec<u64>,
}

impl OpenRequests {
    /// Returns the calls that a request on a shared stream may belong to. A parked call asks
    /// nothing while it waits, so it counts only if no other call runs.
    pub fn candidates(&self, calls: impl Iterator<Item = u64> + Clone, doubt: &CancellationDoubt) -> CallCandidates {
        let running = CallCandidates::of(calls.clone().filter(|call| !self.parked.contains(call)));
        let candidates = if matches!(running, CallCandidates::None) { CallCandidates::of(calls) } else { running };
        if matches!(candidates, CallCandidates::One(_)) && doubt.is_open() {
            CallCandidates::Doubtful
        } else {
            candidates
        }
    }

    /// Adds a request; false if too many are open, or one with its id is.
    pub fn enter(&mut self, request: &ServerRequest, call: u64) -> bool {
        let fits = self.open.len() < MAX_OPEN && !self.open.iter().any(|(open, _)| open.id == request.id);
        if fits {
            self.open.push((request.clone(), call));
        }
        fits
    }

    /// Notes that the client of a call has its question before it, and that the call waits. Does
    /// nothing if no request of the call is open.
    pub fn park(&mut self, call: u64) {
        if !self.parked.contains(&call) && self.open.iter().any(|(_, of)| *of == call) {
            self.parked.push(call);
        }
    }

    /// Removes a request that is answered or withdrawn, and returns its call, which is no longer
    /// parked. Returns `None` if the request was not open.
    pub fn take(&mut self, id: &RawJson) -> Option<u64> {
        let at = self.open.iter().position(|(open, _)| open.id == *id)?;
        let call = self.open.swap_remove(at).1;
        self.parked.retain(|parked| *parked != call);
        Some(call)
    }

    /// Returns whether the call does nothing but wait for its client.
    pub fn is_parked(&self, call: u64) -> bool {
        self.parked.contains(&call)
    }

    /// Returns whether a request of that call is open.
    pub fn has_open(&self, call: u64) -> bool {
        self.open.iter().any(|(_, of)| *of == call)
    }

    /// Returns the number of open requests and of calls that wait for them.
    #[cfg(test)]
    pub fn left(&self) -> usize {
        self.open.len() + self.parked.len()
    }

    /// Removes all open requests of a call that has ended, and returns them.
    pub fn of_call(&mut self, call: u64) -> Vec<ServerRequest> {
        self.parked.retain(|parked| *parked != call);
        self.open.extract_if(.., |(_, of)| *of == call).map(|(request, _)| request).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_tied_to_the_only_call_or_to_none() {
        let all = InputKinds { form: true, sampling: true, roots: true, ..InputKinds::default() };
        let none = DeclaredCapabilities::default();
        let client = DeclaredCapabilities::new(all, &Roots::Client);
        let fixed = DeclaredCapabilities::new(InputKinds::default(), &Roots::Fixed(vec!["file:///srv".to_owned()]));
        let hidden = DeclaredCapabilities::new(all, &Roots::Hidden);
        let one = CallCandidates::One(7);
        for (label, method, declared, candidates, want) in [
            ("ping", "ping", &none, CallCandidates::None, "Answer"),
            ("nothing declared", "elicitation/create", &none, one, "Refuse"),
            ("sole call", "elicitation/create", &client, one, "Tied"),
            ("sole call", "sampling/createMessage", &client, one, "Tied"),
            ("no call", "elicitation/create", &client, CallCandidates::None, "Refuse"),
            ("two calls", "elicitation/create", &client, CallCandidates::Several, "Ambiguous"),
            ("two calls", "sampling/createMessage", &client, CallCandidates::Several, "Ambiguous"),
            ("a doubt", "elicitation/create", &client, CallCandidates::Doubtful, "Ambiguous"),
            ("several callers", "elicitation/create", &client, CallCandidates::Foreign, "Ambiguous"),
            ("roots of several callers", "roots/list", &fixed, CallCandidates::Foreign, "Answer"),
            ("it asks late", "sampling/createMessage", &client, CallCandidates::Late, "Ambiguous"),
            ("roots in doubt", "roots/list", &client, CallCandidates::Doubtful, "Ambiguous"),
            ("roots of the client", "roots/list", &client, one, "Tied"),
            ("roots, no call", "roots/list", &client, CallCandidates::None, "Answer"),
            ("roots, two calls", "roots/list", &client, CallCandidates::Several, "Ambiguous"),
            ("roots of the operator", "roots/list", &fixed, CallCandidates::Several, "Answer"),
            ("roots hidden", "roots/list", &hidden, one, "Refuse"),
            ("unknown", "tools/call", &client, one, "Refuse"),
        ] {
            let verdict = format!("{:?}", judge_request(&Request::of(method), declared, candidates));
            assert!(verdict.starts_with(want), "{label} {method}: {verdict}");
        }
        let early = judge_request(&Request::of("roots/list"), &client, CallCandidates::None);
        assert!(matches!(early, RequestVerdict::Answer(Err(_))), "a list would be kept for good: {early:?}");
    }

    #[test]
    fn a_parked_call_is_asked_for_only_where_no_other_runs() {
        let (mut open, mut doubt) = (OpenRequests::default(), CancellationDoubt::default());
        let ask = ServerRequest { id: RawJson::trusted("1"), method: "roots/list".to_owned(), params: None };
        open.park(7);
        assert_eq!(open.candidates([7, 8].into_iter(), &doubt), CallCandidates::Several, "it has asked nothing");
        assert!(open.enter(&ask, 7));
        open.park(7);
        for (label, calls, want) in [
            ("alone", vec![7], CallCandidates::One(7)),
            ("one runs", vec![7, 8], CallCandidates::One(8)),
            ("two run", vec![7, 8, 9], CallCandidates::Several),
            ("none", vec![], CallCandidates::None),
        ] {
            assert_eq!(open.candidates(calls.into_iter(), &doubt), want, "{label}");
        }
        open.take(&ask.id);
        assert_eq!(open.candidates([7, 8].into_iter(), &doubt), CallCandidates::Several, "it runs again");
        doubt.cancelled();
        for (calls, want) in
            [(vec![7, 8], CallCandidates::Several), (vec![7], CallCandidates::Doubtful), (vec![], CallCandidates::None)]
        {
            assert_eq!(open.candidates(calls.into_iter(), &doubt), want, "9 was cancelled");
        }
    }

    #[test]
    fn an_open_request_ends_once_and_with_its_call() {
        let mut open = OpenRequests::default();
        let ask = |id: &'static str| ServerRequest {
            id: RawJson::trusted(id),
            method: "elicitation/create".to_owned(),
            params: None,
        };
        assert!(open.enter(&ask("1"), 7) && open.enter(&ask("\"1\""), 8) && open.enter(&ask("2"), 7));
        assert!(!open.enter(&ask("1"), 8), "an id that is open");
        assert_eq!(open.take(&RawJson::trusted("1")), Some(7));
        assert_eq!(open.take(&RawJson::trusted("1")), None);
        assert_eq!(open.of_call(7).len(), 1);
        assert_eq!(open.take(&RawJson::trusted("\"1\"")), Some(8));
        let fits =
            (0..100).filter(|n| open.enter(&ServerRequest { id: RawJson::trusted(n.to_string()), ..ask("0") }, 1));
        assert_eq!(fits.count(), MAX_OPEN);
    }
}
