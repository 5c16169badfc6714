//! Plays a case over HTTP: sends its bytes while reading the answer.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::case::Case;
use super::judge::{self, CaseOutcome};
use super::stage::{CaseConnections, CorpusGateway};
use crate::tools::http;
use crate::tools::http::{EventReader, TestConnection, TestResponse};
use crate::tools::process::resident;

/// Bytes in two parts: one to send at once, and one to send slowly in small pieces.
struct SlowRequest {
    first: Vec<u8>,
    drip: Option<Duration>,
}

/// Plays the case and returns its outcome.
pub(super) fn play(case: &Case, stage: &CorpusGateway) -> CaseOutcome {
    let mut prepared = stage.prepare(case);
    let repeat = case.member("repeat").as_u64().unwrap_or(1);
    let sent = bytes(case, &prepared);
    let before = resident(stage.gateway.pid());
    let (calls, lines) = (stage.log.work(), stage.gateway.stderr.all().len());
    let mut outcome = CaseOutcome::default();
    for _ in 0..repeat {
        outcome = exchange(case, stage, &sent);
    }
    outcome.wrong.extend(judge::http(case, &outcome));
    if case.expects("no_upstream_call") && stage.log.work() > calls {
        outcome.wrong.push(format!("{} calls reached the upstream", stage.log.work() - calls));
    }
    if let Some(most) = case.expect("log_lines_delta").and_then(Value::as_u64) {
        let new = stage.gateway.stderr.all().split_off(lines);
        if new.len() as u64 > most || new.iter().any(|line| line.starts_with("INJECTED")) {
            outcome.wrong.push(format!("the log got {new:?}"));
        }
    }
    if let Some(most) = case.expect("rss_growth_mib").and_then(Value::as_u64) {
        let grown = resident(stage.gateway.pid()).saturating_sub(before) / (1024 * 1024);
        if grown > most {
            outcome.wrong.push(format!("grew by {grown} MiB"));
        }
    }
    outcome.wrong.extend(prepared.disturbed());
    outcome
}

fn bytes(case: &Case, prepared: &CaseConnections) -> SlowRequest {
    let drip = case.member("drip")["every_ms"].as_u64().map(Duration::from_millis);
    if matches!(case.transport.as_str(), "http-raw" | "http2-raw") {
        return SlowRequest { first: prepared.filled(&case.raw()), drip };
    }
    let filled = |text: &str| String::from_utf8(prepared.filled(text.as_bytes())).unwrap();
    let mut headers: Vec<(String, String)> = Vec::new();
    for pair in case.member("headers").as_array().into_iter().flatten() {
        headers.push((pair[0].as_str().unwrap().to_owned(), filled(pair[1].as_str().unwrap())));
    }
    let mut body = prepared.filled(&case.body());
    if case.chunked() {
        headers.push(("Transfer-Encoding".to_owned(), "chunked".to_owned()));
        body = chunks(&body);
    }
    let whole = http::request(case.text("method"), &filled(case.text("path")), &headers, &body);
    // A case that limits the bytes read sends no more than that: the answer must come without the
    // rest.
    let most = case.expect("max_body_read").and_then(Value::as_u64).map(|most| usize::try_from(most).unwrap());
    let end = most.map_or(whole.len(), |most| (whole.len() - body.len() + most).min(whole.len()));
    SlowRequest { first: whole[..end].to_vec(), drip }
}

fn chunks(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 4096);
    for piece in body.chunks(16 * 1024) {
        out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        out.extend_from_slice(piece);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

fn exchange(case: &Case, stage: &CorpusGateway, sent: &SlowRequest) -> CaseOutcome {
    let patience = Duration::from_millis(case.within_ms());
    let begun = Instant::now();
    let mut outcome = CaseOutcome::default();
    let mut conn = match TestConnection::open(stage.gateway.address) {
        Ok(conn) => conn,
        Err(error) => {
            outcome.wrong.push(format!("connect: {error}"));
            return outcome;
        }
    };
    let answered = AtomicBool::new(false);
    let writer = conn.writer().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| write(writer, sent, &answered));
        conn.patience(patience);
        if case.expect("http_status").is_some() {
            match read(case, &mut conn) {
                Ok(response) => outcome.response = Some(response),
                Err(error) => outcome.wrong.push(format!("no answer: {error}")),
            }
        }
        if case.expects("close") {
            let left = patience.saturating_sub(begun.elapsed()).max(Duration::from_secs(2));
            outcome.closed = conn.closes_within(left);
        }
        answered.store(true, Ordering::SeqCst);
    });
    outcome.elapsed = begun.elapsed();
    outcome
}

/// Writes while the answer is read; an early answer stops it.
fn write(mut stream: TcpStream, sent: &SlowRequest, answered: &AtomicBool) {
    for piece in sent.first.chunks(64 * 1024) {
        if answered.load(Ordering::SeqCst) || stream.write_all(piece).is_err() {
            return;
        }
    }
    let Some(every) = sent.drip else { return };
    while !answered.load(Ordering::SeqCst) && stream.write_all(b" ").is_ok() {
        thread::sleep(every);
    }
}

fn read(case: &Case, conn: &mut TestConnection) -> std::io::Result<TestResponse> {
    let head = conn.head()?;
    let mut body = Vec::new();
    if head.is_stream() {
        // The stream of a session never ends by itself; the stream of a request ends with its
        // response.
        let mut events = EventReader::default();
        while case.text("method") != "GET" {
            let Some(event) = events.next(conn)? else {
                break;
            };
            let message: Value = serde_json::from_str(&event.data)?;
            if message.get("method").is_none() {
                body = event.data.into_bytes();
                break;
            }
        }
    } else {
        while let Some(piece) = conn.piece()? {
            body.extend_from_slice(&piece);
        }
    }
    Ok(TestResponse { head, body })
}
