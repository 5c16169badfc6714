//! Tests of TLS and HTTP/2 towards clients: versions, protocols, names, certificates that change,
//! and listeners off loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Builder;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::tools::harness::{Gateway, GatewaySetup};
use crate::tools::process::{eventually, free_port, within};
use crate::tools::upstream::Fake;

/// Names of the two certificates.
pub(crate) const NAME: &str = "gw.example";
const OTHER: &str = "other.example";
const H1: &[u8] = b"http/1.1";
pub(crate) const H2: &[u8] = b"h2";
const TOKEN: &str = "token-of-the-metrics-0123456789";
const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}"#;

/// An authority whose certificates the tests accept.
pub(crate) struct TestAuthority {
    pub(crate) runtime: Runtime,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// An answer over HTTP of either version.
#[derive(Debug)]
struct SecureAnswer {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl TestAuthority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { runtime: Runtime::new().unwrap(), issuer }
    }

    /// Writes a certificate for these names and its key, one after the other.
    fn write(&self, setup: &crate::tools::harness::TestHome, file: &str, names: &[&str]) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.issuer).unwrap();
        let key = setup.write(&format!("{file}.key"), &key.serialize_pem());
        (setup.write(&format!("{file}.pem"), &certificate.pem()), key)
    }

    /// Adds certificates for [`NAME`] and [`OTHER`] to a setup.
    pub(crate) fn secure(&self, mut setup: GatewaySetup) -> GatewaySetup {
        setup = setup.server(&format!("allowed-hosts = [\"{NAME}\", \"{OTHER}\"]"));
        for name in [NAME, OTHER] {
            let (certificate, key) = self.write(&setup.world, name, &[name]);
            setup = setup.toml(&format!("[[server.tls]]\ncertificate = {certificate:?}\nkey = {key:?}"));
        }
        setup
    }

    /// Connects with TLS, for a server of this name.
    pub(crate) async fn connect(
        &self,
        address: SocketAddr,
        name: &str,
        protocols: &[&[u8]],
        versions: &[&'static SupportedProtocolVersion],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let stream = TcpStream::connect(address).await?;
        // A request over HTTP/2 is several writes.
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// Sends one request over the negotiated protocol, to a server of this name.
    fn send(&self, address: SocketAddr, name: &str, protocol: &[u8], request: Request<String>) -> SecureAnswer {
        self.runtime.block_on(async {
            let stream = self.connect(address, name, &[protocol], rustls::ALL_VERSIONS).await.unwrap();
            Box::pin(answer(stream, request)).await
        })
    }
}

/// A client's end of a connection, of the negotiated protocol.
enum SecureClient {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl SecureClient {
    async fn new(stream: TlsStream<TcpStream>) -> Self {
        if stream.get_ref().1.alpn_protocol() == Some(H2) {
            let (sender, connection) =
                Box::pin(http2::handshake(TokioExecutor::new(), TokioIo::new(stream))).await.unwrap();
            tokio::spawn(connection);
            return Self::Http2(sender);
        }
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self::Http1(sender)
    }

    /// Sends one request.
    async fn send(&mut self, request: Request<String>) -> SecureAnswer {
        let mut request = request.map(|body| Full::new(Bytes::from(body)));
        let response: Response<Incoming> = match self {
            Self::Http2(sender) => sender.send_request(request).await.unwrap(),
            Self::Http1(sender) => {
                let host = request.uri().authority().unwrap().as_str().parse().unwrap();
                request.headers_mut().insert("host", host);
                *request.uri_mut() = request.uri().path().parse().unwrap();
                sender.ready().await.unwrap();
                sender.send_request(request).await.unwrap()
            }
        };
        let (head, body) = response.into_parts();
        let text = body.collect().await.unwrap().to_bytes();
        SecureAnswer { status: head.status, headers: head.headers, text: String::from_utf8(text.to_vec()).unwrap() }
    }
}

/// Sends one request on a connection.
async fn answer(stream: TlsStream<TcpStream>, request: Request<String>) -> SecureAnswer {
    Box::pin(SecureClient::new(stream)).await.send(request).await
}

/// Creates a request that lists the tools, with the generated token.
fn list(gateway: &Gateway, host: &str) -> Request<String> {
    modern(host, &gateway.token().unwrap(), "tools/list").body(LIST.to_owned()).unwrap()
}

/// Creates a request that calls the tool `fx__echo` with this text.
fn echo(token: &str, said: &str) -> Request<String> {
    let call = format!(r#""method":"tools/call","params":{{"name":"fx__echo","arguments":{{"text":"{said}"}},"#);
    let body = LIST.replace(r#""method":"tools/list","params":{"#, &call);
    modern(NAME, token, "tools/call").header("mcp-name", "fx__echo").body(body).unwrap()
}

/// Begins a request of the modern era.
fn modern(host: &str, token: &str, method: &str) -> Builder {
    Request::post(format!("https://{host}/mcp"))
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method)
}

fn secure_gateway(authority: &TestAuthority) -> Gateway {
    let gateway = authority.secure(GatewaySetup::new()).fake("fx", &Fake::stdio("both")).start();
    let ready = || authority.send(gateway.address, NAME, H1, list(&gateway, NAME)).text.contains("fx__echo");
    eventually("the tools are listed", ready);
    gateway
}

#[test]
fn calls_pass_over_each_version_and_protocol_under_the_name_of_the_certificate() {
    let authority = TestAuthority::new();
    let gateway = secure_gateway(&authority);
    let address = gateway.address;
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for (protocols, want) in [(&[H2, H1][..], Some(H2)), (&[H1], Some(H1)), (&[], None)] {
            let answered = authority.runtime.block_on(async {
                let stream = authority.connect(address, OTHER, protocols, &[version]).await.unwrap();
                assert_eq!(stream.get_ref().1.alpn_protocol(), want);
                Box::pin(answer(stream, list(&gateway, OTHER))).await
            });
            assert!(answered.text.contains("fx__echo"), "{version:?} {protocols:?}: {answered:?}");
        }
    }
    let refused = |name: &str, protocols: &[&[u8]]| {
        authority.runtime.block_on(authority.connect(address, name, protocols, rustls::ALL_VERSIONS)).is_err()
    };
    assert!(refused("unknown.example", &[H1]) && refused(NAME, &[b"h3"]));
    for protocol in [H1, H2] {
        let misdirected = authority.send(address, NAME, protocol, list(&gateway, OTHER));
        assert_eq!(misdirected.status, StatusCode::MISDIRECTED_REQUEST, "{misdirected:?}");
        let mut bare = list(&gateway, NAME);
        bare.headers_mut().remove("authorization");
        let challenged = authority.send(address, NAME, protocol, bare);
        assert_eq!(challenged.status, StatusCode::UNAUTHORIZED);
        assert!(challenged.headers.contains_key("www-authenticate"), "{challenged:?}");
    }
    // A client of plain HTTP gets nothing.
    assert!(crate::tools::http::get(address, "/mcp").is_err());
}

/// Calls on each of several connections, five times on each, until `stop` and at least a hundred
/// times. Returns the number of calls; panics if one fails.
async fn call_until(
    authority: &TestAuthority,
    address: SocketAddr,
    protocol: &[u8],
    token: &str,
    stop: &AtomicBool,
) -> usize {
    let mut calls = 0;
    // A connection that was opened with the first certificate and stays.
    let stream = authority.connect(address, NAME, &[protocol], rustls::ALL_VERSIONS).await.unwrap();
    let mut oldest = Box::pin(SecureClient::new(stream)).await;
    while !stop.load(Ordering::Relaxed) || calls < 100 {
        let stream = authority.connect(address, NAME, &[protocol], rustls::ALL_VERSIONS).await.unwrap();
        let mut fresh = Box::pin(SecureClient::new(stream)).await;
        for client in [&mut fresh, &mut oldest] {
            for _ in 0..5 {
                let said = format!("call {calls}");
                let answered = client.send(echo(token, &said)).await;
                assert!(answered.status == StatusCode::OK && answered.text.contains(&said), "{answered:?}");
                calls += 1;
            }
        }
    }
    calls
}

/// The ways in which a certificate and its key are replaced.
#[derive(Clone, Copy, Debug)]
enum FileReplacement {
    /// Both files are renamed over the old ones.
    Renamed,
    /// The key is written, and the certificate a while later.
    KeyFirst,
}

impl TestAuthority {
    /// Replaces the certificate for [`NAME`], and returns the new one.
    fn replace(&self, home: &crate::tools::harness::TestHome, way: FileReplacement) -> Vec<u8> {
        let (certificate, key) = self.write(home, "fresh", &[NAME]);
        let pem = std::fs::read_to_string(&certificate).unwrap();
        let old = ["pem", "key"].map(|kind| home.path(&format!("{NAME}.{kind}")));
        match way {
            FileReplacement::Renamed => {
                std::fs::rename(&key, &old[1]).unwrap();
                std::fs::rename(&certificate, &old[0]).unwrap();
            }
            FileReplacement::KeyFirst => {
                home.write(&format!("{NAME}.key"), &std::fs::read_to_string(&key).unwrap());
                // Longer than the gateway waits for files to rest, so that it reads a pair that
                // does not fit.
                thread::sleep(Duration::from_millis(700));
                home.write(&format!("{NAME}.pem"), &pem);
            }
        }
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
    }
}

#[test]
fn a_certificate_is_replaced_under_load_and_a_broken_one_keeps_it() {
    let authority = TestAuthority::new();
    let gateway = secure_gateway(&authority);
    let (address, token) = (gateway.address, gateway.token().unwrap());
    let served = |name: &str| {
        authority.runtime.block_on(async {
            let stream = authority.connect(address, name, &[H2], rustls::ALL_VERSIONS).await.ok()?;
            Some(stream.get_ref().1.peer_certificates().unwrap()[0].to_vec())
        })
    };
    let failures = || {
        let page = gateway.scrape();
        assert_eq!(page.matches("headend_tls_certificate_expiry_seconds{").count(), 2, "{page}");
        let line = page.lines().find(|line| line.starts_with("headend_tls_reload_failures_total ")).unwrap();
        line.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
    };
    let stop = AtomicBool::new(false);
    let mut times = Vec::new();
    let (over_h1, over_h2) = thread::scope(|scope| {
        let load = |protocol: &'static [u8]| {
            let (authority, token, stop) = (&authority, &token, &stop);
            let calls = async move { Box::pin(call_until(authority, address, protocol, token, stop)).await };
            scope.spawn(|| authority.runtime.block_on(calls))
        };
        let loads = [load(H1), load(H2)];
        // Ends the load also if an assertion fails.
        let _end = EndOfLoad(&stop);
        for way in
            [FileReplacement::Renamed, FileReplacement::KeyFirst, FileReplacement::Renamed, FileReplacement::KeyFirst]
        {
            let fresh = authority.replace(&gateway.world, way);
            let begun = Instant::now();
            within(Duration::from_secs(20), "the new certificate is served", || served(NAME).unwrap() == fresh);
            times.push((begun.elapsed(), way));
        }
        let (kept, failed) = (served(NAME).unwrap(), failures());
        gateway.world.write(&format!("{NAME}.pem"), "no certificate");
        within(Duration::from_secs(20), "the failure is counted", || failures() > failed);
        assert_eq!(served(NAME).unwrap(), kept);
        assert!(served(OTHER).is_some());
        stop.store(true, Ordering::Relaxed);
        let [h1, h2] = loads.map(|load| load.join().unwrap());
        (h1, h2)
    });
    eprintln!("calls: {over_h1} over HTTP/1, {over_h2} over HTTP/2; served after {times:?}");
    let log = gateway.stderr.all().join("\n");
    assert!(log.contains("a changed certificate cannot be used"), "{log}");
    assert!(!log.contains("PRIVATE KEY"), "{log}");
    let check = gateway.run(&["check", "--config", gateway.config.to_str().unwrap()]);
    assert_eq!(check.status.code(), Some(78), "{check:?}");
}

/// Ends a load when it is dropped.
struct EndOfLoad<'a>(&'a AtomicBool);

impl Drop for EndOfLoad<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn off_loopback_metrics_need_a_token_and_health_does_not() {
    let authority = TestAuthority::new();
    let port = free_port();
    let setup = authority.secure(GatewaySetup::new());
    let text = setup.text().replace(
        "[metrics]\nlisten = \"127.0.0.1:0\"",
        &format!("[metrics]\nlisten = \"0.0.0.0:{port}\"\ntoken = \"{TOKEN}\""),
    );
    let path = setup.world.write("headend.toml", &text);
    let gateway = Gateway::start(setup.world.clone(), Some(path), &["serve"], &[]);
    let status = gateway.run(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["addresses"]["metrics"], format!("https://0.0.0.0:{port}/metrics"));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let get = |path: &str, token: Option<&str>| {
        let request = Request::get(format!("https://{NAME}{path}"));
        let request = match token {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        };
        authority.send(address, NAME, H1, request.body(String::new()).unwrap()).status.as_u16()
    };
    for (path, token, status) in [
        ("/metrics", None, 401),
        ("/metrics", Some("token-of-somebody-else-0123456789"), 401),
        ("/metrics", Some(TOKEN), 200),
        ("/healthz", None, 200),
        ("/readyz", None, 200),
        ("/elsewhere", None, 404),
    ] {
        assert_eq!(get(path, token), status, "{path} {token:?}");
    }
}

#[test]
fn off_loopback_without_tls_only_trusted_proxies_may_connect() {
    let setup = GatewaySetup::new().server("trusted-proxies = [\"127.0.0.2\"]");
    let text = setup.text().replace("listen = [\"127.0.0.1:0\"]", "listen = [\"0.0.0.0:0\"]");
    let path = setup.world.write("headend.toml", &text);
    let gateway = Gateway::start(setup.world.clone(), Some(path), &["serve"], &[]);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, gateway.address.port()));
    let status = |own: [u8; 4]| {
        Runtime::new().unwrap().block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind((own, 0).into()).unwrap();
            let stream = socket.connect(address).await.ok()?;
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
            tokio::spawn(connection);
            let request = Request::post("/mcp").header("host", "localhost");
            let answer = sender.send_request(request.body(String::new()).unwrap()).await.ok()?;
            Some(answer.status().as_u16())
        })
    };
    assert_eq!(status([127, 0, 0, 2]), Some(401));
    assert_eq!(status([127, 0, 0, 1]), None);
    eventually("the refusal is logged", || gateway.stderr.all().iter().any(|line| line.contains("connection refused")));
}
