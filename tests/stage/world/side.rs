//! One client of a world with its connections: pipes, or HTTP with a connection for each request
//! under way.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::io::{duplex, split};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::chance::{CutBytes, WorldChance};
use super::client::{ClientSend, WorldClient, headers_of};
use super::event::{EventSender, IdleConnections, WireEvent, exchange, read_lines, write_all};
use super::http::WorldConnection;
use super::truth::WorldTruth;
use crate::daemon::gateway::RunningGateway as Daemon;
use crate::mcp::version::EventIds;
use crate::serve::lines;
use crate::stage::net;

/// Bytes that wait in a pipe.
const PIPE: usize = 64 * 1024;

/// A stream to a client: the answer to one of its requests over HTTP, or the pipe.
#[derive(Debug)]
struct ClientStream {
    number: u64,
    /// Messages that the client has not heard yet, with the ids of their events.
    inbox: VecDeque<(Option<String>, String)>,
    /// The last event that the client has heard.
    last: Option<String>,
    /// The task that reads it; `None` while it is broken.
    task: Option<AbortHandle>,
    status: u16,
    has_ended: bool,
}

/// The listener and the credential that a client uses.
pub(super) struct ClientDoor {
    pub(super) port: u16,
    pub(super) token: String,
}

pub(super) struct ClientSide {
    pub(super) client: WorldClient,
    door: ClientDoor,
    events: EventSender,
    /// The pipe to the gateway, and bytes that are not written yet.
    lines: Option<mpsc::UnboundedSender<Bytes>>,
    pipe: CutBytes,
    /// Requests over HTTP that wait to be sent.
    posts: VecDeque<(u64, String)>,
    session: Option<String>,
    streams: Vec<ClientStream>,
    idle: IdleConnections,
}

impl ClientSide {
    /// Connects a client. Needs the runtime of the stage.
    pub(super) fn connect(client: WorldClient, daemon: &Daemon, door: ClientDoor, events: EventSender) -> Self {
        let mut side = Self {
            client,
            door,
            events,
            lines: None,
            pipe: CutBytes::default(),
            posts: VecDeque::new(),
            session: None,
            streams: Vec::new(),
            idle: IdleConnections::default(),
        };
        if !side.client.is_http {
            side.connect_pipe(daemon);
        }
        side.flush();
        side
    }

    fn connect_pipe(&mut self, daemon: &Daemon) {
        let (host, ours) = duplex(PIPE);
        let ((reader, writer), (input, output)) = (split(ours), split(host));
        let client = daemon.line_client(daemon.own_caller(), None);
        let stop = daemon.service.draining.clone();
        daemon.service.tasks.spawn("host", lines::serve(client, reader, writer, stop));
        let (lines, bytes) = mpsc::unbounded_channel();
        tokio::spawn(write_all(output, bytes));
        let (events, client) = (self.events.clone(), self.client.number);
        let task = tokio::spawn(async move {
            let told = |text| drop(events.send(WireEvent::Told { client, stream: 0, id: None, text }));
            read_lines(input, told).await;
            drop(events.send(WireEvent::Ended { client, stream: 0, whole: true }));
        });
        self.lines = Some(lines);
        self.streams.push(ClientStream::new(0, task.abort_handle()));
    }

    /// Takes the messages that the client sends.
    pub(super) fn flush(&mut self) {
        for sent in self.client.out.drain(..) {
            match sent {
                ClientSend::Message { text, .. } if self.lines.is_some() => self.pipe.line(&text),
                ClientSend::Message { text, stream } => self.posts.push_back((stream, text)),
                ClientSend::Closes { stream } => {
                    // The request may not even have been sent.
                    self.posts.retain(|(of, _)| *of != stream);
                    self.streams.extract_if(.., |one| one.number == stream).for_each(ClientStream::close);
                }
            }
        }
    }

    /// Returns whether there is something to deliver.
    pub(super) fn moves(&self) -> bool {
        self.sends() || self.streams.iter().any(ClientStream::moves)
    }

    fn sends(&self) -> bool {
        !self.pipe.is_empty() || !self.posts.is_empty()
    }

    /// Delivers one piece or message in one direction.
    pub(super) fn deliver(&mut self, chance: &mut WorldChance, truth: &mut WorldTruth) {
        let hearing: Vec<usize> = (0..self.streams.len()).filter(|at| self.streams[*at].moves()).collect();
        if self.sends() && (hearing.is_empty() || chance.one_in(2)) {
            return self.send(chance, truth);
        }
        let at = chance.pick(&hearing);
        let ClientStream { number, inbox, last, status, .. } = &mut self.streams[at];
        let (id, text) = inbox.pop_front().unwrap();
        *last = id.or(last.take());
        if !text.is_empty() {
            assert!(*status < 300 || !text.contains(r#""id":null"#), "HTTP {status}: {text}");
            let number = *number;
            for text in messages(&text) {
                self.client.hear(text, number, truth);
            }
        }
        self.drop_ended(truth);
        self.flush();
    }

    fn send(&mut self, chance: &mut WorldChance, truth: &mut WorldTruth) {
        let number = self.client.number;
        if let Some(lines) = &self.lines {
            let piece = self.pipe.piece(chance);
            truth.note(|| format!("client {number} sends {}", String::from_utf8_lossy(&piece).trim_end()));
            // A gateway that has ended the connection reads nothing more.
            drop(lines.send(piece));
            return;
        }
        let (stream, text) = self.posts.remove(chance.below(self.posts.len().clamp(1, 2))).unwrap();
        truth.note(|| format!("client {number} sends {text}"));
        let more = if self.client.is_modern() { headers_of(&text) } else { String::new() };
        self.request(stream, "POST", &more, &text);
    }

    /// Sends a request over HTTP, the answer to which is that stream.
    fn request(&mut self, stream: u64, method: &str, more: &str, body: &str) {
        let ClientDoor { port, token } = &self.door;
        let revision = self.client.revision;
        let session = match &self.session {
            Some(id) => format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: {revision}\r\n"),
            None if self.client.is_modern() => format!("MCP-Protocol-Version: {revision}\r\n"),
            None => String::new(),
        };
        let request = format!(
            "{method} /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nAuthorization: Bearer {token}\r\n{session}{more}\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut idle = self.idle.lock();
        // The gateway closes a connection without requests after a while.
        let open = std::iter::from_fn(|| idle.pop()).find_map(WorldConnection::if_open);
        drop(idle);
        let connection = open.unwrap_or_else(|| WorldConnection::new(net::connect(*port).unwrap()));
        let names = (self.client.number, stream);
        let task = tokio::spawn(exchange(connection, request, names, self.events.clone(), self.idle.clone()));
        match self.streams.iter_mut().find(|one| one.number == stream) {
            Some(broken) => broken.task = Some(task.abort_handle()),
            None => self.streams.push(ClientStream::new(stream, task.abort_handle())),
        }
    }

    /// Takes an event of this client.
    pub(super) fn take(&mut self, event: WireEvent, truth: &mut WorldTruth) {
        match event {
            WireEvent::Answered { stream, status, session, .. } => {
                self.session = session.or(self.session.take());
                if let Some(stream) = self.stream(stream) {
                    stream.status = status;
                }
            }
            WireEvent::Told { stream, id, text, .. } => {
                if let Some(stream) = self.stream(stream) {
                    stream.inbox.push_back((id, text));
                }
            }
            WireEvent::Ended { stream, whole, .. } => {
                let number = self.client.number;
                truth.note(|| format!("stream {stream} of client {number} ends, whole: {whole}"));
                if let Some(stream) = self.stream(stream) {
                    assert!(whole && stream.status < 500, "a stream of client {number} broke: {stream:?}");
                    stream.has_ended = true;
                }
                self.drop_ended(truth);
            }
            WireEvent::Started { .. }
            | WireEvent::Line { .. }
            | WireEvent::Exited { .. }
            | WireEvent::Requested { .. }
            | WireEvent::Closed { .. } => {}
        }
    }

    fn stream(&mut self, number: u64) -> Option<&mut ClientStream> {
        // Events of a connection that the client broke are of no stream.
        self.streams.iter_mut().find(|stream| stream.number == number && stream.task.is_some())
    }

    /// Forgets the streams that have ended and of which everything is heard.
    fn drop_ended(&mut self, truth: &WorldTruth) {
        for ended in self.streams.extract_if(.., |stream| stream.has_ended && stream.inbox.is_empty()) {
            let number = ended.number;
            let waits = self.client.waits_on(number) || !self.client.is_http;
            truth.note(|| format!("stream {number} is over"));
            assert!(!waits, "client {} got no answer on stream {ended:?}", self.client.number);
        }
    }

    /// Returns whether the client can come back to a stream that broke.
    fn resumes(&self) -> bool {
        self.client.is_http && self.client.revision.features().event_ids != EventIds::None
    }

    /// Breaks the connection of a stream, or lets the client resume one from its last event.
    pub(super) fn breaks(&mut self, chance: &mut WorldChance, truth: &WorldTruth) {
        if !self.resumes() || self.streams.is_empty() {
            return;
        }
        let at = chance.below(self.streams.len());
        let stream = &mut self.streams[at];
        if stream.task.is_none() {
            self.come_back();
        } else if stream.last.is_some() && !stream.has_ended {
            stream.task.take().inspect(AbortHandle::abort);
            stream.inbox.clear();
            truth.note(|| format!("stream {} of the client breaks", stream.number));
        }
    }

    /// Asks for the rest of all streams that broke; returns whether there were any.
    pub(super) fn come_back(&mut self) -> bool {
        let broken = self.streams.iter().filter(|stream| stream.task.is_none());
        let broken: Vec<(u64, String)> = broken.map(|one| (one.number, one.last.clone().unwrap())).collect();
        for (stream, last) in &broken {
            self.request(*stream, "GET", &format!("Last-Event-ID: {last}\r\n"), "");
        }
        !broken.is_empty()
    }

    /// Closes all connections of the client; with a farewell, it ends its session before.
    pub(super) fn leave(mut self, says_farewell: bool) {
        self.streams.drain(..).for_each(ClientStream::close);
        if says_farewell && self.session.is_some() {
            self.request(u64::MAX, "DELETE", "", "");
            self.streams.clear();
        }
    }

    /// Returns whether the client has a session that it leaves behind.
    pub(super) fn has_session(&self) -> bool {
        self.session.is_some()
    }
}

impl ClientStream {
    fn new(number: u64, task: AbortHandle) -> Self {
        Self { number, inbox: VecDeque::new(), last: None, task: Some(task), status: 200, has_ended: false }
    }

    fn moves(&self) -> bool {
        !self.inbox.is_empty()
    }

    fn close(self) {
        self.task.inspect(AbortHandle::abort);
    }
}

/// Returns the messages of an answer, which is a batch if the request was one.
fn messages(text: &str) -> Vec<&str> {
    let Some(batch) = text.strip_prefix('[') else { return vec![text] };
    let (mut found, mut depth, mut start, mut in_string, mut escaped) = (Vec::new(), 0, 0, false, false);
    for (at, byte) in batch.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                start = if depth == 0 { at } else { start };
                depth += 1;
            }
            b'}' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    found.push(&batch[start..=at]);
                }
            }
            b']' if depth > 0 => depth -= 1,
            _ => {}
        }
    }
    found
}
