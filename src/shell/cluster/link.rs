//! The connections to one other replica. Each carries one request at a time, so a client that reads
//! slowly delays no other, and a replica that does not answer costs its own requests only.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::uri::Authority;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::Full;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::Url;

use crate::base::clock;
use crate::cluster::peer_tls::PeerTls;
use crate::cluster::row::Replica;
use crate::engine::sealed::run_id::RunId;
use crate::wire::digest::Digest;

/// Most requests to one replica at once, each on a connection of its own.
pub const MAX_PASSING: usize = 512;
/// Most connections to one replica that are kept open for later requests.
const MAX_IDLE: usize = 32;
/// Time after which an idle connection is not used any more. Listeners keep theirs for longer.
const IDLE: Duration = Duration::from_secs(4);
/// Longest time until a connection is ready, with its handshake.
const CONNECT_TIME: Duration = Duration::from_secs(3);
/// Most bytes that are read ahead on a connection.
const READ_AHEAD: usize = 64 * 1024;

/// The body of a request that goes on after the head of its response.
pub(super) type LineBody = UnsyncBoxBody<Bytes, Infallible>;

type PeerSender = SendRequest<Full<Bytes>>;

/// The reason why a request was not answered by another replica.
#[derive(Debug, thiserror::Error)]
pub enum PassingError {
    /// Nothing listens there: the replica is dead. The request was not sent.
    #[error("its address refuses connections")]
    Refused,
    /// The request was not sent.
    #[error("it cannot be reached: {0}")]
    Unreached(String),
    /// Too many requests are under way to it. The request was not sent.
    #[error("too many requests are under way to it")]
    Busy,
    /// The request was sent, at least in part.
    #[error("its connection broke: {0}")]
    Lost(String),
}

/// The connections to one run of another replica.
#[derive(Debug)]
pub struct PeerLink {
    pub run: RunId,
    pub name: String,
    pub authority: Authority,
    host: String,
    port: u16,
    /// `None` for plain HTTP.
    tls: Option<Arc<ClientConfig>>,
    slots: Arc<Semaphore>,
    idle: Mutex<Vec<(PeerSender, Instant)>>,
}

impl PeerLink {
    /// Creates the link to a replica; `None` if its row names no address that this one can use.
    pub(super) fn to(replica: &Replica, own: Option<&PeerTls>) -> Option<Self> {
        let url = replica.facts.url.as_ref()?;
        let tls = match (url.scheme(), own, &replica.facts.key) {
            ("https", Some(own), Some(key)) => Some(Arc::new(own.client(Digest::from_hex(key)?).ok()?)),
            ("http", _, None) if is_loopback(url) => None,
            _ => return None,
        };
        let (host, port) = (url.host_str()?.trim_matches(['[', ']']).to_owned(), url.port_or_known_default()?);
        Some(Self {
            run: replica.run,
            name: replica.facts.name.clone(),
            authority: url.authority().parse().ok()?,
            host,
            port,
            tls,
            slots: Arc::new(Semaphore::new(MAX_PASSING)),
            idle: Mutex::default(),
        })
    }

    /// Sends a request and returns the head of its response.
    ///
    /// # Errors
    /// [`PassingError`], which says whether the request can have arrived.
    pub async fn send(self: &Arc<Self>, request: Request<Full<Bytes>>) -> Result<Response<PeerBody>, PassingError> {
        let slot = Arc::clone(&self.slots).try_acquire_owned().map_err(|_| PassingError::Busy)?;
        let mut request = request;
        while let Some(mut sender) = self.idle_sender() {
            match sender.try_send_request(request).await {
                Ok(response) => return Ok(self.answered(response, sender, slot)),
                Err(mut failed) => match failed.take_message() {
                    // The connection ended while it was idle.
                    Some(unsent) => request = unsent,
                    None => return Err(PassingError::Lost(failed.into_error().to_string())),
                },
            }
        }
        let opened = timeout(CONNECT_TIME, self.connect()).await;
        let mut sender = opened.unwrap_or_else(|_| Err(PassingError::Unreached("it took too long".to_owned())))?;
        match sender.try_send_request(request).await {
            Ok(response) => Ok(self.answered(response, sender, slot)),
            Err(mut failed) => {
                let is_unsent = failed.take_message().is_some();
                let why = failed.into_error().to_string();
                Err(if is_unsent { PassingError::Unreached(why) } else { PassingError::Lost(why) })
            }
        }
    }

    /// Sends a request whose body goes on after the head of its response, on a connection of its
    /// own. Returns the response, and the slot to hold while the connection is in use.
    ///
    /// # Errors
    /// [`PassingError`].
    pub(super) async fn open_lines(
        &self,
        request: Request<LineBody>,
    ) -> Result<(Response<Incoming>, OwnedSemaphorePermit), PassingError> {
        let slot = Arc::clone(&self.slots).try_acquire_owned().map_err(|_| PassingError::Busy)?;
        let opened = timeout(CONNECT_TIME, self.connect()).await;
        let mut sender = opened.unwrap_or_else(|_| Err(PassingError::Unreached("it took too long".to_owned())))?;
        let response = sender.send_request(request).await.map_err(|error| PassingError::Lost(error.to_string()))?;
        Ok((response, slot))
    }

    fn answered(
        self: &Arc<Self>,
        response: Response<Incoming>,
        sender: PeerSender,
        slot: OwnedSemaphorePermit,
    ) -> Response<PeerBody> {
        response.map(|body| PeerBody { body, sender: Some(sender), link: Arc::clone(self), _slot: slot })
    }

    /// Returns an idle connection that is still open.
    fn idle_sender(&self) -> Option<PeerSender> {
        let mut idle = self.idle.lock();
        let now = clock::now();
        while let Some((sender, since)) = idle.pop() {
            if now.saturating_duration_since(since) < IDLE && sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    /// Opens a connection, and spawns the task that drives it; the task ends with its sender.
    async fn connect<B: RequestBody>(&self) -> Result<SendRequest<B>, PassingError> {
        let unreached = |error: io::Error| {
            let is_refused = error.kind() == io::ErrorKind::ConnectionRefused;
            if is_refused { PassingError::Refused } else { PassingError::Unreached(error.to_string()) }
        };
        #[cfg(any(test, feature = "testing"))]
        if let Some(stream) = crate::stage::net::connect_port(Some(self.port)) {
            return self.open(stream.map_err(unreached)?).await;
        }
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(unreached)?;
        drop(stream.set_nodelay(true));
        self.open(stream).await
    }

    async fn open<B: RequestBody>(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<SendRequest<B>, PassingError> {
        let Some(tls) = &self.tls else { return drive(stream).await };
        let unreached = |why: String| PassingError::Unreached(why);
        // The name is sent and not judged: the key is that of the replica's row.
        let name = ServerName::try_from(self.host.clone()).map_err(|error| unreached(error.to_string()))?;
        let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await;
        drive(stream.map_err(|error| unreached(error.to_string()))?).await
    }
}

/// The body of a request to a replica.
trait RequestBody: Body<Data = Bytes, Error = Infallible> + Send + 'static {}
impl<B: Body<Data = Bytes, Error = Infallible> + Send + 'static> RequestBody for B {}

async fn drive<B: RequestBody>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<SendRequest<B>, PassingError> {
    let unreached = |error: hyper::Error| PassingError::Unreached(error.to_string());
    let handshake = http1::Builder::new().max_buf_size(READ_AHEAD).handshake(TokioIo::new(stream)).await;
    let (sender, connection) = handshake.map_err(unreached)?;
    #[expect(clippy::disallowed_methods, reason = "the task ends with its sender, which a request or the link holds")]
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(error = %error, "a connection to another replica ended");
        }
    });
    Ok(sender)
}

/// Returns whether a URL names this machine.
fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// The body of a response of another replica. Read to its end, it gives the connection back;
/// dropped before, it ends the connection, by which the other replica learns that its client is
/// gone.
#[derive(Debug)]
pub struct PeerBody {
    body: Incoming,
    sender: Option<PeerSender>,
    link: Arc<PeerLink>,
    _slot: OwnedSemaphorePermit,
}

impl Body for PeerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none()
            && let Some(sender) = self.sender.take()
        {
            let mut idle = self.link.idle.lock();
            if idle.len() < MAX_IDLE {
                idle.push((sender, clock::now()));
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
