//! Serves one HTTP/2 connection, within bounds on streams, windows, heads, control frames and time.
//!
//! Requests are tasks of their own, which end with the connection. A body is handed to the library
//! in small pieces, and only while the client's window is open; a client that opens no window is as
//! slow as one that reads nothing, and its connection ends after the same time.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::body::{BusyBody, ReplyBody};
use super::connection::ConnectionLinger;
use super::frames::FrameWatch;
use super::pace::{ConnectionPhase, ConnectionTimes};
use crate::base::task_group::TaskGroup;

/// Most requests at once on a connection.
const STREAMS: u32 = 100;
/// Most streams that a client has reset before their request was taken.
const PENDING_RESETS: usize = 20;
/// Most streams that were reset here for a client's errors.
const LOCAL_RESETS: usize = 100;
/// Most bytes of a request head.
const HEADER_LIST: u32 = 64 * 1024;
/// Bytes of a body that a client may send ahead on a stream, and on a connection.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Most bytes of one piece of an answer, which is the most that waits for a window.
const PIECE: usize = 16 * 1024;
/// Time to write the last frame to a client that sent too many.
const FAREWELL: Duration = Duration::from_secs(1);

/// Serves requests until the client sends no more, or until `stop` fires and the requests in
/// progress are answered. A connection without any request so far has the time of `linger` for one;
/// the protocol itself tells all others which requests are answered. Each request is a task in
/// `tasks`, and marks the connection as busy in `phase`.
///
/// # Errors
/// The client goes away, or sends bytes that are not HTTP/2.
pub async fn serve<A, F>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    phase: &ConnectionPhase,
    times: ConnectionTimes,
    answer: F,
    tasks: &TaskGroup,
    stop: &CancellationToken,
    linger: impl FnOnce() -> ConnectionLinger,
) -> Result<(), hyper::Error>
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
    A: Future<Output = Response<ReplyBody>> + Send + 'static,
{
    phase.framed();
    let (overrun, windows) = (CancellationToken::new(), Arc::new(WindowWaits::default()));
    let is_fresh = &AtomicBool::new(true);
    let service = service_fn(|request| {
        is_fresh.store(false, Ordering::Relaxed);
        let (busy, answer, windows) = (phase.busy(), answer.clone(), Arc::clone(&windows));
        async move {
            let response = answer(with_host(request)).await;
            Ok::<_, Infallible>(response.map(|body| WindowedBody::new(BusyBody::new(body, busy), windows)))
        }
    });
    let stream = FrameWatch::new(stream, times.head, overrun.clone());
    let connection = builder(tasks).serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let stopped = async {
        stop.cancelled().await;
        if is_fresh.load(Ordering::Relaxed) {
            tokio::time::sleep(linger().fresh).await;
        }
    };
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = stopped => connection.as_mut().graceful_shutdown(),
        () = windows.wait_for_stall(times.write) => return Ok(()),
        () = overrun.cancelled() => {
            tracing::debug!("connection ended: its client sends too many control frames");
            connection.as_mut().graceful_shutdown();
            drop(tokio::time::timeout(FAREWELL, connection).await);
            return Ok(());
        }
    }
    tokio::select! {
        ended = connection.as_mut() => ended,
        () = windows.wait_for_stall(times.write) => Ok(()),
        () = overrun.cancelled() => Ok(()),
    }
}

fn builder(tasks: &TaskGroup) -> http2::Builder<RequestTasks> {
    let mut http = http2::Builder::new(RequestTasks(tasks.clone()));
    http.timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_pending_accept_reset_streams(PENDING_RESETS)
        .max_local_error_reset_streams(LOCAL_RESETS)
        .max_header_list_size(HEADER_LIST)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(PIECE);
    http
}

/// The tasks of a connection's requests.
#[derive(Clone, Debug)]
struct RequestTasks(TaskGroup);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for RequestTasks {
    fn execute(&self, request: F) {
        self.0.spawn("request", async move { drop(request.await) });
    }
}

/// Gives a request the Host header and the target that it would have in HTTP/1, so that one guard
/// judges both. A request whose `:authority` and Host differ, or which has several of either, stays
/// as it is, and is refused there. Source: RFC 9113, section 8.3.1.
fn with_host(mut request: Request<Incoming>) -> Request<Incoming> {
    let uri = request.uri();
    let Some(authority) = uri.authority().filter(|_| request.method() != Method::CONNECT) else { return request };
    let Ok(value) = HeaderValue::from_str(authority.as_str()) else { return request };
    let is_same = |host: &HeaderValue| host.as_bytes().eq_ignore_ascii_case(value.as_bytes());
    if !request.headers().get_all(HOST).iter().all(is_same) {
        return request;
    }
    let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    if !request.headers().contains_key(HOST) {
        request.headers_mut().insert(HOST, value);
    }
    request
}

/// The answers that wait until their client opens a window: the time since which each waits.
#[derive(Debug, Default)]
struct WindowWaits {
    /// The number of the next answer, and the waits by number; one for each stream at most.
    waits: Mutex<(u64, Vec<(u64, Instant)>)>,
}

impl WindowWaits {
    /// Enters an answer, which waits from now on.
    fn enter(&self) -> u64 {
        let mut waits = self.waits.lock();
        let number = waits.0;
        waits.0 += 1;
        waits.1.push((number, Instant::now()));
        number
    }

    /// Sets since when an answer waits; `None` while it does not.
    fn set(&self, number: u64, since: Option<Instant>) {
        let mut waits = self.waits.lock();
        waits.1.retain(|(other, _)| *other != number);
        waits.1.extend(since.map(|since| (number, since)));
    }

    /// Waits until an answer has waited for this long.
    async fn wait_for_stall(&self, time: Duration) {
        loop {
            let first = self.waits.lock().1.iter().map(|(_, since)| *since).min();
            let until = first.map_or_else(|| Instant::now() + time, |since| since + time);
            if first.is_some() && until <= Instant::now() {
                tracing::debug!("connection ended: its client reads no answer");
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

/// The body of an answer over HTTP/2, in pieces of [`PIECE`] bytes. The library asks for a piece
/// when the client's window is open, so between a piece and the next question the answer waits for
/// its client.
struct WindowedBody {
    body: BusyBody,
    rest: Bytes,
    number: u64,
    is_waiting: bool,
    windows: Arc<WindowWaits>,
}

impl WindowedBody {
    fn new(body: BusyBody, windows: Arc<WindowWaits>) -> Self {
        Self { body, rest: Bytes::new(), number: windows.enter(), is_waiting: true, windows }
    }

    fn set_waiting(&mut self, is_waiting: bool) {
        if self.is_waiting != is_waiting || is_waiting {
            self.windows.set(self.number, is_waiting.then(Instant::now));
            self.is_waiting = is_waiting;
        }
    }
}

impl Drop for WindowedBody {
    fn drop(&mut self) {
        self.windows.set(self.number, None);
    }
}

impl Body for WindowedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        this.set_waiting(false);
        if this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                None => return Poll::Ready(None),
            }
        }
        let piece = this.rest.split_to(PIECE.min(this.rest.len()));
        this.set_waiting(true);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        if let Some(exact) = hint.exact() {
            hint.set_exact(exact + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests;
