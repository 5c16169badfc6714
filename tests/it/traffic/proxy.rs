//! Tests of proxies between headend and servers behind URLs whose names do not resolve on this
//! machine.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use crate::tools::harness::{Gateway, GatewaySetup, TestHome};
use crate::tools::process::{eventually, said};
use crate::tools::upstream::{Fake, Listening};
use crate::traffic::failures::status_of;

/// The name of the servers, which no resolver knows.
const HOST: &str = "server.proxied.invalid";
/// The password of the proxy.
const CANARY: &str = "canary-of-the-proxy";

/// A proxy that requires a user and a password, and the servers with TLS behind it.
pub(crate) struct ProxyNetwork {
    runtime: Runtime,
    pub(crate) proxy: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    /// Servers by host and port.
    servers: Arc<Mutex<HashMap<String, SocketAddr>>>,
    acceptor: TlsAcceptor,
    authority: String,
}

impl ProxyNetwork {
    pub(crate) fn new() -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let (proxy, heads, servers) = (listener.local_addr().unwrap(), Arc::default(), Arc::default());
        let parts = (Arc::clone(&heads), Arc::clone(&servers));
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (heads, servers) = parts.clone();
                tokio::spawn(relay(stream, heads, servers));
            }
        });
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let server = CertificateParams::new([HOST.to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(vec![server.der().clone()], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Self { runtime, proxy, heads, servers, acceptor, authority: authority.pem() }
    }

    /// Puts TLS in front of a plain server and registers it with the proxy under this port.
    pub(crate) fn serve(&self, port: u16, plain: &str) {
        let listener = self.runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        self.servers.lock().unwrap().insert(format!("{HOST}:{port}"), listener.local_addr().unwrap());
        let (acceptor, plain) = (self.acceptor.clone(), plain.to_owned());
        self.runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, plain) = (acceptor.clone(), plain.clone());
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let mut server = TcpStream::connect(plain).await.unwrap();
                    let _ended = copy_bidirectional(&mut stream, &mut server).await;
                });
            }
        });
    }

    /// Returns the URL of the proxy with its credentials.
    pub(crate) fn url(&self) -> String {
        format!("http://me:{CANARY}@{}", self.proxy)
    }

    /// Creates a set-up whose environment trusts the servers behind the proxy.
    pub(crate) fn setup(&self) -> GatewaySetup {
        let setup = GatewaySetup::new();
        let file: PathBuf = setup.world.write("work/authority.pem", &self.authority);
        setup.env("SSL_CERT_FILE", file.to_str().unwrap()).env("HEADEND_LOG", "trace")
    }

    /// Returns the first lines of the requests so far, with credentials or without.
    pub(crate) fn lines(&self) -> Vec<String> {
        let heads = self.heads.lock().unwrap();
        heads.iter().map(|head| head.lines().next().unwrap_or_default().to_owned()).collect()
    }
}

/// Serves one connection to the proxy.
async fn relay(
    mut stream: TcpStream,
    heads: Arc<Mutex<Vec<String>>>,
    servers: Arc<Mutex<HashMap<String, SocketAddr>>>,
) {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if !stream.read_buf(&mut head).await.is_ok_and(|read| read > 0) {
            return;
        }
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    heads.lock().unwrap().push(text.clone());
    let credentials = data_encoding::BASE64.encode(format!("me:{CANARY}").as_bytes());
    if !text.contains(&format!("\r\nproxy-authorization: Basic {credentials}\r\n")) {
        let _sent = stream.write_all(b"HTTP/1.1 407 Who\r\ncontent-length: 0\r\n\r\n").await;
        return;
    }
    let words: Vec<&str> = text.split(' ').collect();
    let to = match words[1].strip_prefix("http://") {
        // The server accepts the whole URL as well.
        Some(rest) => rest.split('/').next().map(|host| host.parse().unwrap()),
        None => servers.lock().unwrap().get(words[1]).copied(),
    };
    let Some(to) = to else {
        let _sent = stream.write_all(b"HTTP/1.1 502 Nowhere\r\ncontent-length: 0\r\n\r\n").await;
        return;
    };
    let mut server = TcpStream::connect(to).await.unwrap();
    if words[0] == "CONNECT" {
        stream.write_all(b"HTTP/1.1 200 Made\r\n\r\n").await.unwrap();
    } else {
        server.write_all(&head).await.unwrap();
    }
    let _ended = copy_bidirectional(&mut stream, &mut server).await;
}

/// Checks that no output of the daemon contains the proxy's password.
pub(crate) fn is_discreet(gateway: &Gateway) {
    let config = gateway.config.to_str().unwrap();
    let commands = [
        &["status", "--json"][..],
        &["status", "docs"],
        &["logs", "docs"],
        &["check", "--resolved", "--config", config],
    ];
    let shown: Vec<String> = commands.iter().map(|args| said(&gateway.run(args))).collect();
    let encoded = data_encoding::BASE64.encode(format!("me:{CANARY}").as_bytes());
    for text in [gateway.story(), gateway.scrape()].iter().chain(&shown) {
        for secret in [CANARY, &encoded] {
            let found = text.lines().find(|line| line.contains(secret));
            assert_eq!(found, None, "{secret}");
        }
    }
}

#[test]
fn every_transport_goes_through_the_proxy_of_the_environment() {
    for (fake, path) in [(Fake::http("modern"), "/mcp"), (Fake::http("legacy"), "/mcp"), (Fake::sse(), "/sse")] {
        let (network, fake) = (ProxyNetwork::new(), fake.spawn());
        network.serve(8443, fake.address());
        let setup = network.setup().url("docs", &format!("https://{HOST}:8443{path}"));
        let gateway = setup.env("HTTPS_PROXY", &network.url()).start();
        gateway.wait_for_tools(&["docs__echo"]);
        let answer = gateway.modern().call("docs__echo", json!({"text": "through"}));
        assert!(answer.text().contains("through"), "{}", answer.raw);
        let lines = network.lines();
        assert!(!lines.is_empty(), "{path}");
        assert!(lines.iter().all(|line| *line == format!("CONNECT {HOST}:8443 HTTP/1.1")), "{lines:?}");
        is_discreet(&gateway);
    }
}

#[test]
fn the_key_decides_and_a_server_of_this_machine_is_reached_directly_without_it() {
    let (network, [asked, direct, here]) = (ProxyNetwork::new(), [(); 3].map(|()| Fake::http("modern").spawn()));
    network.serve(443, here.address());
    let password = network.setup();
    password.world.write("work/proxy", &network.url());
    let file = password.world.path("work/proxy");
    let setup = password
        .toml(&format!("[upstreams.asked]\nurl = \"{}\"\nproxy = {{ file = {file:?} }}", asked.url))
        .url("direct", &direct.url)
        .toml(&format!("[upstreams.docs]\nurl = \"https://{HOST}/mcp\"\nproxy = {{ env = \"CORP\" }}"))
        .toml(&format!("[upstreams.none]\nurl = \"https://{HOST}/mcp\"\nproxy = \"none\""));
    let setup = setup.env("CORP", &network.url()).env("HTTP_PROXY", "http://127.0.0.1:9");
    let gateway = setup.env("HTTPS_PROXY", &network.url()).start();
    gateway.wait_for_tools(&["asked__echo", "direct__echo", "docs__echo"]);
    let answer = gateway.modern().call("asked__echo", json!({"text": "forwarded"}));
    assert!(answer.text().contains("forwarded"), "{}", answer.raw);
    let lines = network.lines();
    let of = |start: &str| lines.iter().filter(|line| line.starts_with(start)).count();
    assert!(of(&format!("POST {} HTTP/1.1", asked.url)) > 0, "{lines:?}");
    assert!(of(&format!("CONNECT {HOST}:443 ")) > 0, "{lines:?}");
    assert_eq!(of(&format!("POST {}", direct.url)), 0, "{lines:?}");
    assert!(status_of(&gateway, "none")["state"] != "ready");
    is_discreet(&gateway);
}

#[test]
fn a_refusal_of_the_proxy_is_told_and_names_it() {
    let network = ProxyNetwork::new();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let upstream =
        |name: &str, proxy: &str| format!("[upstreams.{name}]\nurl = \"https://{HOST}/mcp\"\nproxy = \"{proxy}\"\n");
    let setup = network.setup().toml(&upstream("docs", &network.url()));
    let setup = setup.toml(&upstream("wrong", &format!("http://me:{CANARY}-of-another@{}", network.proxy)));
    let setup = setup.toml(&upstream("without", &format!("http://{}", network.proxy)));
    let gateway = setup.toml(&upstream("closed", &format!("http://me:{CANARY}@{closed}"))).start();
    let proxy = network.proxy;
    for (name, want) in [
        ("docs", format!("the proxy http://{proxy} has no connection to {HOST}:443 (HTTP status 502 Bad Gateway)")),
        (
            "wrong",
            format!("the proxy http://{proxy} refuses the user or the password that it was given (HTTP status 407)"),
        ),
        ("without", format!("the proxy http://{proxy} wants a user and a password (HTTP status 407)")),
        ("closed", format!("the proxy http://{closed} cannot be reached: ")),
    ] {
        eventually("status says why", || status_of(&gateway, name).to_string().contains(&want));
    }
    is_discreet(&gateway);
}

#[test]
fn a_web_hook_goes_through_the_proxy_of_the_environment() {
    let network = ProxyNetwork::new();
    let hook = network.runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    network.serve(443, &hook.local_addr().unwrap().to_string());
    network.runtime.spawn(async move {
        while let Ok((mut stream, _)) = hook.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(b"}\n") && stream.read_buf(&mut request).await.is_ok_and(|read| read > 0) {}
            let _sent = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
        }
    });
    let policy = format!("default = \"ask\"\n[policy.consent]\nnotify = \"https://{HOST}:443/hook\"");
    let setup = network.setup().policy(&policy).fake("docs", &Fake::stdio("modern"));
    let gateway = setup.env("https_proxy", &network.url()).start();
    let tried = gateway.run(&["approvals", "notify"]);
    assert!(tried.status.success() && said(&tried).contains("took a test notice"), "{}", said(&tried));
    assert_eq!(network.lines(), [format!("CONNECT {HOST}:443 HTTP/1.1")]);
    let text = fs::read_to_string(&gateway.config).unwrap().replace(":443/hook", ":444/hook");
    assert!(gateway.reload(&text).status.success());
    let tried = said(&gateway.run(&["approvals", "notify"]));
    assert!(tried.contains(&format!("the proxy http://{} has no connection to {HOST}:444", network.proxy)), "{tried}");
    // Names and addresses of this machine and of private networks are not sent to the proxy.
    for inner in ["https://10.0.0.1/hook", "https://169.254.169.254/hook"] {
        let text = text.replace(&format!("https://{HOST}:444/hook"), inner);
        assert!(said(&gateway.reload(&text)).contains("is neither on this machine nor on the internet"));
    }
    let before = network.lines().len();
    let text = text.replace(&format!("https://{HOST}:444/hook"), "https://localhost:9/hook");
    assert!(gateway.reload(&text).status.success());
    assert!(!gateway.run(&["approvals", "notify"]).status.success());
    assert_eq!(network.lines().len(), before, "{:?}", network.lines());
    is_discreet(&gateway);
}

/// Starts a daemon in front of a server that requires a login, through the proxy.
pub(crate) fn behind_a_login(network: &ProxyNetwork, server: &Listening, setup: GatewaySetup) -> Gateway {
    network.serve(443, server.address());
    let setup = setup.url("docs", &format!("{}/mcp", login_origin()));
    setup.env("HTTPS_PROXY", &network.url()).toml("[console]\nlisten = \"127.0.0.1:0\"").start()
}

/// Returns the origin of the server that requires a login.
pub(crate) fn login_origin() -> String {
    format!("https://{HOST}")
}

/// Checks the lines that `headend doctor` advises for a URL behind a proxy.
#[test]
fn the_line_of_doctor_for_a_proxy_is_one_that_check_accepts() {
    let text = format!("[policy]\n[upstreams.docs]\nurl = \"https://{HOST}/mcp\"\n");
    let world = TestHome::new();
    let config = world.write("headend.toml", &text);
    let run = |command: &str| said(&world.run(&[command, "--config", config.to_str().unwrap()]));
    let doctor = run("doctor").split_whitespace().collect::<Vec<_>>().join(" ");
    let line = doctor.split('`').find(|part| part.starts_with("proxy = ")).unwrap_or_else(|| panic!("{doctor}"));
    fs::write(&config, format!("{text}{line}\n")).unwrap();
    let checked = world.run(&["check", "--config", config.to_str().unwrap()]);
    assert!(checked.status.success(), "{}", said(&checked));
}
