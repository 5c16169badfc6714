use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// A server that counts its connections and answers each with the same bytes.
struct Server {
    port: u16,
    seen: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    async fn new(address: &str, answer: Vec<u8>) -> Self {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let (port, seen) = (listener.local_addr().unwrap().port(), Arc::<AtomicUsize>::default());
        let count = Arc::clone(&seen);
        #[allow(clippy::disallowed_methods, reason = "a server of a test")]
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let mut head = vec![0; 4096];
                let _read = stream.read(&mut head).await;
                let _sent = stream.write_all(&answer).await;
                let _ended = stream.shutdown().await;
            }
        });
        Self { port, seen, task }
    }

    fn seen(&self) -> usize {
        self.seen.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn json(body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json; charset=utf-8\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

fn get(url: &str, reach: Reach) -> OAuthRequest {
    let (content, authorization, revision) = (RequestContent::None, None, None);
    OAuthRequest { url: Url::parse(url).unwrap(), reach, content, authorization, revision }
}

fn resolving(answers: impl Fn(usize) -> Vec<IpAddr> + Send + Sync + 'static) -> (Fetcher, Arc<AtomicUsize>) {
    let asked = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&asked);
    let resolve = move |_: &str| -> ResolveFuture {
        let found = answers(count.fetch_add(1, Ordering::SeqCst));
        Box::pin(async move { Ok(found) })
    };
    (Fetcher { resolve: Arc::new(resolve), ..Fetcher::new(Arc::default(), ProxySettings::Direct) }, asked)
}

#[tokio::test]
async fn a_document_is_read_from_a_loopback_server_alone_where_loopback_is_meant() {
    let server = Server::new("127.0.0.1", json("{\"a\":1}")).await;
    let fetcher = Fetcher::new(Arc::default(), ProxySettings::Direct);
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("http://{host}:{}/x?y=1", server.port);
        let answer = fetcher.send(&get(&url, Reach::Loopback)).await.unwrap();
        assert_eq!((answer.status, answer.is_json, &*answer.body), (200, true, &b"{\"a\":1}"[..]));
        for reach in [Reach::Public, Reach::Private] {
            assert_eq!(fetcher.send(&get(&url, reach)).await.unwrap_err(), AnswerFailure::Address);
            let url = url.replace("http:", "https:");
            assert_eq!(fetcher.send(&get(&url, reach)).await.unwrap_err(), AnswerFailure::Address);
        }
    }
    assert_eq!(server.seen(), 2);
}

#[tokio::test]
async fn no_spelling_of_an_address_leads_where_it_may_not() {
    let v4 = Server::new("127.0.0.1", json("{}")).await;
    let all = Server::new("::", json("{}")).await;
    let fetcher = Fetcher::new(Arc::default(), ProxySettings::Direct);
    for host in [
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b::a9fe:a9fe]",
        "[2002:7f00:1::]",
        "169.254.169.254",
        "10.0.0.1",
        "[fd00::1]",
        "[fe80::1]",
    ] {
        for port in [v4.port, all.port] {
            for scheme in ["https", "http"] {
                let url = format!("{scheme}://{host}:{port}/");
                assert_eq!(fetcher.send(&get(&url, Reach::Public)).await.unwrap_err(), AnswerFailure::Address, "{url}");
            }
        }
    }
    assert_eq!((v4.seen(), all.seen()), (0, 0));
}

#[tokio::test]
async fn each_resolution_is_judged_and_its_address_the_one_that_is_connected_to() {
    let server = Server::new("127.0.0.1", json("{}")).await;
    // A name that resolves to other addresses each time: no address is connected to unless it was
    // judged itself.
    let (fetcher, asked) = resolving(|turn| match turn {
        0 => vec!["127.0.0.1".parse().unwrap()],
        1 => vec!["0.0.0.0".parse().unwrap(), "127.0.0.1".parse().unwrap()],
        _ => vec!["::ffff:127.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
    });
    let url = format!("https://rebound.example:{}/", server.port);
    for turn in 1..=3 {
        assert_eq!(fetcher.send(&get(&url, Reach::Public)).await.unwrap_err(), AnswerFailure::Address);
        assert_eq!(asked.load(Ordering::SeqCst), turn, "one resolution for one request");
    }
    // The issuer of a loopback upstream that resolves to an address elsewhere.
    let (fetcher, _) = resolving(|_| vec!["1.1.1.1".parse().unwrap()]);
    let url = format!("http://localhost:{}/", server.port);
    assert_eq!(fetcher.send(&get(&url, Reach::Loopback)).await.unwrap_err(), AnswerFailure::Address);
    assert_eq!(server.seen(), 0);
}

#[tokio::test]
async fn answers_have_bounds_and_lead_nowhere() {
    let redirect = b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n".to_vec();
    let coded = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\nx".to_vec();
    let mut large = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n".to_vec();
    large.resize(MAX_BODY + 100, b' ');
    let fetcher = Fetcher::new(Arc::default(), ProxySettings::Direct);
    for (answer, want) in [
        (redirect, AnswerFailure::Redirect),
        (coded, AnswerFailure::NotJson),
        (large, AnswerFailure::TooLarge),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nx".to_vec(), AnswerFailure::Network),
        (b"no HTTP".to_vec(), AnswerFailure::Network),
        (Vec::new(), AnswerFailure::Network),
    ] {
        let server = Server::new("127.0.0.1", answer).await;
        let url = format!("http://127.0.0.1:{}/", server.port);
        assert_eq!(fetcher.send(&get(&url, Reach::Loopback)).await.unwrap_err(), want);
    }
    let page = b"HTTP/1.1 404 Not Found\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n<p>".to_vec();
    let server = Server::new("127.0.0.1", page).await;
    let answer = fetcher.send(&get(&format!("http://127.0.0.1:{}/", server.port), Reach::Loopback)).await.unwrap();
    assert_eq!((answer.status, answer.is_json), (404, false));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let answered = Fetcher::new(Arc::default(), ProxySettings::Direct).send(&get(&url, Reach::Loopback)).await;
    assert_eq!(answered.unwrap_err(), AnswerFailure::Late);
}

/// Creates a client that uses this server as its proxy and resolves names with this function.
fn proxied(server: &Server, resolve: impl Fn(&str) -> ResolveFuture + Send + Sync + 'static) -> Fetcher {
    let proxy = Proxy::parse(&format!("http://me:canary@127.0.0.1:{}", server.port)).unwrap();
    let fetcher = Fetcher::new(Arc::default(), ProxySettings::Always(Arc::new(proxy)));
    Fetcher { resolve: Arc::new(resolve), ..fetcher }
}

fn found(addresses: &[&str]) -> ResolveFuture {
    let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
    Box::pin(async move { Ok(addresses) })
}

#[tokio::test]
async fn no_inner_address_is_sent_to_a_proxy() {
    let server = Server::new("127.0.0.1", b"HTTP/1.1 502 No\r\n\r\n".to_vec()).await;
    let fetcher = proxied(&server, |name| match name {
        "private.example" => found(&["10.0.0.1"]),
        "both.example" => found(&["1.1.1.1", "10.0.0.1"]),
        "mapped.example" => found(&["::ffff:169.254.169.254"]),
        _ => found(&["127.0.0.1"]),
    });
    for host in [
        "10.0.0.1",
        "2130706433",
        "169.254.169.254",
        "[::1]",
        "[fd00::1]",
        "[64:ff9b::a9fe:a9fe]",
        "private.example",
        "both.example",
        "mapped.example",
        "localhost",
        "here.example",
    ] {
        let answered = fetcher.send(&get(&format!("https://{host}/"), Reach::Public)).await;
        assert_eq!(answered.unwrap_err(), AnswerFailure::Address, "{host}");
    }
    for host in ["169.254.169.254", "127.0.0.1", "mapped.example", "here.example"] {
        let answered = fetcher.send(&get(&format!("https://{host}/"), Reach::Private)).await;
        assert_eq!(answered.unwrap_err(), AnswerFailure::Address, "{host}");
    }
    assert_eq!(server.seen(), 0);
}

#[tokio::test]
async fn a_name_that_leads_nowhere_here_is_left_to_the_proxy() {
    let server = Server::new("127.0.0.1", b"HTTP/1.1 502 canary\r\n\r\n".to_vec()).await;
    let fetcher = proxied(&server, |name| match name {
        "unknown.example" => Box::pin(async { Err(io::Error::other("no such name")) }),
        "empty.example" => found(&[]),
        _ => found(&["1.1.1.1", "2606:4700::1111"]),
    });
    for (number, host) in ["unknown.example", "empty.example", "known.example", "1.1.1.1"].iter().enumerate() {
        let AnswerFailure::Proxy(why) =
            fetcher.send(&get(&format!("https://{host}/"), Reach::Public)).await.unwrap_err()
        else {
            panic!("{host}")
        };
        let port = server.port;
        let want =
            format!("the proxy http://127.0.0.1:{port} has no connection to {host}:443 (HTTP status 502 Bad Gateway)");
        assert_eq!((why, server.seen()), (want, number + 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_up_without_an_end_leaves_the_name_to_the_proxy() {
    let server = Server::new("127.0.0.1", b"HTTP/1.1 502 No\r\n\r\n".to_vec()).await;
    let fetcher = proxied(&server, |_| Box::pin(std::future::pending()));
    let answered = fetcher.send(&get("https://slow.example/", Reach::Public)).await;
    assert!(matches!(answered, Err(AnswerFailure::Proxy(_))), "{answered:?}");
}

#[tokio::test]
async fn a_server_of_this_machine_is_asked_directly() {
    let [proxy, server] = [Server::new("127.0.0.1", Vec::new()).await, Server::new("127.0.0.1", json("{}")).await];
    let fetcher = proxied(&proxy, |_| found(&["127.0.0.1"]));
    let url = format!("http://localhost:{}/", server.port);
    assert_eq!(fetcher.send(&get(&url, Reach::Loopback)).await.unwrap().status, 200);
    assert_eq!((proxy.seen(), server.seen()), (0, 1));
}
