//! JSON-RPC 2.0 messages: classified by the members that are present, encoded by joining slices.

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::wire::frame::{Frame, FrameError, JsonBounds};
use crate::wire::id::{ClientId, normalize_number};
use crate::wire::json::envelope::Envelope;
use crate::wire::json::grammar::TokenRange;
use crate::wire::json::raw::RawJson;
use crate::wire::json::tokens::unescaped;
use crate::wire::quirk::Quirk;

/// A message of an upstream, the bound that it breaks, and its quirk.
type FromUpstream = (Message, Option<FrameError>, Option<Quirk>);

/// A message in either direction.
#[derive(Debug)]
pub enum Message {
    Request(Request),
    Notification(Notification),
    Response(Response),
}

/// A JSON-RPC request.
#[derive(Clone, Debug)]
pub struct Request {
    pub id: ClientId,
    pub method: String,
    pub params: Option<RawJson>,
}

#[cfg(any(test, feature = "testing"))]
impl Request {
    /// Creates a request without parameters, for tests.
    ///
    /// # Panics
    /// Never: the id is valid.
    #[must_use]
    pub fn of(method: &str) -> Self {
        let id = ClientId::from_raw(RawJson::trusted("1")).expect("a number is an id");
        Self { id, method: method.to_owned(), params: None }
    }
}

/// A JSON-RPC notification, which gets no response.
#[derive(Clone, Debug)]
pub struct Notification {
    pub method: String,
    pub params: Option<RawJson>,
}

/// A JSON-RPC response: the result or the error object, as received. `id` is `None` if it was
/// `null` or missing.
#[derive(Debug)]
pub struct Response {
    pub id: Option<RawJson>,
    pub outcome: Result<RawJson, RawJson>,
    /// The bound (nesting or number of values) that the message breaks, if any.
    pub broken: Option<FrameError>,
}

/// The reason why a frame is no JSON-RPC message. Holds the request's id for the error response, if
/// one could be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MessageError {
    #[error("not valid JSON")]
    Syntax,
    #[error("not a JSON-RPC 2.0 message: {why}")]
    Shape { why: &'static str, id: Option<ClientId> },
}

/// The members of an envelope as `serde_json` reads them, for messages that [`Frame::envelope`]
/// cannot read; unknown members are dropped. A member that is JSON `null` is `Some`.
#[derive(Deserialize)]
struct ParsedEnvelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// Deserialises a member that is present, so that `null` becomes `Some`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl Message {
    /// Reads one message of an upstream, whose envelope may have a [`Quirk`]. A request or
    /// notification that breaks the bounds loses its parameters, and is refused or dropped like any
    /// without them. A response that breaks them is marked: it fails its call, but of a list each
    /// item is judged by itself.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub(crate) fn of_upstream(frame: &Frame, bounds: JsonBounds) -> Result<FromUpstream, MessageError> {
        let (mut message, quirk) = Self::read(frame, true)?;
        let Err(broken) = frame.within(bounds) else { return Ok((message, None, quirk)) };
        match &mut message {
            Self::Request(Request { params, .. }) | Self::Notification(Notification { params, .. }) => *params = None,
            Self::Response(response) => response.broken = Some(broken),
        }
        Ok((message, Some(broken), quirk))
    }

    /// Reads one message.
    ///
    /// # Errors
    /// [`MessageError::Syntax`] for text that is not JSON, [`MessageError::Shape`] for JSON that is
    /// no message.
    pub fn parse(frame: &Frame) -> Result<Self, MessageError> {
        Self::read(frame, false).map(|(message, _)| message)
    }

    /// Reads a message; of an upstream's (`of_upstream`) quirks are accepted.
    fn read(frame: &Frame, of_upstream: bool) -> Result<(Self, Option<Quirk>), MessageError> {
        let bytes = frame.bytes();
        match frame.envelope() {
            Some(envelope) => EnvelopeMembers::at(&envelope, bytes).read(of_upstream),
            None => Self::read_whole(bytes, of_upstream),
        }
    }

    /// Reads a message with `serde_json`: the slow path for an uncommon envelope, and for text that
    /// is no message.
    fn read_whole(bytes: &Bytes, of_upstream: bool) -> Result<(Self, Option<Quirk>), MessageError> {
        if bytes.iter().find(|b| !b.is_ascii_whitespace()) != Some(&b'{') {
            // Checked first: a derived struct would also read an array, member by member.
            let json = serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok();
            let shape = MessageError::Shape { why: "an object is expected", id: None };
            return Err(if json { shape } else { MessageError::Syntax });
        }
        let parsed: ParsedEnvelope<'_> = serde_json::from_slice(bytes).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => MessageError::Shape { why: "a member stands twice", id: None },
            serde_json::error::Category::Io
            | serde_json::error::Category::Syntax
            | serde_json::error::Category::Eof => MessageError::Syntax,
        })?;
        EnvelopeMembers::of(&parsed, bytes).read(of_upstream)
    }
}

/// The members of an envelope, as slices of the frame.
struct EnvelopeMembers<'a> {
    jsonrpc: Option<&'a [u8]>,
    id: Option<RawJson>,
    method: Option<&'a [u8]>,
    params: Option<RawJson>,
    result: Option<RawJson>,
    error: Option<RawJson>,
}

impl<'a> EnvelopeMembers<'a> {
    /// Slices the members out of a frame, at the positions that a single pass found.
    fn at(envelope: &Envelope, frame: &'a Bytes) -> Self {
        let text = |place: Option<TokenRange>| place.map(|place| place.of(frame));
        let json = |place: Option<TokenRange>| place.map(|place| RawJson::trusted(frame.slice(place.start..place.end)));
        Self {
            jsonrpc: text(envelope.jsonrpc),
            id: json(envelope.id),
            method: text(envelope.method),
            params: json(envelope.params),
            result: json(envelope.result),
            error: json(envelope.error),
        }
    }

    fn of(parsed: &ParsedEnvelope<'a>, frame: &Bytes) -> Self {
        let text = |member: Option<&'a RawValue>| member.map(|member| member.get().as_bytes());
        let json = |member: Option<&RawValue>| member.map(|member| RawJson::slice_of(frame, member));
        Self {
            jsonrpc: text(parsed.jsonrpc),
            id: json(parsed.id),
            method: text(parsed.method),
            params: json(parsed.params),
            result: json(parsed.result),
            error: json(parsed.error),
        }
    }

    /// Classifies the members; of an upstream's (`of_upstream`) quirks are removed first.
    fn read(mut self, of_upstream: bool) -> Result<(Message, Option<Quirk>), MessageError> {
        let quirk = if of_upstream { self.settle() } else { None };
        self.classify().map(|message| (message, quirk))
    }

    /// Removes from an upstream's envelope what breaks the protocol without leaving a doubt about
    /// the meaning; returns the last quirk found.
    fn settle(&mut self) -> Option<Quirk> {
        let is_null = |member: &Option<RawJson>| member.as_ref().is_some_and(RawJson::is_null);
        let is_absent = |member: &Option<RawJson>| member.as_ref().is_none_or(RawJson::is_null);
        let has_null_method = self.method == Some(b"null");
        let nulls = [&self.result, &self.error, &self.params].into_iter().filter(|member| is_null(member)).count();
        let mut quirk = None;
        if has_null_method || nulls > 0 {
            let asks = self.method.is_some() && !has_null_method;
            let (no_result, no_error) = (is_absent(&self.result), is_absent(&self.error));
            // A `null` result without any error is still a response, if a wrong one.
            if asks || no_result != no_error {
                self.method = self.method.filter(|_| asks);
                self.result = self.result.take().filter(|_| !no_result);
                self.error = self.error.take().filter(|_| !no_error);
                self.params = self.params.take().filter(|params| !params.is_null());
                quirk = Some(Quirk::NullMember);
            }
        }
        // A notification has no id; some servers write it as `null`.
        if is_null(&self.id) && self.method.is_some_and(|method| method.starts_with(b"\"notifications/")) {
            (self.id, quirk) = (None, Some(Quirk::NullMember));
        }
        if self.method.is_none()
            && let Some(number) = self.id.as_ref().and_then(normalize_number)
        {
            (self.id, quirk) = (Some(number), Some(Quirk::OtherId));
        }
        quirk
    }

    /// Decides by the members that are present whether this is a request, a notification or a
    /// response.
    fn classify(self) -> Result<Message, MessageError> {
        let Self { jsonrpc, id: raw_id, method, params, result, error } = self;
        let id = raw_id.clone().and_then(ClientId::from_raw);
        let shape = |why| MessageError::Shape { why, id: id.clone() };
        if jsonrpc != Some(b"\"2.0\"") && jsonrpc.and_then(unescaped).as_deref() != Some("2.0") {
            return Err(shape("`jsonrpc` must be \"2.0\""));
        }
        match (method, result, error) {
            (Some(method), None, None) => {
                let Some(name) = unescaped(method) else {
                    let is_string = method.starts_with(b"\"");
                    return Err(if is_string { MessageError::Syntax } else { shape("`method` must be a string") });
                };
                let method = name.into_owned();
                match (raw_id, id.clone()) {
                    (None, _) => Ok(Message::Notification(Notification { method, params })),
                    (Some(_), Some(id)) => Ok(Message::Request(Request { id, method, params })),
                    (Some(_), None) => Err(shape("`id` must be a string or an integer")),
                }
            }
            (None, Some(result), None) => {
                Ok(Message::Response(Response { id: not_null(raw_id), outcome: Ok(result), broken: None }))
            }
            (None, None, Some(error)) => {
                Ok(Message::Response(Response { id: not_null(raw_id), outcome: Err(error), broken: None }))
            }
            (None, None, None) => Err(shape("no `method`, `result` or `error`")),
            (Some(_), _, _) => Err(shape("`method` beside `result` or `error`")),
            (None, Some(_), Some(_)) => Err(shape("both `result` and `error`")),
        }
    }
}

fn not_null(id: Option<RawJson>) -> Option<RawJson> {
    id.filter(|id| !id.is_null())
}

/// Encodes a response with a result or an error object.
pub fn encode_answer(id: &RawJson, answer: &Result<RawJson, RawJson>) -> Bytes {
    match answer {
        Ok(result) => encode_result(id, result.bytes()),
        Err(error) => encode_error(Some(id), error),
    }
}

/// Encodes the text before a result: `{"jsonrpc":"2.0","id":<id>,"result":`.
pub fn result_head(id: &RawJson) -> Bytes {
    let mut out = BytesMut::with_capacity(64 + id.bytes().len());
    put_head(&mut out, id);
    out.put_slice(b",\"result\":");
    out.freeze()
}

/// Encodes the text before an error: `{"jsonrpc":"2.0","id":<id>,"error":`.
pub fn error_head(id: &RawJson) -> Bytes {
    let mut out = BytesMut::with_capacity(64 + id.bytes().len());
    put_head(&mut out, id);
    out.put_slice(b",\"error\":");
    out.freeze()
}

/// Encodes a successful response in one buffer.
pub fn encode_result(id: &RawJson, result: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(48 + id.bytes().len() + result.len());
    put_head(&mut out, id);
    out.put_slice(b",\"result\":");
    out.put_slice(result);
    out.put_u8(b'}');
    out.freeze()
}

/// Encodes an error response; `id` is `None` if the request's id could not be read.
pub fn encode_error(id: Option<&RawJson>, error: &RawJson) -> Bytes {
    let id_len = id.map_or(0, |id| id.bytes().len());
    let mut out = BytesMut::with_capacity(48 + id_len + error.bytes().len());
    match id {
        Some(id) => put_head(&mut out, id),
        None => out.put_slice(b"{\"jsonrpc\":\"2.0\""),
    }
    out.put_slice(b",\"error\":");
    out.put_slice(error.bytes());
    out.put_u8(b'}');
    out.freeze()
}

/// Encodes a request. `method` must need no escapes.
pub fn encode_request(id: &RawJson, method: &str, params: Option<&RawJson>) -> Bytes {
    let mut out = BytesMut::with_capacity(64 + method.len() + params.map_or(0, |p| p.bytes().len()));
    put_head(&mut out, id);
    put_method(&mut out, method, params);
    out.freeze()
}

/// Encodes a request whose parameters are written in place by `params`; `length` is their
/// approximate length in bytes.
pub(crate) fn encode_request_by(id: &RawJson, method: &str, length: usize, params: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = Vec::with_capacity(64 + method.len() + length);
    for piece in
        [b"{\"jsonrpc\":\"2.0\",\"id\":", id.bytes().as_ref(), b",\"method\":\"", method.as_bytes(), b"\",\"params\":"]
    {
        out.extend_from_slice(piece);
    }
    params(&mut out);
    out.push(b'}');
    out.into()
}

/// Encodes a notification. `method` must need no escapes.
pub fn encode_notification(method: &str, params: Option<&RawJson>) -> Bytes {
    let mut out = BytesMut::with_capacity(48 + method.len() + params.map_or(0, |p| p.bytes().len()));
    out.put_slice(b"{\"jsonrpc\":\"2.0\"");
    put_method(&mut out, method, params);
    out.freeze()
}

fn put_head(out: &mut BytesMut, id: &RawJson) {
    out.put_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.put_slice(id.bytes());
}

/// Appends method and parameters. Methods are headend's own constants or names from [`crate::mcp`];
/// none needs escapes.
fn put_method(out: &mut BytesMut, method: &str, params: Option<&RawJson>) {
    out.put_slice(b",\"method\":\"");
    out.put_slice(method.as_bytes());
    out.put_u8(b'"');
    if let Some(params) = params {
        out.put_slice(b",\"params\":");
        out.put_slice(params.bytes());
    }
    out.put_u8(b'}');
}

/// Builds an error object with a message of headend's own and optional data.
pub fn error_object(code: i64, message: &str, data: Option<&RawJson>) -> RawJson {
    let message = RawJson::string(message);
    let mut out = BytesMut::with_capacity(40 + message.bytes().len() + data.map_or(0, |d| d.bytes().len()));
    out.put_slice(format!("{{\"code\":{code},\"message\":").as_bytes());
    out.put_slice(message.bytes());
    if let Some(data) = data {
        out.put_slice(b",\"data\":");
        out.put_slice(data.bytes());
    }
    out.put_u8(b'}');
    RawJson::trusted(out.freeze())
}

#[cfg(test)]
mod tests;
