//! A walk over the routes of all listeners without a credential: over plain HTTP, TLS 1.3 and
//! HTTP/2.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, duplex};
use tokio_rustls::TlsConnector;

use crate::console;
use crate::listener::address::Network;
use crate::listener::lobby::Lobby;
use crate::listener::routes::{ListenerRoute, MCP, PAGES};
use crate::serve::http_server::serve_connection;
use crate::serve::pages;
use crate::stage::block_on;
use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::upstream::Fake;

const NAME: &str = "gw.example";
const TABLES: &str = "[profiles.p]\nupstreams = [\"fx\"]\n";
const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"];
const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

/// The routes of the console: a browser without a session is led to the sign-in page.
const CONSOLE: &[(&str, &str)] = &[
    ("/", "/sign-in"),
    ("/grants", "/sign-in?then=/grants"),
    ("/pins", "/sign-in?then=/pins"),
    ("/upstreams", "/sign-in?then=/upstreams"),
    ("/decisions", "/sign-in?then=/decisions"),
    ("/calls", "/sign-in?then=/calls"),
    ("/events", "/sign-in"),
    ("/group", "/sign-in"),
    ("/approvals/a1", "/sign-in?then=/approvals/a1"),
    ("/elsewhere", "/sign-in"),
];

/// The protocols of a walk.
#[derive(Clone, Copy, Debug, PartialEq)]
enum WalkedProtocol {
    Plain,
    Tls,
    H2,
}

/// Status and `Location` of an answer.
type WalkedAnswer = (u16, Option<String>);

fn start(setup: GatewaySetup) -> Gateway {
    let setup = setup.server(&format!("legacy-sse = true\nallowed-hosts = [\"{NAME}\"]"));
    setup.fake("fx", &Fake::stdio("both")).toml(TABLES).start()
}

/// Sends a request without a credential over a connection of its own.
async fn ask<S>(stream: S, is_h2: bool, host: &str, method: &str, path: &str) -> WalkedAnswer
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let uri = if is_h2 { format!("https://{host}{path}") } else { path.to_owned() };
    let request = Request::builder().method(Method::from_bytes(method.as_bytes()).unwrap()).uri(uri);
    let request = if is_h2 { request } else { request.header("host", host) };
    let request = request.body(Full::new(Bytes::new())).unwrap();
    let response = if is_h2 {
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        let answer = async { sender.send_request(request).await.unwrap() };
        tokio::select! { answer = answer => answer, ended = connection => panic!("{ended:?}") }
    } else {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let answer = async { sender.send_request(request).await.unwrap() };
        // The server may close its end after the answer.
        tokio::select! { biased; answer = answer => answer, ended = connection => panic!("{ended:?}") }
    };
    let location = response.headers().get("location").map(|to| to.to_str().unwrap().to_owned());
    let status = response.status().as_u16();
    drop(response.into_body().collect());
    (status, location)
}

/// Sends a request to the endpoint's listener.
async fn ask_endpoint(
    gateway: &Gateway,
    root: Option<&CertificateDer<'static>>,
    protocol: WalkedProtocol,
    (method, path): (&str, &str),
) -> WalkedAnswer {
    let front = gateway.inner().first_front();
    let (ours, theirs) = duplex(64 * 1024);
    let guest = front.lobby.let_in(Network::from(PEER.ip())).await;
    serve_connection(&front, ours, PEER, guest, &front.service.draining);
    let Some(root) = root else { return ask(theirs, false, NAME, method, path).await };
    let mut roots = RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_protocol_versions(&[&rustls::version::TLS13]).unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    let is_h2 = protocol == WalkedProtocol::H2;
    config.alpn_protocols = vec![if is_h2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    let name = ServerName::try_from(NAME).unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, theirs).await.unwrap();
    Box::pin(ask(stream, is_h2, NAME, method, path)).await
}

/// Returns the status that the table promises for a method without a credential.
fn promised(route: &ListenerRoute, method: &str) -> u16 {
    match (route.has(&method.parse().unwrap()), route.needs_credential) {
        (false, _) => 405,
        (true, true) => 401,
        (true, false) => 200,
    }
}

/// Walks the routes of the endpoint's listener.
fn walk_endpoint(gateway: &Gateway, root: Option<&CertificateDer<'static>>, protocol: WalkedProtocol) {
    for route in MCP {
        let path = route.path.replace("{endpoint}", "/mcp").replace("{profile}", "p");
        for method in METHODS {
            let (status, _) = block_on(ask_endpoint(gateway, root, protocol, (method, &path)));
            assert_eq!(status, promised(route, method), "{protocol:?}: {method} {path}");
        }
    }
    for path in ["/", "/mcp/unknown", "/mcp/p/more", "/metrics", "/healthz", "/sse/unknown", "/.well-known/x", "/%6dcp"]
    {
        for method in METHODS {
            let (status, _) = block_on(ask_endpoint(gateway, root, protocol, (method, path)));
            assert_eq!(status, 404, "{protocol:?}: {method} {path}");
        }
    }
}

#[test]
fn no_route_of_the_endpoint_is_open() {
    let gateway = start(GatewaySetup::new());
    walk_endpoint(&gateway, None, WalkedProtocol::Plain);
    drop(gateway);
    let setup = GatewaySetup::new();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new([NAME.to_owned()]).unwrap().self_signed(&key).unwrap();
    let chain = setup.world.write("gw.pem", &certificate.pem());
    let key = setup.world.write("gw.key", &key.serialize_pem());
    let gateway = start(setup.toml(&format!("[[server.tls]]\ncertificate = {chain:?}\nkey = {key:?}")));
    for protocol in [WalkedProtocol::Tls, WalkedProtocol::H2] {
        walk_endpoint(&gateway, Some(certificate.der()), protocol);
    }
}

/// Opens a connection to the metrics' listener.
async fn to_pages(gateway: &Gateway) -> DuplexStream {
    let (local, served) = gateway.inner().pages().unwrap();
    let (ours, theirs) = duplex(256 * 1024);
    let daemon = gateway.inner();
    let lobby = Lobby::for_operators("metrics", pages::CONNECTIONS, daemon.service.metrics.clone());
    let guest = lobby.let_in(Network::from(local.ip())).await;
    let stop = daemon.service.giving_up.clone();
    daemon.supervised.tasks.spawn("page", async move { pages::connection(&served, ours, guest, &stop).await });
    theirs
}

#[test]
fn the_metrics_need_their_token_and_health_needs_none() {
    const TOKEN: &str = "[metrics]\nlisten = \"127.0.0.1:0\"\ntoken = \"token-of-the-metrics\"\n";
    let setup = GatewaySetup::new();
    let text = setup.text().replace("[metrics]\nlisten = \"127.0.0.1:0\"\n", TOKEN);
    let path = setup.world.write("headend.toml", &text);
    let gateway = Gateway::start(setup.world.clone(), Some(path), &["serve"], &[]);
    let ask = |method: &str, path: &str| {
        block_on(async { ask(to_pages(&gateway).await, false, "localhost", method, path).await.0 })
    };
    for method in METHODS {
        for route in PAGES {
            assert_eq!(ask(method, route.path), promised(route, method), "{method} {}", route.path);
        }
        assert_eq!(ask(method, "/elsewhere"), 404, "{method}");
    }
}

#[test]
fn the_console_shows_nothing_before_the_sign_in() {
    let gateway = GatewaySetup::new().toml("[console]\nlisten = \"127.0.0.1:0\"").start();
    let local = gateway.console_address().unwrap();
    let console = Arc::clone(gateway.inner().console.get().unwrap());
    let ask = |method: &str, path: &str| {
        block_on(async {
            let (ours, theirs) = duplex(64 * 1024);
            let lobby = Lobby::new("console", console::ANONYMOUS, None);
            let guest = lobby.let_in(Network::from(local.ip())).await;
            let own = Arc::clone(&console);
            let tasks = gateway.inner().service.tasks.clone();
            tasks.spawn("console", async move { console::connection(&own, ours, guest).await });
            ask(theirs, false, &local.to_string(), method, path).await
        })
    };
    for (path, to) in CONSOLE {
        for method in METHODS {
            let want = match method {
                "GET" | "HEAD" => (303, Some((*to).to_owned())),
                // Forms are refused before anything else, since these have no type.
                "POST" => (415, None),
                _ => (405, None),
            };
            assert_eq!(ask(method, path), want, "{method} {path}");
        }
    }
}
