//! What really happened, as only the world sees it, and the invariants that are held against it. Whatever is said carries the
//! number of its call and of its question, so that a mix-up shows where it happens.

use std::collections::HashMap;

use super::words::{about, tag};

/// What a call calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// Allowed.
    Open,
    /// Denied by a rule, so that it does not exist.
    Hidden,
    /// Somebody has to agree first.
    Asks,
    /// Its server makes a task of each call.
    Task,
}

impl Item {
    pub(super) fn original(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Hidden => "hidden",
            Self::Asks => "asks",
            Self::Task => "task",
        }
    }
}

/// One call of a client, over all the requests that it takes.
#[derive(Debug)]
pub(super) struct CallTruth {
    pub(super) client: u64,
    caller: &'static str,
    pub(super) item: Item,
    pub(super) upstream: &'static str,
    /// How often a server began to work on it.
    pub(super) executed: u32,
    /// How often a server said that it did not, or a call ended before anything was sent.
    pub(super) refused: u32,
    /// A server has said what came of it.
    answered: bool,
    /// How often its client was told the end.
    pub(super) ended: u32,
    /// Its client does not want to know any more.
    pub(super) given_up: bool,
    /// Its person agreed to it.
    pub(super) agreed: bool,
    /// One of its requests was sent twice, so that questions may come twice.
    pub(super) repeated: bool,
}

/// One question of a server.
#[derive(Debug, Default)]
struct QuestionTruth {
    shown: u32,
    /// Its client has answered it.
    given: bool,
    /// An answer reached the server, or a no in the client's name.
    closed: u32,
}

/// Everything of one world.
#[derive(Debug, Default)]
pub(super) struct Truth {
    calls: Vec<CallTruth>,
    questions: HashMap<(u64, u64), QuestionTruth>,
    /// Whether what happens is printed.
    writes: bool,
}

impl Truth {
    pub(super) fn new(writes: bool) -> Self {
        Self { writes, ..Self::default() }
    }

    /// Prints an event, where somebody reads it.
    pub(super) fn note(&self, line: impl FnOnce() -> String) {
        if self.writes {
            eprintln!("{}", line());
        }
    }

    /// A client makes a call; its number.
    pub(super) fn made(&mut self, (client, caller): (u64, &'static str), item: Item, upstream: &'static str) -> u64 {
        let (executed, refused, ended) = (0, 0, 0);
        let (answered, given_up, agreed, repeated) = (false, false, false, false);
        let call = CallTruth {
            client,
            caller,
            item,
            upstream,
            executed,
            refused,
            answered,
            ended,
            given_up,
            agreed,
            repeated,
        };
        self.calls.push(call);
        self.calls.len() as u64
    }

    pub(super) fn call(&mut self, n: u64) -> &mut CallTruth {
        &mut self.calls[usize::try_from(n).unwrap() - 1]
    }

    pub(super) fn calls(&self) -> impl Iterator<Item = (u64, &CallTruth)> {
        (1..).zip(&self.calls)
    }

    /// A server begins to work on a call.
    pub(super) fn took(&mut self, n: u64, name: &str) {
        let call = self.call(n);
        assert_eq!(name, call.item.original(), "call {n} went to another item");
        assert_ne!(call.item, Item::Hidden, "call {n} was denied and sent");
        assert!(call.item != Item::Asks || call.agreed, "call {n} was sent before its person agreed");
        call.executed += 1;
        assert!(call.executed <= call.refused + 1, "call {n} was sent again, and the server had taken it");
    }

    /// A server says that it did not begin with the call.
    pub(super) fn refused(&mut self, n: u64) {
        self.call(n).refused += 1;
    }

    /// A server says what came of a call.
    pub(super) fn answered(&mut self, n: u64) {
        self.call(n).answered = true;
    }

    /// A client is told how its call ended. `text` is the result or the error.
    pub(super) fn ended(&mut self, n: u64, client: u64, text: &str) {
        let call = self.call(n);
        assert_eq!(call.client, client, "client {client} was told of call {n}: {text}");
        call.ended += 1;
        assert_eq!(call.ended, 1, "call {n} ended again: {text}");
        if let Some(of) = about(text, "c=") {
            assert!(of == n && call.answered, "call {n} got the answer of call {of}: {text}");
        }
    }

    /// A server asks its k-th question about a call.
    pub(super) fn asked(&mut self, n: u64, k: u64) {
        let before = self.questions.insert((n, k), QuestionTruth::default());
        assert!(before.is_none());
    }

    /// The answer to a question is the call once more, not a message to the server.
    pub(super) fn closes_itself(&mut self, n: u64, k: u64) {
        self.questions.get_mut(&(n, k)).unwrap().closed = 1;
    }

    /// Whether its server has said what came of that call.
    pub(super) fn has_answered(&mut self, n: u64) -> bool {
        self.call(n).answered
    }

    /// A client is shown a question. Which one. A server that asks and does not wait for the answer may reach another client of the
    /// same caller, after its call has ended.
    pub(super) fn shown(&mut self, (client, caller): (u64, &'static str), text: &str) -> (u64, u64) {
        let (n, k) = numbers(text, "q=").unwrap_or_else(|| panic!("client {client} was asked nothing: {text}"));
        let CallTruth { client: owner, caller: of, repeated, answered, .. } = *self.call(n);
        let is_stray = answered && of == caller;
        assert!(owner == client || is_stray, "client {client} was asked about a call of client {owner}: {text}");
        assert_eq!(of, caller, "client {client} was asked about a call of another caller: {text}");
        let question = self.questions.get_mut(&(n, k)).unwrap_or_else(|| panic!("nobody asked this: {text}"));
        question.shown += 1;
        assert!(question.shown == 1 || repeated, "client {client} was asked again: {text}");
        (n, k)
    }

    /// The client answers a question.
    pub(super) fn given(&mut self, n: u64, k: u64) {
        self.questions.get_mut(&(n, k)).unwrap().given = true;
    }

    /// A server hears the answer to a question: `text` is what came under its key or id.
    pub(super) fn heard(&mut self, n: u64, k: u64, text: &str) {
        let question = self.questions.get_mut(&(n, k)).unwrap_or_else(|| panic!("never asked: {n}-{k}"));
        question.closed += 1;
        assert_eq!(question.closed, 1, "question {n}-{k} was answered again: {text}");
        if let Some(found) = numbers(text, "a=") {
            assert_eq!(found, (n, k), "the answer to another question: {text}");
            assert!(question.given && question.shown > 0, "nobody gave this answer: {text}");
        }
    }

    /// The world is at rest: whatever was begun has ended.
    pub(super) fn at_rest(&self) {
        for (n, call) in self.calls() {
            assert!(call.ended == 1 || call.given_up, "call {n} never ended: {call:?}");
        }
    }
}

/// The numbers of the call and the question behind a mark.
pub(super) fn numbers(text: &str, mark: &str) -> Option<(u64, u64)> {
    let (n, k) = tag(text, mark)?.split_once('-')?;
    Some((n.parse().ok()?, k.parse().ok()?))
}
