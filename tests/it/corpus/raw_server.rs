//! An upstream behind HTTP whose answers are bytes chosen by the test: status line, fields, body.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::tools::mcp::MODERN;

/// A request to the server.
#[derive(Debug, Clone, Default)]
pub(super) struct RawRequest {
    pub(super) head: String,
    pub(super) body: Value,
}

impl RawRequest {
    pub(super) fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    /// Returns the tool that is called.
    pub(super) fn tool(&self) -> &str {
        self.body["params"]["name"].as_str().unwrap_or_default()
    }
}

/// The server; it ends with the test's process.
#[derive(Debug)]
pub(super) struct RawServer {
    pub(super) url: String,
    asked: Arc<Mutex<Vec<RawRequest>>>,
}

impl RawServer {
    /// Serves the handshake of this era and the tools `echo` and `fine`. Calls of `echo` are
    /// answered by `play`, with the number of such calls so far.
    pub(super) fn start(modern: bool, play: impl Fn(&RawRequest, usize) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (seen, play) = (Arc::clone(&asked), Arc::new(play));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, play) = (Arc::clone(&seen), Arc::clone(&play));
                thread::spawn(move || serve(stream, modern, &seen, play.as_ref()));
            }
        });
        Self { url, asked }
    }

    /// Counts the received messages with this method.
    pub(super) fn count(&self, method: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| asked.method() == method).count()
    }
}

/// Serves one request on a connection.
fn serve(
    mut stream: TcpStream,
    modern: bool,
    seen: &Mutex<Vec<RawRequest>>,
    play: &(dyn Fn(&RawRequest, usize) -> Vec<u8> + Send + Sync),
) {
    let Ok(Some(asked)) = read(&stream) else { return };
    let calls = {
        let mut seen = seen.lock().unwrap();
        seen.push(asked.clone());
        seen.iter().filter(|asked| asked.method() == "tools/call" && asked.tool() == "echo").count()
    };
    let answer = if asked.method() == "tools/call" && asked.tool() == "echo" {
        play(&asked, calls)
    } else {
        usual(&asked, modern)
    };
    // The gateway may have closed the connection already.
    let _ignored = stream.write_all(&answer);
}

fn read(stream: &TcpStream) -> std::io::Result<Option<RawRequest>> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().map_err(|_| ErrorKind::InvalidData)?;
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(RawRequest { head, body: serde_json::from_slice(&body).unwrap_or(Value::Null) }))
}

fn usual(asked: &RawRequest, modern: bool) -> Vec<u8> {
    let tools = json!([{"name": "echo", "inputSchema": {"type": "object"}}, {"name": "fine", "inputSchema": {"type": "object"}}]);
    match asked.method() {
        "server/discover" if modern => {
            result(asked, json!({"supportedVersions": [MODERN], "capabilities": {"tools": {}}}))
        }
        "initialize" if !modern => {
            let agreed = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "raw", "version": "1"}});
            let session = format!("Mcp-Session-Id: session-{:p}\r\n", &raw const *asked);
            response("200 OK", &format!("Content-Type: application/json\r\n{session}"), &answer(asked, agreed))
        }
        "tools/list" => result(asked, json!({ "tools": tools })),
        "tools/call" => result(asked, json!({"content": [{"type": "text", "text": "fine"}]})),
        "" if asked.head.starts_with("DELETE") => response("200 OK", "", b""),
        "" if asked.head.starts_with("GET") => response("405 Method Not Allowed", "", b""),
        _ if asked.body.get("id").is_none() => response("202 Accepted", "", b""),
        _ => response("404 Not Found", "", b""),
    }
}

fn answer(asked: &RawRequest, mut result: Value) -> Vec<u8> {
    if asked.head.contains(MODERN) {
        result["resultType"] = json!("complete");
        result["ttlMs"] = json!(1000);
        result["cacheScope"] = json!("private");
    }
    json!({"jsonrpc": "2.0", "id": asked.body["id"], "result": result}).to_string().into_bytes()
}

/// Returns the answer of a well-behaved server.
pub(super) fn result(asked: &RawRequest, result: Value) -> Vec<u8> {
    response("200 OK", "Content-Type: application/json\r\n", &answer(asked, result))
}

/// Returns the same result with these fields and this text around it.
pub(super) fn dressed(asked: &RawRequest, fields: &str, before: &str, after: &str) -> Vec<u8> {
    let message = answer(asked, json!({"content": [{"type": "text", "text": "normal"}]}));
    let body = [before.as_bytes(), &message, after.as_bytes()].concat();
    response("200 OK", fields, &body)
}

/// Creates a response; each one closes its connection.
pub(super) fn response(status: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// A listener to which no client may connect.
#[derive(Debug)]
pub(super) struct Canary(TcpListener);

impl Canary {
    pub(super) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(listener)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    /// Returns the failure if a client connected.
    pub(super) fn touched(&self) -> Option<String> {
        self.0.accept().is_ok().then(|| format!("{} was connected to", self.address()))
    }
}
