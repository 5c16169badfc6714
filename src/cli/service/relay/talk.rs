//! The state of the conversation that the relay passes on: open requests, the handshake, and the
//! lines that wait for a daemon. A value without I/O.

use std::collections::{HashMap, HashSet, VecDeque};

use bytes::{Bytes, BytesMut};

use crate::serve::lines::INPUT_OVER;
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
            match parsed(&line) {
                Some(Message::Request(request)) if self.daemon == DaemonState::Lost => {
                    refuse(&request.id, RequestFate::NotMade, to_client);
                    continue;
                }
                Some(Message::Request(request)) => {
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
                }
                Some(Message::Notification(notice)) if notice.method == "notifications/initialized" => {
                    self.initialized = Some(line.clone());
                }
                // The stand-in does not answer a cancelled request, and the daemon need not hear of
                // it.
                Some(Message::Notification(notice)) if notice.method == "notifications/cancelled" => {
                    if let (Some(unanswered), Some(key)) = (&mut self.unanswered, cancelled(&notice)) {
                        unanswered.remove(&key);
                        self.open.remove(&key);
                    }
                }
                // A batch, or a line that the daemon will reject.
                Some(Message::Notification(_)) | None => {}
            }
            match self.daemon {
                DaemonState::Here => push(to_daemon, &line),
                DaemonState::Away => self.waiting.push(line),
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
        if self.daemon == DaemonState::Here {
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

    /// Handles that the daemon went away: answers all open requests with an error, since it may
    /// have executed them, and has later lines wait.
    pub(super) fn lost(&mut self, to_client: &mut BytesMut) {
        self.refuse_open(RequestFate::Unknown, to_client);
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
mod tests {
    use super::*;

    const CALL: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}}"#;
    const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
    const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

    /// A conversation, and the bytes that it has for both sides.
    #[derive(Default)]
    struct RelayOutput {
        talk: RelayConversation,
        daemon: BytesMut,
        client: BytesMut,
    }

    impl RelayOutput {
        fn client_says(&mut self, line: &str) {
            let mut lines = LineDecoder::new(1024);
            push(lines.buffer(), line.as_bytes());
            self.talk.hear_client(&mut lines, &mut self.daemon, &mut self.client);
        }

        fn daemon_says(&mut self, line: &str) {
            let mut lines = LineDecoder::new(1024);
            push(lines.buffer(), line.as_bytes());
            self.talk.hear_daemon(&mut lines, &mut self.client, &mut self.daemon);
        }

        fn take(bytes: &mut BytesMut) -> Vec<String> {
            String::from_utf8_lossy(&bytes.split()).lines().map(str::to_owned).collect()
        }

        fn at_daemon(&mut self) -> Vec<String> {
            Self::take(&mut self.daemon)
        }

        fn at_client(&mut self) -> Vec<String> {
            Self::take(&mut self.client)
        }

        fn greeted() -> Self {
            let mut both = Self::default();
            both.client_says(INITIALIZE);
            both.daemon_says(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
            both.client_says(INITIALIZED);
            both.at_client();
            both.at_daemon();
            both
        }
    }

    #[test]
    fn a_call_in_flight_is_answered_and_one_that_waits_is_made_after_the_handshake() {
        let mut both = RelayOutput::greeted();
        both.client_says(CALL);
        assert_eq!(both.at_daemon(), [CALL]);
        both.talk.lost(&mut both.client);
        let told = both.at_client();
        assert!(told.len() == 1 && told[0].contains(r#""id":7"#) && told[0].contains(r#""executed":"unknown""#));
        both.client_says(CALL);
        assert!(both.at_daemon().is_empty() && both.talk.waiting() > 0);
        both.talk.found(&mut both.daemon);
        assert_eq!(both.at_daemon(), [INITIALIZE, INITIALIZED, CALL]);
        both.daemon_says(r#"{"jsonrpc":"2.0","id":1,"result":{"again":true}}"#);
        assert!(both.at_client().is_empty(), "the client has had its answer");
        both.daemon_says(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
        assert_eq!(both.at_client().len(), 1);
        both.talk.end(&mut both.client);
        assert!(both.at_client().is_empty(), "nothing is open");
    }

    #[test]
    fn requests_that_waited_for_too_long_and_all_after_them_are_refused_as_not_made() {
        let mut both = RelayOutput::greeted();
        both.talk.lost(&mut both.client);
        both.client_says(CALL);
        both.talk.give_up_waiting(&mut both.client);
        both.client_says(&CALL.replace('7', "8"));
        let told = both.at_client();
        assert_eq!(told.len(), 2, "{told:?}");
        for (line, id) in told.iter().zip([7, 8]) {
            assert!(line.contains(&format!(r#""id":{id}"#)) && line.contains(r#""executed":"no""#), "{line}");
        }
        both.talk.found(&mut both.daemon);
        assert_eq!(both.at_daemon(), [INITIALIZE, INITIALIZED]);
    }

    #[test]
    fn a_handshake_that_waited_is_said_once_and_one_that_failed_is_not_repeated() {
        let mut both = RelayOutput::default();
        both.talk.lost(&mut both.client);
        both.client_says(INITIALIZE);
        both.talk.found(&mut both.daemon);
        assert_eq!(both.at_daemon(), [INITIALIZE]);
        both.talk.lost(&mut both.client);
        assert!(both.at_client()[0].contains(r#""id":1"#));
        both.talk.found(&mut both.daemon);
        assert!(both.at_daemon().is_empty());
    }

    #[test]
    fn a_daemon_is_sent_what_the_stand_in_has_not_answered() {
        let mut both = RelayOutput { talk: RelayConversation::with_stand_in(), ..RelayOutput::default() };
        both.client_says(INITIALIZE);
        both.daemon_says(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        both.client_says(INITIALIZED);
        both.client_says(CALL);
        both.client_says(&CALL.replace('7', "8"));
        both.client_says(&CALL.replace('7', "9"));
        both.daemon_says(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
        both.client_says(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}"#);
        both.at_daemon();
        both.at_client();
        both.talk.leave_stand_in(&mut both.client);
        let told = both.at_client();
        assert!(told.len() == 3 && told[0].contains("notifications/tools/list_changed"), "{told:?}");
        both.talk.found(&mut both.daemon);
        assert_eq!(both.at_daemon(), [INITIALIZE, INITIALIZED, &CALL.replace('7', "8")]);
        both.daemon_says(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        assert!(both.at_client().is_empty(), "the stand-in has answered it");
        both.daemon_says(r#"{"jsonrpc":"2.0","id":8,"result":{}}"#);
        assert_eq!(both.at_client().len(), 1);
    }

    #[test]
    fn a_handshake_that_the_stand_in_has_not_answered_is_the_daemons() {
        let mut both = RelayOutput { talk: RelayConversation::with_stand_in(), ..RelayOutput::default() };
        both.client_says(INITIALIZE);
        both.at_daemon();
        both.talk.leave_stand_in(&mut both.client);
        both.talk.found(&mut both.daemon);
        assert_eq!(both.at_daemon(), [INITIALIZE]);
        both.daemon_says(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        assert_eq!(both.at_client().len(), 1);
    }

    #[test]
    fn after_the_end_of_the_input_calls_are_answered_and_the_daemon_asks_in_vain() {
        let mut both = RelayOutput::greeted();
        both.client_says(CALL);
        both.client_says(r#"{"jsonrpc":"2.0","id":8,"method":"subscriptions/listen","params":{}}"#);
        both.daemon_says(r#"{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{}}"#);
        both.at_daemon();
        both.at_client();
        both.talk.end_input(&mut both.daemon);
        both.daemon_says(r#"{"jsonrpc":"2.0","id":"q2","method":"roots/list"}"#);
        let mut told = both.at_daemon();
        assert!(told.remove(0) == INPUT_OVER && told[0].contains(r#""requestId":8"#), "{told:?}");
        assert!(told[1].contains(r#""id":"q1""#) && told[2].contains(r#""id":"q2""#), "{told:?}");
        assert!(told[1..].iter().all(|line| line.contains("\"error\"")) && told.len() == 3, "{told:?}");
        assert!(!both.talk.is_idle() && both.at_client().is_empty());
        both.daemon_says(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
        assert!(both.talk.is_idle() && both.at_client().len() == 1);
    }

    #[test]
    fn an_answer_reaches_only_the_daemon_that_asked() {
        let mut both = RelayOutput::greeted();
        let (question, answer) =
            (r#"{"jsonrpc":"2.0","id":3,"method":"roots/list"}"#, r#"{"jsonrpc":"2.0","id":3,"result":{"roots":[]}}"#);
        both.daemon_says(question);
        both.talk.lost(&mut both.client);
        both.talk.found(&mut both.daemon);
        both.at_daemon();
        both.client_says(answer);
        assert!(both.at_daemon().is_empty());
        both.daemon_says(question);
        both.client_says(answer);
        both.client_says(answer);
        assert_eq!(both.at_daemon(), [answer]);
    }
}
