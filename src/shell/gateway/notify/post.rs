//! Sends a notice to a URL by one POST. Redirects are not followed, and the answer's body is not
//! read.
//!
//! All addresses that the name resolves to are checked, and the connection goes to one of the
//! checked addresses: they must all be on this machine if the URL names this machine, and otherwise
//! all on the internet. A proxy gets no name that resolves here to another address.

use std::error::Error;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Request, StatusCode};
use http_body_util::Full;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::TokioExecutor;
use tower_service::Service;
use url::{Host, Url};

use super::failed::NoticeError;
use crate::base::slots::PoolSlot;
use crate::config::{NotifyHook, is_public};
use crate::upstream::login::fetcher::LOOK_UP_TIME;
use crate::upstream::net::connector::{Connector, ProxyError};
use crate::upstream::net::trust::tls_config;
use crate::wire::foreign;

/// Longest head of an answer, in bytes.
const HEAD: usize = 16 * 1024;
/// Longest reason in an error, in characters.
const MAX_WHY: usize = 200;

/// The TLS configuration, made at the first notice: loading the system's certificates takes a
/// moment.
pub(super) type SharedTlsConfig = OnceLock<rustls::ClientConfig>;

/// Sends the notice. A name look-up that outlives the call keeps the notice's slot until the system
/// ends it.
pub(super) async fn post(
    hook: &NotifyHook,
    notice: Bytes,
    tls: &SharedTlsConfig,
    place: PoolSlot,
) -> Result<(), NoticeError> {
    let unreached = |why: &dyn std::fmt::Display| NoticeError::Unreached(why.to_string());
    let config = match tls.get() {
        Some(config) => config.clone(),
        None => {
            let made = tls_config().map_err(|_| unreached(&"the system's certificate store cannot be used"))?;
            tls.get_or_init(|| made).clone()
        }
    };
    let mut request = Request::post(hook.url.expose()).body(Full::new(notice)).map_err(|error| unreached(&error))?;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in &hook.headers {
        let (Ok(name), Ok(mut value)) = (HeaderName::try_from(name.as_str()), HeaderValue::from_str(value.expose()))
        else {
            return Err(unreached(&"a header of `notify-headers` is no HTTP header"));
        };
        value.set_sensitive(true);
        request.headers_mut().insert(name, value);
    }
    let tls = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1();
    let place = Arc::new(place);
    let url = Url::parse(hook.url.expose()).map_err(|error| unreached(&error))?;
    let status = match hook.proxy.route(&url).map_err(NoticeError::Unreached)? {
        Some(proxy) => {
            check_proxied_name(&url, Arc::clone(&place)).await.map_err(|error| unreached(&error))?;
            send(tls.wrap_connector(Connector::new(Some(Arc::clone(proxy)))), request).await?
        }
        None => {
            let mut tcp =
                HttpConnector::new_with_resolver(CheckedResolver { is_here: hook.is_here, place: Arc::clone(&place) });
            tcp.enforce_http(false);
            send(tls.wrap_connector(tcp), request).await?
        }
    };
    if status.is_success() { Ok(()) } else { Err(NoticeError::Answer(status.as_u16())) }
}

/// Sends one request on a connection of its own.
async fn send<C>(connector: C, request: Request<Full<Bytes>>) -> Result<StatusCode, NoticeError>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let client =
        Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).http1_max_buf_size(HEAD).build(connector);
    let answer = client.request(request).await.map_err(|error| NoticeError::Unreached(cause(&error)))?;
    Ok(answer.status())
}

/// Refuses a URL that would go to a proxy if its name resolves here to an address that is not on
/// the internet. A name that does not resolve here is left to the proxy; literal addresses were
/// checked with the configuration.
async fn check_proxied_name(url: &Url, place: Arc<PoolSlot>) -> io::Result<()> {
    let Some(Host::Domain(name)) = url.host() else { return Ok(()) };
    let found = tokio::time::timeout(LOOK_UP_TIME, look_up(name.to_owned(), place)).await;
    let found = found.ok().and_then(Result::ok).unwrap_or_default();
    check_addresses(found, false).map(drop)
}

/// Looks a name up; the slot stays taken until the system ends the look-up.
async fn look_up(name: String, place: Arc<PoolSlot>) -> io::Result<Vec<SocketAddr>> {
    let look_up = move || {
        let found = (name.as_str(), 0).to_socket_addrs().map(Iterator::collect);
        drop(place);
        found
    };
    tokio::task::spawn_blocking(look_up).await?
}

/// Returns the innermost cause of an error, which names no URL, or the fault of the proxy.
fn cause(error: &(dyn Error + 'static)) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        if let Some(error) = inner.downcast_ref::<ProxyError>() {
            return error.text();
        }
        inner = source;
    }
    foreign::line(&inner.to_string()).chars().take(MAX_WHY).collect()
}

/// A resolver that returns addresses only if all of them are allowed.
#[derive(Clone)]
struct CheckedResolver {
    is_here: bool,
    place: Arc<PoolSlot>,
}

impl Service<Name> for CheckedResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let Self { is_here, place } = self.clone();
        Box::pin(async move { check_addresses(look_up(name.as_str().to_owned(), place).await?, is_here) })
    }
}

/// Returns the addresses if all of them are on this machine (`is_here`) or all on the internet.
fn check_addresses(found: Vec<SocketAddr>, is_here: bool) -> io::Result<std::vec::IntoIter<SocketAddr>> {
    let is_allowed = |address: &SocketAddr| {
        let address = address.ip().to_canonical();
        if is_here { address.is_loopback() } else { is_public(address) }
    };
    if found.iter().all(is_allowed) {
        return Ok(found.into_iter());
    }
    let why = if is_here {
        "its name does not lead to this machine"
    } else {
        "its name leads to an address that is not on the internet"
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    use super::*;
    use crate::base::slots::SlotPool;
    use crate::base::task_group::TaskGroup;
    use crate::config::ProxySettings;
    use crate::config::source::secret::Secret;

    #[test]
    fn a_name_is_as_good_as_the_worst_of_its_addresses() {
        let of = |found: &[&str], is_here: bool| {
            let found = found.iter().map(|address| format!("{address}:0").parse().unwrap()).collect();
            check_addresses(found, is_here).map(|found| found.len()).ok()
        };
        assert_eq!(of(&["1.1.1.1", "[2606:4700::1111]"], false), Some(2));
        assert_eq!(of(&["127.0.0.1", "[::1]"], true), Some(2));
        for (found, is_here) in [
            (&["1.1.1.1", "10.0.0.1"][..], false),
            (&["127.0.0.1"], false),
            (&["[::ffff:169.254.169.254]"], false),
            (&["1.1.1.1"], true),
            (&["127.0.0.1", "192.168.0.1"], true),
        ] {
            assert_eq!(of(found, is_here), None, "{found:?}");
        }
    }

    /// Starts a server on this machine that gives each request this answer. Returns its URL and the
    /// requests.
    async fn server(answer: &'static str) -> (String, mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/secret-path", listener.local_addr().unwrap());
        let (heard, requests) = mpsc::channel(8);
        TaskGroup::default().spawn("server", async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = Vec::new();
                while !request.ends_with(b"notice") {
                    stream.read_buf(&mut request).await.unwrap();
                }
                heard.try_send(String::from_utf8(request).unwrap()).unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        (url, requests)
    }

    fn hook(url: &str, is_here: bool, headers: &[(&str, &str)]) -> NotifyHook {
        let secret = |text: &str| Secret::new(text.to_owned());
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), secret(value))).collect();
        NotifyHook { url: secret(url), origin: String::new(), is_here, headers, proxy: ProxySettings::Direct }
    }

    async fn send_to(hook: &NotifyHook) -> Result<(), NoticeError> {
        let (slots, notice) = (SlotPool::new(1), Bytes::from_static(b"notice"));
        post(hook, notice, &SharedTlsConfig::new(), slots.take().await).await
    }

    #[tokio::test]
    async fn a_notice_is_one_post_with_the_headers_of_the_operator() {
        let (url, mut requests) = server("HTTP/1.1 204 No Content\r\n\r\n").await;
        send_to(&hook(&url, true, &[("x-key", "canary")])).await.unwrap();
        let request = requests.recv().await.unwrap();
        assert!(request.starts_with("POST /secret-path HTTP/1.1\r\n"), "{request}");
        for line in ["x-key: canary", "content-type: application/json"] {
            assert!(request.contains(line), "{request}");
        }
        assert!(request.ends_with("\r\n\r\nnotice") && requests.try_recv().is_err(), "{request}");
    }

    #[tokio::test]
    async fn other_answers_and_no_answer_are_failures_that_name_no_secret() {
        let redirect = "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
        for (answer, status) in [(redirect, 302), ("HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n", 500)] {
            let (url, mut requests) = server(answer).await;
            let failed = send_to(&hook(&url, true, &[])).await.unwrap_err();
            assert!(matches!(failed, NoticeError::Answer(found) if found == status), "{failed}");
            assert!(requests.recv().await.is_some() && requests.try_recv().is_err(), "it is sent once");
        }
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let (url, _requests) = server("no answer of HTTP\r\n\r\n").await;
        let unreached = [
            hook(&format!("http://{closed}/secret-path"), true, &[]),
            hook(&url, true, &[]),
            hook(&url, true, &[("x-key", "secret-path\n")]),
            hook(&url.replace("127.0.0.1", "localhost"), false, &[]),
        ];
        for hook in unreached {
            let failed = send_to(&hook).await.unwrap_err();
            assert!(
                matches!(failed, NoticeError::Unreached(_)) && !failed.to_string().contains("secret-path"),
                "{failed}"
            );
        }
    }

    #[tokio::test]
    async fn a_name_of_this_machine_is_not_sent_to_a_proxy() {
        let slots = SlotPool::new(3);
        for (url, is_sent) in
            [("https://localhost/", false), ("https://name.invalid/", true), ("https://1.1.1.1/", true)]
        {
            let place = Arc::new(slots.take().await);
            assert_eq!(check_proxied_name(&Url::parse(url).unwrap(), place).await.is_ok(), is_sent, "{url}");
        }
    }
}
