//! One upstream of a world: its processes on pipes, or its sessions behind HTTP. Each process and
//! each session is a server of its own; a modern server behind HTTP is one for all requests.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use futures_util::FutureExt as _;
use rustix::process::Signal;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

use super::chance::{CutBytes, WorldChance};
use super::event::{AnswerPiece, EventSender, HttpRequestEvent, WireEvent, read_lines, serve, write_all};
use super::http::{END, event, stream_head, whole};
use super::server::{AskingManner, ServerMessage, WorldServer};
use super::truth::{WorldTruth, call_of};
use super::words::Words;
use crate::mcp::version::{Era, Revision};
use crate::stage::net::Listener;
use crate::stage::program;

/// The error of some servers for a session that they do not know.
const UNKNOWN: &str = r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request"}}"#;

/// A process or a session.
struct Life {
    number: u64,
    server: WorldServer,
    /// Lines that the process has not read yet.
    inbox: VecDeque<String>,
    /// The pipe to the gateway, and bytes that are not written yet.
    output: Option<mpsc::UnboundedSender<Bytes>>,
    pipe: CutBytes,
}

impl Life {
    fn moves(&self) -> bool {
        !self.inbox.is_empty() || !self.pipe.is_empty()
    }
}

/// An answer over HTTP that has not ended, or the session's own stream.
struct UpstreamStream {
    number: u64,
    life: u64,
    /// The request that reads the stream, and its channel; `None` while the connection is broken.
    reader: Option<(u64, mpsc::UnboundedSender<AnswerPiece>)>,
    has_head: bool,
    /// All events, for a gateway that resumes the stream.
    events: Vec<String>,
    is_over: bool,
}

pub(super) struct WorldUpstream {
    pub(super) name: &'static str,
    revision: Revision,
    manner: AskingManner,
    is_http: bool,
    lives: Vec<Life>,
    /// Requests over HTTP that no server has heard yet.
    requests: VecDeque<HttpRequestEvent>,
    streams: Vec<UpstreamStream>,
    sessions: u64,
}

impl WorldUpstream {
    pub(super) fn new(name: &'static str, is_http: bool, revision: Revision, chance: &mut WorldChance) -> Self {
        let manners = AskingManner::ALL.into_iter().filter(|manner| !is_http || *manner != AskingManner::Serial);
        let manner = chance.pick(&manners.collect::<Vec<_>>());
        let (lives, requests, streams) = (Vec::new(), VecDeque::new(), Vec::new());
        let mut upstream = Self { name, revision, manner, is_http, lives, requests, streams, sessions: 0 };
        if is_http && upstream.is_modern() {
            upstream.begin(0, None);
        }
        upstream
    }

    fn is_modern(&self) -> bool {
        self.revision.era() == Era::Modern
    }

    fn begin(&mut self, number: u64, output: Option<mpsc::UnboundedSender<Bytes>>) {
        let server = WorldServer::new(self.revision, !self.is_http, self.manner);
        self.lives.push(Life { number, server, inbox: VecDeque::new(), output, pipe: CutBytes::default() });
    }

    /// Returns a description for the story of the world.
    pub(super) fn told(&self) -> String {
        let way = if self.is_http { "HTTP" } else { "pipes" };
        format!("upstream {} speaks {} over {way}, {:?}", self.name, self.revision, self.manner)
    }

    /// Takes an event of this upstream.
    pub(super) fn take(&mut self, event: WireEvent, truth: &mut WorldTruth) {
        match event {
            WireEvent::Started { process, output, .. } => {
                truth.note(|| format!("process {process} of {} starts", self.name));
                self.begin(process, Some(output));
            }
            WireEvent::Line { process, text, .. } => {
                truth.arrived(self.name, &text);
                if let Some(life) = self.lives.iter_mut().find(|life| life.number == process) {
                    life.inbox.push_back(text);
                }
            }
            WireEvent::Exited { process, .. } => {
                truth.note(|| format!("process {process} of {} ends", self.name));
                self.lives.retain(|life| life.number != process);
            }
            WireEvent::Requested { request, .. } => {
                let (method, session) = (&request.method, request.session);
                truth.note(|| format!("{method} {} in session {session:?}", request.stream));
                if request.method == "POST" {
                    truth.arrived(self.name, &request.body);
                }
                self.requests.push_back(request);
            }
            WireEvent::Closed { stream, .. } => {
                truth.note(|| format!("the gateway closes {stream} of {}", self.name));
                self.requests.retain(|request| request.stream != stream);
                let is_it = |one: &mut UpstreamStream| one.reader.as_ref().is_some_and(|(number, _)| *number == stream);
                for UpstreamStream { number, life, .. } in self.streams.extract_if(.., is_it) {
                    let life = self.lives.iter_mut().find(|one| one.number == life);
                    life.into_iter().for_each(|life| life.server.closed(number));
                }
            }
            WireEvent::Answered { .. } | WireEvent::Told { .. } | WireEvent::Ended { .. } => {}
        }
    }

    /// Sends what the servers say.
    pub(super) fn flush(&mut self, chance: &mut WorldChance) {
        for life in &mut self.lives {
            for said in life.server.out.drain(..) {
                match life.output {
                    Some(_) => life.pipe.line(&said.text),
                    None => say(&mut self.streams, said, chance),
                }
            }
        }
    }

    /// Returns whether there is something to deliver.
    pub(super) fn moves(&self) -> bool {
        !self.requests.is_empty() || self.lives.iter().any(Life::moves)
    }

    /// Delivers one piece or message in one direction.
    pub(super) fn deliver(&mut self, chance: &mut WorldChance, truth: &mut WorldTruth) {
        if !self.requests.is_empty() {
            let request = self.requests.remove(chance.below(self.requests.len().min(2))).unwrap();
            self.hear(request, truth);
        } else {
            let mut moving: Vec<&mut Life> = self.lives.iter_mut().filter(|life| life.moves()).collect();
            let at = chance.below(moving.len());
            let life = &mut *moving[at];
            if !life.inbox.is_empty() && (life.pipe.is_empty() || chance.one_in(2)) {
                let line = life.inbox.pop_front().unwrap();
                truth.note(|| format!("{} hears {line}", self.name));
                life.server.hear(&line, None, truth);
            } else if let Some(output) = &life.output {
                let piece = life.pipe.piece(chance);
                truth.note(|| format!("{} says {}", self.name, String::from_utf8_lossy(&piece).trim_end()));
                // The process may have ended.
                drop(output.send(piece));
            }
        }
        self.flush(chance);
    }

    /// Passes a request over HTTP to its server.
    fn hear(&mut self, request: HttpRequestEvent, truth: &mut WorldTruth) {
        truth.note(|| format!("{} hears {} {} {}", self.name, request.method, request.stream, request.body));
        let HttpRequestEvent { stream, method, session, last_event, body, answer } = request;
        let end = |status, session, body: &str| drop(answer.send(AnswerPiece::Last(whole(status, session, body))));
        let life = if self.is_modern() { Some(0) } else { session };
        let at = life.and_then(|life| self.lives.iter().position(|one| one.number == life));
        match (method.as_str(), at) {
            ("POST", None) if session.is_none() => self.hear_first(stream, &body, answer, truth),
            ("POST", None) => {
                if let Some(n) = call_of(&body) {
                    truth.proved(n);
                }
                if stream.is_multiple_of(2) { end(404, None, "") } else { end(400, None, UNKNOWN) }
            }
            ("POST", Some(at)) => {
                let life = &mut self.lives[at];
                let words = Words::of(&body);
                if words.method.is_empty() || words.id.is_empty() {
                    life.server.hear(&body, None, truth);
                    return end(202, None, "");
                }
                self.streams.push(UpstreamStream::new(stream, life.number, answer));
                life.server.hear(&body, Some(stream), truth);
            }
            ("GET", Some(at)) if !self.is_modern() => {
                let life = &mut self.lives[at];
                if let Some(last) = last_event {
                    if !resume(&mut self.streams, life.number, (&last, stream), answer.clone()) {
                        end(400, None, "");
                    }
                    return;
                }
                drop(answer.send(AnswerPiece::More(stream_head())));
                life.server.own = Some(stream);
                let mut own = UpstreamStream::new(stream, life.number, answer);
                own.has_head = true;
                self.streams.push(own);
            }
            ("DELETE", Some(at)) if !self.is_modern() => {
                let life = self.lives.remove(at);
                self.streams.retain(|stream| stream.life != life.number);
                end(200, None, "");
            }
            (_, None) => end(404, None, ""),
            _ => end(405, None, ""),
        }
    }

    /// Answers a request without a session as a legacy server; `initialize` opens a session.
    fn hear_first(
        &mut self,
        stream: u64,
        body: &str,
        answer: mpsc::UnboundedSender<AnswerPiece>,
        truth: &mut WorldTruth,
    ) {
        let mut server = WorldServer::new(self.revision, false, self.manner);
        server.hear(body, Some(stream), truth);
        let said = server.out.pop().map(|said| said.text).unwrap_or_default();
        let mut session = None;
        if Words::of(body).method == "initialize" {
            self.sessions += 1;
            session = Some(self.sessions);
            let (inbox, output, pipe) = (VecDeque::new(), None, CutBytes::default());
            self.lives.push(Life { number: self.sessions, server, inbox, output, pipe });
        }
        drop(answer.send(AnswerPiece::Last(whole(200, session, &said))));
    }

    /// Lets one of the upstream's servers make a random move.
    pub(super) fn act(&mut self, chance: &mut WorldChance, truth: &mut WorldTruth) {
        if !self.lives.is_empty() {
            let at = chance.below(self.lives.len());
            self.lives[at].server.act(chance, truth);
            self.flush(chance);
        }
    }

    /// Lets each server answer the oldest call that it can; returns whether there was one.
    pub(super) fn end_one(&mut self, chance: &mut WorldChance, truth: &mut WorldTruth) -> bool {
        let mut any = false;
        for life in &mut self.lives {
            any |= life.server.end_one(chance, truth);
        }
        self.flush(chance);
        any
    }

    /// Kills a process, or all servers behind HTTP with all sessions.
    pub(super) fn die(&mut self, chance: &mut WorldChance, truth: &mut WorldTruth) {
        if self.lives.is_empty() {
            return;
        }
        if !self.is_http {
            let at = chance.below(self.lives.len());
            let process = self.lives.remove(at).number;
            truth.note(|| format!("process {process} of {} is killed", self.name));
            return program::kill_number(u32::try_from(process).unwrap(), Signal::KILL);
        }
        truth.note(|| format!("the servers of {} die", self.name));
        self.streams.clear();
        self.lives.clear();
        if self.is_modern() {
            self.begin(0, None);
        }
    }

    /// Breaks the connection of a stream.
    pub(super) fn breaks(&mut self, chance: &mut WorldChance, truth: &mut WorldTruth) {
        if self.is_modern() {
            return;
        }
        let can_break = |stream: &&mut UpstreamStream| stream.reader.is_some() && !stream.events.is_empty();
        let mut streams: Vec<_> = self.streams.iter_mut().filter(can_break).collect();
        if streams.is_empty() {
            return;
        }
        let at = chance.below(streams.len());
        let stream = &mut streams[at];
        truth.note(|| format!("stream {} of {} breaks", stream.number, self.name));
        (stream.reader, stream.has_head) = (None, false);
    }

    /// Ends one session without telling the gateway.
    pub(super) fn forget(&mut self, chance: &mut WorldChance, truth: &mut WorldTruth) {
        if self.is_http && !self.is_modern() && !self.lives.is_empty() {
            let life = self.lives.remove(chance.below(self.lives.len())).number;
            truth.note(|| format!("{} forgets session {life}", self.name));
            self.streams.retain(|stream| stream.life != life);
        }
    }

    /// Returns the number of calls and answers that are open.
    pub(super) fn left(&self) -> usize {
        let work: usize = self.lives.iter().map(|life| life.server.open_work()).sum();
        let own = |stream: &&UpstreamStream| self.lives.iter().any(|life| life.server.own == Some(stream.number));
        work + self.streams.iter().filter(|stream| stream.reader.is_some() && !own(stream)).count()
    }
}

impl UpstreamStream {
    fn new(number: u64, life: u64, answer: mpsc::UnboundedSender<AnswerPiece>) -> Self {
        let (reader, events) = (Some((number, answer)), Vec::new());
        Self { number, life, reader, has_head: false, events, is_over: false }
    }
}

/// Resumes a stream after the last event that the gateway has; returns whether there is one.
fn resume(
    streams: &mut Vec<UpstreamStream>,
    life: u64,
    (last, reader): (&str, u64),
    answer: mpsc::UnboundedSender<AnswerPiece>,
) -> bool {
    let Some((number, seen)) = last.split_once('-') else { return false };
    let (number, seen): (u64, usize) = (number.parse().unwrap(), seen.parse().unwrap());
    let is_it = |stream: &UpstreamStream| stream.number == number && stream.life == life && stream.reader.is_none();
    let Some(at) = streams.iter().position(is_it) else { return false };
    let missed = streams[at].events[seen..].concat();
    drop(answer.send(AnswerPiece::More(stream_head() + &missed)));
    if streams[at].is_over {
        drop(answer.send(AnswerPiece::Last(END.to_owned())));
        streams.remove(at);
    } else {
        (streams[at].reader, streams[at].has_head) = (Some((reader, answer)), true);
    }
    true
}

/// Says something on the stream that it is for, if the gateway has not closed that.
fn say(streams: &mut Vec<UpstreamStream>, said: ServerMessage, chance: &mut WorldChance) {
    let Some(at) = streams.iter().position(|stream| Some(stream.number) == said.on) else { return };
    let stream = &mut streams[at];
    let ServerMessage { text, last, .. } = said;
    let id = format!("{}-{}", stream.number, stream.events.len() + 1);
    let piece = event(&id, &text);
    stream.events.push(piece.clone());
    stream.is_over |= last;
    let Some((_, answer)) = &stream.reader else { return };
    let send = |piece| drop(answer.send(piece));
    if last && !stream.has_head && chance.one_in(2) {
        send(AnswerPiece::Last(whole(200, None, &text)));
    } else {
        if !std::mem::replace(&mut stream.has_head, true) {
            send(AnswerPiece::More(stream_head()));
        }
        send(if last { AnswerPiece::Last(piece + END) } else { AnswerPiece::More(piece) });
    }
    if last {
        streams.remove(at);
    }
}

/// Makes the programs of an upstream of the stage send their events to this world.
pub(super) fn play_programs(name: &str, upstream: usize, events: &EventSender) {
    let events = events.clone();
    let act = move |number: u32, input: DuplexStream, output: DuplexStream| {
        let (events, process) = (events.clone(), u64::from(number));
        async move {
            let (bytes, pieces) = mpsc::unbounded_channel();
            let end = ProcessExit { events: events.clone(), upstream, process };
            drop(events.send(WireEvent::Started { upstream, process, output: bytes }));
            let line = |text| drop(end.events.send(WireEvent::Line { upstream, process, text }));
            // The end of the input is the end of the process.
            tokio::select! {
                biased;
                () = read_lines(input, line) => {}
                () = write_all(output, pieces) => {}
            }
        }
        .boxed()
    };
    program::cast(name, std::rc::Rc::new(act));
}

/// Sends the end of a process to the world when dropped.
struct ProcessExit {
    events: EventSender,
    upstream: usize,
    process: u64,
}

impl Drop for ProcessExit {
    fn drop(&mut self) {
        drop(self.events.send(WireEvent::Exited { upstream: self.upstream, process: self.process }));
    }
}

/// Listens for an upstream behind HTTP; returns its URL. Needs the runtime of the stage.
pub(super) fn listen(upstream: usize, events: &EventSender) -> String {
    let mut listener = Listener::bind(0);
    let url = format!("http://{}/mcp", listener.address);
    let (events, numbers) = (events.clone(), Arc::new(AtomicU64::new(1)));
    tokio::spawn(async move {
        loop {
            let (stream, _) = axum::serve::Listener::accept(&mut listener).await;
            tokio::spawn(serve(stream, upstream, events.clone(), Arc::clone(&numbers)));
        }
    });
    url
}
