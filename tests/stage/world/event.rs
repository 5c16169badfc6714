//! Events on the wires between the gateway and a world, and the tasks that carry them. The world
//! decides when a client or a server learns of an event.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::sync::mpsc;

use super::http::{WorldConnection, WorldEvents, WorldHead};

/// The channel of events to their world.
pub(super) type EventSender = mpsc::UnboundedSender<WireEvent>;

/// Connections of a client that wait for its next request.
pub(super) type IdleConnections = Arc<Mutex<Vec<WorldConnection>>>;

/// An event on a wire.
#[derive(Debug)]
pub(super) enum WireEvent {
    /// The head of the answer to a request of a client.
    Answered { client: u64, stream: u64, status: u16, session: Option<String> },
    /// A message for a client; over HTTP with the id of its event.
    Told { client: u64, stream: u64, id: Option<String>, text: String },
    /// A stream to a client has ended; without `whole` in the middle of its body.
    Ended { client: u64, stream: u64, whole: bool },
    /// A process of an upstream runs, and takes these bytes as its output.
    Started { upstream: usize, process: u64, output: mpsc::UnboundedSender<Bytes> },
    /// A line for a process.
    Line { upstream: usize, process: u64, text: String },
    /// A process has ended.
    Exited { upstream: usize, process: u64 },
    /// A request over HTTP.
    Requested { upstream: usize, request: HttpRequestEvent },
    /// The gateway has closed the connection of a request that was not answered to its end.
    Closed { upstream: usize, stream: u64 },
}

/// A request over HTTP.
#[derive(Debug)]
pub(super) struct HttpRequestEvent {
    /// The number of the stream that carries the answer.
    pub(super) stream: u64,
    pub(super) method: String,
    pub(super) session: Option<u64>,
    pub(super) last_event: Option<String>,
    pub(super) body: String,
    /// Takes the bytes of the answer; dropped before [`AnswerPiece::Last`], it breaks the
    /// connection.
    pub(super) answer: mpsc::UnboundedSender<AnswerPiece>,
}

/// A piece of an answer over HTTP.
#[derive(Debug)]
pub(super) enum AnswerPiece {
    More(String),
    Last(String),
}

/// Reads lines until their end.
pub(super) async fn read_lines(input: impl AsyncRead + Unpin, mut each: impl FnMut(String)) {
    let mut lines = BufReader::new(input).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        each(line);
    }
}

/// Writes what comes until there is no more.
pub(super) async fn write_all(mut output: impl AsyncWrite + Unpin, mut bytes: mpsc::UnboundedReceiver<Bytes>) {
    while let Some(piece) = bytes.recv().await {
        if output.write_all(&piece).await.is_err() {
            return;
        }
    }
}

/// Sends a request of a client and hands over its answer.
pub(super) async fn exchange(
    mut connection: WorldConnection,
    request: String,
    (client, stream): (u64, u64),
    events: EventSender,
    idle: IdleConnections,
) {
    let send = |event| drop(events.send(event));
    let mut whole = false;
    if connection.write(request.as_bytes()).await
        && let Some(head) = connection.head().await
    {
        let status = head.words().nth(1).unwrap().parse().unwrap();
        send(WireEvent::Answered { client, stream, status, session: head.field("mcp-session-id").map(str::to_owned) });
        let told = |id, text| drop(events.send(WireEvent::Told { client, stream, id, text }));
        whole = read_answer(&mut connection, &head, told).await;
        if whole && head.field("connection").is_none_or(|word| !word.eq_ignore_ascii_case("close")) {
            idle.lock().push(connection);
        }
    }
    send(WireEvent::Ended { client, stream, whole });
}

/// Reads the messages of an answer; returns whether it came to its end.
async fn read_answer(
    connection: &mut WorldConnection,
    head: &WorldHead,
    mut each: impl FnMut(Option<String>, String),
) -> bool {
    let is_stream = head.field("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
    if let Some(length) = head.length() {
        let Some(body) = connection.body(length).await else { return false };
        if !body.is_empty() {
            each(None, String::from_utf8(body.into()).unwrap());
        }
        return true;
    }
    let (mut events, mut body) = (WorldEvents::default(), Vec::new());
    loop {
        let Some(chunk) = connection.chunk().await else { return false };
        if chunk.is_empty() {
            if !is_stream {
                each(None, String::from_utf8(body).unwrap());
            }
            return true;
        }
        if !is_stream {
            body.extend_from_slice(&chunk);
            continue;
        }
        events.push(&chunk);
        while let Some((id, data)) = events.pop() {
            each(id, data);
        }
    }
}

/// Serves one connection of the gateway to an upstream.
pub(super) async fn serve(stream: DuplexStream, upstream: usize, events: EventSender, numbers: Arc<AtomicU64>) {
    let mut connection = WorldConnection::new(stream);
    while let Some(head) = connection.head().await {
        let Some(body) = connection.body(head.length().unwrap()).await else { return };
        let (answer, mut pieces) = mpsc::unbounded_channel();
        let stream = numbers.fetch_add(1, Ordering::Relaxed);
        let request = HttpRequestEvent {
            stream,
            method: head.words().next().unwrap_or_default().to_owned(),
            session: head.field("mcp-session-id").map(|id| id.trim_start_matches('s').parse().unwrap()),
            last_event: head.field("last-event-id").map(str::to_owned),
            body: String::from_utf8(body.into()).unwrap(),
            answer,
        };
        if events.send(WireEvent::Requested { upstream, request }).is_err() {
            return;
        }
        loop {
            let piece = tokio::select! {
                biased;
                piece = pieces.recv() => piece,
                more = connection.fill() => {
                    if more {
                        continue;
                    }
                    drop(events.send(WireEvent::Closed { upstream, stream }));
                    return;
                }
            };
            let (text, is_last) = match piece {
                Some(AnswerPiece::More(text)) => (text, false),
                Some(AnswerPiece::Last(text)) => (text, true),
                // The server breaks the connection.
                None => return,
            };
            if !connection.write(text.as_bytes()).await {
                drop(events.send(WireEvent::Closed { upstream, stream }));
                return;
            }
            if is_last {
                break;
            }
        }
    }
}
