//! Plays a case over HTTP/2: sends its frames through TLS and reads the frames of the answer.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::case::Case;
use crate::tls::{H2, NAME, TestAuthority};
use crate::tools::harness::{Gateway, GatewaySetup};
use crate::tools::process::resident;
use crate::tools::upstream::{Fake, InputLog};

/// Kinds of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const PROTOCOL_ERROR: [u8; 4] = [0, 0, 0, 1];

/// A daemon that speaks HTTP/2.
pub(super) struct FramedGateway {
    authority: TestAuthority,
    pub(super) gateway: Gateway,
    log: InputLog,
}

impl FramedGateway {
    pub(super) fn start() -> Self {
        let authority = TestAuthority::new();
        let setup = authority.secure(GatewaySetup::new());
        let log = InputLog::new(&setup.world.path("work"), "fx");
        let gateway = setup.fake("fx", &Fake::stdio("both").logging(&log)).start();
        Self { authority, gateway, log }
    }

    /// Plays the case and returns what is wrong.
    pub(super) fn play(&self, case: &Case) -> Vec<String> {
        let (memory, calls, begun) = (resident(self.gateway.pid()), self.log.work(), Instant::now());
        let sent = self.bytes(case);
        let (found, is_closed) = self.authority.runtime.block_on(self.exchange(&sent));
        let mut wrong = Vec::new();
        if case.expects("close") != is_closed {
            wrong.push(format!("closed: {is_closed}"));
        }
        if case.expects("close") && !has_frame(&found, GOAWAY, None) {
            wrong.push("no GOAWAY".to_owned());
        }
        if case.expects("close") && begun.elapsed() > Duration::from_millis(case.within_ms() + 500) {
            wrong.push(format!("took {:?}", begun.elapsed()));
        }
        if case.expect("h2_stream_error").is_some() && !has_frame(&found, RST_STREAM, Some(&PROTOCOL_ERROR)) {
            wrong.push(format!("no stream error: {found:?}"));
        }
        if case.expects("no_upstream_call") && self.log.work() > calls {
            wrong.push("a call reached the upstream".to_owned());
        }
        let grown = resident(self.gateway.pid()).saturating_sub(memory) / (1024 * 1024);
        if grown > 16 {
            wrong.push(format!("grew by {grown} MiB"));
        }
        wrong
    }

    /// Sends bytes, and reads for two seconds or until the connection ends.
    async fn exchange(&self, sent: &[u8]) -> (Vec<u8>, bool) {
        let connected = self.authority.connect(self.gateway.address, NAME, &[H2], rustls::ALL_VERSIONS);
        let (mut reader, mut writer) = tokio::io::split(connected.await.unwrap());
        let mut found = Vec::new();
        let reads = async {
            let mut piece = vec![0; 16 * 1024];
            while let Ok(read @ 1..) = reader.read(&mut piece).await {
                found.extend_from_slice(&piece[..read]);
            }
        };
        // A server that closes takes no more.
        let writes = async { drop(writer.write_all(sent).await) };
        let is_closed = timeout(Duration::from_secs(2), async { tokio::join!(reads, writes) }).await.is_ok();
        (found, is_closed)
    }

    /// Returns the bytes of the case.
    fn bytes(&self, case: &Case) -> Vec<u8> {
        let post = |more: &[(&str, &str)]| {
            let token = format!("Bearer {}", self.gateway.token().unwrap());
            let fields = [
                (":method", "POST"),
                (":scheme", "https"),
                (":path", "/mcp"),
                (":authority", NAME),
                ("authorization", token.as_str()),
                ("content-type", "application/json"),
                ("accept", "application/json, text/event-stream"),
            ];
            [PREFACE, &frame(SETTINGS, 0, 0, b"")[..], &head([&fields[..], more].concat())[..]].concat()
        };
        match case.text("h2_gen") {
            "transfer-encoding: chunked in h2" => post(&[("transfer-encoding", "chunked")]),
            "DATA longer than content-length" => {
                [post(&[("content-length", "2")]), frame(DATA, 1, 1, b"{\"jsonrpc\":\"2.0\"}")].concat()
            }
            _ => case.raw(),
        }
    }
}

/// Returns whether a frame of this kind, with this payload, was received.
fn has_frame(mut bytes: &[u8], kind: u8, payload: Option<&[u8]>) -> bool {
    while bytes.len() >= 9 {
        let (head, rest) = bytes.split_at(9);
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let (content, rest) = rest.split_at(length.min(rest.len()));
        if head[3] == kind && payload.is_none_or(|payload| payload == content) {
            return true;
        }
        bytes = rest;
    }
    false
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[a, b, c, kind, flags, 0, 0, 0, stream], payload].concat()
}

/// Returns a request head on stream 1 that has a body, each field as a literal without an index.
fn head(fields: Vec<(&str, &str)>) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            // Texts of 127 bytes and more need a longer form.
            block.push(u8::try_from(text.len()).ok().filter(|length| *length < 127).unwrap());
            block.extend(text.bytes());
        }
    }
    frame(HEADERS, 4, 1, &block)
}
