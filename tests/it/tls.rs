//! Tests of TLS and HTTP/2 towards clients: versions, protocols, names, certificates that change,
//! and listeners off loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
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

/// Sends one request on a connection.
async fn answer(stream: TlsStream<TcpStream>, request: Request<String>) -> SecureAnswer {
    let is_h2 = stream.get_ref().1.alpn_protocol() == Some(H2);
    let mut request = request.map(|body| Full::new(Bytes::from(body)));
    let response = if is_h2 {
        let (mut sender, connection) =
            Box::pin(http2::handshake(TokioExecutor::new(), TokioIo::new(stream))).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    } else {
        let host = request.uri().authority().unwrap().as_str().parse().unwrap();
        request.headers_mut().insert("host", host);
        *request.uri_mut() = request.uri().path().parse().unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    };
    let (head, body) = response.into_parts();
    let text = body.collect().await.unwrap().to_bytes();
    SecureAnswer { status: head.status, headers: head.headers, text: String::from_utf8(text.to_vec()).unwrap() }
}

/// Creates a request that lists the tools, with the generated token.
fn list(gateway: &Gateway, host: &str) -> Request<String> {
    Request::post(format!("https://{host}/mcp"))
        .header("authorization", format!("Bearer {}", gateway.token().unwrap()))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/list")
        .body(LIST.to_owned())
        .unwrap()
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

#[test]
fn a_certificate_is_replaced_under_load_and_a_broken_one_keeps_it() {
    let authority = TestAuthority::new();
    let gateway = secure_gateway(&authority);
    let served = |name: &str| {
        authority.runtime.block_on(async {
            let stream = authority.connect(gateway.address, name, &[H2], rustls::ALL_VERSIONS).await.ok()?;
            let certificate = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
            assert_eq!(Box::pin(answer(stream, list(&gateway, name))).await.status, 200);
            Some(certificate)
        })
    };
    let failures = || {
        let page = gateway.scrape();
        assert_eq!(page.matches("headend_tls_certificate_expiry_seconds{").count(), 2, "{page}");
        let line = page.lines().find(|line| line.starts_with("headend_tls_reload_failures_total ")).unwrap();
        line.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
    };
    let first = served(NAME).unwrap();
    // Each connection of the load makes a call, while certificate and key change one by one.
    authority.write(&gateway.world, NAME, &[NAME]);
    within(Duration::from_secs(10), "the new certificate is served", || served(NAME).unwrap() != first);
    let second = served(NAME).unwrap();
    let failed = failures();
    gateway.world.write(&format!("{NAME}.pem"), "no certificate");
    within(Duration::from_secs(10), "the failure is counted", || failures() > failed);
    assert_eq!(served(NAME).unwrap(), second);
    assert!(served(OTHER).is_some());
    let log = gateway.stderr.all().join("\n");
    assert!(log.contains("a changed certificate cannot be used"), "{log}");
    assert!(!log.contains("PRIVATE KEY"), "{log}");
    let check = gateway.run(&["check", "--config", gateway.config.to_str().unwrap()]);
    assert_eq!(check.status.code(), Some(78), "{check:?}");
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
    let _gateway = Gateway::start(setup.world.clone(), Some(path), &["serve"], &[]);
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
