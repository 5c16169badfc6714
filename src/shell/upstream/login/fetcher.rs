//! The HTTP client for requests whose address may come from a peer: metadata, registrations,
//! tokens.
//!
//! Each request has its own connection, so that no connection to one address answers for another
//! name. The address is judged when connecting: a name is resolved once, each of its addresses is
//! judged, and one of those is connected to. Redirects are not followed, nothing is kept, and only
//! data of the request itself is sent.
//!
//! If the configuration selects a proxy, the proxy resolves the name and connects. Literal
//! addresses, and all addresses to which the name resolves on this machine, are judged before; a
//! name that does not resolve here is left to the proxy.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Response};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tower_service::Service as _;
use url::{Host, Url};

use crate::config::{Proxy, ProxySettings};
use crate::login::error::AnswerFailure;
use crate::login::request::{OAuthAnswer, OAuthAnswerResult, OAuthRequest, RequestContent};
use crate::upstream::net::connector::{Connector, ProxyError, ServerStream};
use crate::upstream::net::trust::{Certificates, refuses_certificate};
use crate::wire::coding;
use crate::wire::reach::{Reach, literal};

const TIME: Duration = Duration::from_secs(10);
/// Time limit for each address of a name: the next one may work.
const CONNECT_TIME: Duration = Duration::from_secs(3);
/// Time limit for resolving a name here, after which it is left to the proxy.
pub(crate) const LOOK_UP_TIME: Duration = Duration::from_secs(3);
const MAX_ADDRESSES: usize = 4;
const MAX_BODY: usize = 1024 * 1024;
const MAX_HEAD: usize = 64 * 1024;
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");
const AGENT: HeaderValue = HeaderValue::from_static(concat!("headend/", env!("CARGO_PKG_VERSION")));

type ResolveFuture = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// The client, with the certificates and the proxy of one upstream.
#[derive(Clone)]
pub struct Fetcher {
    trust: Arc<Certificates>,
    proxy: ProxySettings,
    /// The system's resolver, or that of a test.
    resolve: Arc<dyn Fn(&str) -> ResolveFuture + Send + Sync>,
}

impl Fetcher {
    pub fn new(trust: Arc<Certificates>, proxy: ProxySettings) -> Self {
        Self { trust, proxy, resolve: Arc::new(|name| Box::pin(system(name.to_owned()))) }
    }

    /// Sends a request and reads its whole answer. Cancel-safe: dropping the future closes the
    /// connection.
    ///
    /// # Errors
    /// [`AnswerFailure`], which contains no text of the peer.
    pub async fn send(&self, request: &OAuthRequest) -> OAuthAnswerResult {
        timeout(TIME, Box::pin(self.exchange(request))).await.unwrap_or(Err(AnswerFailure::Late))
    }

    /// Judges the URL, connects directly or through the proxy, and exchanges the request for its
    /// answer.
    async fn exchange(&self, request: &OAuthRequest) -> OAuthAnswerResult {
        let (url, reach) = (&request.url, request.reach);
        if !reach.admits_host(url) || url.scheme() != "https" && reach != Reach::Loopback {
            return Err(AnswerFailure::Address);
        }
        let proxy =
            if reach == Reach::Loopback { None } else { self.proxy.route(url).map_err(AnswerFailure::Proxy)? };
        match proxy {
            Some(proxy) => {
                let stream = TokioIo::new(self.connect_by(proxy, url, reach).await?);
                // Boxed: the stream may hold a TLS session of its own, and would grow every
                // request's future.
                Box::pin(self.converse_over(stream, request)).await
            }
            None => {
                #[cfg(any(test, feature = "testing"))]
                if let Some(stream) = crate::stage::net::connect_port(url.port_or_known_default()) {
                    return self.converse_over(stream.map_err(|_| AnswerFailure::Network)?, request).await;
                }
                self.converse_over(self.connect(url, reach).await?, request).await
            }
        }
    }

    /// Sends the request on a connection to the server, with TLS if needed, and reads the answer.
    async fn converse_over(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin,
        request: &OAuthRequest,
    ) -> OAuthAnswerResult {
        if request.url.scheme() != "https" {
            return converse(stream, request).await;
        }
        let config = self.trust.config(request.reach != Reach::Public).ok_or(AnswerFailure::Certificate)?;
        let name = server_name(&request.url).ok_or(AnswerFailure::Address)?;
        let tls = TlsConnector::from(config).connect(name, stream).await.map_err(|error| {
            if refuses_certificate(&error) { AnswerFailure::Certificate } else { AnswerFailure::Network }
        })?;
        converse(tls, request).await
    }

    /// Connects to one of the server's addresses that were judged.
    async fn connect(&self, url: &Url, reach: Reach) -> Result<TcpStream, AnswerFailure> {
        let port = url.port_or_known_default().ok_or(AnswerFailure::Address)?;
        let found = match (literal(url), url.host_str()) {
            (Some(address), _) => vec![address],
            (None, Some(name)) => (self.resolve)(name).await.map_err(|_| AnswerFailure::Network)?,
            (None, None) => return Err(AnswerFailure::Address),
        };
        let mut last = AnswerFailure::Address;
        for address in found.into_iter().filter(|address| reach.admits(*address)).take(MAX_ADDRESSES) {
            match timeout(CONNECT_TIME, TcpStream::connect(SocketAddr::new(address, port))).await {
                Ok(Ok(tcp)) => return Ok(tcp),
                Ok(Err(_)) => last = AnswerFailure::Network,
                Err(_) => last = AnswerFailure::Late,
            }
        }
        Err(last)
    }

    /// Opens a tunnel through the proxy, unless the name resolves on this machine to an address
    /// that may not be connected to.
    async fn connect_by(&self, proxy: &Arc<Proxy>, url: &Url, reach: Reach) -> Result<ServerStream, AnswerFailure> {
        if let (None, Some(name)) = (literal(url), url.host_str()) {
            // Behind a proxy, names often do not resolve here, or only after the resolver's
            // time-outs.
            let found = timeout(LOOK_UP_TIME, (self.resolve)(name)).await;
            let found = found.ok().and_then(Result::ok).unwrap_or_default();
            if !found.into_iter().all(|address| reach.admits(address)) {
                return Err(AnswerFailure::Address);
            }
        }
        let uri = url.as_str().parse().map_err(|_| AnswerFailure::Address)?;
        let opened = Connector::new(Some(Arc::clone(proxy))).call(uri).await;
        opened.map_err(|error| match error.downcast_ref::<ProxyError>() {
            Some(error) => AnswerFailure::Proxy(error.text()),
            None => AnswerFailure::Network,
        })
    }
}

impl std::fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetcher").field("trust", &self.trust).finish_non_exhaustive()
    }
}

async fn system(name: String) -> io::Result<Vec<IpAddr>> {
    let found = tokio::net::lookup_host((name, 0)).await?;
    Ok(found.map(|address| address.ip()).collect())
}

fn server_name(url: &Url) -> Option<ServerName<'static>> {
    match url.host()? {
        Host::Domain(name) => ServerName::try_from(name.to_owned()).ok(),
        Host::Ipv4(address) => Some(ServerName::from(IpAddr::V4(address))),
        Host::Ipv6(address) => Some(ServerName::from(IpAddr::V6(address))),
    }
}

/// Sends one request on a connection, reads its answer, and closes the connection.
async fn converse(stream: impl AsyncRead + AsyncWrite + Send + Unpin, request: &OAuthRequest) -> OAuthAnswerResult {
    let message = message(request)?;
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_HEAD);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(|_| AnswerFailure::Network)?;
    let exchange = async {
        let response = sender.send_request(message).await.map_err(|_| AnswerFailure::Network)?;
        read(response).await
    };
    let (mut connection, mut exchange) = (pin!(connection), pin!(exchange));
    let mut is_open = true;
    loop {
        tokio::select! {
            answer = &mut exchange => return answer,
            // The connection may end before the answer that was read from it is delivered.
            _ = &mut connection, if is_open => is_open = false,
        }
    }
}

/// Encodes a request for HTTP.
fn message(request: &OAuthRequest) -> Result<http::Request<Full<Bytes>>, AnswerFailure> {
    let (method, kind, body) = match &request.content {
        RequestContent::None => (Method::GET, None, Bytes::new()),
        RequestContent::Form(form) => (Method::POST, Some(FORM), Bytes::copy_from_slice(form.expose().as_bytes())),
        RequestContent::Json(body) => (Method::POST, Some(JSON), body.clone()),
    };
    let target = request.url[url::Position::BeforePath..url::Position::AfterQuery].to_owned();
    let host = &request.url[url::Position::BeforeHost..url::Position::AfterPort];
    let mut headers = HeaderMap::new();
    headers.insert(HOST, HeaderValue::from_str(host).map_err(|_| AnswerFailure::Address)?);
    headers.insert(ACCEPT, JSON);
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(USER_AGENT, AGENT);
    if let Some(revision) = request.revision {
        headers.insert("mcp-protocol-version", HeaderValue::from_static(revision));
    }
    if let Some(kind) = kind {
        headers.insert(CONTENT_TYPE, kind);
    }
    if let Some(secret) = &request.authorization {
        let mut value = HeaderValue::from_str(secret.expose()).map_err(|_| AnswerFailure::Address)?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    let mut message = http::Request::new(Full::new(body));
    *message.method_mut() = method;
    *message.uri_mut() = target.parse().map_err(|_| AnswerFailure::Address)?;
    *message.headers_mut() = headers;
    Ok(message)
}

/// Reads an answer, within its size limit. Redirects and content encodings are errors.
async fn read(response: Response<Incoming>) -> OAuthAnswerResult {
    let (head, body) = response.into_parts();
    if head.status.is_redirection() {
        return Err(AnswerFailure::Redirect);
    }
    let is_json = head.headers.get(CONTENT_TYPE).is_some_and(is_json);
    if !coding::is_plain_content(head.headers.get_all(CONTENT_ENCODING).iter().map(HeaderValue::as_bytes)) {
        return Err(AnswerFailure::NotJson);
    }
    let body = Limited::new(body, MAX_BODY).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() { AnswerFailure::TooLarge } else { AnswerFailure::Network }
    })?;
    Ok(OAuthAnswer { status: head.status.as_u16(), is_json, body: body.to_bytes() })
}

/// Returns whether a media type is `application/json`, or JSON by its suffix.
fn is_json(value: &HeaderValue) -> bool {
    let kind =
        value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
    kind == b"application/json" || kind.starts_with(b"application/") && kind.ends_with(b"+json")
}

#[cfg(test)]
mod tests;
