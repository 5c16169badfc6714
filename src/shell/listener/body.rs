//! Response bodies: one JSON text, written as slices without being joined, or a stream of events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::header::CONNECTION;
use http::{HeaderValue, Response};
use http_body::{Body, Frame, SizeHint};

use crate::listener::pace::{BusyConnection, ConnectionPhase};
use crate::listener::pieces::MessageSlices;

/// The body of a response, of the same type for all responses.
pub enum ReplyBody {
    Slices(VecDeque<Bytes>),
    Whole(Option<Bytes>),
    /// A stream of events, and the slices left of its current event.
    Events(Pin<Box<dyn Stream<Item = MessageSlices> + Send>>, MessageSlices),
}

impl std::fmt::Debug for ReplyBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Slices(_) => "Slices",
            Self::Whole(_) => "Whole",
            Self::Events(..) => "Events",
        })
    }
}

/// A response body that keeps its connection marked as busy until it is written.
#[derive(Debug)]
pub struct BusyBody {
    body: ReplyBody,
    _busy: BusyConnection,
}

impl BusyBody {
    pub fn new(body: ReplyBody, busy: BusyConnection) -> Self {
        Self { body, _busy: busy }
    }
}

impl Body for BusyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl ReplyBody {
    pub fn empty() -> Self {
        Self::Whole(None)
    }

    /// Keeps a value until a stream of events has ended, or any other body has been handed out.
    pub fn keeping<T: Send + 'static>(self, kept: T) -> Self {
        match self {
            Self::Events(stream, event) => {
                let stream = stream.map(move |event| {
                    let _kept = &kept;
                    event
                });
                Self::Events(Box::pin(stream), event)
            }
            Self::Slices(_) | Self::Whole(_) => self,
        }
    }

    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(Some(bytes.into()).filter(|bytes| !bytes.is_empty()))
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Slices(slices) => Poll::Ready(slices.pop_front().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Events(stream, event) => loop {
                if let Some(bytes) = event.pop() {
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                match std::task::ready!(stream.as_mut().poll_next(cx)) {
                    Some(next) => *event = next,
                    None => return Poll::Ready(None),
                }
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Slices(slices) => slices.is_empty(),
            Self::Events(..) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        let exact = |bytes: usize| SizeHint::with_exact(bytes as u64);
        match self {
            Self::Whole(bytes) => exact(bytes.as_ref().map_or(0, Bytes::len)),
            Self::Slices(slices) => exact(slices.iter().map(Bytes::len).sum()),
            Self::Events(..) => SizeHint::default(),
        }
    }
}

/// Adds `Connection: close` to the response if its connection was dismissed: a peer that never
/// stops sending would otherwise keep it open.
pub fn close_if_dismissed(response: &mut Response<ReplyBody>, phase: &ConnectionPhase) {
    if phase.is_dismissed() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
}
