use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// The reaction of a server to one request.
#[derive(Clone, Copy)]
enum Act {
    /// Answers and keeps the connection open.
    Answer(&'static str),
    /// Answers in pieces, with a wait between them.
    Pieces(&'static [&'static str]),
    /// Closes the connection.
    Close,
}

const WHOLE: Act = Act::Answer("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");

/// A server that counts its connections and requests, and reacts to the n-th request as `act` says.
struct Server {
    address: SocketAddr,
    opened: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
}

async fn server(act: fn(usize) -> Act) -> Server {
    closing(act, None).await
}

/// Starts a server that closes each connection this long after its first answer.
async fn closing(act: fn(usize) -> Act, after: Option<Duration>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let counts = [(); 3].map(|()| Arc::<AtomicUsize>::default());
    let [opened, asked, ended] = counts.clone();
    TokioExecutor::new().execute(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let [opened, asked, ended] = counts.clone();
            opened.fetch_add(1, Ordering::SeqCst);
            TokioExecutor::new().execute(async move {
                let mut head = vec![0; 4096];
                while stream.read(&mut head).await.is_ok_and(|read| read > 0) {
                    match act(asked.fetch_add(1, Ordering::SeqCst)) {
                        Act::Answer(answer) => stream.write_all(answer.as_bytes()).await.unwrap(),
                        Act::Pieces(pieces) => {
                            for piece in pieces {
                                stream.write_all(piece.as_bytes()).await.unwrap();
                                tokio::time::sleep(Duration::from_millis(20)).await;
                            }
                        }
                        Act::Close => break,
                    }
                    if let Some(after) = after {
                        tokio::time::sleep(after).await;
                        break;
                    }
                }
                ended.fetch_add(1, Ordering::SeqCst);
            });
        }
    });
    Server { address, opened, asked, ended }
}

impl Server {
    fn connections(&self, limit: Duration) -> PlainConnections {
        let uri = format!("http://{}/mcp", self.address).parse().unwrap();
        PlainConnections::to(&uri, HttpConnector::new(), limit).unwrap()
    }

    fn request(&self) -> Request<Full<Bytes>> {
        let uri = format!("http://{}/mcp?a=b", self.address);
        Request::post(uri).body(Full::new(Bytes::from_static(b"hello"))).unwrap()
    }

    fn counts(&self) -> (usize, usize) {
        (self.opened.load(Ordering::SeqCst), self.asked.load(Ordering::SeqCst))
    }

    async fn ended(&self, number: usize) {
        while self.ended.load(Ordering::SeqCst) < number {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until all connections to the server are closed at the client's end, and the client
    /// could have noticed: on a busy machine that takes time.
    async fn end_arrived(&self) {
        let port = format!(":{:04X}", self.address.port());
        let is_open = |line: &str| {
            let mut fields = line.split_whitespace().skip(2);
            fields.next().is_some_and(|remote| remote.ends_with(&port)) && fields.next() == Some("01")
        };
        while std::fs::read_to_string("/proc/self/net/tcp").unwrap().lines().any(is_open) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

const LONG: Duration = Duration::from_secs(60);

async fn text(connections: &PlainConnections, server: &Server) -> String {
    let response = connections.send(server.request()).await.unwrap();
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn a_connection_takes_one_request_after_the_other() {
    let server = server(|_| WHOLE).await;
    let connections = server.connections(LONG);
    for _ in 0..20 {
        assert_eq!(text(&connections, &server).await, "ok");
    }
    assert_eq!(server.counts(), (1, 20));
    let both = tokio::join!(connections.send(server.request()), connections.send(server.request()));
    assert!(both.0.is_ok() && both.1.is_ok());
    assert_eq!(server.counts(), (2, 22));
}

#[tokio::test]
async fn one_that_was_idle_for_too_long_is_closed_and_not_used() {
    let server = server(|_| WHOLE).await;
    let connections = server.connections(Duration::from_millis(50));
    text(&connections, &server).await;
    tokio::time::timeout(Duration::from_secs(5), server.ended(1)).await.expect("it is closed without a request");
    text(&connections, &server).await;
    assert_eq!(server.counts(), (2, 2));
    let none = server.connections(Duration::ZERO);
    text(&none, &server).await;
    text(&none, &server).await;
    assert_eq!(server.counts(), (4, 4));
}

#[tokio::test]
async fn a_request_that_was_not_sent_goes_to_another_connection_and_one_that_was_never_does() {
    // At once, and while the connection is idle.
    for after in [Duration::ZERO, Duration::from_millis(30)] {
        let closing = closing(|_| WHOLE, Some(after)).await;
        let connections = closing.connections(LONG);
        for _ in 0..5 {
            let ended = closing.counts().0;
            let answer = tokio::time::timeout(Duration::from_secs(5), text(&connections, &closing)).await;
            assert_eq!(answer.as_deref(), Ok("ok"));
            closing.ended(ended + 1).await;
            closing.end_arrived().await;
        }
        assert_eq!(closing.counts(), (5, 5));
    }

    let deaf = server(|number| if number == 1 { Act::Close } else { WHOLE }).await;
    let connections = deaf.connections(LONG);
    text(&connections, &deaf).await;
    let lost = connections.send(deaf.request()).await.unwrap_err();
    assert!(!lost.is_connect(), "{lost}");
    assert_eq!(deaf.counts(), (1, 2), "it is not sent again");
    assert_eq!(text(&connections, &deaf).await, "ok");
}

#[tokio::test]
async fn a_host_that_takes_no_connection_was_sent_nothing() {
    let gone = server(|_| WHOLE).await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let gone = Server { address, ..gone };
    let error = gone.connections(LONG).send(gone.request()).await.unwrap_err();
    assert!(error.is_connect());
    assert!(error.source().is_some_and(|cause| cause.is::<std::io::Error>()), "{error:?}");
}

#[tokio::test]
async fn a_body_that_is_not_wanted_any_more_ends_its_connection_unless_all_of_it_is_here() {
    const ENDLESS: Act = Act::Answer("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n");
    let streaming = server(|_| ENDLESS).await;
    let connections = streaming.connections(LONG);
    let mut body = connections.send(streaming.request()).await.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "ok");
    drop(body);
    tokio::time::timeout(Duration::from_secs(5), streaming.ended(1)).await.expect("the server sees it");

    const ENDED: Act = Act::Answer("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n");
    let ended = server(|_| ENDED).await;
    let connections = ended.connections(LONG);
    for _ in 0..3 {
        let mut body = connections.send(ended.request()).await.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "ok");
    }
    drop(connections.send(ended.request()).await.unwrap());
    assert_eq!(ended.counts(), (1, 4));
}

#[tokio::test]
async fn a_stream_that_ends_after_its_answer_leaves_its_connection_to_the_next_call() {
    const LATE: &[&str] = &["HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n", "0\r\n\r\n"];
    let server = server(|_| Act::Pieces(LATE)).await;
    let connections = server.connections(LONG);
    for _ in 0..3 {
        let mut body = connections.send(server.request()).await.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "ok");
        let rest = body.into_rest().expect("its end has not arrived");
        assert!(rest.collect().await.unwrap().to_bytes().is_empty());
    }
    assert_eq!(server.counts(), (1, 3));
}

#[tokio::test]
async fn a_request_that_is_given_up_ends_its_connection() {
    let silent = server(|_| Act::Pieces(&[])).await;
    let connections = silent.connections(LONG);
    let waited = tokio::time::timeout(Duration::from_millis(100), connections.send(silent.request())).await;
    assert!(waited.is_err());
    tokio::time::timeout(Duration::from_secs(5), silent.ended(1)).await.expect("the server sees it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_in_pieces_arrive_whole_on_every_thread() {
    const PIECES: &[&str] = &["HTTP/1.1 200", " OK\r\ncontent-le", "ngth: 10\r\n\r\n", "01", "234", "5678", "9"];
    let server = Arc::new(server(|_| Act::Pieces(PIECES)).await);
    let connections = server.connections(LONG);
    let mut calls = Vec::new();
    for _ in 0..16 {
        let (connections, server) = (connections.clone(), Arc::clone(&server));
        calls.push(async move {
            for _ in 0..3 {
                assert_eq!(text(&connections, &server).await, "0123456789");
            }
        });
    }
    futures_util::future::join_all(calls).await;
    assert_eq!(server.counts(), (16, 48));
}

#[test]
fn a_body_may_outlive_its_runtime() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let body = runtime.block_on(async {
        let server = server(|_| WHOLE).await;
        server.connections(LONG).send(server.request()).await.unwrap().into_body()
    });
    drop(runtime);
    drop(body);
}

#[test]
fn only_plain_http_has_connections_of_its_own() {
    let to = |uri: &str| PlainConnections::to(&uri.parse().unwrap(), HttpConnector::new(), LONG);
    assert!(to("https://a.example/mcp").is_none() && to("/mcp").is_none());
    let own = to("http://a.example/mcp").unwrap();
    assert!(own.serve(&"http://a.example/other".parse().unwrap()));
    for other in ["http://a.example:81/mcp", "https://a.example/mcp", "http://b.example/mcp", "/mcp"] {
        assert!(!own.serve(&other.parse().unwrap()), "{other}");
    }
    for (uri, host) in
        [("http://a.example:80/", "a.example"), ("http://[::1]:81/", "[::1]:81"), ("http://u@a.example/", "a.example")]
    {
        assert_eq!(to(uri).unwrap().0.host, host);
    }
}
