//! Event streams that a legacy client opens by GET: its session's own stream, and streams that it
//! resumes.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Response};

use crate::base::access::Access;
use crate::gateway::client::quota::QuotaSlot;
use crate::listener::body::ReplyBody;
use crate::listener::pieces::MessageSlices;
use crate::listener::reply;
use crate::serve::feed::ClientNotifications;
use crate::serve::front::ListenerState;
use crate::serve::replay::{OwnStream, RecordingReader, ResumedStream};
use crate::serve::sessions::{ClientSession, StreamRight};

/// Responds with a new stream of the session for messages that belong to no request: changes of
/// lists and resources. It takes the place of an earlier one, which can then no longer be resumed.
/// `place` and `share` are held until the response ends.
pub(crate) fn open(
    front: &Arc<ListenerState>,
    session: &Arc<ClientSession>,
    place: StreamRight,
    access: &Arc<Access>,
    share: QuotaSlot,
) -> Response<ReplyBody> {
    let (own, reader) = session.streams.open_own();
    follow(front, session, access, (own, reader), (place, share))
}

/// Returns the id of the last event that the client received. A malformed header counts as none.
pub(crate) fn last_event(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all("last-event-id").iter();
    let last = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(last)
}

/// Responds with the rest of a stream, after the last event that the client has received.
pub(crate) fn resume(
    front: &Arc<ListenerState>,
    session: &Arc<ClientSession>,
    resumed: ResumedStream,
    access: &Arc<Access>,
    share: QuotaSlot,
) -> Response<ReplyBody> {
    match resumed {
        ResumedStream::Own(own, reader) => {
            follow(front, session, access, (own, reader), (session.resumed_stream(), share))
        }
        ResumedStream::Call(reader) => {
            let keepalive = front.keepalive();
            reply::events(stream::unfold((reader, share), move |(mut reader, share)| async move {
                Some((reader.next(keepalive).await?, (reader, share)))
            }))
        }
    }
}

/// Responds with the session's own stream. If lists have changed since the client was last told,
/// the stream says so first.
fn follow(
    front: &Arc<ListenerState>,
    session: &Arc<ClientSession>,
    access: &Arc<Access>,
    (own, reader): (Arc<OwnStream>, RecordingReader),
    places: (StreamRight, QuotaSlot),
) -> Response<ReplyBody> {
    let told = *own.told.lock();
    let told = if session.has_missed_changes() { told.or(Some([0; 4])) } else { told };
    let news = ClientNotifications::new(&front.service, session.client.clone(), told);
    let (front, session, access) = (Arc::clone(front), Arc::clone(session), Arc::clone(access));
    let following = FollowedStream { news, own, reader, front, session, access, _places: places };
    following.tell(Vec::new());
    reply::events(stream::unfold(following, FollowedStream::step))
}

/// The session's own stream while a client reads it.
struct FollowedStream {
    news: ClientNotifications,
    own: Arc<OwnStream>,
    reader: RecordingReader,
    front: Arc<ListenerState>,
    session: Arc<ClientSession>,
    /// The access of the request that opened the stream.
    access: Arc<Access>,
    _places: (StreamRight, QuotaSlot),
}

impl FollowedStream {
    /// Waits for the next bytes of the stream; `None` once the recording or the session ends, the
    /// credential expires, or the gateway drains.
    async fn step(mut self) -> Option<(MessageSlices, Self)> {
        loop {
            tokio::select! {
                biased;
                bytes = self.reader.next(self.front.keepalive()) => return Some((bytes?, self)),
                notices = self.news.next() => self.tell(notices),
                () = self.session.ended.cancelled() => return None,
                () = self.access.expired() => return None,
                () = self.front.service.draining.cancelled() => return None,
            }
        }
    }

    /// Records the notifications, and the lists that the client knows by them, so that they can be
    /// sent again when the stream is resumed.
    fn tell(&self, notices: Vec<Bytes>) {
        for notice in notices {
            self.session.streams.push(&self.own.recording, notice.into(), true);
        }
        *self.own.told.lock() = Some(self.news.feed.told());
    }
}
