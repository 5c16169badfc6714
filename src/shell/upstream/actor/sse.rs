//! The HTTP+SSE transport of 2024-11-05 towards an upstream: one event stream brings every message,
//! each of ours is posted to the endpoint that the stream names first. Both become a duplex of
//! lines, over which [`crate::upstream::line::connection`] does the rest.
//!
//! Source: MCP 2024-11-05, basic/transports, "HTTP with SSE".

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http::{Method, StatusCode, Uri};
use http_body_util::BodyExt as _;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader, copy, duplex,
    repeat, split,
};
use tokio::sync::mpsc;
use url::Url;

use crate::base::budget::{BudgetRoom, ByteBudget};
use crate::base::clock;
use crate::engine::handshake::EraHint;
use crate::upstream::actor::context::{ActorContext, LifeResult};
use crate::upstream::actor::conversation::{LineCarrier, converse, run_carried};
use crate::upstream::http::answer::{coded, drain, is_event_stream};
use crate::upstream::http::failure::failure;
use crate::upstream::http::remote::RemoteServer;
use crate::upstream::http::unspoken::NonMessageAnswer;
use crate::upstream::line::connection::RefusedRequest;
use crate::upstream::net::connections::AnswerBody;
use crate::upstream::session::handle::UpstreamHandle;
use crate::upstream::state::http_error::HttpError;
use crate::wire::frame::Frame;
use crate::wire::json::raw::RawJson;
use crate::wire::message::Message;
use crate::wire::sse::{SseDecoder, SseError, SseEvent};
use crate::wire::unreadable::UnreadableBytes;

/// Bytes that may wait in each direction between the transport and the protocol.
const PIPE_BYTES: usize = 64 * 1024;
/// How long the upstream may take to accept a notification, for which all later messages wait:
/// `initialized` comes first.
const POST_TIME: Duration = Duration::from_secs(30);
/// How long messages after a request wait for its POST, so that a cancellation finds its call. Some
/// servers answer the POST only after handling the request, and other calls must not wait for that.
const GRACE: Duration = Duration::from_millis(20);
/// Time limit for opening another stream to check the server, when calls get no answer.
const LOOK_TIME: Duration = Duration::from_secs(5);
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Most POSTs without an answer; beyond that, the protocol's side waits.
const MAX_POSTS: usize = 1024;

/// Serves the upstream until its event stream or the conversation ends. `limit` is the time for the
/// start.
pub(crate) async fn serve(context: &ActorContext, remote: &Arc<RemoteServer>, limit: Duration) -> LifeResult {
    let started = clock::now();
    let spec = context.handle.spec.load_full();
    context.handle.health.flaws.hide_given(&spec);
    let down = |why: String| LifeResult { why, next: None, served: None };
    let opened = tokio::select! {
        opened = tokio::time::timeout(limit, open(context, remote)) => opened,
        () = context.spawner.stop.cancelled() => return down("stopped".to_owned()),
    };
    let (events, endpoint) = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(why)) => return down(why),
        Err(_) => {
            context.handle.health.ran_out();
            return down("its event stream did not name an endpoint in time".to_owned());
        }
    };
    let left = limit.saturating_sub(clock::now().duration_since(started));
    let (near, far) = duplex(PIPE_BYTES);
    let (reader, writer) = split(near);
    // A server of 2024-11-05 knows `initialize` and no newer question.
    let (refused, refusals) = mpsc::channel(MAX_POSTS);
    let talk = converse(context, (EraHint::Legacy, left), writer, reader, LineCarrier::Posts(refusals));
    let max_message_bytes = context.spawner.intake.max_message_bytes();
    // A call ends after its hard limit, so no POST about it needs to last longer.
    let budget = Arc::clone(&context.spawner.intake.budget);
    let outbox = SsePoster {
        remote: Arc::clone(remote),
        endpoint,
        patience: spec.call_max + POST_TIME,
        budget,
        refused,
        handle: Arc::clone(&context.handle),
    };
    let carry = async move {
        let (lines, messages) = split(far);
        tokio::select! {
            why = forward_events(events, messages, max_message_bytes) => why,
            why = post_lines(outbox, lines) => why,
            why = watch(context, remote) => why,
        }
    };
    tokio::pin!(talk, carry);
    let life = run_carried(talk, carry).await;
    if life.served.is_none() && clock::now().duration_since(started) >= limit {
        context.handle.health.ran_out();
    }
    LifeResult { next: None, ..life }
}

/// Checks the server whenever calls get no answer, by opening another stream for a moment: a server
/// that is busy with one client may still open streams. Returns the reason if the server is gone.
/// A server that does not answer is shown as down, while its calls continue.
async fn watch(context: &ActorContext, remote: &RemoteServer) -> String {
    let health = &context.handle.health;
    if !context.lane.is_main() {
        return std::future::pending().await;
    }
    let mut pause = SHORTEST_PAUSE;
    loop {
        health.doubted(clock::now()).await;
        health.begin_look();
        let limit = context.handle.spec.load().call_timeout.min(LOOK_TIME);
        let asked = remote.send(remote.request(Method::GET, &remote.address(), Bytes::new()));
        let why = match tokio::time::timeout(limit, asked).await {
            Ok(Err(error @ HttpError::Connect(_))) => return error.to_string(),
            Ok(Ok(response)) if response.status().is_server_error() => {
                Some(format!("GET is answered with HTTP status {}", response.status()))
            }
            Ok(Err(error)) if error.is_of_a_dead_server() => Some(error.to_string()),
            Ok(_) => None,
            Err(_) => Some("GET is not answered, like calls before it".to_owned()),
        };
        if let Some(why) = why {
            // This also asks for the next check.
            health.unreached(&why);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        } else {
            health.answered();
            pause = SHORTEST_PAUSE;
            tokio::time::sleep(pause).await;
        }
    }
}

/// Opens the event stream and waits until it names the endpoint for POSTs, whose address is also
/// returned. Errors are sentences for the operator.
async fn open(context: &ActorContext, remote: &RemoteServer) -> Result<(SseStream, Uri), String> {
    let response = remote.send(remote.request(Method::GET, &remote.address(), Bytes::new())).await;
    let response = response.map_err(|error| error.to_string())?;
    if response.status() != StatusCode::OK {
        let status = response.status();
        drain(response.into_body()).await;
        return Err(format!("GET is answered with HTTP status {status}"));
    }
    if !is_event_stream(&response) {
        let mut unspoken = NonMessageAnswer::new(response, None);
        unspoken.read().await;
        let why = format!("GET: {}", unspoken.why("an event stream"));
        context.handle.health.flaws.unread(&UnreadableBytes::new(unspoken.start(), why.clone()));
        return Err(why);
    }
    if let Some(why) = coded(response.headers()) {
        return Err(format!("GET: {why}"));
    }
    // The address of the stream, after a redirect.
    let base = Url::parse(&remote.address().to_string()).unwrap_or_else(|_| remote.url.clone());
    let decoder = SseDecoder::new(context.spawner.intake.max_message_bytes());
    let room = BudgetRoom::shared(&context.spawner.intake.budget);
    let mut events = SseStream { body: response.into_body(), decoder, room, next: None };
    loop {
        let event = events.next().await?.map_err(|dropped| {
            let message = match dropped {
                DroppedEvent::TooLarge(start) => UnreadableBytes::new(&start, "an event is over the size limit"),
                DroppedEvent::NotText(line) => UnreadableBytes::no_json(&line),
            };
            context.handle.health.flaws.unread(&message);
            format!("its endpoint event cannot be read: {}", message.why)
        })?;
        if event.name.as_deref() == Some("endpoint") {
            return Ok((events, endpoint(&base, &String::from_utf8_lossy(&event.data))?));
        }
    }
}

/// Returns the address for POSTs. Another origin is refused, because it would get the credentials
/// for the configured one.
fn endpoint(stream: &Url, named: &str) -> Result<Uri, String> {
    let mut url = stream.join(named).map_err(|error| format!("its endpoint event holds no URL ({error})"))?;
    if url.origin() != stream.origin() || !url.username().is_empty() || url.password().is_some() {
        let (other, own) = (url.origin().ascii_serialization(), stream.origin().ascii_serialization());
        return Err(format!(
            "its endpoint event names {other}, which is not {own} as configured; nothing is sent there"
        ));
    }
    url.set_fragment(None);
    url.as_str().parse().map_err(|_| "its endpoint event holds no HTTP URI".to_owned())
}

/// The event stream of the upstream.
struct SseStream {
    body: AnswerBody,
    decoder: SseDecoder,
    /// Room for the event that is being read, or for the part of the last one that has not passed
    /// the pipe.
    room: BudgetRoom,
    /// The next piece of the body, held back until the budget has room for it.
    next: Option<Bytes>,
}

/// The reason why an event was dropped.
enum DroppedEvent {
    /// The event is over the limit or has no room; with its beginning.
    TooLarge(Bytes),
    /// The event is not UTF-8; with the offending line.
    NotText(Bytes),
}

impl SseStream {
    /// Sets the bytes of the last event that still have to pass the pipe. The other end takes room
    /// for the bytes it gets, and no message must take room twice.
    fn passing(&mut self, left: usize) {
        self.room.set(left + self.decoder.held());
    }

    /// Waits for the next event, or for one that had to be dropped. The event has room until the
    /// next one is awaited.
    ///
    /// # Errors
    /// The reason why the stream has ended.
    async fn next(&mut self) -> Result<Result<SseEvent, DroppedEvent>, String> {
        loop {
            match self.decoder.next_event() {
                Some(Ok(event)) => {
                    self.passing(event.data.len());
                    return Ok(Ok(event));
                }
                Some(Err(SseError::TooLarge { start, .. })) => return Ok(Err(DroppedEvent::TooLarge(start))),
                Some(Err(SseError::Utf8 { line })) => {
                    self.passing(line.len());
                    return Ok(Err(DroppedEvent::NotText(line)));
                }
                None => {}
            }
            self.room.set(self.decoder.held());
            if self.next.is_none() {
                self.next = match self.body.frame().await {
                    Some(Ok(frame)) => frame.into_data().ok(),
                    Some(Err(error)) => return Err(format!("its event stream broke: {error}")),
                    None => return Err("its event stream ended".to_owned()),
                };
            }
            let arrived = self.next.as_ref().map_or(0, Bytes::len);
            // The beginning of a dropped event is needed, since it names the call that it answers.
            let begun = self.decoder.held() > 0;
            let room = if begun { self.room.grow_to(self.decoder.held() + arrived).await } else { Ok(()) };
            if let Some(data) = self.next.take() {
                // A dropped event is skipped to its end without being kept.
                let start = room.is_err().then(|| self.decoder.discard());
                self.decoder.push(data);
                if let Some(start) = start {
                    return Ok(Err(DroppedEvent::TooLarge(start)));
                }
            }
        }
    }
}

/// Writes each message of the event stream to `lines` as one line, until the stream ends. Returns
/// the reason for the end.
async fn forward_events(mut events: SseStream, mut lines: impl AsyncWrite + Unpin, max_message_bytes: usize) -> String {
    loop {
        let written = match events.next().await {
            Err(why) => return why,
            // Later endpoints and events of other names are ignored.
            Ok(Ok(event)) if event.name.as_deref().is_some_and(|name| name != "message") || event.data.is_empty() => {
                Ok(())
            }
            Ok(Ok(event)) => on_one_line(&event.data, &mut lines, |left| events.passing(left)).await,
            Ok(Err(DroppedEvent::TooLarge(start))) => oversize(&start, &mut lines, max_message_bytes).await,
            // The line is no message, which the other side notices too: it finds the call that was
            // answered, and reports the line.
            Ok(Err(DroppedEvent::NotText(line))) => on_one_line(&line, &mut lines, |left| events.passing(left)).await,
        };
        if written.is_err() {
            return "stopped".to_owned();
        }
    }
}

/// Writes the data of an event as one line, and reports the bytes left as it progresses.
async fn on_one_line(
    data: &[u8],
    lines: &mut (impl AsyncWrite + Unpin),
    mut passing: impl FnMut(usize),
) -> std::io::Result<()> {
    let mut left = data.len();
    for (n, part) in data.split(|byte| *byte == b'\n').enumerate() {
        if n > 0 {
            lines.write_all(b" ").await?;
            left -= 1;
        }
        for piece in part.chunks(PIPE_BYTES / 2) {
            // The room is released before the other end can need it.
            left -= piece.len();
            passing(left);
            lines.write_all(piece).await?;
        }
    }
    lines.write_all(b"\n").await
}

/// Passes on an event that was dropped for its size, as a line over the limit, so that the calls
/// that it may answer fail.
async fn oversize(
    start: &[u8],
    lines: &mut (impl AsyncWrite + Unpin),
    max_message_bytes: usize,
) -> std::io::Result<()> {
    let rest = (max_message_bytes as u64 + 1).saturating_sub(start.len() as u64);
    lines.write_all(start).await?;
    copy(&mut repeat(b' ').take(rest), lines).await?;
    lines.write_all(b"\n").await
}

/// The sender of messages to the upstream.
struct SsePoster {
    remote: Arc<RemoteServer>,
    endpoint: Uri,
    /// How long the POST of a request may stay unanswered.
    patience: Duration,
    budget: Arc<ByteBudget>,
    /// Requests that the server did not accept.
    refused: mpsc::Sender<RefusedRequest>,
    handle: Arc<UpstreamHandle>,
}

/// Returns whether an answer to a POST is about its message alone, and not about the session.
fn is_of_one_message(status: StatusCode) -> bool {
    let of_one = [StatusCode::REQUEST_TIMEOUT, StatusCode::PAYLOAD_TOO_LARGE, StatusCode::TOO_MANY_REQUESTS];
    status.is_server_error() || of_one.contains(&status)
}

/// The part of a session that depends on a message, if its POST is refused.
enum MessageStake {
    /// The whole session: for the handshake, and for bytes that are no message.
    All,
    /// The request with this id.
    Request(RawJson),
    /// Only the message itself: a notification, or an answer to the server.
    Nothing,
}

impl MessageStake {
    /// Returns the part of the session that depends on a message; `None` is bytes that are no
    /// message.
    fn of(message: Option<&Message>) -> Self {
        match message {
            Some(Message::Request(request)) if request.method != "initialize" => {
                Self::Request(request.id.raw().clone())
            }
            Some(Message::Notification(notice)) if notice.method != "notifications/initialized" => Self::Nothing,
            Some(Message::Response(_)) => Self::Nothing,
            Some(Message::Request(_) | Message::Notification(_)) | None => Self::All,
        }
    }
}

/// Posts each line until a message fails that the session depends on, or the lines end. Returns the
/// reason for the end.
async fn post_lines(outbox: SsePoster, lines: impl AsyncRead + Unpin) -> String {
    let mut lines = BufReader::new(lines);
    let mut line = Vec::new();
    let mut under_way = FuturesUnordered::new();
    loop {
        let read = tokio::select! {
            read = lines.read_until(b'\n', &mut line), if under_way.len() < MAX_POSTS => read,
            Some(posted) = under_way.next() => match posted {
                Ok(()) => continue,
                Err(why) => return why,
            },
        };
        if !matches!(read, Ok(length) if length > 0) {
            return "stopped".to_owned();
        }
        line.pop();
        let message = outbox.budget.count(Bytes::from(std::mem::take(&mut line)));
        let parsed = Frame::from_upstream(message.clone()).ok().and_then(|frame| Message::parse(&frame).ok());
        let is_request = matches!(parsed, Some(Message::Request(_)));
        let (order, patience) = if is_request { (GRACE, outbox.patience) } else { (POST_TIME, POST_TIME) };
        let mut post = Box::pin(outbox.post(message, MessageStake::of(parsed.as_ref()), patience));
        match tokio::time::timeout(order, &mut post).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return why,
            Err(_) => under_way.push(post),
        }
    }
}

impl SsePoster {
    /// Posts one message; the HTTP answer only says whether it was accepted. `Ok` also if the
    /// server refused this message alone: then the request with the id in `stake`, if any, is made
    /// to fail.
    async fn post(&self, message: Bytes, stake: MessageStake, patience: Duration) -> Result<(), String> {
        let request = self.remote.request(Method::POST, &self.endpoint, message);
        match tokio::time::timeout(patience, self.remote.send(request)).await {
            Ok(Ok(response)) if response.status().is_success() => drain(response.into_body()).await,
            Ok(Ok(response)) => {
                let status = response.status();
                if matches!(stake, MessageStake::All) || !is_of_one_message(status) {
                    return Err(format!("a message was answered with HTTP status {status}"));
                }
                drain(response.into_body()).await;
                let error = HttpError::Status(status);
                self.handle.health.unanswered(&error);
                if let MessageStake::Request(id) = stake {
                    // If the conversation is over, no call is left that could fail.
                    let _over = self
                        .refused
                        .send(RefusedRequest { id, failure: failure(&self.handle.name, &error, None) })
                        .await;
                }
            }
            Ok(Err(error)) => return Err(format!("a message could not be sent: {error}")),
            Err(_) => return Err("a message was not taken in time".to_owned()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_to_the_configured_origin_only() {
        let stream = Url::parse("https://mcp.example:8443/a/sse?key=1").unwrap();
        let own = "https://mcp.example:8443";
        for (label, named, wanted) in [
            ("a path", "/messages?sessionId=1", Some("/messages?sessionId=1")),
            ("a relative path", "messages/1", Some("/a/messages/1")),
            ("a query", "?sessionId=1", Some("/a/sse?sessionId=1")),
            ("whole", "https://mcp.example:8443/m", Some("/m")),
            ("the same in other case", "HTTPS://MCP.example:8443/m#f", Some("/m")),
            ("another host", "https://evil.example:8443/m", None),
            ("another host without a scheme", "//169.254.169.254/x", None),
            ("the same with backslashes", "\\\\169.254.169.254/x", None),
            ("another port", "https://mcp.example/m", None),
            ("another scheme", "http://mcp.example:8443/m", None),
            ("a user", "https://user@mcp.example:8443/m", None),
            ("no HTTP", "data:text/plain,x", None),
            ("no URL", "https://[/", None),
        ] {
            let got = endpoint(&stream, named).ok().map(|uri| uri.to_string());
            assert_eq!(got, wanted.map(|path| format!("{own}{path}")), "{label}");
        }
    }

    #[tokio::test]
    async fn an_event_over_the_limit_becomes_a_line_over_the_limit() {
        let mut lines = Vec::new();
        oversize(b"{\"id\"", &mut lines, 10).await.unwrap();
        assert_eq!(lines, b"{\"id\"      \n");
    }
}
