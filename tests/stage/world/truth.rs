//! The facts of a world, which only the world itself sees, and the invariants that are checked
//! against them. Each message carries the number of its call and of its question, so that a mix-up
//! shows where it happens.

use std::cell::RefCell;
use std::collections::HashMap;

use super::words::{Words, about, member, tag};

thread_local! {
    /// The events of the world of this thread, for the message of a failure.
    static STORY: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Takes the events of this thread's world so far.
pub(super) fn take_story() -> Vec<String> {
    STORY.take()
}

/// Notes an event.
pub(super) fn note(line: String) {
    STORY.with_borrow_mut(|story| story.push(line));
}

/// The tool that a call calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CalledTool {
    /// Allowed.
    Open,
    /// Denied by a rule, so that it does not exist.
    Hidden,
    /// Needs an approval.
    Asks,
    /// Becomes a task of its server.
    Task,
}

impl CalledTool {
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
    pub(super) item: CalledTool,
    pub(super) upstream: &'static str,
    /// Number of times that the request that begins the call arrived at a server's connection.
    arrived: u32,
    /// Number of times that a server began to work on the call.
    executed: u32,
    /// Number of proofs by servers that they did not begin with the call.
    pub(super) proofs: u32,
    /// True once a server has answered the call.
    answered: bool,
    /// Number of times that the client got the end of the call.
    ended: u32,
    /// True once the client no longer waits for the end.
    pub(super) given_up: bool,
    /// True once a person has approved the call.
    pub(super) agreed: bool,
    /// True if a request of the call was sent twice, so that questions may come twice.
    pub(super) repeated: bool,
}

/// One question of a server.
#[derive(Debug, Default)]
struct QuestionTruth {
    shown: u32,
    /// True once the client has answered the question.
    given: bool,
    /// Number of answers that reached the server, a decline in the client's name included.
    closed: u32,
}

/// The facts of one world.
#[derive(Debug, Default)]
pub(super) struct WorldTruth {
    calls: Vec<CallTruth>,
    questions: HashMap<(u64, u64), QuestionTruth>,
    /// Questions so far.
    asked: u64,
    /// True while the policy denies [`CalledTool::Open`].
    pub(super) denies_open: bool,
    /// True while the servers answer every call that they can.
    pub(super) rests: bool,
    /// Calls that had ended or were given up at the last rest.
    settled: usize,
}

impl WorldTruth {
    /// Notes an event.
    pub(super) fn note(&self, line: impl FnOnce() -> String) {
        note(line());
    }

    /// Enters a call that a client makes, and returns its number.
    pub(super) fn made(
        &mut self,
        (client, caller): (u64, &'static str),
        item: CalledTool,
        upstream: &'static str,
    ) -> u64 {
        self.calls.push(CallTruth {
            client,
            caller,
            item,
            upstream,
            arrived: 0,
            executed: 0,
            proofs: 0,
            answered: false,
            ended: 0,
            given_up: false,
            agreed: false,
            repeated: false,
        });
        self.calls.len() as u64
    }

    pub(super) fn call(&mut self, n: u64) -> &mut CallTruth {
        &mut self.calls[usize::try_from(n).unwrap() - 1]
    }

    pub(super) fn number_of_calls(&self) -> usize {
        self.calls.len()
    }

    /// Notes that a message of the gateway has arrived at the connection of a server, read or not.
    /// Returns the number of the call that it begins.
    pub(super) fn arrived(&mut self, upstream: &str, text: &str) -> Option<u64> {
        note(format!("{upstream} gets {text}"));
        let n = call_of(text)?;
        let name = member(Words::of(text).params, "name").unwrap_or_default().trim_matches('"');
        let denies_open = self.denies_open;
        let call = self.call(n);
        let is_denied = call.item == CalledTool::Open && call.arrived == 0 && denies_open;
        assert!(!is_denied, "call {n} was denied before it was sent");
        assert_eq!((name, upstream), (call.item.original(), call.upstream), "call {n} went elsewhere");
        assert_ne!(call.item, CalledTool::Hidden, "call {n} was denied and sent");
        assert!(call.item != CalledTool::Asks || call.agreed, "call {n} was sent before a person agreed");
        call.arrived += 1;
        assert!(call.arrived <= call.proofs + 1, "call {n} was sent again, without a proof that it had not begun");
        Some(n)
    }

    /// Notes that a server begins to work on a call.
    pub(super) fn took(&mut self, n: u64) {
        let call = self.call(n);
        call.executed += 1;
        assert!(call.executed <= call.proofs + 1, "call {n} was executed twice");
    }

    /// Notes a server's proof that it did not begin with the call.
    pub(super) fn proved(&mut self, n: u64) {
        self.call(n).proofs += 1;
    }

    /// Notes that a server answers a call.
    pub(super) fn answered(&mut self, n: u64) {
        self.call(n).answered = true;
    }

    /// Checks and notes the end of a call, as its client sees it. `text` is the result or the
    /// error.
    pub(super) fn ended(&mut self, n: u64, client: u64, text: &str) {
        let rests = self.rests;
        let call = self.call(n);
        assert_eq!(call.client, client, "client {client} was told of call {n}: {text}");
        call.ended += 1;
        assert_eq!(call.ended, 1, "call {n} ended again: {text}");
        // Behind HTTP an answer may be lost with its stream.
        let is_stuck = rests && call.upstream == "a" && text.contains("did not answer in time");
        assert!(!is_stuck, "call {n} waited for ever: {text}");
        if let Some(of) = about(text, "c=") {
            assert!(of == n && call.answered, "call {n} got the answer of call {of}: {text}");
        }
    }

    /// Enters a question of a server about call `n`, and returns the question's number.
    pub(super) fn new_question(&mut self, n: u64) -> u64 {
        self.asked += 1;
        self.questions.insert((n, self.asked), QuestionTruth::default());
        self.asked
    }

    /// Marks a question that is answered by a repeated call, not by a message to the server.
    pub(super) fn closes_itself(&mut self, n: u64, k: u64) {
        self.questions.get_mut(&(n, k)).unwrap().closed = 1;
    }

    /// Returns whether a server has answered that call.
    pub(super) fn has_answered(&mut self, n: u64) -> bool {
        self.call(n).answered
    }

    /// Checks that a question reached its own client, and returns the numbers of its call and of
    /// the question. A server that asks and does not wait for the answer may reach another client
    /// of the same caller, after its call has ended.
    pub(super) fn shown(&mut self, (client, caller): (u64, &'static str), text: &str) -> (u64, u64) {
        let (n, k) = numbers(text, "q=").unwrap_or_else(|| panic!("client {client} was asked nothing: {text}"));
        let CallTruth { client: owner, caller: of, repeated, answered, .. } = *self.call(n);
        let is_stray = answered && of == caller;
        assert!(owner == client || is_stray, "client {client} was asked about a call of client {owner}: {text}");
        assert_eq!(of, caller, "client {client} was asked about a call of another caller: {text}");
        let question = self.questions.get_mut(&(n, k)).unwrap_or_else(|| panic!("no server asked this: {text}"));
        question.shown += 1;
        assert!(question.shown == 1 || repeated, "client {client} was asked again: {text}");
        (n, k)
    }

    /// Notes that the client answers a question.
    pub(super) fn given(&mut self, n: u64, k: u64) {
        self.questions.get_mut(&(n, k)).unwrap().given = true;
    }

    /// Checks and notes the answer that a server gets to a question: `text` is the value under the
    /// question's key or id.
    pub(super) fn heard(&mut self, n: u64, k: u64, text: &str) {
        let question = self.questions.get_mut(&(n, k)).unwrap_or_else(|| panic!("never asked: {n}-{k}"));
        question.closed += 1;
        assert_eq!(question.closed, 1, "question {n}-{k} was answered again: {text}");
        if let Some(found) = numbers(text, "a=") {
            assert_eq!(found, (n, k), "the answer to another question: {text}");
            assert!(question.given && question.shown > 0, "no client gave this answer: {text}");
        }
    }

    /// Checks that each call has ended, now that the world is at rest.
    pub(super) fn at_rest(&mut self) {
        for (n, call) in (1..).zip(&self.calls).skip(self.settled) {
            assert!(call.ended == 1 || call.given_up, "call {n} never ended: {call:?}");
        }
        self.settled = self.calls.len();
    }
}

/// Returns the number of the call that a message begins.
pub(super) fn call_of(text: &str) -> Option<u64> {
    let words = Words::of(text);
    if words.method != "tools/call" || member(words.params, "requestState").is_some() {
        return None;
    }
    member(words.params, "arguments").and_then(|arguments| member(arguments, "n"))?.parse().ok()
}

/// Returns the numbers of the call and the question behind a mark.
pub(super) fn numbers(text: &str, mark: &str) -> Option<(u64, u64)> {
    let (n, k) = tag(text, mark)?.split_once('-')?;
    Some((n.parse().ok()?, k.parse().ok()?))
}
