//! Questions to a client in the middle of its call (elicitation, sampling, roots): from a server,
//! its task, or the gateway ([`approval`], [`login`]).
//!
//! [`crate::mcp::asking::input`] decides, on the terms of the call, whether a client may be asked.
//! A server may ask only for input that the caller declared for this very call. The eras of client
//! and server decide how the client is asked:
//!
//! - Both modern: the result passes. Its state is sealed to caller, profile, upstream, method, item
//!   and arguments ([`crate::engine::sealed::state`]), and only the very same call can continue
//!   with it.
//! - Legacy client, modern server: each request becomes a request to the client on the stream of
//!   its call, one after the other ([`QuestionRound`]). Then the call continues upstream.
//! - Both legacy: the server's request is passed on under an id of ours ([`StreamQuestions`]), and
//!   its answer is passed back unchanged.
//! - Modern client, legacy server: the call is parked ([`park`]). Its request is answered with
//!   `input_required` and a sealed name ([`GatheredQuestions`]), and the client's next request
//!   attaches to it. An answer goes upstream once, however often that request is sent. After 10
//!   minutes, or when the gateway stops, the server learns that no answer comes, and the call is
//!   cancelled. An outcome is kept for half a minute, unless its slot is needed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::engine::connection::ask::{ClientAnswer, modern_response};
use crate::mcp::asking::input::{InputRequest, WantedInput, cancel, decline, input_required};
use crate::mcp::version::Revision;
use crate::wire::json::raw::{RawJson, RawObject};

pub mod approval;
pub mod login;
pub mod park;

/// Time that a person has for one answer.
pub const PATIENCE: Duration = Duration::from_secs(600);
/// Longest time that a client may be away from the stream of a call that asks it. A person may take
/// longer, but only a client that listens can show the form; meanwhile the call keeps its slot and
/// its turn at the server.
pub const AWAY: Duration = Duration::from_secs(30);
/// Most questions of one call that may be open.
pub const MAX_OPEN: usize = 8;
/// Time for which a question waits for others of the same call, so that a person is asked once. A
/// server on a busy machine takes tens of milliseconds between two of them, and a tenth of a second
/// before a form is not noticed.
const GATHER: Duration = Duration::from_millis(100);

/// A question that may be shown to a client.
#[derive(Clone, Debug)]
pub struct ClientQuestion {
    /// The key under which the asker wants the answer.
    pub key: RawJson,
    pub request: InputRequest,
}

impl ClientQuestion {
    /// Returns the key as text, if it is a text.
    fn name(&self) -> Option<String> {
        self.key.parse::<String>().ok()
    }
}

/// The questions that a legacy client has before it on the stream of one call. `W` is the
/// transport's handle to the answer.
#[derive(Debug)]
pub struct StreamQuestions<W> {
    open: Vec<ShownQuestion<W>>,
    /// Time since which a question is open.
    since: Option<Instant>,
}

/// A question that the client has before it.
#[derive(Debug)]
pub struct ShownQuestion<W> {
    pub question: ClientQuestion,
    pub wait: W,
    /// Time at which the question ends without an answer.
    until: Instant,
}

impl<W> Default for StreamQuestions<W> {
    fn default() -> Self {
        Self { open: Vec::new(), since: None }
    }
}

impl<W> StreamQuestions<W> {
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub fn has_room(&self) -> bool {
        self.open.len() < MAX_OPEN
    }

    /// Adds a question that the client was sent.
    pub fn shown(&mut self, question: ClientQuestion, wait: W, now: Instant) {
        self.since.get_or_insert(now);
        self.open.push(ShownQuestion { question, wait, until: now + PATIENCE });
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut ShownQuestion<W>> {
        self.open.iter_mut()
    }

    /// Removes the question at that index of [`Self::iter_mut`].
    pub fn end(&mut self, at: usize) -> Option<ShownQuestion<W>> {
        (at < self.open.len()).then(|| self.open.swap_remove(at))
    }

    /// Removes the question with that key, because its server no longer wants an answer.
    pub fn withdraw(&mut self, key: &RawJson) -> Option<ShownQuestion<W>> {
        let at = self.open.iter().position(|shown| shown.question.key == *key)?;
        self.end(at)
    }

    /// Returns when the first open question ends without an answer.
    pub fn due(&self) -> Option<Instant> {
        self.open.iter().map(|shown| shown.until).min()
    }

    /// Removes a question whose time is over.
    pub fn late(&mut self, now: Instant) -> Option<ShownQuestion<W>> {
        let at = self.open.iter().position(|shown| shown.until <= now)?;
        self.end(at)
    }

    /// Ends the time of all questions, because no client is there to answer them.
    pub fn hurry(&mut self, now: Instant) {
        self.open.iter_mut().for_each(|shown| shown.until = now);
    }

    /// Removes all questions.
    pub fn close(&mut self) -> impl Iterator<Item = ShownQuestion<W>> + '_ {
        self.open.drain(..)
    }

    /// Returns for how long the client was being asked, once after the last question has ended.
    /// That time is not the server's.
    pub fn settled(&mut self, now: Instant) -> Option<Duration> {
        if !self.open.is_empty() {
            return None;
        }
        self.since.take().map(|since| now.duration_since(since))
    }
}

/// The questions in a modern server's result, for a legacy client. It is asked one question after
/// the other, which is kinder to a person than all at once.
#[derive(Debug)]
pub struct QuestionRound {
    /// The server's state, which goes back to it unchanged.
    state: Option<String>,
    /// Questions that were not asked yet.
    waiting: VecDeque<ClientQuestion>,
    /// Answers so far, by key.
    responses: RawObject,
}

impl QuestionRound {
    /// Begins a round. Requests that are declined, and forms that this client cannot show, are
    /// answered at once. `id` makes the ids of pages.
    pub fn new(wanted: WantedInput, revision: Revision, id: impl Fn() -> String) -> Self {
        let WantedInput { asked, declined, state } = wanted;
        let (mut waiting, mut responses) = (VecDeque::new(), RawObject::default());
        for (key, _) in declined {
            responses.set(&key, decline());
        }
        for (key, request) in asked {
            match request.for_revision(revision, &id) {
                Ok(request) => waiting.push_back(ClientQuestion { key: RawJson::string(&key), request }),
                // No person can fill in a form that cannot be shown.
                Err(_) => responses.set(&key, cancel()),
            }
        }
        Self { state, waiting, responses }
    }

    /// Takes the question to ask now.
    pub fn next_question(&mut self) -> Option<ClientQuestion> {
        self.waiting.pop_front()
    }

    /// Takes the answer to a question; `None` if its time is over.
    ///
    /// # Errors
    /// The reason why the call cannot continue.
    pub fn answered(&mut self, question: &ClientQuestion, answer: Option<ClientAnswer>) -> Result<(), &'static str> {
        let answer = answer.ok_or("the client did not answer the server's question in time")?;
        let answer = modern_response(&question.request.method, answer);
        let answer = answer.ok_or("the client refused to sample for the server")?;
        if let Some(key) = question.name() {
            self.responses.set(&key, answer);
        }
        Ok(())
    }

    /// Returns the answers by key and the server's state, which the repeated request carries.
    pub fn into_answers(self) -> (RawJson, Option<String>) {
        (self.responses.encode(), self.state)
    }
}

/// The questions that a modern client is about to be asked by the result of its request.
#[derive(Debug, Default)]
pub struct GatheredQuestions {
    asked: Vec<ClientQuestion>,
    until: Option<Instant>,
}

impl GatheredQuestions {
    /// Returns when the client is to be asked; `None` while there is nothing to ask.
    pub fn due(&self) -> Option<Instant> {
        self.until
    }

    /// Adds a question. The first one decides when the client is asked.
    pub fn add(&mut self, question: ClientQuestion, now: Instant) {
        self.asked.push(question);
        self.until.get_or_insert(now + GATHER);
    }

    /// Removes a question that the server no longer wants answered.
    pub fn withdraw(&mut self, key: &RawJson) {
        self.asked.retain(|question| question.key != *key);
        if self.asked.is_empty() {
            self.until = None;
        }
    }

    /// Returns the result that asks the client, with the sealed state.
    pub fn result(&self, state: &str) -> RawJson {
        input_required(self.asked.iter().filter_map(|question| Some((question.name()?, &question.request))), state)
    }
}

#[cfg(test)]
mod tests;
