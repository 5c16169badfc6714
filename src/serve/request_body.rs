//! The body of a POST: what it must claim to be, how it is read within its bounds, what is said of one that is no message.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::base::budget::Room;
use crate::engine::client::heard::Unreadable;
use crate::listener::body::ReplyBody;
use crate::listener::reply;
use crate::serve::front::Front;
use crate::wire::coding;
use crate::wire::id::ClientId;
use crate::wire::message::encode_error;

type Reply = Response<ReplyBody>;

/// Slowest body that is waited for, after a grace of ten seconds.
const MIN_BODY_RATE: usize = 1024;
const BODY_GRACE: Duration = Duration::from_secs(10);

/// Whether an Accept header allows a media type; a missing one allows everything.
pub(super) fn accepts(headers: &HeaderMap, media: &str) -> bool {
    let mut values = headers.get_all(ACCEPT).iter().peekable();
    if values.peek().is_none() {
        return true;
    }
    let main = media.split('/').next().unwrap_or_default();
    let texts = values.filter_map(|value| value.to_str().ok()).map(str::as_bytes);
    texts.flat_map(|text| text.split(|byte| *byte == b',')).any(|part| {
        let mut fields = part.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let range = fields.next().unwrap_or_default();
        let refused = fields.any(|field| matches!(field, b"q=0" | b"q=0.0" | b"q=0.00" | b"q=0.000"));
        let fits = range.eq_ignore_ascii_case(media.as_bytes())
            || range == b"*/*"
            || range.strip_suffix(b"/*").is_some_and(|range| range.eq_ignore_ascii_case(main.as_bytes()));
        fits && !refused
    })
}

/// The refusal of a body that cannot be JSON.
pub(super) fn not_json(headers: &HeaderMap) -> Option<Reply> {
    let is_json = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(|value| {
        let media = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
        media.trim_ascii().eq_ignore_ascii_case(b"application/json")
    });
    let plain = coding::is_plain_content(headers.get_all(CONTENT_ENCODING).iter().map(HeaderValue::as_bytes));
    let text = "the body must be application/json without a content encoding";
    let refusal = || reply::refusal_and_close(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
    (!is_json || !plain).then(refusal)
}

/// Rung 9: the body within size and time.
pub(super) async fn read_body(mut body: Incoming, headers: &HeaderMap, front: &Front) -> Result<Bytes, Box<Reply>> {
    let (limit, patience) = {
        let terms = front.terms.load();
        (terms.limits.body_bytes, terms.limits.body_timeout)
    };
    let too_large = || Box::new(reply::refusal_and_close(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"));
    let declared = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    if declared.is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    let mut first: Option<Bytes> = None;
    let mut joined = BytesMut::new();
    let mut room = Room::new(&front.service.budget);
    let started = tokio::time::Instant::now();
    loop {
        let received = first.as_ref().map_or(0, Bytes::len) + joined.len();
        let earned = Duration::from_secs((received / MIN_BODY_RATE) as u64);
        let until = started + patience.min(BODY_GRACE + earned);
        match tokio::time::timeout_at(until, body.frame()).await {
            Err(_) => {
                let text = "the body came too slowly";
                return Err(Box::new(reply::refusal_and_close(StatusCode::REQUEST_TIMEOUT, text)));
            }
            Ok(None) => break,
            Ok(Some(Err(_))) => {
                let text = "the body could not be read";
                return Err(Box::new(reply::refusal_and_close(StatusCode::BAD_REQUEST, text)));
            }
            Ok(Some(Ok(frame))) => {
                let Ok(data) = frame.into_data() else { continue };
                if received + data.len() > limit {
                    return Err(too_large());
                }
                if room.try_grow_to(received + data.len()).is_err() {
                    front.service.metrics.limit_hit("max-buffered");
                    return Err(Box::new(reply::no_room()));
                }
                // Most bodies come in one piece and are never copied.
                match (first.take(), joined.is_empty()) {
                    (None, true) => first = Some(data),
                    (Some(one), _) => {
                        joined.reserve(declared.unwrap_or(one.len() + data.len()));
                        joined.extend_from_slice(&one);
                        joined.extend_from_slice(&data);
                    }
                    (None, false) => joined.extend_from_slice(&data),
                }
            }
        }
    }
    Ok(room.keep(first.unwrap_or_else(|| joined.freeze())))
}

/// The refusal of a body that is no message.
pub(super) fn no_message(unreadable: &Unreadable) -> Reply {
    let id = unreadable.id.as_ref().map(ClientId::raw);
    reply::json(StatusCode::BAD_REQUEST, encode_error(id, &unreadable.error))
}
