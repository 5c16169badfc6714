//! Attribution of a legacy server's requests (elicitation, sampling, roots) to the call that they belong to.
//!
//! A request is tied to a call only where there is no doubt: it came on the call's own stream, or the call is the only one on
//! its connection, or the only one that is left of those that ran when the request came ([`super::attribution`]). Everything else is
//! refused; nothing is guessed and nothing is sent to several clients.
//!
//! A parked call asks nothing while it waits for its client. Calls of items that ask pass one at a time ([`super::askers`]). Servers
//! learn roots only if the operator allows it.

use crate::engine::doubt::Doubt;
use crate::mcp::input::{Roots, cancel, decline, roots_result};
use crate::mcp::kinds::Kinds;
use crate::mcp::method::Method;
use crate::wire::code;
use crate::wire::message::{Request, error_object};
use crate::wire::raw::RawJson;

/// Requests of one server that may be open at once.
const MAX_OPEN: usize = 64;

/// A request of a server that belongs to one call.
#[derive(Clone, Debug)]
pub struct ServerRequest {
    /// The server's own.
    pub id: RawJson,
    pub method: String,
    pub params: Option<RawJson>,
}

/// A client's answer: a result or an error object.
pub type ClientAnswer = Result<RawJson, RawJson>;

/// The client capabilities that were declared to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    pub kinds: Kinds,
    pub roots: Roots,
}

impl Declared {
    /// Declares what clients offer, as far as the operator lets this server see it.
    pub fn new(offered: Kinds, roots: &Roots) -> Self {
        let shown = match roots {
            Roots::Hidden => false,
            Roots::Fixed(_) => true,
            Roots::Client => offered.roots,
        };
        Self { kinds: Kinds { roots: shown, ..offered }, roots: roots.clone() }
    }
}

/// The calls that a request may belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Candidates {
    None,
    One(u64),
    Several,
    /// One that is in flight, or one that was cancelled just now.
    Doubtful,
    /// Calls of several callers share the connection.
    Foreign,
    /// One that is in flight, or an ended one of an item that asks late.
    Late,
}

impl Candidates {
    fn of(mut calls: impl Iterator<Item = u64>) -> Self {
        match (calls.next(), calls.next()) {
            (None, _) => Self::None,
            (Some(call), None) => Self::One(call),
            (Some(_), Some(_)) => Self::Several,
        }
    }
}

/// The verdict about a request.
#[derive(Debug)]
pub enum Verdict {
    /// Answered at once, as it should be.
    Answer(ClientAnswer),
    /// Refused: the server had no reason to ask.
    Refuse(ClientAnswer),
    /// Refused: it may belong to several calls.
    Ambiguous(ClientAnswer),
    Tied(u64),
}

/// Judges a server's request by the declared capabilities and by the calls in flight on its connection.
pub fn judge(request: &Request, declared: &Declared, candidates: Candidates) -> Verdict {
    let is_declared = match request.method.as_str() {
        "elicitation/create" => declared.kinds.form || declared.kinds.url,
        "sampling/createMessage" => declared.kinds.sampling,
        "roots/list" => match &declared.roots {
            Roots::Fixed(uris) => return Verdict::Answer(Ok(roots_result(uris))),
            // Many servers ask right after the handshake, when there is no call. They would keep a list for good, also an empty one.
            Roots::Client if candidates == Candidates::None && declared.kinds.roots => {
                let text =
                    "the roots are those of a call's client, and no call is in progress; ask again in the next call";
                return Verdict::Answer(Err(error_object(code::INVALID_PARAMS, text, None)));
            }
            Roots::Client => declared.kinds.roots,
            Roots::Hidden => false,
        },
        method if Method::parse(method) == Method::Ping => return Verdict::Answer(Ok(RawJson::EMPTY_OBJECT)),
        _ => false,
    };
    let error = |code, text| Err(error_object(code, text, None));
    match candidates {
        _ if !is_declared => {
            Verdict::Refuse(error(code::METHOD_NOT_FOUND, "this client declared no capability for such a request"))
        }
        Candidates::One(call) => Verdict::Tied(call),
        Candidates::None => {
            let text = "a request must belong to a call, and none is in progress";
            Verdict::Refuse(error(code::METHOD_NOT_FOUND, text))
        }
        Candidates::Several => Verdict::Ambiguous(error(
            code::INVALID_PARAMS,
            "several calls are in progress and nothing says which one this belongs to; ask again in the next call",
        )),
        Candidates::Doubtful => Verdict::Ambiguous(error(
            code::INVALID_PARAMS,
            "a call was cancelled just now and nothing says whether this belongs to it; ask again in a moment",
        )),
        Candidates::Foreign => Verdict::Ambiguous(error(
            code::INVALID_PARAMS,
            "several callers share this connection and nothing says whom this is for; it cannot be asked here",
        )),
        Candidates::Late => Verdict::Ambiguous(error(
            code::INVALID_PARAMS,
            "this server asks after its calls have ended, so nothing says which call this belongs to; ask before a call ends",
        )),
    }
}

/// The answer for a client that cannot be asked this.
pub fn unable(method: &str) -> ClientAnswer {
    match method {
        "sampling/createMessage" => {
            Err(error_object(code::METHOD_NOT_FOUND, "the client of this call cannot be asked for that", None))
        }
        _ => declined(method),
    }
}

/// The answer to a question that people are not shown: the person, as far as the server knows, said no.
pub fn refused(method: &str) -> ClientAnswer {
    if method == "elicitation/create" { Ok(decline()) } else { unable(method) }
}

/// The answer for a client that does not answer.
pub fn declined(method: &str) -> ClientAnswer {
    match method {
        "elicitation/create" => Ok(cancel()),
        "roots/list" => Ok(roots_result(&[])),
        _ => Err(error_object(code::REJECTED, "nobody answered", None)),
    }
}

/// A client's answer as a modern server takes it, which has no place for errors. `None` where only an error would be true.
pub fn response(method: &str, answer: ClientAnswer) -> Option<RawJson> {
    answer.ok().filter(RawJson::is_object).or_else(|| declined(method).ok())
}

/// The requests of one server that wait for an answer, and the calls that they belong to.
#[derive(Debug, Default)]
pub struct OpenRequests {
    open: Vec<(ServerRequest, u64)>,
    /// Calls that do nothing but wait for an answer, which may take a person minutes.
    parked: Vec<u64>,
}

impl OpenRequests {
    /// The calls that a request without a stream of its own may belong to. A parked call asks nothing more while it waits,
    /// so it is one of them only where no other call runs.
    pub fn candidates(&self, calls: impl Iterator<Item = u64> + Clone, doubt: &Doubt) -> Candidates {
        let running = Candidates::of(calls.clone().filter(|call| !self.parked.contains(call)));
        let candidates = if matches!(running, Candidates::None) { Candidates::of(calls) } else { running };
        if matches!(candidates, Candidates::One(_)) && doubt.is_open() { Candidates::Doubtful } else { candidates }
    }

    /// `false` when too many are open, or one of that id is.
    pub fn enter(&mut self, request: &ServerRequest, call: u64) -> bool {
        let fits = self.open.len() < MAX_OPEN && !self.open.iter().any(|(open, _)| open.id == request.id);
        if fits {
            self.open.push((request.clone(), call));
        }
        fits
    }

    /// The client has the question, and the call waits.
    pub fn park(&mut self, call: u64) {
        if !self.parked.contains(&call) && self.open.iter().any(|(_, of)| *of == call) {
            self.parked.push(call);
        }
    }

    /// Ends a request: it is answered, or its server withdrew it. `None` when it was not open.
    pub fn take(&mut self, id: &RawJson) -> Option<u64> {
        let at = self.open.iter().position(|(open, _)| open.id == *id)?;
        let call = self.open.swap_remove(at).1;
        self.parked.retain(|parked| *parked != call);
        Some(call)
    }

    /// Whether the call does nothing but wait for its client.
    pub fn is_parked(&self, call: u64) -> bool {
        self.parked.contains(&call)
    }

    /// Whether a request of that call is open.
    pub fn has_open(&self, call: u64) -> bool {
        self.open.iter().any(|(_, of)| *of == call)
    }

    /// How many are open, and calls that wait for them.
    #[cfg(test)]
    pub fn left(&self) -> usize {
        self.open.len() + self.parked.len()
    }

    /// Ends all requests of a call that has ended.
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
        let all = Kinds { form: true, sampling: true, roots: true, ..Kinds::default() };
        let none = Declared::default();
        let client = Declared::new(all, &Roots::Client);
        let fixed = Declared::new(Kinds::default(), &Roots::Fixed(vec!["file:///srv".to_owned()]));
        let hidden = Declared::new(all, &Roots::Hidden);
        let one = Candidates::One(7);
        for (label, method, declared, candidates, want) in [
            ("ping", "ping", &none, Candidates::None, "Answer"),
            ("nothing declared", "elicitation/create", &none, one, "Refuse"),
            ("sole call", "elicitation/create", &client, one, "Tied"),
            ("sole call", "sampling/createMessage", &client, one, "Tied"),
            ("no call", "elicitation/create", &client, Candidates::None, "Refuse"),
            ("two calls", "elicitation/create", &client, Candidates::Several, "Ambiguous"),
            ("two calls", "sampling/createMessage", &client, Candidates::Several, "Ambiguous"),
            ("a doubt", "elicitation/create", &client, Candidates::Doubtful, "Ambiguous"),
            ("several callers", "elicitation/create", &client, Candidates::Foreign, "Ambiguous"),
            ("roots of several callers", "roots/list", &fixed, Candidates::Foreign, "Answer"),
            ("it asks late", "sampling/createMessage", &client, Candidates::Late, "Ambiguous"),
            ("roots in doubt", "roots/list", &client, Candidates::Doubtful, "Ambiguous"),
            ("roots of the client", "roots/list", &client, one, "Tied"),
            ("roots, no call", "roots/list", &client, Candidates::None, "Answer"),
            ("roots, two calls", "roots/list", &client, Candidates::Several, "Ambiguous"),
            ("roots of the operator", "roots/list", &fixed, Candidates::Several, "Answer"),
            ("roots hidden", "roots/list", &hidden, one, "Refuse"),
            ("unknown", "tools/call", &client, one, "Refuse"),
        ] {
            let verdict = format!("{:?}", judge(&Request::of(method), declared, candidates));
            assert!(verdict.starts_with(want), "{label} {method}: {verdict}");
        }
        let early = judge(&Request::of("roots/list"), &client, Candidates::None);
        assert!(matches!(early, Verdict::Answer(Err(_))), "a list would be kept for good: {early:?}");
    }

    #[test]
    fn a_parked_call_is_asked_for_only_where_no_other_runs() {
        let (mut open, mut doubt) = (OpenRequests::default(), Doubt::default());
        let ask = ServerRequest { id: RawJson::trusted("1"), method: "roots/list".to_owned(), params: None };
        open.park(7);
        assert_eq!(open.candidates([7, 8].into_iter(), &doubt), Candidates::Several, "it has asked nothing");
        assert!(open.enter(&ask, 7));
        open.park(7);
        for (label, calls, want) in [
            ("alone", vec![7], Candidates::One(7)),
            ("one runs", vec![7, 8], Candidates::One(8)),
            ("two run", vec![7, 8, 9], Candidates::Several),
            ("none", vec![], Candidates::None),
        ] {
            assert_eq!(open.candidates(calls.into_iter(), &doubt), want, "{label}");
        }
        open.take(&ask.id);
        assert_eq!(open.candidates([7, 8].into_iter(), &doubt), Candidates::Several, "it runs again");
        doubt.cancelled();
        for (calls, want) in
            [(vec![7, 8], Candidates::Several), (vec![7], Candidates::Doubtful), (vec![], Candidates::None)]
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
