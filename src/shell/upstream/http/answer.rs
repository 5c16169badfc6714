//! The messages of one HTTP response of an upstream, JSON or SSE.

use std::collections::VecDeque;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;

use crate::base::budget::{BudgetRoom, COUNTED_FROM, NoRoom};
use crate::base::callers::CallerNumber;
use crate::base::descriptors::lacks_descriptors;
use crate::engine::connection::batch;
use crate::engine::failure::ExecutionDoubt;
use crate::engine::fault::ProtocolFault;
use crate::mcp::version::Revision;
use crate::mcp::voice::UpstreamReader;
use crate::policy::Caller;
use crate::telemetry::metrics::UpstreamMetrics;
use crate::upstream::http::resume::StreamPosition;
use crate::upstream::http::unspoken::{self, NonMessageAnswer, may_be_json, media_type, shown_media};
use crate::upstream::net::connections::{AnswerBody, ClientError};
use crate::upstream::spawner::IntakeLimits;
use crate::upstream::state::http_error::HttpError;
use crate::upstream::state::message_flaws::MessageFlaws;
use crate::wire::coding;
use crate::wire::frame::Frame;
use crate::wire::message::{Message, Response as Answer};
use crate::wire::quirk::Quirk;
use crate::wire::sse::{SseDecoder, SseError};
use crate::wire::start::{MessageStart, own_response_id};
use crate::wire::unreadable::UnreadableBytes;

/// The expected form of an answer to a POST, for error texts.
const DUE: &str = "JSON or an event stream";

mod gauge;

/// Longest wait for the beginning of an answer that is refused for its length.
const BEGINNING: Duration = Duration::from_millis(200);

/// The rules and counters for reading the answers of one session.
#[derive(Clone, Debug)]
pub struct AnswerRules {
    pub ear: UpstreamReader,
    pub metrics: UpstreamMetrics,
    pub flaws: Arc<MessageFlaws>,
    pub intake: IntakeLimits,
    /// The agreed revision; `None` before the handshake.
    pub revision: Option<Revision>,
}

/// Converts the client's error. Errors of connecting are told apart from later ones.
pub(crate) fn transport_error(error: &ClientError) -> HttpError {
    let mut text = error.to_string();
    let mut source = Error::source(error);
    let mut is_ours = false;
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        is_ours |= cause.downcast_ref::<io::Error>().is_some_and(lacks_descriptors);
        source = cause.source();
    }
    match error.is_connect() {
        true if is_ours => HttpError::NoDescriptor(text),
        true => HttpError::Connect(text),
        false => HttpError::Broken(text),
    }
}

/// The reader of the messages in one response body, JSON or SSE.
pub(crate) struct AnswerReader {
    body: AnswerBody,
    format: AnswerFormat,
    /// True if the status is an error, so that the body may be anything.
    is_refusal: bool,
    gauge: AnswerRules,
    /// The remaining messages of a batch.
    rest: VecDeque<Message>,
    /// The caller of the answer, until the answer is so large that it takes room in the caller's
    /// share.
    caller: Option<Caller>,
    /// Room for the message that is being read.
    room: BudgetRoom,
    /// The next piece of the body, held back until the budget has room for it.
    next: Option<Bytes>,
    /// The position in an event stream.
    position: StreamPosition,
    /// The request whose answer is read: an unreadable event ends the stream only if it names this
    /// request.
    request: Option<u64>,
    /// The request that the last unreadable event names.
    unread: Option<u64>,
    /// The media type of a body that is read as JSON although another type was declared.
    other_type: Option<String>,
}

/// The format of a response body, and the bytes read so far.
enum AnswerFormat {
    Json { collected: BytesMut },
    Sse { decoder: Box<SseDecoder> },
}

impl AnswerReader {
    /// Judges the head of a response.
    ///
    /// # Errors
    /// The response, if it is not expected to contain messages.
    pub(crate) fn of(response: Response<AnswerBody>, gauge: &AnswerRules) -> Result<Self, Box<NonMessageAnswer>> {
        let body_expected = response.status() == StatusCode::OK || response.status().is_client_error();
        Self::judge(response, gauge, body_expected)
    }

    /// Judges the head of an answer to a handshake question: a server that does not know the
    /// question may fail with an error of the protocol.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub(crate) fn of_question(
        response: Response<AnswerBody>,
        gauge: &AnswerRules,
    ) -> Result<Self, Box<NonMessageAnswer>> {
        let status = response.status();
        let body_expected = status.is_client_error() || matches!(status.as_u16(), 200 | 500 | 501);
        Self::judge(response, gauge, body_expected)
    }

    /// Judges the head. `body_expected`: a JSON-RPC error may come under this status; any other
    /// body under an error status is ignored.
    fn judge(
        response: Response<AnswerBody>,
        gauge: &AnswerRules,
        body_expected: bool,
    ) -> Result<Self, Box<NonMessageAnswer>> {
        let status = response.status();
        let gauge = gauge.clone();
        let media = media_type(response.headers());
        let is = |other: &[u8]| media.eq_ignore_ascii_case(other);
        if let Some(why) = coded(response.headers()) {
            return Err(Box::new(NonMessageAnswer::new(response, Some(why))));
        }
        if is(b"text/event-stream") && status.is_success() {
            let decoder = Box::new(SseDecoder::new(gauge.intake.max_message_bytes()));
            return Ok(Self::new(response, AnswerFormat::Sse { decoder }, gauge));
        }
        let other_type = (status == StatusCode::OK && may_be_json(media)).then(|| shown_media(media));
        if is(b"application/json") && body_expected || other_type.is_some() {
            let format = AnswerFormat::Json { collected: BytesMut::new() };
            return Ok(Self { other_type, ..Self::new(response, format, gauge) });
        }
        Err(Box::new(NonMessageAnswer::new(response, None)))
    }

    fn new(response: Response<AnswerBody>, format: AnswerFormat, gauge: AnswerRules) -> Self {
        let (is_refusal, room) = (!response.status().is_success(), BudgetRoom::new(&gauge.intake.budget));
        let (body, position, rest) = (response.into_body(), StreamPosition::default(), VecDeque::new());
        Self {
            body,
            format,
            is_refusal,
            gauge,
            rest,
            caller: None,
            room,
            next: None,
            position,
            request: None,
            unread: None,
            other_type: None,
        }
    }

    /// Reads the answer for this caller, in whose share it takes room.
    pub(crate) fn with_caller(mut self, caller: Option<&Caller>) -> Self {
        self.caller = caller.cloned();
        self
    }

    /// Reads the answer to the request of this id, and skips unreadable events that do not name it.
    pub(crate) const fn of_request(mut self, id: u64) -> Self {
        self.request = Some(id);
        self
    }

    /// Returns the request that the last unreadable event names.
    pub(crate) fn take_unread(&mut self) -> Option<u64> {
        self.unread.take()
    }

    /// Waits for room for a message of this many bytes.
    async fn make_room(&mut self, bytes: usize) -> Result<(), HttpError> {
        if bytes >= COUNTED_FROM
            && let Some(caller) = self.caller.take()
        {
            self.room.use_share_of(CallerNumber::of(&caller));
        }
        self.room.grow_to(bytes).await.map_err(|NoRoom| HttpError::NoRoom(ExecutionDoubt::Unknown))
    }

    /// Returns the position of the stream, after it has ended.
    pub(crate) fn take_position(&mut self) -> StreamPosition {
        std::mem::take(&mut self.position)
    }

    /// Returns the rest of the body that the server has not sent yet, after the answer was read.
    pub(crate) fn into_rest(self) -> Option<AnswerBody> {
        self.body.into_rest()
    }

    /// Reads the next message. Cancel-safe.
    ///
    /// # Errors
    /// [`HttpError::Broken`] if the body ends before the answer.
    pub(crate) async fn next(&mut self) -> Result<Message, HttpError> {
        loop {
            if let Some(message) = self.rest.pop_front() {
                return Ok(message);
            }
            match self.event_message() {
                Ok(None) => {}
                Ok(Some(message)) => return Ok(message),
                Err(HttpError::Protocol(_)) if self.request.is_some_and(|id| self.unread.take() != Some(id)) => {
                    continue;
                }
                Err(error) => return Err(error),
            }
            // Room for all of an answer with a declared length, before any of it is read.
            if let (AnswerFormat::Json { collected }, Some(length)) = (&self.format, self.body.size_hint().exact()) {
                let length = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(collected.len());
                if length > self.gauge.intake.max_message_bytes() {
                    return Err(self.over_length().await);
                }
                self.make_room(length).await?;
            }
            if self.next.is_none() {
                self.next = match self.body.frame().await {
                    Some(Ok(frame)) => frame.into_data().ok(),
                    Some(Err(error)) => return Err(HttpError::Broken(error.to_string())),
                    None => return self.last(),
                };
            }
            let held = match &self.format {
                AnswerFormat::Sse { decoder } => decoder.held(),
                AnswerFormat::Json { collected } => collected.len(),
            };
            let arrived = self.next.as_ref().map_or(0, Bytes::len);
            if held.saturating_add(arrived) <= self.gauge.intake.max_message_bytes() {
                self.make_room(held + arrived).await?;
            }
            let Some(data) = self.next.take() else { continue };
            self.gauge.metrics.received(data.len());
            match &mut self.format {
                AnswerFormat::Sse { decoder } => decoder.push(data),
                AnswerFormat::Json { collected } => {
                    if self.body.is_end_stream() && collected.is_empty() {
                        return self.message(data);
                    }
                    if held + arrived > self.gauge.intake.max_message_bytes() {
                        let start = if collected.is_empty() { &data[..] } else { &collected[..] };
                        return Err(self.gauge.over_limit(start));
                    }
                    collected.extend_from_slice(&data);
                }
            }
        }
    }

    /// Returns the error for an answer whose declared length is too long. Its beginning is reported
    /// to the operator.
    async fn over_length(&mut self) -> HttpError {
        let first = tokio::time::timeout(BEGINNING, self.body.frame()).await;
        let first = first.ok().flatten().and_then(Result::ok).and_then(|frame| frame.into_data().ok());
        self.gauge.over_limit(&first.unwrap_or_default())
    }

    /// Parses received bytes and returns the first message; further messages of a batch are
    /// returned later.
    fn message(&mut self, bytes: Bytes) -> Result<Message, HttpError> {
        let bytes = self.room.keep(bytes);
        if let AnswerFormat::Sse { decoder } = &self.format {
            self.room.set(decoder.held());
        }
        let gauge = &self.gauge;
        // An unreadable body with an error status is not a protocol violation.
        let wrong = |(fault, message): (ProtocolFault, UnreadableBytes)| match self.is_refusal {
            true => HttpError::Protocol(message.why),
            false => gauge.unread(fault, &message),
        };
        let whole = bytes.clone();
        if let Some(media) = &self.other_type {
            if !matches!(whole.trim_ascii_start().first(), Some(b'{' | b'[')) {
                let why = unspoken::why(StatusCode::OK, media, &whole, DUE);
                return Err(wrong((ProtocolFault::Garbage, UnreadableBytes::new(&whole, why))));
            }
            gauge.read(Quirk::OtherType);
        }
        let frame = Frame::from_upstream(bytes)
            .map_err(|_| wrong((ProtocolFault::Garbage, UnreadableBytes::no_json(&whole))))?;
        let Some((frames, quirk)) = batch::split(&frame, gauge.revision) else {
            return gauge.hear(&frame).map_err(wrong);
        };
        quirk.into_iter().for_each(|quirk| gauge.read(quirk));
        self.rest = frames.iter().map(|frame| gauge.hear(frame).map_err(wrong)).collect::<Result<_, _>>()?;
        let empty = || (ProtocolFault::Garbage, UnreadableBytes::new(&whole, "an empty batch"));
        self.rest.pop_front().ok_or_else(|| wrong(empty()))
    }

    /// Returns the next message among the events received so far.
    fn event_message(&mut self) -> Result<Option<Message>, HttpError> {
        let Some(data) = self.event()? else { return Ok(None) };
        let read = self.message(data.clone());
        if read.is_err() {
            // An unreadable batch may contain any answer, so it counts as that to this request.
            let is_batch = data.trim_ascii_start().first() == Some(&b'[');
            self.unread = own_response_id(&data).or(self.request.filter(|_| is_batch));
        }
        read.map(Some)
    }

    /// Returns the data of the next message among the events received so far.
    fn event(&mut self) -> Result<Option<Bytes>, HttpError> {
        let AnswerFormat::Sse { decoder } = &mut self.format else { return Ok(None) };
        while let Some(event) = decoder.next_event() {
            let event = event.map_err(|error| match &error {
                SseError::TooLarge { start, .. } => {
                    self.unread = match MessageStart::of(start) {
                        MessageStart::Answer(_) => own_response_id(start),
                        MessageStart::Request(_) | MessageStart::Notifies | MessageStart::Asks => None,
                        // The event may be the answer.
                        MessageStart::Unknown => self.request,
                    };
                    self.gauge.unread(ProtocolFault::Oversize, &UnreadableBytes::new(start, error.to_string()))
                }
                SseError::Utf8 { line } => {
                    self.unread = own_response_id(line);
                    self.gauge.unread(ProtocolFault::Garbage, &UnreadableBytes::no_json(line))
                }
            })?;
            self.position.read(&event);
            let is_message = event.name.as_deref().is_none_or(|name| name == "message");
            if is_message && !event.data.is_empty() {
                return Ok(Some(event.data));
            }
        }
        self.room.set(decoder.held());
        Ok(None)
    }

    /// Returns the message that ends with the body.
    fn last(&mut self) -> Result<Message, HttpError> {
        match &mut self.format {
            AnswerFormat::Json { collected } if !collected.is_empty() || self.other_type.is_some() => {
                let data = collected.split().freeze();
                self.message(data)
            }
            AnswerFormat::Json { .. } | AnswerFormat::Sse { .. } => {
                Err(HttpError::Broken("the answer ended early".to_owned()))
            }
        }
    }
}

/// Reads the rest of a body if it is short and ends soon, so that its connection can be used again.
pub(crate) async fn drain(mut body: AnswerBody) {
    let mut left = 64 * 1024_usize;
    let read = async {
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                break;
            }
        }
    };
    drop(tokio::time::timeout(Duration::from_millis(200), read).await);
}

/// Returns the reason why the coding of a response's body is refused. The gateway asked for none,
/// and the decoded size is unknown.
pub(crate) fn coded(headers: &HeaderMap) -> Option<&'static str> {
    if !coding::is_plain_transfer(headers.get_all(TRANSFER_ENCODING).iter().map(HeaderValue::as_bytes)) {
        return Some("the answer has a transfer coding other than chunked");
    }
    let plain = coding::is_plain_content(headers.get_all(CONTENT_ENCODING).iter().map(HeaderValue::as_bytes));
    (!plain).then_some("the answer has a content encoding")
}

pub(crate) fn is_event_stream(response: &Response<AnswerBody>) -> bool {
    media_type(response.headers()).eq_ignore_ascii_case(b"text/event-stream")
}
