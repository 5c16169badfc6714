use std::net::SocketAddr;

use http::StatusCode;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::client::conn::http2 as client;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::*;
use crate::config::MAX_HEADER_FIELD;
use crate::listener::guard::HeadGuard;
use crate::listener::pace::PacedStream;
use crate::listener::reply;

const TIMES: ConnectionTimes = ConnectionTimes {
    first_byte: Duration::from_secs(10),
    head: Duration::from_secs(5),
    idle: Duration::from_secs(120),
    write: Duration::from_secs(60),
};
const LINGER: ConnectionLinger = ConnectionLinger { fresh: Duration::from_secs(1), idle: Duration::ZERO };
/// The text with which a client begins, and its empty SETTINGS.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const GOAWAY: u8 = 7;
const RST_STREAM: u8 = 3;

/// A server of one connection: its client's end, its end, and the time at which that came.
struct PlayedServer {
    client: DuplexStream,
    phase: ConnectionPhase,
    stop: CancellationToken,
    ended: tokio::sync::oneshot::Receiver<Duration>,
}

/// Serves a connection: `/large` has 1 MiB, `/slow` takes an hour, and the guard judges all.
fn serve_one() -> PlayedServer {
    let (ours, client) = duplex(1 << 20);
    let (phase, stop, tasks) = (ConnectionPhase::anonymous(), CancellationToken::new(), TaskGroup::default());
    let (done, ended) = tokio::sync::oneshot::channel();
    let (own, stopping, spawner) = (phase.clone(), stop.clone(), tasks.clone());
    spawner.spawn("server", async move {
        let begun = Instant::now();
        let paced = PacedStream::new(ours, TIMES, own.clone());
        let answer = move |request: Request<Incoming>| async move {
            let local: SocketAddr = "127.0.0.1:8627".parse().unwrap();
            let (head, body) = request.into_parts();
            let guard = HeadGuard::new(local, &["gw.example".to_owned()], &[], MAX_HEADER_FIELD).over_tls();
            if let Err(refused) = guard.admit(&head) {
                return *refused;
            }
            match head.uri.path() {
                "/slow" => tokio::time::sleep(Duration::from_secs(3600)).await,
                "/body" => drop(body.collect().await),
                _ => {}
            }
            let size = if head.uri.path() == "/large" { 1 << 20 } else { 4 };
            reply::with_status(StatusCode::OK, ReplyBody::whole(vec![b'a'; size]))
        };
        drop(serve(paced, &own, TIMES, answer, &tasks, &stopping, || LINGER).await);
        // The test may have ended.
        let _ = done.send(begun.elapsed());
    });
    PlayedServer { client, phase, stop, ended }
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[a, b, c, kind, flags, 0, 0, 0, stream], payload].concat()
}

/// Returns a frame with a request head, each field as a literal that is not indexed.
fn head(stream: u8, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend(text.bytes());
        }
    }
    frame(1, flags, stream, &block)
}

fn get(path: &'static str) -> [(&'static str, &'static str); 4] {
    [(":method", "GET"), (":scheme", "https"), (":path", path), (":authority", "gw.example")]
}

/// Reads frames until the connection ends: kind, stream and payload.
async fn frames(mut client: DuplexStream) -> Vec<(u8, u8, Vec<u8>)> {
    let (mut bytes, mut found) = (Vec::new(), Vec::new());
    drop(client.read_to_end(&mut bytes).await);
    let mut rest = bytes.as_slice();
    while let Some((head, after)) = rest.split_at_checked(9) {
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        let (payload, after) = after.split_at(length.min(after.len()));
        found.push((head[3], head[8], payload.to_vec()));
        rest = after;
    }
    found
}

#[tokio::test(start_paused = true)]
async fn requests_pass_the_same_guard_as_over_http_1() {
    let server = serve_one();
    let (mut sender, connection) = client::handshake(TokioExecutor::new(), TokioIo::new(server.client)).await.unwrap();
    let driver = async {
        for (label, authority, host, status) in [
            ("own", "gw.example", None, 200),
            ("own with a port", "gw.example:8627", None, 200),
            ("loopback", "localhost:8627", None, 200),
            ("the same twice", "gw.example", Some("gw.example"), 200),
            ("two names", "gw.example", Some("localhost"), 400),
            ("another", "evil.example", None, 403),
            ("another port", "localhost:1", None, 403),
        ] {
            let mut request = Request::get(format!("https://{authority}/")).body(Empty::<Bytes>::new()).unwrap();
            if let Some(host) = host {
                request.headers_mut().insert(HOST, HeaderValue::from_static(host));
            }
            let answer = sender.send_request(request).await.unwrap();
            assert_eq!(answer.status().as_u16(), status, "{label}");
        }
        let mut own = Request::get("https://gw.example/").body(Empty::<Bytes>::new()).unwrap();
        own.headers_mut().insert("origin", HeaderValue::from_static("https://gw.example"));
        assert_eq!(sender.send_request(own).await.unwrap().status(), 200);
    };
    tokio::select! { () = driver => {}, ended = connection => panic!("{ended:?}") }
}

#[tokio::test(start_paused = true)]
async fn what_a_client_sends_wrong_ends_the_stream_or_the_connection() {
    let chunked = |stream| head(stream, 5, &[&get("/")[..], &[("transfer-encoding", "chunked")]].concat());
    let long = |stream| {
        let post: Vec<_> = get("/body").iter().map(|(n, v)| (*n, if *n == ":method" { "POST" } else { v })).collect();
        let fields = [&post[..], &[("content-length", "2")]].concat();
        [head(stream, 4, &fields), frame(0, 1, stream, b"four")].concat()
    };
    let no_host = |stream| head(stream, 5, &get("/")[..3]);
    for (label, bytes, kind, is_over) in [
        ("garbage", vec![0xff; 50], GOAWAY, true),
        ("pings and settings", [frame(6, 0, 0, b"12345678"), frame(4, 0, 0, b"")].concat().repeat(5000), GOAWAY, true),
        ("empty data", [head(1, 4, &get("/slow")), frame(0, 0, 1, b"").repeat(5000)].concat(), GOAWAY, true),
        (
            "rapid resets",
            (0..120)
                .flat_map(|n| [head(2 * n + 1, 5, &get("/slow")), frame(3, 0, 2 * n + 1, &[0, 0, 0, 8])].concat())
                .collect(),
            GOAWAY,
            true,
        ),
        ("endless continuation", [head(1, 0, &get("/")), frame(9, 0, 1, b"").repeat(5000)].concat(), GOAWAY, true),
        ("a transfer coding", chunked(1), RST_STREAM, false),
        ("a body beyond its length", long(1), RST_STREAM, false),
        ("no host", no_host(1), 1, false),
    ] {
        let mut server = serve_one();
        server.client.write_all(&[HELLO, &bytes].concat()).await.unwrap();
        let begun = Instant::now();
        let ended = tokio::time::timeout(Duration::from_secs(3), &mut server.ended).await;
        assert_eq!(ended.is_ok(), is_over, "{label}");
        assert!(begun.elapsed() < Duration::from_secs(4), "{label}");
        if !is_over {
            // The connection serves the next request.
            server.client.write_all(&head(3, 5, &get("/"))).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            server.stop.cancel();
            server.client.write_all(&frame(6, 1, 0, &[0x0b, 0x7b, 0xa2, 0xf0, 0x8b, 0x9b, 0xfe, 0x54])).await.unwrap();
            tokio::time::timeout(Duration::from_secs(20), &mut server.ended).await.unwrap().unwrap();
        }
        let found = frames(server.client).await;
        assert!(found.iter().any(|(found, ..)| *found == kind), "{label}: {found:?}");
        assert!(is_over || found.iter().any(|(kind, stream, _)| (*kind, *stream) == (0, 3)), "{label}: {found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_times_of_a_connection_hold() {
    let open_window = frame(8, 0, 0, &[0x00, 0xff, 0xff, 0xff]);
    let no_window = [0, 4, 0, 0, 0, 0];
    for (label, bytes, seconds) in [
        ("nothing", vec![], 10),
        ("half a preface", HELLO[..10].to_vec(), 10),
        ("no request", HELLO.to_vec(), 10),
        ("half a head", [HELLO, &head(1, 0, &get("/"))].concat(), 5),
        (
            "an answer that is not read",
            [&HELLO[..24], &frame(4, 0, 0, &no_window), &head(1, 5, &get("/large"))].concat(),
            60,
        ),
        ("an answer that is read in part", [HELLO, &open_window, &head(1, 5, &get("/large"))].concat(), 60),
        ("a request that takes its time", [HELLO, &head(1, 5, &get("/slow"))].concat(), 3600 + 10),
    ] {
        let mut server = serve_one();
        server.client.write_all(&bytes).await.unwrap();
        let ended = server.ended.await.unwrap().as_secs();
        assert!((seconds..=seconds + 20).contains(&ended), "{label}: {ended}");
        assert!(!server.phase.is_busy(), "{label}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_may_have_so_many_requests_and_answers_of_any_size() {
    let server = serve_one();
    let (mut sender, connection) = client::handshake(TokioExecutor::new(), TokioIo::new(server.client)).await.unwrap();
    let driver = async {
        let large =
            Request::post("https://gw.example/large").body(Full::new(Bytes::from(vec![b'x'; 1 << 19]))).unwrap();
        let answer = sender.send_request(large).await.unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), 1 << 20);
        let slow = || Request::get("https://gw.example/slow").body(Full::default()).unwrap();
        let all: Vec<_> = (0..150).map(|_| sender.send_request(slow())).collect();
        let answers = futures_util::future::join_all(all);
        let begun = Instant::now();
        assert!(answers.await.iter().all(|answer| answer.as_ref().is_ok_and(|answer| answer.status() == 200)));
        // The second hundred waits for the first.
        assert_eq!(begun.elapsed().as_secs(), 7200);
    };
    tokio::select! { () = driver => {}, ended = connection => panic!("{ended:?}") }
    assert!(!server.phase.is_busy());
}
