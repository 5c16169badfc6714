//! An HTTP answer that is no message of the protocol: its beginning is read, to describe it to the
//! operator and to see what it blames.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::BodyExt as _;

use crate::base::clock;
use crate::upstream::net::connections::AnswerBody;
use crate::wire::foreign;

/// Most bytes of the body that are read.
const MOST: usize = 2048;
/// Longest wait for them; a body may have no end.
const READ_TIME: Duration = Duration::from_millis(200);
/// Most characters of a media type that the operator sees.
const MEDIA: usize = 60;

/// An answer that is no message, and the beginning of its body.
pub struct NonMessageAnswer {
    pub status: StatusCode,
    /// The media type as shown to the operator; empty if the answer has none.
    media: String,
    /// The reason why the body cannot be read at all, if there is one.
    pub coded: Option<&'static str>,
    body: AnswerBody,
    start: BytesMut,
    until: Option<Instant>,
}

/// Returns the media type of an answer without its parameters; empty if it has none.
pub(crate) fn media_type(headers: &HeaderMap) -> &[u8] {
    let value = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
}

/// Returns whether some servers send this media type instead of `application/json`; a missing type
/// counts too. A body of such a type is read if it is JSON.
pub(crate) fn may_be_json(media: &[u8]) -> bool {
    let media = media.to_ascii_lowercase();
    matches!(&media[..], b"" | b"text/plain" | b"text/json" | b"application/json-rpc" | b"application/jsonrpc")
        || media.starts_with(b"application/") && media.ends_with(b"+json")
}

/// Shortens a media type for the operator.
pub(crate) fn shown_media(media: &[u8]) -> String {
    foreign::short(&String::from_utf8_lossy(media), MEDIA)
}

/// Explains to the operator why an answer with a success status, this media type and this beginning
/// is no message. `due` is the expected form.
pub(crate) fn why(status: StatusCode, media: &str, start: &[u8], due: &str) -> String {
    let status = status.as_u16();
    let is_page = media.eq_ignore_ascii_case("text/html");
    match (start.is_empty(), media) {
        _ if is_page => format!("answered {status} with `text/html`: this is a web page, not an MCP endpoint"),
        (true, _) => format!("answered {status} without content where {due} is due"),
        (false, "") => format!("answered {status} without a content type where {due} is due"),
        (false, media) => format!("answered {status} with `{media}` where {due} is due"),
    }
}

impl NonMessageAnswer {
    pub fn new(response: Response<AnswerBody>, coded: Option<&'static str>) -> Self {
        let media = shown_media(media_type(response.headers()));
        let (status, body) = (response.status(), response.into_body());
        Self { status, media, coded, body, start: BytesMut::new(), until: None }
    }

    /// Reads the beginning of the body. Cancel-safe.
    pub async fn read(&mut self) {
        let until = *self.until.get_or_insert_with(|| clock::now() + READ_TIME);
        while self.coded.is_none() && self.start.len() < MOST {
            let Ok(Some(Ok(frame))) = tokio::time::timeout_at(until.into(), self.body.frame()).await else { return };
            let data = frame.into_data().unwrap_or_default();
            let left = MOST - self.start.len();
            self.start.extend_from_slice(data.get(..left).unwrap_or(&data));
        }
    }

    /// Returns the bytes that were read.
    pub fn start(&self) -> &[u8] {
        &self.start
    }

    /// Explains to the operator why an answer with a success status is no message; `due` is the
    /// expected form.
    pub fn why(&self, due: &str) -> String {
        why(self.status, &self.media, &self.start, due)
    }

    /// Returns the rest of the body.
    pub fn into_body(self) -> AnswerBody {
        self.body
    }
}
