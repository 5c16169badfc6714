//! Connections to one upstream over plain HTTP/1.1, each driven by the request on it.
//!
//! There is no task for a connection: whoever waits for an answer polls its connection, so that a call stays on one thread and is
//! woken by its socket alone. Connections with TLS, which may speak HTTP/2, are the pool's of [`crate::upstream::net::client`].

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
use crate::upstream::net::bell::{Bell, bell};

/// Bytes that a connection reads ahead of its call.
pub(crate) const READ_AHEAD: usize = 128 * 1024;
pub(crate) const IDLE_CONNECTIONS: usize = 128;
/// Frames of a rest that are read in passing.
const MOST_FRAMES: usize = 8;

/// A request under way, until the head of its answer. Dropping it ends its connection.
pub(crate) type Sending = BoxFuture<'static, Result<Response<AnswerBody>, ClientError>>;

/// A request without an answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no connection: nothing was sent.
    #[error(transparent)]
    Connect(Box<dyn Error + Send + Sync>),
    /// The connection broke.
    #[error(transparent)]
    Broken(hyper::Error),
    /// One of the two, in the pool.
    #[error(transparent)]
    Pool(PoolError),
}

impl ClientError {
    /// Whether nothing was sent.
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
pub struct Connections(Arc<Idle>);

/// The connections without a request, the one used last at the end.
#[derive(Debug)]
struct Idle {
    authority: Authority,
    host: HeaderValue,
    connector: HttpConnector,
    limit: Duration,
    state: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    connections: Vec<(Instant, Box<Connection>)>,
    /// A task closes them when their time is over.
    is_swept: bool,
}

impl Connections {
    /// Those to the host of a URI; `None` where it is no plain HTTP. One that was idle for longer than `limit` is not used.
    pub fn to(uri: &Uri, connector: HttpConnector, limit: Duration) -> Option<Self> {
        let authority = uri.authority().filter(|_| uri.scheme() == Some(&Scheme::HTTP))?.clone();
        let host = match authority.port_u16() {
            Some(port) if port != 80 => format!("{}:{port}", authority.host()),
            _ => authority.host().to_owned(),
        };
        let host = HeaderValue::from_str(&host).ok()?;
        Some(Self(Arc::new(Idle { authority, host, connector, limit, state: Mutex::default() })))
    }

    /// Whether a URI is of this host.
    pub fn serve(&self, uri: &Uri) -> bool {
        uri.scheme() == Some(&Scheme::HTTP) && uri.authority() == Some(&self.0.authority)
    }

    /// Sends a request to a URI that they serve. One that a connection gives back unsent, since its server has closed it, is sent on
    /// the next; nothing is sent twice.
    pub fn send(&self, mut request: Request<Full<Bytes>>) -> Sending {
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
                    poll_fn(|cx| connection.poll(cx, Driven::First, |cx| sent.as_mut().poll(cx))).await
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

impl Idle {
    fn take(&self) -> Option<Box<Connection>> {
        let mut state = self.state.lock();
        let (since, connection) = state.connections.pop()?;
        if clock::now().saturating_duration_since(since) < self.limit {
            return Some(connection);
        }
        // The others are idle for longer.
        let late = std::mem::take(&mut state.connections);
        drop(state);
        drop(late);
        None
    }

    fn put(self: &Arc<Self>, mut connection: Box<Connection>) {
        // What is dropped after the end of the runtime has nobody to close it later.
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

    /// Closes those whose time is over. Whether others are left.
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

/// Closes idle connections, until there are none.
async fn sweep(idle: Weak<Idle>, rhythm: Duration) {
    loop {
        tokio::time::sleep(rhythm).await;
        if !idle.upgrade().is_some_and(|idle| idle.close_late()) {
            return;
        }
    }
}

#[cfg(not(any(test, feature = "testing")))]
type Dialled = TokioIo<TcpStream>;
#[cfg(any(test, feature = "testing"))]
type Dialled = crate::stage::net::Dialled;

/// Opens a connection to the host and port of a URI.
#[cfg(not(any(test, feature = "testing")))]
async fn dial(mut connector: HttpConnector, dst: Uri) -> Result<Dialled, ClientError> {
    connector.call(dst).await.map_err(|error| ClientError::Connect(error.into()))
}

/// Opens a connection to the host and port of a URI: to a server on the stage, or over TCP.
#[cfg(any(test, feature = "testing"))]
async fn dial(mut connector: HttpConnector, dst: Uri) -> Result<Dialled, ClientError> {
    match crate::stage::net::dial(&dst) {
        Some(dialled) => dialled.map_err(|error| ClientError::Connect(error.into())),
        None => {
            let stream = connector.call(dst).await.map_err(|error| ClientError::Connect(error.into()))?;
            Ok(Dialled::Tcp(stream))
        }
    }
}

async fn connect(connector: HttpConnector, dst: Uri) -> Result<Box<Connection>, ClientError> {
    let stream = dial(connector, dst).await?;
    let mut builder = http1::Builder::new();
    builder.max_buf_size(READ_AHEAD);
    let (sender, driver) = builder.handshake(stream).await.map_err(ClientError::Broken)?;
    let (bell, waker) = bell();
    Ok(Box::new(Connection { sender, driver: Some(driver), bell, waker }))
}

/// What a connection does before its request or body is looked at.
#[derive(Clone, Copy)]
enum Driven {
    /// Reads and writes: only its socket can have woken the task.
    First,
    /// Nothing: what is wanted may be here, and has to be asked for.
    Then,
}

type Driver = http1::Connection<Dialled, Full<Bytes>>;

struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    /// `None` when it has ended. It holds a request that it has not begun, and gives it back where it is dropped.
    driver: Option<Driver>,
    bell: Arc<Bell>,
    waker: Waker,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("is_open", &self.driver.is_some()).finish_non_exhaustive()
    }
}

impl Connection {
    /// Polls something that this connection brings, and the connection for it.
    fn poll<T>(
        &mut self,
        cx: &Context<'_>,
        driven: Driven,
        mut wanted: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let Self { driver, bell, waker, .. } = self;
        let mut own = Context::from_waker(waker);
        bell.poll(cx, || {
            if let Driven::Then = driven
                && let Poll::Ready(done) = wanted(&mut own)
            {
                return Poll::Ready(done);
            }
            drive(driver, &mut own);
            wanted(&mut own)
        })
    }

    /// Whether it can take the next request.
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

/// What a connection fails with is said to its request or body.
fn drive(driver: &mut Option<Driver>, cx: &mut Context<'_>) {
    if driver.as_mut().is_some_and(|driver| Pin::new(driver).poll(cx).is_ready()) {
        *driver = None;
    }
}

/// The body of an answer. It has its connection until it ends; dropped before, it ends the connection, unless the rest is here.
#[derive(Debug)]
pub struct AnswerBody {
    incoming: Option<Incoming>,
    /// `None` where the pool drives it.
    lent: Option<(Box<Connection>, Arc<Idle>)>,
}

impl AnswerBody {
    /// A body of the pool.
    pub fn pooled(incoming: Incoming) -> Self {
        Self { incoming: Some(incoming), lent: None }
    }

    /// What has not arrived yet. Nothing is left where the end is here; the connection can be used again then.
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
        // hyper reads what is left of a body that nobody has any more, as far as it is here.
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
            Some((connection, _)) => connection.poll(cx, Driven::Then, |cx| Pin::new(&mut *incoming).poll_frame(cx)),
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
