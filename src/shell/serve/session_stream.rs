//! Event streams that a legacy client opens by GET: its session's own stream, and streams that it
//! resumes.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::Response;

use crate::gateway::client::quota::Place;
use crate::listener::body::ReplyBody;
use crate::listener::pieces::Pieces;
use crate::listener::reply;
use crate::serve::feed::News;
use crate::serve::front::Front;
use crate::serve::replay::{Own, Reader, Resumed};
use crate::serve::sessions::{Session, StreamPlace};

/// Opens the session's own stream, for messages that belong to no request: changes of lists and
/// resources.
pub(crate) fn open(
    front: &Arc<Front>,
    session: &Arc<Session>,
    place: StreamPlace,
    share: Place,
) -> Response<ReplyBody> {
    let (own, reader) = session.streams.open_own();
    follow(front, session, (own, reader), (place, share))
}

/// Resumes a stream after the last event that the client has received.
pub(crate) fn resume(
    front: &Arc<Front>,
    session: &Arc<Session>,
    resumed: Resumed,
    share: Place,
) -> Response<ReplyBody> {
    match resumed {
        Resumed::Own(own, reader) => follow(front, session, (own, reader), (session.resumed_stream(), share)),
        Resumed::Call(reader) => {
            let keepalive = front.keepalive();
            reply::events(stream::unfold((reader, share), move |(mut reader, share)| async move {
                Some((reader.next(keepalive).await?, (reader, share)))
            }))
        }
    }
}

/// Responds with the session's own stream, which continues from the lists that the client knows.
fn follow(
    front: &Arc<Front>,
    session: &Arc<Session>,
    (own, reader): (Arc<Own>, Reader),
    places: (StreamPlace, Place),
) -> Response<ReplyBody> {
    let told = *own.told.lock();
    let told = if session.has_missed_changes() { told.or(Some([0; 4])) } else { told };
    let news = News::new(&front.service, session.client.clone(), told);
    let following =
        Following { news, own, reader, front: Arc::clone(front), session: Arc::clone(session), _places: places };
    following.tell(Vec::new());
    reply::events(stream::unfold(following, Following::step))
}

/// The session's own stream while a client reads it.
struct Following {
    news: News,
    own: Arc<Own>,
    reader: Reader,
    front: Arc<Front>,
    session: Arc<Session>,
    _places: (StreamPlace, Place),
}

impl Following {
    /// Returns the next bytes of the stream; `None` once the session ends or the gateway drains.
    async fn step(mut self) -> Option<(Pieces, Self)> {
        loop {
            tokio::select! {
                biased;
                bytes = self.reader.next(self.front.keepalive()) => return Some((bytes?, self)),
                notices = self.news.next() => self.tell(notices),
                () = self.session.ended.cancelled() => return None,
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
