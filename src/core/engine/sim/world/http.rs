//! A session with an HTTP server: each request has a response of its own, streams break and are asked for again, and the server
//! may have forgotten the session.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use self::own::Own;
use self::stream::Stream;
use super::chance::{Chance, Pipe};
use super::link::Port;
use super::server::Server;
use super::truth::Truth;
use crate::engine::ask::{Candidates, ClientAnswer, Declared, unable};
use crate::engine::askers::Askers;
use crate::engine::attribution::{Attribution, End, InFlight};
use crate::engine::call::{Outcome, Outgoing};
use crate::engine::failure::{Executed, Failure, Reason};
use crate::engine::handshake::{Carrier, EraHint, Handshake, Next, Reply};
use crate::engine::lost::{Verdict, is_lost, judge};
use crate::engine::peer::CallPort as _;
use crate::engine::sim::options;
use crate::engine::unasked::{Asked, Stream as On, Told, asked, told};
use crate::mcp::meta::HopMeta;
use crate::mcp::version::{Era, Revision};
use crate::mcp::voice::Ear;
use crate::wire::frame::Frame;
use crate::wire::id::WireId;
use crate::wire::message::{Message, Response, encode_answer, encode_notification, encode_request};
use crate::wire::raw::RawJson;
use crate::wire::sse::{SseDecoder, event};

/// The wait before a stream is asked for again.
const RETRY: Duration = Duration::from_secs(1);

mod own;
mod stream;

const CARRIER: Carrier = Carrier::Http { may_be_older: false };

/// A request on its way to the server.
struct Post {
    number: u64,
    session: Option<u64>,
    body: Bytes,
    /// A GET for the rest of a stream, after this event of it.
    after: Option<(u64, usize)>,
    /// A GET for the session's own stream.
    listens: bool,
}

/// A call in flight.
struct Sent {
    id: u64,
    port: Port,
    body: Bytes,
    number: u64,
    session: Option<u64>,
    renewed: bool,
    decoder: SseDecoder,
    last: Option<(u64, usize)>,
    /// Its stream broke and is asked for again then.
    resume_at: Option<Instant>,
    /// Its session is gone, and another one is being opened.
    renews: bool,
}

/// The handshake that is under way.
struct Opening {
    handshake: Handshake,
    number: u64,
    decoder: SseDecoder,
}

pub(super) struct Http {
    revision: Revision,
    ear: Ear,
    hop: HopMeta,
    declared: Declared,
    is_ready: bool,
    session: Option<u64>,
    opening: Option<Opening>,
    ids: u64,
    numbers: u64,
    calls: Vec<Sent>,
    attribution: Attribution,
    own: Own,
    to_server: VecDeque<Post>,
    streams: Vec<Stream>,
    /// The session that the server knows, and how many there were.
    known: Option<u64>,
    sessions: u64,
}

impl Http {
    pub(super) fn open(name: &str, revision: Revision, hint: EraHint, askers: &Arc<Askers>) -> Self {
        let options = options(name, hint);
        let attribution = Attribution::new(options.declared.clone(), Arc::clone(askers));
        let mut http = Self {
            revision,
            ear: options.ear,
            hop: HopMeta::bare(),
            declared: options.declared,
            is_ready: false,
            session: None,
            opening: None,
            ids: 0,
            numbers: 0,
            calls: Vec::new(),
            attribution,
            own: Own::default(),
            to_server: VecDeque::new(),
            streams: Vec::new(),
            known: None,
            sessions: 0,
        };
        http.shake(Handshake::new(hint, CARRIER));
        http
    }

    fn is_modern(&self) -> bool {
        self.revision.era() == Era::Modern
    }

    pub(super) fn is_ready(&self) -> bool {
        self.is_ready
    }

    fn post(&mut self, body: Bytes, session: Option<u64>) -> u64 {
        self.numbers += 1;
        self.to_server.push_back(Post { number: self.numbers, session, body, after: None, listens: false });
        self.numbers
    }

    /// Asks the next question of a handshake.
    fn shake(&mut self, handshake: Handshake) {
        self.ids += 1;
        let (question, id) = (handshake.question(), RawJson::trusted(self.ids.to_string()));
        let params = question.params(&self.hop, &self.declared);
        let number = self.post(encode_request(&id, question.method().as_str(), Some(&params)), None);
        self.opening = Some(Opening { handshake, number, decoder: SseDecoder::new(1 << 16) });
    }

    /// Opens another session with the server, whose era is known.
    fn renew(&mut self) {
        self.shake(Handshake::new(EraHint::Legacy, CARRIER));
    }

    pub(super) fn call(&mut self, outgoing: &Outgoing, port: Port) {
        self.ids += 1;
        self.attribution.carries(self.ids, &port.party);
        let raw = RawJson::trusted(self.ids.to_string());
        let body = outgoing.message(self.revision, &raw, &self.hop);
        let (id, session) = (self.ids, self.session);
        let number = self.post(body.clone(), session);
        let decoder = SseDecoder::new(1 << 16);
        let (renewed, last, resume_at, renews) = (false, None, None, false);
        self.calls.push(Sent { id, port, body, number, session, renewed, decoder, last, resume_at, renews });
    }

    pub(super) fn cancel(&mut self, key: u64, server: &mut Server, now: Instant) {
        let Some(at) = self.calls.iter().position(|call| call.port.key == key) else { return };
        let call = self.calls.swap_remove(at);
        self.left_by(call.id, &call.port, End::GivenUp, now);
        if self.is_modern() {
            // Closing the response is the cancellation.
            self.to_server.retain(|post| post.number != call.number);
            self.streams.retain(|stream| stream.number != call.number);
            server.closed(call.number);
        } else {
            self.tell_cancelled(call.id);
            self.leave(call.number);
        }
    }

    fn leave(&mut self, number: u64) {
        for stream in self.streams.iter_mut().filter(|stream| stream.reader == Some(number)) {
            stream.reader = None;
        }
    }

    pub(super) fn reply(&mut self, id: &RawJson, answer: &ClientAnswer) {
        if self.attribution.open.take(id).is_some() {
            let session = self.session;
            self.post(encode_answer(id, answer), session);
        }
    }

    pub(super) fn parked(&mut self, key: u64) {
        if let Some(call) = self.calls.iter().find(|call| call.port.key == key) {
            self.attribution.park(call.id);
        }
    }

    pub(super) fn moves(&self) -> bool {
        !self.to_server.is_empty() || self.streams.iter().any(Stream::moves)
    }

    pub(super) fn deliver(&mut self, server: &mut Server, chance: &mut Chance, truth: &mut Truth, now: Instant) {
        let moving: Vec<usize> = (0..self.streams.len()).filter(|at| self.streams[*at].moves()).collect();
        if moving.is_empty() || (!self.to_server.is_empty() && chance.one_in(2)) {
            // Each request has a way of its own, so they overtake each other.
            let at = chance.below(self.to_server.len().min(2));
            // But no cancellation overtakes its call.
            let cancels = self.to_server.get(at).is_some_and(|post| self.own.cancels(post.number));
            if let Some(post) = self.to_server.remove(if cancels { 0 } else { at }) {
                self.arrives(&post, server, truth);
                self.has_arrived(post.number, now);
            }
            return;
        }
        let at = chance.pick(&moving);
        let stream = &mut self.streams[at];
        while stream.sent < stream.said.len() {
            let id = format!("{}.{}", stream.number, stream.sent);
            stream.bytes.push(&event(Some(&id), None, &[stream.said[stream.sent].as_bytes()]));
            stream.sent += 1;
        }
        let (number, status, session) = (stream.reader, stream.status, stream.session);
        let piece = if stream.bytes.is_empty() { Bytes::new() } else { stream.bytes.piece(chance) };
        let ended = stream.ended && stream.bytes.is_empty();
        if ended {
            self.streams.swap_remove(at);
        }
        if let Some(number) = number {
            self.read(number, status, session, &piece, ended, now);
        }
        self.clears(now);
    }

    /// A request reaches the server.
    fn arrives(&mut self, post: &Post, server: &mut Server, truth: &mut Truth) {
        if let Some((number, event)) = post.after {
            let stream = self.streams.iter_mut().find(|stream| stream.number == number && post.session == self.known);
            match stream {
                Some(stream) => (stream.reader, stream.sent) = (Some(post.number), event + 1),
                None => self.streams.push(Stream::of(post.number, 404, None)),
            }
            return;
        }
        if post.listens {
            let is_known = post.session == self.known;
            server.own = is_known.then_some(post.number);
            return self.streams.push(Stream::of(post.number, if is_known { 200 } else { 404 }, None));
        }
        let text = std::str::from_utf8(&post.body).unwrap();
        let opens = !server.is_modern() && text.contains("\"initialize\"");
        let is_known = post.session.is_some() && post.session == self.known;
        if opens {
            self.sessions += 1;
            self.known = Some(self.sessions);
        } else if !server.is_modern() && !is_known && !text.contains("\"server/discover\"") {
            truth.note(|| format!("server refused {text}: no such session"));
            return self.streams.push(Stream::unknown(post.number));
        }
        let status = if text.contains("\"id\":") && text.contains("\"method\":") { 200 } else { 202 };
        self.streams.push(Stream::of(post.number, status, self.known.filter(|_| opens)));
        server.hear(text, Some(post.number), truth);
    }

    /// Bytes of a response.
    fn read(&mut self, number: u64, status: u16, session: Option<u64>, piece: &Bytes, ended: bool, now: Instant) {
        if let Some(opening) = self.opening.as_mut().filter(|opening| opening.number == number) {
            opening.decoder.push(piece.clone());
            if let Some(event) = opening.decoder.next_event() {
                self.opened(event.unwrap().data, session);
            }
            return;
        }
        if self.reads_own(number, status, piece, now) {
            return;
        }
        let Some(at) = self.calls.iter().position(|call| call.number == number) else { return };
        if judge(status) == Verdict::Lost {
            return self.lost(at, now);
        }
        self.calls[at].decoder.push(piece.clone());
        if judge(status) == Verdict::ByBody {
            let Some(event) = self.calls[at].decoder.next_event() else { return };
            let heard = self.ear.hear(&Frame::from_upstream(event.unwrap().data).unwrap()).unwrap();
            let Message::Response(answer) = heard.message else { return };
            assert!(is_lost(&answer), "no other answer of this server has that status");
            return self.lost(at, now);
        }
        loop {
            let Some(at) = self.calls.iter().position(|call| call.number == number) else { return };
            let Some(event) = self.calls[at].decoder.next_event() else { break };
            let event = event.unwrap();
            let last = event.id.as_deref().and_then(|id| id.split_once('.'));
            self.calls[at].last = last.map(|(number, event)| (number.parse().unwrap(), event.parse().unwrap()));
            self.message(at, event.data, now);
        }
        let at = self.calls.iter().position(|call| call.number == number);
        if let Some(at) = at.filter(|_| ended) {
            self.broke(at, now);
        }
    }

    fn opened(&mut self, message: Bytes, session: Option<u64>) {
        let heard = self.ear.hear(&Frame::from_upstream(message).unwrap()).unwrap();
        let Message::Response(Response { outcome, .. }) = heard.message else { return };
        let Some(Opening { mut handshake, .. }) = self.opening.take() else { return };
        match handshake.heard(Some(200), Reply::Answer(outcome)) {
            Next::Ask(_) => return self.shake(handshake),
            Next::Agreed(agreed) => assert_eq!(agreed.revision, self.revision),
            failed @ (Next::Failed { .. } | Next::Wait(_)) => {
                panic!("a server that keeps the protocol was given up: {failed:?}")
            }
        }
        (self.session, self.is_ready) = (session, true);
        if self.is_modern() {
            return;
        }
        self.post(encode_notification("notifications/initialized", None), session);
        self.listen(session);
        let again: Vec<usize> = (0..self.calls.len()).filter(|at| self.calls[*at].renews).collect();
        again.into_iter().for_each(|at| self.send_again(at));
    }

    /// The server knows nothing of the session, so it took nothing.
    fn lost(&mut self, at: usize, now: Instant) {
        let call = &mut self.calls[at];
        if call.last.is_some() || call.renewed {
            return self.fails(at, now);
        }
        (call.renewed, call.renews) = (true, true);
        let is_current = call.session == self.session;
        if self.opening.is_none() && is_current {
            self.renew();
        } else if self.opening.is_none() {
            // Another call has opened one meanwhile.
            self.send_again(at);
        }
    }

    fn send_again(&mut self, at: usize) {
        let session = self.session;
        let number = self.post(self.calls[at].body.clone(), session);
        let call = &mut self.calls[at];
        (call.number, call.session, call.renews) = (number, session, false);
        call.decoder = SseDecoder::new(1 << 16);
    }

    /// The stream ended before the answer.
    fn broke(&mut self, at: usize, now: Instant) {
        let is_same = !self.is_modern() && self.calls[at].session == self.session;
        let call = &mut self.calls[at];
        if call.last.is_some() && is_same {
            call.resume_at = Some(now + RETRY);
            call.decoder = SseDecoder::new(1 << 16);
        } else {
            // It may still run.
            let id = self.calls[at].id;
            self.fails(at, now);
            if !self.is_modern() {
                self.tell_cancelled(id);
            }
        }
    }

    fn fails(&mut self, at: usize, now: Instant) {
        let call = self.calls.swap_remove(at);
        self.left_by(call.id, &call.port, End::GivenUp, now);
        self.leave(call.number);
        let text = "The connection to the server broke during the call.";
        call.port.done(Outcome::Failed(Failure::new(Reason::UpstreamCrashed, Executed::Unknown, text)));
    }

    /// A message on the stream of a call.
    fn message(&mut self, at: usize, bytes: Bytes, now: Instant) {
        let heard = self.ear.hear(&Frame::from_upstream(bytes).unwrap()).unwrap();
        let id = self.calls[at].id;
        match heard.message {
            Message::Response(response) => {
                let call = self.calls.swap_remove(at);
                assert_eq!(response.id.as_ref().map(|id| id.text().into_owned()), Some(id.to_string()));
                self.left_by(id, &call.port, End::Answered, now);
                self.leave(call.number);
                self.own.answered(id, self.attribution.doubt.is_open());
                call.port.done(Outcome::of(response, self.revision.era()));
            }
            Message::Notification(notice) => match told(notice, On::Call(WireId(id))) {
                Told::Progress(_, params) => self.calls[at].port.progress(params),
                Told::Withdrawn(id) if self.attribution.open.take(&id).is_some() => self.calls[at].port.withdrawn(&id),
                Told::Withdrawn(_)
                | Told::Log(..)
                | Told::Notice(..)
                | Told::Owner(_)
                | Told::Updated(_)
                | Told::Changed(_)
                | Told::Wrong(_)
                | Told::Nobody => {}
            },
            Message::Request(request) => {
                let answer = match asked(&request, &self.declared, Candidates::One(id), &mut self.attribution.open) {
                    Asked::Answered(answer, _) => answer,
                    Asked::Client(question, _) => {
                        if self.calls[at].port.ask(question) {
                            return;
                        }
                        self.attribution.open.take(request.id.raw());
                        unable(&request.method)
                    }
                };
                let session = self.session;
                self.post(encode_answer(request.id.raw(), &answer), session);
            }
        }
    }

    /// Takes what the server says to the streams that it says it on.
    pub(super) fn drain(&mut self, server: &mut Server) {
        for said in server.out.drain(..) {
            let stream = self.streams.iter_mut().find(|stream| Some(stream.number) == said.on);
            if let Some(stream) = stream {
                stream.said.push(said.text);
                stream.ended |= said.last;
            }
        }
        // Answers to what wants none, and what is read no more.
        self.streams.retain(|stream| stream.status != 202);
    }

    pub(super) fn server_died(&mut self, now: Instant) {
        self.known = None;
        self.streams.clear();
        let mut at = 0;
        while at < self.calls.len() {
            let number = self.calls[at].number;
            // What has not arrived yet finds the new server.
            if self.calls[at].renews || self.to_server.iter().any(|post| post.number == number) {
                at += 1;
            } else {
                self.fails(at, now);
            }
        }
        let is_lost = |opening: &Opening| !self.to_server.iter().any(|post| post.number == opening.number);
        if self.opening.as_ref().is_some_and(is_lost) {
            // The same question once more: the start of a server that died in its handshake.
            let Some(Opening { handshake, .. }) = self.opening.take() else { return };
            self.shake(handshake);
        }
    }

    /// The stream of one call breaks.
    pub(super) fn breaks(&mut self, chance: &mut Chance, now: Instant) -> bool {
        let read: Vec<u64> = self.streams.iter().filter_map(|stream| stream.reader).collect();
        let read: Vec<u64> = read.into_iter().filter(|of| self.calls.iter().any(|call| call.number == *of)).collect();
        if read.is_empty() {
            return false;
        }
        let number = chance.pick(&read);
        for stream in self.streams.iter_mut().filter(|stream| stream.reader == Some(number)) {
            (stream.reader, stream.bytes) = (None, Pipe::default());
        }
        if let Some(at) = self.calls.iter().position(|call| call.number == number) {
            self.broke(at, now);
        }
        true
    }

    pub(super) fn pass(&mut self, now: Instant) {
        let step = self.attribution.lapse(|| in_flight(&self.calls), now);
        self.settle(step);
        let due: Vec<usize> =
            (0..self.calls.len()).filter(|at| self.calls[*at].resume_at.is_some_and(|then| then <= now)).collect();
        for at in due {
            self.numbers += 1;
            let call = &mut self.calls[at];
            (call.number, call.resume_at) = (self.numbers, None);
            let (number, session, after) = (call.number, call.session, call.last);
            self.to_server.push_back(Post { number, session, body: Bytes::new(), after, listens: false });
        }
    }

    pub(super) fn left(&self) -> usize {
        let Attribution { open, doubt, .. } = &self.attribution;
        let is_held = usize::from(self.attribution.until().is_some());
        self.calls.len() + open.left() + is_held + usize::from(self.known == self.session && doubt.is_open())
    }
}

fn in_flight(calls: &[Sent]) -> Vec<InFlight> {
    calls.iter().map(|call| InFlight { call: call.id, party: call.port.party.clone() }).collect()
}
