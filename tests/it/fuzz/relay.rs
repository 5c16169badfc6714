//! A relay between the gateway and an upstream behind HTTP that damages the upstream's messages.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;

use super::mutation::mutate;

/// Texts in answers, and their replacements.
const DRESSES: &[(&str, &str)] = &[
    ("content-type: application/json", "content-type: text/html"),
    ("content-type: application/json", "content-type: text/event-stream"),
    ("content-type: text/event-stream", "content-type: application/json"),
    ("content-type:", "content-encoding: gzip\r\ncontent-type:"),
    ("content-length:", "transfer-encoding: chunked\r\ncontent-length:"),
    ("content-length: ", "content-length: 9"),
    ("transfer-encoding: chunked", "transfer-encoding: gzip"),
    ("HTTP/1.1 200 OK", "HTTP/1.1 404 Not Found"),
    ("HTTP/1.1 200 OK", "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/"),
    ("HTTP/1.1 200 OK", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK"),
    ("HTTP/1.1 200 OK", "HTTP/1.1 500 Oops"),
    ("HTTP/1.1 200 OK", "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Bearer"),
    ("mcp-session-id: ", "mcp-session-id: \t"),
    ("event: message", "event: endpoint"),
    ("event: message", "id: \u{0}\nretry: 99999999999\nevent: message"),
    ("data: ", "data:\ndata: "),
    ("\"id\":", "\"id\":-"),
    ("\"id\":", "\"id\":\"1\",\"x\":"),
    ("\"result\":", "\"error\":{\"code\":-32042,\"message\":\"m\",\"data\":{\"elicitations\":[]}},\"y\":"),
    ("\"tools\":", "\"tools\":[{}],\"t\":"),
    ("\"content\":", "\"resultType\":\"input_required\",\"requestState\":\"s\",\"inputRequests\":{},\"content\":"),
    ("\"protocolVersion\":\"", "\"protocolVersion\":\"9"),
    ("\"supportedVersions\":", "\"supportedVersions\":[],\"s\":"),
    ("\"capabilities\":", "\"capabilities\":[],\"c\":"),
    ("endpoint\ndata: /", "endpoint\ndata: //evil.example/"),
];

/// Starts to listen, and returns the address; the relay ends with the test's process.
pub(super) fn start(server: SocketAddr, seed: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut rng = Rng::with_seed(seed);
    // Lets some servers complete their handshake.
    let pass = Arc::new(AtomicU64::new(rng.u64(0..32)));
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (rng, pass) = (rng.fork(), Arc::clone(&pass));
            thread::spawn(move || relay(client, server, rng, &pass));
        }
    });
    address
}

/// Relays one connection. `pass` is the number of pieces that first pass undamaged.
fn relay(mut client: TcpStream, server: SocketAddr, mut rng: Rng, pass: &AtomicU64) {
    let Ok(mut upstream) = TcpStream::connect(server) else { return };
    let (Ok(mut from), Ok(mut to)) = (client.try_clone(), upstream.try_clone()) else { return };
    thread::spawn(move || {
        // Either side may be gone.
        let _ignored = std::io::copy(&mut from, &mut to);
        let _ignored = to.shutdown(Shutdown::Write);
    });
    let mut buffer = vec![0; 64 << 10];
    let mut before = Vec::new();
    while let Ok(read @ 1..) = upstream.read(&mut buffer) {
        let chunk = &buffer[..read];
        let may_pass = |left: u64| left.checked_sub(1);
        let passes = pass.fetch_update(Ordering::Relaxed, Ordering::Relaxed, may_pass).is_ok();
        let damaged = match rng.u8(0..24) {
            _ if passes => chunk.to_vec(),
            0..17 => chunk.to_vec(),
            17..20 => dressed(&mut rng, chunk),
            20 | 21 => mutate(&mut rng, chunk, &before),
            22 => chunk[..rng.usize(0..read)].to_vec(),
            _ => [chunk, &before[..]].concat(),
        };
        before = chunk.to_vec();
        let (one, two) = damaged.split_at(rng.usize(0..=damaged.len()));
        let sent = client.write_all(one).and_then(|()| {
            if rng.u8(0..8) == 0 {
                thread::sleep(Duration::from_millis(rng.u64(1..20)));
            }
            client.write_all(two)
        });
        if sent.is_err() || (!passes && rng.u8(0..24) == 0) {
            break;
        }
    }
    let _ignored = client.shutdown(Shutdown::Both);
    let _ignored = upstream.shutdown(Shutdown::Both);
}

/// Replaces such a text in the chunk, if it contains one.
fn dressed(rng: &mut Rng, chunk: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(chunk);
    let fitting: Vec<_> = DRESSES.iter().filter(|(from, _)| text.contains(from)).collect();
    if fitting.is_empty() {
        return chunk.to_vec();
    }
    let (from, to) = fitting[rng.usize(..fitting.len())];
    text.replacen(from, to, 1).into_bytes()
}
