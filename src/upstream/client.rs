//! The HTTP client of all upstreams: connections to one of them over plain HTTP, and a pool for the rest.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::upstream::connections::{AnswerBody, ClientError, Connections, IDLE_CONNECTIONS, READ_AHEAD, Sending};

const CONNECT_TIME: Duration = Duration::from_secs(5);
const KEEPALIVE: Duration = Duration::from_secs(15);
/// A host that answers none of so many in a row is gone, a minute after its last packet.
const KEEPALIVES: u32 = 3;
/// Node and uvicorn close a connection that was idle for 5 seconds. A call that is sent in that moment may have been executed and is
/// not sent again, so such a connection is not used any more. A pool looks for idle connections in this rhythm, so they are closed
/// within twice the time.
const PLAIN_IDLE: Duration = Duration::from_secs(4);
/// Connections with TLS cost more to open, and most end at a proxy, which keeps them for a minute.
const TLS_IDLE: Duration = Duration::from_secs(12);

type Pool<C> = Client<C, Full<Bytes>>;

/// Connections to all upstreams. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct HttpClient(Arc<Pools>);

#[derive(Debug)]
struct Pools {
    plain: Pool<HttpConnector>,
    /// Set up for the first upstream that needs it: the system's certificates take megabytes.
    tls: OnceLock<Pool<HttpsConnector<HttpConnector>>>,
}

impl HttpClient {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Pools { plain: pool(tcp(), PLAIN_IDLE), tls: OnceLock::new() }))
    }

    /// A client of one upstream that has certificates of its own.
    pub(crate) fn with(config: &rustls::ClientConfig) -> Self {
        let mut config = config.clone();
        // The connector sets those that it speaks.
        config.alpn_protocols.clear();
        let mut tcp = tcp();
        tcp.enforce_http(false);
        let https = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_all_versions();
        Self(Arc::new(Pools {
            plain: pool(self::tcp(), PLAIN_IDLE),
            tls: OnceLock::from(pool(https.wrap_connector(tcp), TLS_IDLE)),
        }))
    }

    /// Sets up what requests to this URI need. Certificates are judged by the system's own store.
    ///
    /// # Errors
    /// When the system's certificate store cannot be used.
    pub(crate) fn prepare(&self, uri: &Uri) -> Result<(), rustls::Error> {
        if !is_https(uri) || self.0.tls.get().is_some() {
            return Ok(());
        }
        let config = tls_config()?;
        let mut tcp = tcp();
        tcp.enforce_http(false);
        let https = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_all_versions();
        // Two upstreams at once may both get here; one of the two pools is kept.
        self.0.tls.get_or_init(|| pool(https.wrap_connector(tcp), TLS_IDLE));
        Ok(())
    }

    /// The connections for most requests to one upstream; `None` where the pool has them.
    pub(crate) fn connections(uri: &Uri) -> Option<Connections> {
        Connections::to(uri, tcp(), PLAIN_IDLE)
    }

    /// Sends a request by the pool; the response's head is awaited by the caller. A URI that was not prepared fails.
    pub(crate) fn request(&self, request: Request<Full<Bytes>>) -> Sending {
        let sent = match self.0.tls.get() {
            Some(tls) if is_https(request.uri()) => tls.request(request),
            _ => self.0.plain.request(request),
        };
        Box::pin(async move { sent.await.map(|head| head.map(AnswerBody::pooled)).map_err(ClientError::Pool) })
    }
}

/// TLS whose certificates are judged by the system's own store.
///
/// # Errors
/// When that store cannot be used.
pub(crate) fn tls_config() -> Result<rustls::ClientConfig, rustls::Error> {
    use rustls_platform_verifier::BuilderVerifierExt as _;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_platform_verifier()?.with_no_client_auth())
}

fn is_https(uri: &Uri) -> bool {
    uri.scheme() == Some(&http::uri::Scheme::HTTPS)
}

fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIME));
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE));
    tcp.set_keepalive_retries(Some(KEEPALIVES));
    tcp
}

fn pool<C: Connect + Clone>(connector: C, idle: Duration) -> Pool<C> {
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(idle)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .http1_max_buf_size(READ_AHEAD)
        .build(connector)
}
