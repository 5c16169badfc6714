//! The HTTP clients of all upstreams: dedicated connections for an upstream over plain HTTP, and
//! connection pools for the rest.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::header::PROXY_AUTHORIZATION;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::Connect;
use hyper_util::client::legacy::{Client, Error as PoolError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use rustls::ClientConfig;
use url::Url;

use crate::config::{Proxy, ProxySettings};
use crate::upstream::net::connections::{
    AnswerBody, AnswerHeadFuture, ClientError, IDLE_CONNECTIONS, PlainConnections, READ_AHEAD,
};
use crate::upstream::net::connector::{Connector, ProxyError, tcp};
use crate::upstream::net::trust::{Certificates, tls_config};

/// Time after which an idle plain connection is not used any more. Node and uvicorn close a
/// connection that was idle for 5 seconds; a call sent at that moment may have been executed and is
/// not sent again. A pool checks for idle connections at this interval, so they are closed within
/// twice the time.
const PLAIN_IDLE: Duration = Duration::from_secs(4);
/// Time after which an idle connection with TLS is closed. These cost more to open, and most end at
/// a proxy that keeps them for a minute.
const TLS_IDLE: Duration = Duration::from_secs(12);

type HttpPool<C> = Client<C, Full<Bytes>>;

/// Connections to all upstreams that are reached in the same way. Clones share them.
#[derive(Clone, Debug)]
pub struct HttpClient(Arc<HttpPools>);

/// The connection pools of clients with the same proxy and certificates.
#[derive(Debug)]
struct HttpPools {
    /// `None` for direct connections.
    proxy: Option<Arc<Proxy>>,
    plain: HttpPool<Connector>,
    /// Set up for the first upstream that needs TLS.
    tls: OnceLock<HttpPool<HttpsConnector<Connector>>>,
    /// The accepted certificates: those of one upstream, or the system's, which take megabytes and
    /// are read when first needed.
    certificates: Arc<OnceLock<ClientConfig>>,
    /// Clients with the same certificates through proxies, as long as they are used.
    proxied: Mutex<Vec<(Arc<Proxy>, Weak<Self>)>>,
}

impl HttpPools {
    fn new(proxy: Option<Arc<Proxy>>, certificates: Arc<OnceLock<ClientConfig>>) -> Arc<Self> {
        let plain = pool(Connector::new(proxy.clone()), PLAIN_IDLE);
        Arc::new(Self { proxy, plain, tls: OnceLock::new(), certificates, proxied: Mutex::default() })
    }
}

impl HttpClient {
    pub fn new() -> Self {
        Self(HttpPools::new(None, Arc::default()))
    }

    /// Creates a client for one upstream that has its own certificates.
    pub fn with(config: &ClientConfig) -> Self {
        let mut config = config.clone();
        // The connector sets the protocols that it speaks.
        config.alpn_protocols.clear();
        Self(HttpPools::new(None, Arc::new(OnceLock::from(config))))
    }

    /// Creates a client for one upstream whose certificates these are.
    ///
    /// # Errors
    /// The system's certificate store cannot be used; a sentence for the operator.
    pub fn of(certificates: &Certificates) -> Result<Self, String> {
        let config = certificates.config(true).ok_or("the system's certificate store cannot be used")?;
        Ok(Self::with(&config))
    }

    /// Returns the client for connections to this URL, direct or through a proxy as the settings
    /// say, with the same certificates. All upstreams behind one proxy share a client.
    ///
    /// # Errors
    /// The settings name no usable proxy: a sentence for the operator.
    pub fn by(&self, settings: &ProxySettings, url: &Url) -> Result<Self, String> {
        let Some(proxy) = settings.route(url)? else { return Ok(self.clone()) };
        let mut proxied = self.0.proxied.lock();
        proxied.retain(|(_, pools)| pools.strong_count() > 0);
        let known = proxied.iter().find(|(known, _)| known == proxy).and_then(|(_, pools)| pools.upgrade());
        let pools = known.unwrap_or_else(|| {
            let pools = HttpPools::new(Some(Arc::clone(proxy)), Arc::clone(&self.0.certificates));
            proxied.push((Arc::clone(proxy), Arc::downgrade(&pools)));
            pools
        });
        Ok(Self(pools))
    }

    /// Returns whether both share their connections.
    #[cfg(test)]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Sets up everything that requests to this URI need.
    ///
    /// # Errors
    /// The system's certificate store cannot be used.
    pub fn prepare(&self, uri: &Uri) -> Result<(), rustls::Error> {
        let pools = &self.0;
        if !is_https(uri) || pools.tls.get().is_some() {
            return Ok(());
        }
        let config = match pools.certificates.get() {
            Some(config) => config.clone(),
            None => {
                let config = tls_config()?;
                pools.certificates.get_or_init(|| config).clone()
            }
        };
        let https = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_all_versions();
        // Two upstreams may get here at once; one of the two pools is kept.
        pools.tls.get_or_init(|| pool(https.wrap_connector(Connector::new(pools.proxy.clone())), TLS_IDLE));
        Ok(())
    }

    /// Creates connections for most requests to one upstream; `None` if all use the pool.
    pub fn connections(&self, uri: &Uri) -> Option<PlainConnections> {
        if self.0.proxy.is_some() { None } else { PlainConnections::to(uri, tcp(), PLAIN_IDLE) }
    }

    /// Sends a request through the pool; the caller awaits the head of the response. Fails for an
    /// `https` URI that was not prepared.
    pub fn request(&self, mut request: Request<Full<Bytes>>) -> AnswerHeadFuture {
        let pooled = |sent: Result<Response<Incoming>, PoolError>| {
            sent.map(|head| head.map(AnswerBody::pooled)).map_err(ClientError::Pool)
        };
        if is_https(request.uri())
            && let Some(tls) = self.0.tls.get()
        {
            let sent = tls.request(request);
            return Box::pin(async move { pooled(sent.await) });
        }
        let Some(proxy) = self.0.proxy.clone() else {
            let sent = self.0.plain.request(request);
            return Box::pin(async move { pooled(sent.await) });
        };
        if let Some(authorization) = proxy.authorization() {
            request.headers_mut().insert(PROXY_AUTHORIZATION, authorization.clone());
        }
        let sent = self.0.plain.request(request);
        Box::pin(async move {
            let response = pooled(sent.await)?;
            match response.status() {
                // The proxy has forwarded nothing.
                StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                    Err(ClientError::Connect(Box::new(ProxyError::credentials(&proxy))))
                }
                _ => Ok(response),
            }
        })
    }
}

fn is_https(uri: &Uri) -> bool {
    uri.scheme() == Some(&http::uri::Scheme::HTTPS)
}

fn pool<C: Connect + Clone>(connector: C, idle: Duration) -> HttpPool<C> {
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(idle)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .http1_max_buf_size(READ_AHEAD)
        .build(connector)
}
