//! Bodies of POST requests: checks their headers, reads them within limits, and refuses those that
//! are no message.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use http::{HeaderValue, Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::base::budget::{BudgetRoom, ByteBudget};
use crate::base::callers::CallerNumber;
use crate::cluster::passed::is_passed_body;
use crate::engine::client::heard::MessageRefusal;
use crate::listener::body::ReplyBody;
use crate::listener::press::BodyPace;
use crate::listener::reply;
use crate::serve::front::ListenerState;
use crate::wire::coding;
use crate::wire::id::ClientId;
use crate::wire::message::encode_error;

type HttpReply = Response<ReplyBody>;

/// Slowest accepted rate of a body in bytes per second, after a grace period of ten seconds.
const MIN_BODY_RATE: usize = 1024;
const BODY_GRACE: Duration = Duration::from_secs(10);

/// Returns whether an Accept header allows a media type; a missing header allows all.
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

/// Returns the refusal of a body that cannot be JSON by its headers; `None` if it can.
pub(super) fn not_json(headers: &HeaderMap) -> Option<HttpReply> {
    let is_json = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(|value| {
        let media = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
        media.trim_ascii().eq_ignore_ascii_case(b"application/json")
    });
    let plain = coding::is_plain_content(headers.get_all(CONTENT_ENCODING).iter().map(HeaderValue::as_bytes));
    let text = "the body must be application/json without a content encoding";
    let refusal = || reply::refusal_and_close(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
    (!is_json || !plain).then(refusal)
}

/// Reads the body within limits of size and time, and takes room in the caller's share for it.
pub(super) async fn read_body(
    body: Incoming,
    headers: &HeaderMap,
    front: &ListenerState,
    caller: &CallerNumber,
) -> Result<Bytes, Box<HttpReply>> {
    let _arriving = Arc::clone(&front.service.arriving);
    let (limit, patience) = {
        let terms = front.terms.load();
        (terms.limits.body_bytes, terms.limits.body_timeout)
    };
    let declared = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    let bounds = BodyBounds { limit, patience, declared };
    let read = receive(body, bounds, &front.service.budget, caller).await;
    if front.is_for_peers && !read.as_ref().is_ok_and(|bytes| is_passed_body(headers, bytes)) {
        let text = "this is not the body that the request was passed on with";
        return Err(Box::new(reply::refusal_and_close(StatusCode::BAD_REQUEST, text)));
    }
    read.map_err(|unread| {
        Box::new(match unread {
            UnreadBody::TooLarge => reply::refusal_and_close(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"),
            UnreadBody::TooSlow => reply::refusal_and_close(StatusCode::REQUEST_TIMEOUT, "the body came too slowly"),
            UnreadBody::Broken => reply::refusal_and_close(StatusCode::BAD_REQUEST, "the body could not be read"),
            UnreadBody::NoRoom => {
                front.service.metrics.limit_hit("max-buffered");
                reply::no_room()
            }
        })
    })
}

/// Limits of a body: its size in bytes, the time for all of it, and the size that the client
/// declared.
#[derive(Clone, Copy, Debug)]
struct BodyBounds {
    limit: usize,
    patience: Duration,
    declared: Option<usize>,
}

/// The reason why a body was not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnreadBody {
    TooLarge,
    TooSlow,
    Broken,
    /// No room for the body, or it arrived too slowly for the room that it took.
    NoRoom,
}

/// Reads a body within these limits, and takes room for it as it arrives.
async fn receive(
    mut body: impl Body<Data = Bytes> + Unpin,
    bounds: BodyBounds,
    budget: &Arc<ByteBudget>,
    caller: &CallerNumber,
) -> Result<Bytes, UnreadBody> {
    let BodyBounds { limit, patience, declared } = bounds;
    if declared.is_some_and(|length| length > limit) {
        return Err(UnreadBody::TooLarge);
    }
    let mut first: Option<Bytes> = None;
    let mut joined = BytesMut::new();
    let mut room = BudgetRoom::of_request(budget, caller);
    let started = tokio::time::Instant::now();
    let mut pace = BodyPace::new();
    loop {
        let received = first.as_ref().map_or(0, Bytes::len) + joined.len();
        let earned = Duration::from_secs((received / MIN_BODY_RATE) as u64);
        let until = started + patience.min(BODY_GRACE + earned);
        let arrived = tokio::select! {
            biased;
            arrived = tokio::time::timeout_at(until, body.frame()) => arrived,
            () = pace.wait_until_too_slow(received, budget, caller) => return Err(UnreadBody::NoRoom),
        };
        match arrived {
            Err(_) => return Err(UnreadBody::TooSlow),
            Ok(None) => break,
            Ok(Some(Err(_))) => return Err(UnreadBody::Broken),
            Ok(Some(Ok(frame))) => {
                let Ok(data) = frame.into_data() else { continue };
                if received + data.len() > limit {
                    return Err(UnreadBody::TooLarge);
                }
                room.try_grow_to(received + data.len()).map_err(|_| UnreadBody::NoRoom)?;
                pace.count(data.len(), received + data.len());
                // Most bodies arrive in one piece and are never copied.
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

/// Refuses a body that is no message.
pub(super) fn no_message(unreadable: &MessageRefusal) -> HttpReply {
    let id = unreadable.id.as_ref().map(ClientId::raw);
    reply::json(StatusCode::BAD_REQUEST, encode_error(id, &unreadable.error))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::policy::Caller;

    const KIB: usize = 1024;
    const BOUNDS: BodyBounds =
        BodyBounds { limit: 4096 * KIB, patience: Duration::from_secs(3600), declared: Some(4096 * KIB) };

    /// Creates a body of this many pieces, each after a second.
    fn body(pieces: usize, kib: usize) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
        let piece = move |left: usize| async move {
            sleep(Duration::from_secs(1)).await;
            (left > 0).then(|| (Ok(Frame::data(Bytes::from(vec![0; kib * KIB]))), left - 1))
        };
        StreamBody::new(Box::pin(stream::unfold(pieces, piece)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_brings_less_than_64_kib_in_5_s_ends_while_room_is_short() {
        let caller = CallerNumber::of(&Caller::named("body-a"));
        for (label, kib, is_short, ends_after) in [
            ("slow", 10, true, Some(6)),
            ("slow, with room", 10, false, None),
            ("in time", 13, true, None),
            ("slow, and so small that it takes no room", 1, true, None),
        ] {
            let budget = ByteBudget::new(8192 * KIB);
            let _held = is_short.then(|| budget.hold(7000 * KIB));
            let begun = Instant::now();
            let read = receive(body(15, kib), BOUNDS, &budget, &caller).await;
            let after = read.err().map(|why| (why, begun.elapsed().as_secs()));
            assert_eq!(after, ends_after.map(|seconds| (UnreadBody::NoRoom, seconds)), "{label}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_that_never_end_take_the_share_of_their_caller_and_end_until_there_is_room_in_it() {
        let [a, b] = ["body-a", "body-b"].map(|name| CallerNumber::of(&Caller::named(name)));
        let budget = ByteBudget::new(8192 * KIB);
        budget.set_shared(true);
        let endless = || {
            let pieces = stream::once(async { Ok::<_, Infallible>(Frame::data(Bytes::from(vec![0; 1000 * KIB]))) });
            StreamBody::new(Box::pin(stream::StreamExt::chain(pieces, stream::pending())))
        };
        let begun = Instant::now();
        let crowd = (0..8).map(|_| async {
            let ended = receive(endless(), BOUNDS, &budget, &a).await;
            (ended, begun.elapsed().as_secs())
        });
        let other = async {
            sleep(Duration::from_secs(1)).await;
            receive(body(2, 1000), BOUNDS, &budget, &b).await.map(|bytes| bytes.len())
        };
        let (mut ends, other) = tokio::join!(futures_util::future::join_all(crowd), other);
        ends.sort_by_key(|(_, seconds)| *seconds);
        let (refused, taken) = ends.split_at(6);
        assert!(refused.iter().all(|end| *end == (Err(UnreadBody::NoRoom), 0)), "{refused:?}");
        // The rate of a body has a limit of its own.
        let [pressed, slow] = [(Err(UnreadBody::NoRoom), 5), (Err(UnreadBody::TooSlow), 10 + 1000)];
        assert_eq!((taken, other), (&[pressed, slow][..], Ok(2000 * KIB)));
    }
}
