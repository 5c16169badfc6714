//! Clients that send malformed bytes, half requests or nothing, and credentials that are wrong.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64;
use fastrand::Rng;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{sleep, timeout};

use crate::stage::SoakFacts;
use crate::wire;

/// Time to wait for an answer.
const LISTEN: Duration = Duration::from_millis(500);

/// Bytes to send: malformed requests and lines of the bad-input corpus.
#[derive(Debug)]
pub(crate) struct Arsenal {
    requests: Vec<Vec<u8>>,
    lines: Vec<Vec<u8>>,
}

impl Arsenal {
    /// Reads the corpus. Cases that a program has to generate are left out: they are tested
    /// elsewhere, and cost more to send than to refuse.
    pub(crate) fn load(facts: &SoakFacts) -> anyhow::Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/bad-inputs.jsonl");
        let (mut requests, mut lines) = (Vec::new(), Vec::new());
        for line in std::fs::read_to_string(path)?.lines() {
            let case: Value = serde_json::from_str(line)?;
            let transport = case["transport"].as_str().unwrap_or_default();
            if transport == "http-raw" && case["raw_b64"].is_string() {
                requests.push(filled(facts, &decoded(&case["raw_b64"])));
            }
            let body = match case["body"].as_str() {
                Some(body) => body.as_bytes().to_vec(),
                None => decoded(&case["body_b64"]),
            };
            if body.is_empty() {
                continue;
            }
            if matches!(transport, "http" | "http+stdio") {
                let text = |value: &Value| {
                    String::from_utf8_lossy(&filled(facts, value.as_str().unwrap_or_default().as_bytes())).into_owned()
                };
                let pairs = case["headers"].as_array().into_iter().flatten();
                let fields: Vec<(String, String)> = pairs.map(|pair| (text(&pair[0]), text(&pair[1]))).collect();
                let fields: Vec<(&str, String)> =
                    fields.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
                let body = String::from_utf8_lossy(&filled(facts, &body)).into_owned();
                requests.push(wire::request(&text(&case["method"]), &text(&case["path"]), &fields, &body));
            }
            if matches!(transport, "stdio" | "http+stdio") {
                lines.push(body);
            }
        }
        Ok(Self { requests, lines })
    }
}

fn decoded(value: &Value) -> Vec<u8> {
    value.as_str().and_then(|text| BASE64.decode(text.as_bytes()).ok()).unwrap_or_default()
}

/// Returns the bytes with the placeholders of the daemon's address and token replaced.
fn filled(facts: &SoakFacts, bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    if !text.contains("${") {
        return bytes.to_vec();
    }
    text.replace("${TOKEN}", facts.token()).replace("${HOST}", &facts.address.to_string()).into_bytes()
}

/// Plays one hostile client.
pub(crate) async fn attack(facts: Arc<SoakFacts>, arsenal: Arc<Arsenal>, mut rng: Rng) {
    let attacked = async {
        match rng.u8(0..10) {
            0..4 if !arsenal.requests.is_empty() => {
                facts.ledger.note("malformed requests");
                let bytes = &arsenal.requests[rng.usize(..arsenal.requests.len())];
                say(&facts, bytes).await
            }
            4 if !arsenal.lines.is_empty() => {
                facts.ledger.note("malformed lines");
                let mut stream = UnixStream::connect(&facts.socket).await?;
                stream.write_all(b"{\"headend\":1,\"want\":\"mcp\"}\n").await?;
                stream.write_all(&arsenal.lines[rng.usize(..arsenal.lines.len())]).await?;
                stream.write_all(b"\n").await?;
                heard(&mut stream).await
            }
            5 | 6 => {
                facts.ledger.note("wrong tokens");
                let host = facts.address;
                let head =
                    format!("POST /mcp HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer wrong-{:x}\r\n", rng.u64(..));
                say(&facts, format!("{head}Content-Length: 2\r\n\r\n{{}}").as_bytes()).await
            }
            7 => {
                facts.ledger.note("idle sockets");
                let _idle = TcpStream::connect(facts.address).await?;
                sleep(Duration::from_millis(rng.u64(0..3_000))).await;
                Ok(())
            }
            8 => {
                facts.ledger.note("half heads");
                let mut stream = TcpStream::connect(facts.address).await?;
                stream.write_all(b"POST /mcp HTTP/1.1\r\nHost: ").await?;
                sleep(Duration::from_millis(rng.u64(0..3_000))).await;
                Ok(())
            }
            _ => {
                facts.ledger.note("random bytes");
                let noise: Vec<u8> = (0..rng.usize(1..4096)).map(|_| rng.u8(..)).collect();
                say(&facts, &noise).await
            }
        }
    };
    // The client expects nothing, and the daemon may hang up at any time.
    let _whatever: Result<std::io::Result<()>, _> = timeout(Duration::from_secs(10), attacked).await;
}

async fn say(facts: &SoakFacts, bytes: &[u8]) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(facts.address).await?;
    stream.write_all(bytes).await?;
    heard(&mut stream).await
}

async fn heard(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> std::io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(Ok(1..)) = timeout(LISTEN, stream.read(&mut buffer)).await {}
    Ok(())
}
