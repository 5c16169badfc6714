//! Opens connections to servers, directly or through the proxy that the configuration selects.
//!
//! For an `https` URL the proxy provides a tunnel (CONNECT) in which TLS is spoken with the server,
//! so certificates are checked as on a direct connection. Requests for a plain `http` URL are sent
//! to the proxy with the whole URL in their first line. Source: RFC 9110, section 9.3.6; RFC 9112,
//! section 3.2.

use std::error::Error;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{HOST, PROXY_AUTHORIZATION};
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service;

use crate::config::Proxy;
use crate::upstream::net::trust::{refuses_certificate, tls_config};

const CONNECT_TIME: Duration = Duration::from_secs(5);
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Keep-alive packets without an answer after which a host counts as gone, a minute after its last
/// packet.
const KEEPALIVES: u32 = 3;
/// Time limit for a connection through a proxy: to the proxy, with TLS if it is an `https` proxy,
/// and from the proxy to the server.
const PROXY_TIME: Duration = Duration::from_secs(10);
/// Most bytes of a proxy's answer to CONNECT.
const MAX_HEAD: usize = 16 * 1024;

type BoxError = Box<dyn Error + Send + Sync>;
type TransportStream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// An opener of connections: all of them direct, or all through one proxy.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    tcp: HttpConnector,
    proxy: Option<ProxyDialer>,
}

/// An opener of connections to one proxy.
#[derive(Clone, Debug)]
struct ProxyDialer {
    proxy: Arc<Proxy>,
    /// TLS for an `https` proxy. Set up when first needed, because the system's certificates take
    /// megabytes.
    tls: Arc<OnceLock<HttpsConnector<HttpConnector>>>,
}

/// The reason why a proxy provided no connection. The text names the proxy without its credentials,
/// and contains nothing that the proxy wrote.
#[derive(Debug, thiserror::Error)]
#[error("the proxy {proxy} {what}")]
pub(crate) struct ProxyError {
    proxy: String,
    what: String,
    #[source]
    source: Option<BoxError>,
}

impl Connector {
    /// Creates a connector for this proxy, or for direct connections.
    pub(crate) fn new(proxy: Option<Arc<Proxy>>) -> Self {
        let mut tcp = tcp();
        tcp.enforce_http(false);
        Self { tcp, proxy: proxy.map(|proxy| ProxyDialer { proxy, tls: Arc::default() }) }
    }
}

impl Service<Uri> for Connector {
    type Response = ServerStream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<ServerStream, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, dst: Uri) -> Self::Future {
        let mut tcp = self.tcp.clone();
        let Some(dialer) = self.proxy.clone() else {
            return Box::pin(async move {
                let stream = tcp.call(dst).await?;
                Ok(ServerStream { stream: MaybeHttpsStream::Http(stream), way: ConnectionRoute::Direct })
            });
        };
        Box::pin(async move {
            let opened = timeout(PROXY_TIME, dialer.open(tcp, &dst)).await;
            Ok(opened.unwrap_or_else(|_| Err(ProxyError::of(&dialer.proxy, "does not answer in time")))?)
        })
    }
}

impl ProxyDialer {
    /// Connects through the proxy: by a tunnel, or for plain HTTP to the proxy itself.
    async fn open(&self, tcp: HttpConnector, dst: &Uri) -> Result<ServerStream, ProxyError> {
        let stream = self.dial(tcp).await?;
        if dst.scheme() == Some(&Scheme::HTTP) {
            return Ok(ServerStream { stream, way: ConnectionRoute::Forwarded });
        }
        let stream = tunnel(stream, &self.proxy, dst).await?;
        Ok(ServerStream { stream, way: ConnectionRoute::Tunnel })
    }

    /// Connects to the proxy itself.
    async fn dial(&self, mut tcp: HttpConnector) -> Result<TransportStream, ProxyError> {
        let (proxy, uri) = (&self.proxy, self.proxy.uri().clone());
        let unreached =
            |error: BoxError| ProxyError { source: Some(error), ..ProxyError::of(proxy, "cannot be reached") };
        if uri.scheme() == Some(&Scheme::HTTP) {
            let stream = tcp.call(uri).await.map_err(|error| unreached(error.into()))?;
            return Ok(MaybeHttpsStream::Http(stream));
        }
        let mut https = match self.tls.get() {
            Some(https) => https.clone(),
            None => {
                let config = tls_config().map_err(|error| unreached(error.into()))?;
                let https = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1();
                self.tls.get_or_init(|| https.wrap_connector(tcp)).clone()
            }
        };
        https.call(uri).await.map_err(|error| match refuses_certificate(&*error) {
            // The source would be taken for a refusal of the server's certificate.
            true => ProxyError::of(proxy, "has a certificate that is not accepted"),
            false => unreached(error),
        })
    }
}

impl ProxyError {
    fn of(proxy: &Proxy, what: impl Into<String>) -> Self {
        Self { proxy: proxy.to_string(), what: what.into(), source: None }
    }

    /// Creates the error for an HTTP status instead of a connection to a server.
    fn status(proxy: &Proxy, status: StatusCode, server: &str) -> Self {
        if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
            return Self::credentials(proxy);
        }
        let what = if status.is_server_error() { "has no connection" } else { "refuses a connection" };
        Self::of(proxy, format!("{what} to {server} (HTTP status {status})"))
    }

    /// Creates the error for a 407.
    pub(crate) fn credentials(proxy: &Proxy) -> Self {
        let what = match proxy.authorization() {
            Some(_) => "refuses the user or the password that it was given",
            None => "wants a user and a password",
        };
        Self::of(proxy, format!("{what} (HTTP status 407)"))
    }

    /// Returns the whole text, with the reason why the proxy cannot be reached.
    pub(crate) fn text(&self) -> String {
        let (mut text, mut source) = (self.to_string(), self.source());
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        text
    }
}

/// Asks the proxy for a connection to a server. Returns the stream, which leads to the server from
/// then on.
async fn tunnel(stream: TransportStream, proxy: &Proxy, dst: &Uri) -> Result<TransportStream, ProxyError> {
    let garbled = || ProxyError::of(proxy, "does not answer as an HTTP proxy");
    let host = dst.host().unwrap_or_default();
    let server = format!("{host}:{}", dst.port_u16().unwrap_or(443));
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = Method::CONNECT;
    *request.uri_mut() = Uri::from(server.parse::<Authority>().map_err(|_| garbled())?);
    request.headers_mut().insert(HOST, HeaderValue::from_str(&server).map_err(|_| garbled())?);
    if let Some(authorization) = proxy.authorization() {
        request.headers_mut().insert(PROXY_AUTHORIZATION, authorization.clone());
    }
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_HEAD);
    let (mut sender, connection) = builder.handshake(stream).await.map_err(|_| garbled())?;
    let asked = async {
        let response = sender.send_request(request).await.map_err(|_| garbled())?;
        let status = response.status();
        if !status.is_success() {
            return Err(ProxyError::status(proxy, status, &server));
        }
        hyper::upgrade::on(response).await.map_err(|_| garbled())
    };
    let (mut connection, mut asked) = (pin!(connection.with_upgrades()), pin!(asked));
    let mut is_open = true;
    let upgraded = loop {
        tokio::select! {
            upgraded = &mut asked => break upgraded?,
            // The connection may end before the answer that was read from it is delivered.
            _ = &mut connection, if is_open => is_open = false,
        }
    };
    let parts = upgraded.downcast::<TransportStream>().map_err(|_| garbled())?;
    // A server sends nothing before the client's side of TLS.
    if parts.read_buf.is_empty() { Ok(parts.io) } else { Err(garbled()) }
}

/// Creates a connector over TCP with the time-outs of all connections.
pub(crate) fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIME));
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE));
    tcp.set_keepalive_retries(Some(KEEPALIVES));
    tcp
}

/// The route of a connection to its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionRoute {
    Direct,
    /// Through a tunnel that a proxy provides.
    Tunnel,
    /// Through a proxy that reads each request and forwards it.
    Forwarded,
}

/// A connection to a server, or to the proxy in front of it.
#[derive(Debug)]
pub(crate) struct ServerStream {
    stream: TransportStream,
    way: ConnectionRoute,
}

impl Connection for ServerStream {
    fn connected(&self) -> Connected {
        match self.way {
            ConnectionRoute::Direct => self.stream.connected(),
            ConnectionRoute::Tunnel => Connected::new(),
            ConnectionRoute::Forwarded => Connected::new().proxy(true),
        }
    }
}

impl Read for ServerStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl Write for ServerStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
}

#[cfg(test)]
mod tests;
