//! Connections to one upstream over plain HTTP/1.1, each polled by the request on it.
//!
//! There is no task for a connection: the request that waits for an answer polls it, so that a call
//! stays on one thread and is woken by its socket alone. Connections with TLS, which may speak
//! HTTP/2, are the pool's of [`crate::upstream::net::client`].

use std::error::Error;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::HOST;
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper::rt::Executor as _;
use hyper_util::client::legacy::Error as PoolError;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
#[cfg(not(any(test, feature = "testing")))]
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
#[cfg(not(any(test, feature = "testing")))]
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tower_service::Service as _;

use crate::base::clock;
use crate::upstream::net::bell::{ConnectionWaker, bell};

/// Bytes that a connection reads ahead of its call.
pub(crate) const READ_AHEAD: usize = 128 * 1024;
pub(crate) const IDLE_CONNECTIONS: usize = 128;
/// Most frames of the rest of a body that are read without waiting.
const MOST_FRAMES: usize = 8;

/// A future that sends a request and returns the head of its answer. Dropping it closes its
/// connection.
pub(crate) type AnswerHeadFuture = BoxFuture<'static, Result<Response<AnswerBody>, ClientError>>;

/// The error of a request without an answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection could be made: nothing was sent.
    #[error(transparent)]
    Connect(Box<dyn Error + Send + Sync>),
    /// The connection broke.
    #[error(transparent)]
    Broken(hyper::Error),
    /// Either of the two, from the pool.
    #[error(transparent)]
    Pool(PoolError),
}

impl ClientError {
    /// Returns whether nothing was sent.
    pub fn is_connect(&self) -> bool {
        match self {
            Self::Connect(_) => true,
            Self::Broken(_) => false,
            Self::Pool(error) => error.is_connect(),
        }
    }
}

/// The connections to one host and port. Clones share them.
#[derive(Clone, Debug)]
pub struct PlainConnections(Arc<IdleConnections>);

/// The idle connections, the one used last at the end.
#[derive(Debug)]
struct IdleConnections {
    authority: Authority,
    host: HeaderValue,
    connector: HttpConnector,
    limit: Duration,
    state: Mutex<IdleConnectionList>,
}

/// The idle connections, and whether a task closes late ones.
#[derive(Debug, Default)]
struct IdleConnectionList {
    connections: Vec<(Instant, Box<HttpConnectionState>)>,
    /// True while a task closes connections whose time is over.
    is_swept: bool,
}

impl PlainConnections {
    /// Creates the connections to the host of a URI; `None` if it is not plain HTTP. Connections
    /// that were idle for longer than `limit` are not used.
    pub fn to(uri: &Uri, connector: HttpConnector, limit: Duration) -> Option<Self> {
        let authority = uri.authority().filter(|_| uri.scheme() == Some(&Scheme::HTTP))?.clone();
        let host = match authority.port_u16() {
            Some(port) if port != 80 => format!("{}:{port}", authority.host()),
            _ => authority.host().to_owned(),
        };
        let host = HeaderValue::from_str(&host).ok()?;
        Some(Self(Arc::new(IdleConnections { authority, host, connector, limit, state: Mutex::default() })))
    }

    /// Returns whether a URI belongs to this host.
    pub fn serve(&self, uri: &Uri) -> bool {
        uri.scheme() == Some(&Scheme::HTTP) && uri.authority() == Some(&self.0.authority)
    }

    /// Sends a request to a URI of this host. If a reused connection returns it unsent, because the
    /// server has closed the connection, the next one is used; nothing is sent twice.
    pub fn send(&self, mut request: Request<Full<Bytes>>) -> AnswerHeadFuture {
        let idle = Arc::clone(&self.0);
        let target = request.uri().path_and_query().cloned().map_or_else(Uri::default, Uri::from);
        let dst = std::mem::replace(request.uri_mut(), target);
        request.headers_mut().entry(HOST).or_insert_with(|| idle.host.clone());
        Box::pin(async move {
            loop {
                let (mut connection, is_reused) = match idle.take() {
                    Some(connection) => (connection, true),
                    None => (Box::pin(connect(idle.connector.clone(), dst.clone())).await?, false),
                };
                let answer = {
                    let mut sent = pin!(connection.sender.try_send_request(request));
                    poll_fn(|cx| connection.poll(cx, PollOrder::First, |cx| sent.as_mut().poll(cx))).await
                };
                match answer {
                    Ok(response) => {
                        return Ok(response
                            .map(|incoming| AnswerBody { incoming: Some(incoming), lent: Some((connection, idle)) }));
                    }
                    Err(mut error) => match error.take_message().filter(|_| is_reused) {
                        Some(unsent) => request = unsent,
                        None => return Err(ClientError::Broken(error.into_error())),
                    },
                }
            }
        })
    }
}

impl IdleConnections {
    /// Removes and returns the connection that was used last. If it was idle for too long, closes
    /// all idle connections and returns `None`.
    fn take(&self) -> Option<Box<HttpConnectionState>> {
        let mut state = self.state.lock();
        let (since, connection) = state.connections.pop()?;
        if clock::now().saturating_duration_since(since) < self.limit {
            return Some(connection);
        }
        // The others have been idle for longer.
        let late = std::mem::take(&mut state.connections);
        drop(state);
        drop(late);
        None
    }

    /// Keeps a connection for the next request, and starts the task that closes idle ones if none
    /// runs. Closes the connection if it cannot be used again or if enough are idle.
    fn put(self: &Arc<Self>, mut connection: Box<HttpConnectionState>) {
        // After the end of the runtime, no task could close the connection later.
        if Handle::try_current().is_err() || !connection.is_free() {
            return;
        }
        let now = clock::now();
        let mut state = self.state.lock();
        if state.connections.len() >= IDLE_CONNECTIONS {
            return;
        }
        state.connections.push((now, connection));
        let is_swept = std::mem::replace(&mut state.is_swept, true);
        drop(state);
        if !is_swept {
            TokioExecutor::new().execute(sweep(Arc::downgrade(self), self.limit));
        }
    }

    /// Closes connections that were idle for too long. Returns whether others are left.
    fn close_late(&self) -> bool {
        let now = clock::now();
        let mut state = self.state.lock();
        let first = state.connections.iter().position(|(since, _)| now.saturating_duration_since(*since) < self.limit);
        let kept = first.map_or_else(Vec::new, |first| state.connections.split_off(first));
        let late = std::mem::replace(&mut state.connections, kept);
        state.is_swept = !state.connections.is_empty();
        let is_swept = state.is_swept;
        drop(state);
        drop(late);
        is_swept
    }
}

/// Closes idle connections until none are left.
async fn sweep(idle: Weak<IdleConnections>, rhythm: Duration) {
    loop {
        tokio::time::sleep(rhythm).await;
        if !idle.upgrade().is_some_and(|idle| idle.close_late()) {
            return;
        }
    }
}

#[cfg(not(any(test, feature = "testing")))]
type DialledStream = TokioIo<TcpStream>;
#[cfg(any(test, feature = "testing"))]
type DialledStream = crate::stage::net::StageStream;

/// Opens a connection to the host and port of a URI.
#[cfg(not(any(test, feature = "testing")))]
async fn dial(mut connector: HttpConnector, dst: Uri) -> Result<DialledStream, ClientError> {
    connector.call(dst).await.map_err(|error| ClientError::Connect(error.into()))
}

/// Opens a connection to the host and port of a URI, to a server on the stage or over TCP.
#[cfg(any(test, feature = "testing"))]
async fn dial(mut connector: HttpConnector, dst: Uri) -> Result<DialledStream, ClientError> {
    match crate::stage::net::connect_uri(&dst) {
        Some(dialled) => dialled.map_err(|error| ClientError::Connect(error.into())),
        None => {
            let stream = connector.call(dst).await.map_err(|error| ClientError::Connect(error.into()))?;
            Ok(DialledStream::Tcp(stream))
        }
    }
}

/// Opens a connection and performs the HTTP handshake.
async fn connect(connector: HttpConnector, dst: Uri) -> Result<Box<HttpConnectionState>, ClientError> {
    let stream = dial(connector, dst).await?;
    let mut builder = http1::Builder::new();
    builder.max_buf_size(READ_AHEAD);
    let (sender, driver) = builder.handshake(stream).await.map_err(ClientError::Broken)?;
    let (bell, waker) = bell();
    Ok(Box::new(HttpConnectionState { sender, driver: Some(driver), bell, waker }))
}

/// When a connection is polled, relative to the request or body on it.
#[derive(Clone, Copy)]
enum PollOrder {
    /// The connection first: only its socket can have woken the task.
    First,
    /// The request or body first: its data may have arrived, and has to be asked for.
    Then,
}

type ConnectionDriver = http1::Connection<DialledStream, Full<Bytes>>;

/// A connection with its two halves, and the waker for both.
struct HttpConnectionState {
    sender: http1::SendRequest<Full<Bytes>>,
    /// `None` after the connection has ended. Holds a request that has not begun, and returns it
    /// when dropped.
    driver: Option<ConnectionDriver>,
    bell: Arc<ConnectionWaker>,
    waker: Waker,
}

impl std::fmt::Debug for HttpConnectionState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("is_open", &self.driver.is_some()).finish_non_exhaustive()
    }
}

impl HttpConnectionState {
    /// Polls `wanted`, a request or body on this connection, and polls the connection itself, which
    /// carries its bytes. `driven` says which is polled first. `driver` becomes `None` if the
    /// connection has ended.
    fn poll<T>(
        &mut self,
        cx: &Context<'_>,
        driven: PollOrder,
        mut wanted: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let Self { driver, bell, waker, .. } = self;
        let mut own = Context::from_waker(waker);
        bell.poll(cx, || {
            if let PollOrder::Then = driven
                && let Poll::Ready(done) = wanted(&mut own)
            {
                return Poll::Ready(done);
            }
            drive(driver, &mut own);
            wanted(&mut own)
        })
    }

    /// Polls the connection if it is busy, and returns whether it can take the next request.
    fn is_free(&mut self) -> bool {
        let Self { driver, bell, waker, sender } = self;
        bell.turn(|| {
            if !sender.is_ready() {
                drive(driver, &mut Context::from_waker(waker));
            }
        });
        self.driver.is_some() && self.sender.is_ready()
    }
}

/// Polls the connection, and drops it if it has ended. Errors of the connection reach its request
/// or body.
fn drive(driver: &mut Option<ConnectionDriver>, cx: &mut Context<'_>) {
    if driver.as_mut().is_some_and(|driver| Pin::new(driver).poll(cx).is_ready()) {
        *driver = None;
    }
}

/// The body of an answer. It holds its connection until it ends. Dropped earlier, it closes the
/// connection unless the rest has arrived already.
#[derive(Debug)]
pub struct AnswerBody {
    incoming: Option<Incoming>,
    /// `None` if the pool drives the connection.
    lent: Option<(Box<HttpConnectionState>, Arc<IdleConnections>)>,
}

impl AnswerBody {
    /// Wraps a body from the pool.
    pub fn pooled(incoming: Incoming) -> Self {
        Self { incoming: Some(incoming), lent: None }
    }

    /// Reads and discards the frames that have arrived, `MOST_FRAMES` at most. Returns the body
    /// if it waits for more. Returns `None` if it has ended or failed, or after that many frames;
    /// the connection is reused then if hyper has all of the answer, and closed if not.
    pub fn into_rest(mut self) -> Option<Self> {
        if self.is_end_stream() {
            return None;
        }
        let mut nobody = Context::from_waker(Waker::noop());
        for _ in 0..MOST_FRAMES {
            match Pin::new(&mut self).poll_frame(&mut nobody) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(_) => return None,
                Poll::Pending => return Some(self),
            }
        }
        None
    }

    fn give_back(&mut self) {
        // hyper reads the rest of a dropped body as far as it has arrived.
        self.incoming = None;
        if let Some((connection, idle)) = self.lent.take() {
            idle.put(connection);
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Self { incoming: Some(incoming), lent } = &mut *self else { return Poll::Ready(None) };
        let polled = match lent {
            Some((connection, _)) => connection.poll(cx, PollOrder::Then, |cx| Pin::new(&mut *incoming).poll_frame(cx)),
            None => Pin::new(&mut *incoming).poll_frame(cx),
        };
        if incoming.is_end_stream() || matches!(polled, Poll::Ready(None)) {
            self.give_back();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests;
