use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Full;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use url::Url;

use super::*;
use crate::config::ProxySettings;
use crate::upstream::http::answer::transport_error;
use crate::upstream::net::client::HttpClient;

/// A proxy that records the head of each request, answers with fixed bytes, and echoes all data
/// after that.
struct FakeProxy {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl FakeProxy {
    async fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, heads, answer) =
            (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default(), answer.into());
        let noted = Arc::clone(&heads);
        #[allow(clippy::disallowed_methods, reason = "a server of a test")]
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (mut head, mut bytes) = (String::new(), [0; 4096]);
                while !head.contains("\r\n\r\n") {
                    match stream.read(&mut bytes).await {
                        Ok(read) if read > 0 => head.push_str(&String::from_utf8_lossy(&bytes[..read])),
                        _ => break,
                    }
                }
                noted.lock().push(head);
                let _sent = stream.write_all(&answer).await;
                while let Ok(read @ 1..) = stream.read(&mut bytes).await {
                    let _sent = stream.write_all(&bytes[..read]).await;
                }
            }
        });
        Self { address, heads, task }
    }

    fn proxy(&self, credentials: &str) -> Arc<Proxy> {
        Arc::new(Proxy::parse(&format!("http://{credentials}{}", self.address)).unwrap())
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().clone()
    }
}

impl Drop for FakeProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn open(proxy: Arc<Proxy>, server: &str) -> Result<ServerStream, String> {
    let opened = Connector::new(Some(proxy)).call(server.parse().unwrap()).await;
    opened.map_err(|error| error.downcast::<ProxyError>().unwrap().text())
}

const MADE: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

#[tokio::test]
async fn a_tunnel_is_asked_for_with_the_credentials_and_leads_to_the_server() {
    for (credentials, line) in [("", ""), ("me:p%40w@", "proxy-authorization: Basic bWU6cEB3\r\n")] {
        let fake = FakeProxy::answering(MADE).await;
        for (server, to) in [
            ("https://server.example/mcp?canary", "server.example:443"),
            ("https://server.example:8443/", "server.example:8443"),
            ("https://[2606:4700::1111]/", "[2606:4700::1111]:443"),
        ] {
            let mut stream = TokioIo::new(open(fake.proxy(credentials), server).await.unwrap());
            stream.write_all(b"hello").await.unwrap();
            let mut said = [0; 5];
            stream.read_exact(&mut said).await.unwrap();
            assert_eq!(&said, b"hello");
            let want = format!("CONNECT {to} HTTP/1.1\r\nhost: {to}\r\n{line}\r\n");
            assert_eq!(fake.heads().last(), Some(&want));
        }
    }
}

#[tokio::test]
async fn a_refusal_names_the_proxy_and_no_secret() {
    let long = format!("HTTP/1.1 200 OK\r\nx: {}", "canary ".repeat(MAX_HEAD));
    for (answer, want) in [
        (
            "HTTP/1.1 407 canary\r\nproxy-authenticate: Basic realm=\"canary\"\r\ncontent-length: 0\r\n\r\n",
            "refuses the user or the password that it was given (HTTP status 407)",
        ),
        (
            "HTTP/1.1 403 canary\r\ncontent-length: 6\r\n\r\ncanary",
            "refuses a connection to server.example:443 (HTTP status 403 Forbidden)",
        ),
        ("HTTP/1.0 502 canary\r\n\r\n", "has no connection to server.example:443 (HTTP status 502 Bad Gateway)"),
        (
            "HTTP/1.1 302 canary\r\nlocation: https://canary/\r\n\r\n",
            "refuses a connection to server.example:443 (HTTP status 302 Found)",
        ),
        ("canary\r\n\r\n", "does not answer as an HTTP proxy"),
        ("HTTP/1.1 200 OK\r\n\r\ncanary", "does not answer as an HTTP proxy"),
        (&long, "does not answer as an HTTP proxy"),
    ] {
        let fake = FakeProxy::answering(answer).await;
        let why = open(fake.proxy("me:canary@"), "https://server.example/canary").await.unwrap_err();
        assert_eq!(why, format!("the proxy http://{} {want}", fake.address));
    }
    let fake = FakeProxy::answering("HTTP/1.1 407 No\r\ncontent-length: 0\r\n\r\n").await;
    let why = open(fake.proxy(""), "https://server.example/").await.unwrap_err();
    assert!(why.ends_with(" wants a user and a password (HTTP status 407)"), "{why}");
    let nothing = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let proxy = Arc::new(Proxy::parse(&format!("http://me:canary@{nothing}")).unwrap());
    let why = open(proxy, "https://server.example/").await.unwrap_err();
    let want = format!("the proxy http://{nothing} cannot be reached: ");
    assert!(why.starts_with(&want) && why.contains("refused") && !why.contains("canary"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_never_answers_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Arc::new(Proxy::parse(&format!("http://{}", silent.local_addr().unwrap())).unwrap());
    let why = open(proxy, "https://server.example/").await.unwrap_err();
    assert!(why.ends_with(" does not answer in time"), "{why}");
}

#[tokio::test]
async fn a_plain_request_goes_to_the_proxy_with_its_whole_url() {
    let url = Url::parse("http://localhost:9/mcp?a=b").unwrap();
    let send = async |fake: &FakeProxy| {
        let client = HttpClient::new().by(&ProxySettings::Always(fake.proxy("me:canary@")), &url).unwrap();
        let uri: Uri = url.as_str().parse().unwrap();
        assert!(client.connections(&uri).is_none());
        client.request(Request::post(uri).body(Full::new(Bytes::new())).unwrap()).await
    };
    let fake = FakeProxy::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!(send(&fake).await.unwrap().status(), StatusCode::OK);
    let heads = fake.heads();
    assert!(heads[0].starts_with("POST http://localhost:9/mcp?a=b HTTP/1.1\r\n"), "{heads:?}");
    assert!(heads[0].contains("proxy-authorization: Basic bWU6Y2FuYXJ5\r\n"), "{heads:?}");
    assert!(heads[0].contains("host: localhost:9\r\n"), "{heads:?}");
    let fake = FakeProxy::answering("HTTP/1.1 407 No\r\ncontent-length: 0\r\n\r\n").await;
    let error = send(&fake).await.unwrap_err();
    assert!(error.is_connect());
    let said = transport_error(&error).to_string();
    assert!(said.contains(&format!("the proxy http://{} refuses the user", fake.address)), "{said}");
}

#[tokio::test]
async fn the_failure_of_a_pooled_request_says_what_the_proxy_said() {
    let fake = FakeProxy::answering("HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n").await;
    let url = Url::parse("https://server.example/mcp").unwrap();
    let base = HttpClient::new();
    let client = base.by(&ProxySettings::Always(fake.proxy("me:canary@")), &url).unwrap();
    let uri: Uri = url.as_str().parse().unwrap();
    client.prepare(&uri).unwrap();
    let error = client.request(Request::get(uri).body(Full::new(Bytes::new())).unwrap()).await.unwrap_err();
    assert!(error.is_connect());
    let said = transport_error(&error).to_string();
    let want = format!("the proxy http://{} refuses a connection to server.example:443 (HTTP status 403", fake.address);
    assert!(said.contains(&want) && !said.contains("canary"), "{said}");
    let debug = format!("{client:?} {error:?}");
    assert!(!debug.contains("canary") && !debug.contains("bWU6Y2FuYXJ5"), "{debug}");
}

#[test]
fn upstreams_behind_one_proxy_share_a_client_while_it_is_used() {
    let base = HttpClient::new();
    let url = Url::parse("https://server.example/mcp").unwrap();
    let of = |proxy: &str| ProxySettings::Always(Arc::new(Proxy::parse(proxy).unwrap()));
    let first = base.by(&of("http://a:1"), &url).unwrap();
    assert!(first.is_same(&base.by(&of("http://a:1"), &url).unwrap()));
    assert!(!first.is_same(&base.by(&of("http://u:p@a:1"), &url).unwrap()));
    assert!(!first.is_same(&base));
    assert!(base.is_same(&base.by(&ProxySettings::Direct, &url).unwrap()));
}
