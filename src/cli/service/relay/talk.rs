//! The state of the conversation that the relay passes on: open requests, the handshake, and the
//! lines that wait for a daemon. A value without I/O.

use std::collections::{HashMap, HashSet, VecDeque};

use bytes::{Bytes, BytesMut};

use crate::serve::lines::{INPUT_OVER, LEAVING, LEFT};
use crate::wire::code;
use crate::wire::frame::Frame;
use crate::wire::id::{ClientId, IdKey};
use crate::wire::json::raw::{RawJson, RawObject};
use crate::wire::lines::{LineDecoder, StreamLine};
use crate::wire::message::{self, Message, Notification};

/// Most open requests that are remembered in each direction. Further requests of the client get no
/// answer if the daemon goes away.
const MAX_OPEN: usize = 4096;
/// Most bytes of requests that are kept until a stand-in answers them.
const MAX_UNANSWERED_BYTES: usize = 1 << 20;

/// Whether an open request may have been executed, as its client is told if no answer comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestFate {
    /// The daemon had the request and may have executed it.
    Unknown,
    /// The request still waited for the daemon.
    NotMade,
}

/// The state of the daemon.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum DaemonState {
    #[default]
    Here,
    /// The daemon ends once it has answered its open requests; further ones wait for the next.
    Leaving,
    /// The daemon went away a short time ago; lines wait for it.
    Away,
    /// The daemon has been away for so long that requests are refused.
    Lost,
}

/// The conversation between a client and the daemon, or its stand-in.
#[derive(Default)]
pub(super) struct RelayConversation {
    daemon: DaemonState,
    /// The client's `initialize`, to be repeated to a new daemon.
    initialize: Option<Bytes>,
    /// The client's `initialized`, to be repeated as well.
    initialized: Option<Bytes>,
    /// Open requests of the client.
    open: HashMap<IdKey, ClientId>,
    /// Keys of open subscriptions, which end only by a cancellation.
    listens: HashSet<IdKey>,
    /// Id of a repeated `initialize`, whose answer must not reach the client.
    swallow: Option<IdKey>,
    /// Open requests of this daemon. An answer to the question of another daemon could have an
    /// equal id, so it is dropped.
    asked: HashMap<IdKey, ClientId>,
    /// True once the client's input has ended, so that it answers no more questions.
    input_over: bool,
    /// Lines that wait for the daemon.
    waiting: Vec<Bytes>,
    /// Open requests that wait for the next daemon while this one ends.
    kept: HashSet<IdKey>,
    /// Requests that a stand-in has not answered; `None` without a stand-in.
    unanswered: Option<UnansweredRequests>,
}

/// The lines of requests that a stand-in has not answered, oldest first. They are sent to the
/// daemon once there is one. Bounded by their bytes.
#[derive(Default)]
struct UnansweredRequests {
    lines: VecDeque<(IdKey, Bytes)>,
    bytes: usize,
}

impl UnansweredRequests {
    fn add(&mut self, key: IdKey, line: &Bytes) {
        if self.bytes + line.len() <= MAX_UNANSWERED_BYTES {
            self.bytes += line.len();
            self.lines.push_back((key, line.clone()));
        }
    }

    fn remove(&mut self, key: &IdKey) {
        let at = self.lines.iter().position(|(open, _)| open == key);
        if let Some((_, line)) = at.and_then(|at| self.lines.remove(at)) {
            self.bytes -= line.len();
        }
    }
}

impl RelayConversation {
    /// Starts a conversation with a gateway that stands in for the daemon.
    pub(super) fn with_stand_in() -> Self {
        Self { unanswered: Some(UnansweredRequests::default()), ..Self::default() }
    }

    /// Returns the number of bytes in the lines that wait for the daemon.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.iter().map(Bytes::len).sum()
    }

    /// Reads the client's lines: passes them to the daemon, keeps them while it is away, or refuses
    /// requests once it is lost.
    pub(super) fn hear_client(&mut self, lines: &mut LineDecoder, to_daemon: &mut BytesMut, to_client: &mut BytesMut) {
        while let Some(line) = lines.next_line() {
            let StreamLine::Full(line) = line else { continue };
            // While the daemon leaves, only messages about its own open requests are for it.
            let mut is_for_leaving = false;
            match parsed(&line) {
                Some(Message::Request(request)) if self.daemon == DaemonState::Lost => {
                    refuse(&request.id, RequestFate::NotMade, to_client);
                    continue;
                }
                Some(Message::Request(request)) => {
                    if self.daemon == DaemonState::Leaving {
                        self.kept.insert(request.id.key());
                    }
                    if request.method == "initialize" {
                        self.initialize = Some(line.clone());
                    }
                    if self.open.len() < MAX_OPEN {
                        if let Some(unanswered) = &mut self.unanswered {
                            unanswered.add(request.id.key(), &line);
                        }
                        if request.method == "subscriptions/listen" {
                            self.listens.insert(request.id.key());
                        }
                        self.open.insert(request.id.key(), request.id);
                    }
                }
                Some(Message::Response(response)) => {
                    let key = response.id.and_then(ClientId::from_raw).map(|id| id.key());
                    if key.is_none_or(|key| self.asked.remove(&key).is_none()) {
                        continue;
                    }
                    is_for_leaving = true;
                }
                Some(Message::Notification(notice)) if notice.method == "notifications/initialized" => {
                    self.initialized = Some(line.clone());
                }
                // The stand-in does not answer a cancelled request, and the daemon need not hear of
                // it.
                Some(Message::Notification(notice)) if notice.method == "notifications/cancelled" => {
                    let key = cancelled(&notice);
                    is_for_leaving = key.as_ref().is_some_and(|key| !self.kept.contains(key));
                    if let (Some(unanswered), Some(key)) = (&mut self.unanswered, key) {
                        unanswered.remove(&key);
                        self.open.remove(&key);
                    }
                }
                // A batch, or a line that the daemon will reject.
                Some(Message::Notification(_)) | None => {}
            }
            match self.daemon {
                DaemonState::Here => push(to_daemon, &line),
                DaemonState::Leaving if is_for_leaving => push(to_daemon, &line),
                DaemonState::Leaving | DaemonState::Away => self.waiting.push(line),
                DaemonState::Lost => {}
            }
        }
    }

    /// Returns true if every request of the client that is remembered has its answer.
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Handles the end of the client's input: tells the daemon, cancels subscriptions, and answers
    /// the daemon's open questions with an error.
    pub(super) fn end_input(&mut self, to_daemon: &mut BytesMut) {
        self.input_over = true;
        if matches!(self.daemon, DaemonState::Here | DaemonState::Leaving) {
            push(to_daemon, INPUT_OVER.as_bytes());
        }
        for id in self.listens.drain().filter_map(|key| self.open.remove(&key)) {
            let params = RawJson::trusted(format!(r#"{{"requestId":{}}}"#, id.raw().text()));
            push(to_daemon, &message::encode_notification("notifications/cancelled", Some(&params)));
        }
        self.asked.drain().for_each(|(_, id)| refuse_question(&id, to_daemon));
    }

    /// Reads the daemon's lines and passes them to the client, except the answer to a repeated
    /// handshake. Once the client's input has ended, answers questions with an error.
    pub(super) fn hear_daemon(&mut self, lines: &mut LineDecoder, to_client: &mut BytesMut, to_daemon: &mut BytesMut) {
        while let Some(line) = lines.next_line() {
            let StreamLine::Full(line) = line else { continue };
            if *line == *LEAVING.as_bytes() {
                push(to_daemon, LEFT.as_bytes());
                self.daemon = DaemonState::Leaving;
                continue;
            }
            match parsed(&line) {
                Some(Message::Response(response)) => {
                    let key = response.id.and_then(ClientId::from_raw).map(|id| id.key());
                    if let Some(key) = key {
                        self.open.remove(&key);
                        self.listens.remove(&key);
                        self.unanswered.iter_mut().for_each(|unanswered| unanswered.remove(&key));
                        if self.swallow.as_ref() == Some(&key) {
                            self.swallow = None;
                            continue;
                        }
                    }
                }
                Some(Message::Request(request)) if self.input_over => {
                    refuse_question(&request.id, to_daemon);
                    continue;
                }
                Some(Message::Request(request)) if self.asked.len() < MAX_OPEN => {
                    self.asked.insert(request.id.key(), request.id);
                }
                Some(Message::Request(_) | Message::Notification(_)) | None => {}
            }
            push(to_client, &line);
        }
    }

    /// Handles that the daemon went away: answers all its open requests with an error, since it may
    /// have executed them, and has later lines wait.
    pub(super) fn lost(&mut self, to_client: &mut BytesMut) {
        let kept = std::mem::take(&mut self.kept);
        let kept: HashMap<IdKey, ClientId> = self.open.extract_if(|key, _| kept.contains(key)).collect();
        self.refuse_open(RequestFate::Unknown, to_client);
        self.open = kept;
        // Requests that were answered so must not be sent again.
        self.unanswered = None;
        (self.daemon, self.swallow) = (DaemonState::Away, None);
        self.asked.clear();
    }

    /// Leaves the stand-in: its unanswered requests wait for the daemon, those that were not kept
    /// are answered with an error, and the client is told that all lists have changed, since the
    /// daemon's may differ.
    pub(super) fn leave_stand_in(&mut self, to_client: &mut BytesMut) {
        let UnansweredRequests { lines, .. } = self.unanswered.take().unwrap_or_default();
        let resent: HashSet<&IdKey> = lines.iter().map(|(key, _)| key).collect();
        let is_lost = |key: &IdKey, _: &mut ClientId| !resent.contains(key);
        for (_, id) in self.open.extract_if(is_lost) {
            refuse(&id, RequestFate::NotMade, to_client);
        }
        self.waiting = lines.into_iter().map(|(_, line)| line).collect();
        (self.daemon, self.swallow) = (DaemonState::Away, None);
        self.asked.clear();
        if self.initialized.is_some() {
            for list in ["tools", "prompts", "resources"] {
                let notice = format!(r#"{{"jsonrpc":"2.0","method":"notifications/{list}/list_changed"}}"#);
                push(to_client, notice.as_bytes());
            }
        }
    }

    /// Answers all waiting requests with an error, and has the ones that follow refused until a
    /// daemon is found.
    pub(super) fn give_up_waiting(&mut self, to_client: &mut BytesMut) {
        self.refuse_open(RequestFate::NotMade, to_client);
        self.waiting.clear();
        self.daemon = DaemonState::Lost;
    }

    /// Continues with a new daemon: repeats the handshake, unless it waits itself, then sends the
    /// waiting lines, and tells the daemon if the client's input has ended.
    pub(super) fn found(&mut self, to_daemon: &mut BytesMut) {
        self.daemon = DaemonState::Here;
        let waiting = std::mem::take(&mut self.waiting);
        let is_told = |line: &&Bytes| !waiting.contains(line);
        let initialize = self.initialize.as_ref().filter(is_told);
        self.swallow = initialize.and_then(|line| match parsed(line) {
            Some(Message::Request(request)) => Some(request.id.key()),
            Some(Message::Notification(_) | Message::Response(_)) | None => None,
        });
        for line in initialize.into_iter().chain(self.initialized.as_ref().filter(is_told)).chain(&waiting) {
            push(to_daemon, line);
        }
        if self.input_over {
            push(to_daemon, INPUT_OVER.as_bytes());
        }
    }

    /// Answers all open requests with an error, at the end of the relay.
    pub(super) fn end(&mut self, to_client: &mut BytesMut) {
        if self.daemon == DaemonState::Leaving {
            self.lost(to_client);
        }
        let fate = if self.daemon == DaemonState::Here { RequestFate::Unknown } else { RequestFate::NotMade };
        self.refuse_open(fate, to_client);
    }

    /// Answers all open requests of the client with an error that tells their `fate`, and forgets
    /// them. A handshake among them is not repeated to the next daemon.
    fn refuse_open(&mut self, fate: RequestFate, to_client: &mut BytesMut) {
        self.listens.clear();
        for (key, id) in std::mem::take(&mut self.open) {
            refuse(&id, fate, to_client);
            let is_it =
                |line: &Bytes| matches!(parsed(line), Some(Message::Request(request)) if request.id.key() == key);
            if self.initialize.as_ref().is_some_and(is_it) {
                // The client takes the handshake as failed, so it is not repeated.
                (self.initialize, self.initialized) = (None, None);
            }
        }
    }
}

/// Returns the key of the request that a cancellation names.
fn cancelled(notice: &Notification) -> Option<IdKey> {
    let params = notice.params.as_ref().and_then(|params| RawObject::parse(params).ok())?;
    params.get("requestId").cloned().and_then(ClientId::from_raw).map(|id| id.key())
}

/// Parses a line; `None` for a batch and for an invalid message.
fn parsed(line: &Bytes) -> Option<Message> {
    Message::parse(&Frame::from_upstream(line.clone()).ok()?).ok()
}

/// Adds a line and its line break to a buffer.
fn push(out: &mut BytesMut, line: &[u8]) {
    out.extend_from_slice(line);
    out.extend_from_slice(b"\n");
}

/// Answers a question of the daemon with an error in the client's place.
fn refuse_question(id: &ClientId, to_daemon: &mut BytesMut) {
    let error = message::error_object(code::INTERNAL, "The client's input has ended, so it answers nothing.", None);
    push(to_daemon, &message::encode_error(Some(id.raw()), &error));
}

/// Answers a request with an error that says whether it may have been executed.
fn refuse(id: &ClientId, fate: RequestFate, to_client: &mut BytesMut) {
    let (data, text) = match fate {
        RequestFate::Unknown => (
            r#"{"reason":"shutting_down","executed":"unknown","retryable":false}"#,
            "The gateway went away during the call. The call may have been executed; check before you repeat it.",
        ),
        RequestFate::NotMade => (
            r#"{"reason":"shutting_down","executed":"no","retryable":true}"#,
            "The gateway is away, so the call was not made. Try again later.",
        ),
    };
    let error = message::error_object(code::INTERNAL, text, Some(&RawJson::trusted(data)));
    push(to_client, &message::encode_error(Some(id.raw()), &error));
}

#[cfg(test)]
mod tests;
