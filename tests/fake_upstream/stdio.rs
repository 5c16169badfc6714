//! One client on stdin and stdout.

use std::sync::Arc;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::behaviour::Behaviour;
use super::damage::Damage;
use super::server::{FakeRequest, FakeServer};
use super::slip;

/// Serves until the input ends.
pub(crate) async fn serve(
    server: Arc<FakeServer>,
    input: impl AsyncRead + Unpin,
    mut stdout: impl AsyncWrite + Unpin + Send + 'static,
) {
    let (out, mut lines) = mpsc::unbounded_channel::<String>();
    let mut damage = server.args.damage.map(Damage::new);
    server.set_stdout(out.clone());
    let writer = tokio::spawn(async move {
        while let Some(line) = lines.recv().await {
            let bytes = damage.as_mut().map_or_else(|| slip::bytes(&format!("{line}\n")), |damage| damage.of(&line));
            if stdout.write_all(&bytes).await.is_err() || stdout.flush().await.is_err() {
                return;
            }
        }
    });
    let mut input = BufReader::new(input);
    let mut running = JoinSet::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        if !matches!(input.read_until(b'\n', &mut line).await, Ok(n) if n > 0) {
            break;
        }
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        server.note(&text);
        let Ok(message) = serde_json::from_str::<Value>(&text) else { continue };
        let method = message["method"].as_str().unwrap_or_default();
        if method == "notifications/cancelled" {
            server.cancel("", &message["params"]["requestId"]);
        }
        if method.is_empty() {
            server.asking.answered("", &message);
        }
        if method.is_empty() || message["id"].is_null() {
            continue;
        }
        let stop_reading = server.does(Behaviour::StopReading) && method == "tools/call";
        let request = FakeRequest {
            id: message["id"].clone(),
            method: method.to_owned(),
            params: message["params"].clone(),
            param_headers: serde_json::Map::default(),
            notices: out.clone(),
            session: String::new(),
            aside: Some(out.clone()),
        };
        if server.script.answers(&request, &out) {
            continue;
        }
        running.spawn(one(Arc::clone(&server), request));
        if stop_reading {
            std::future::pending::<()>().await;
        }
    }
    if server.does(Behaviour::IgnoreEof) {
        std::future::pending::<()>().await;
    }
    // The client no longer reads, so running calls are stopped.
    running.abort_all();
    server.set_stdout(mpsc::unbounded_channel().0);
    drop(out);
    while running.join_next().await.is_some() {}
    drop(server);
    // Listeners may hold the channel open; the written lines suffice.
    drop(tokio::time::timeout(std::time::Duration::from_millis(200), writer).await);
}

async fn one(server: Arc<FakeServer>, request: FakeRequest) {
    let Some(answer) = server.answer(&request).await else { return };
    if server.does(Behaviour::HugeLine) {
        drop(request.notices.send("y".repeat(20 << 20)));
    }
    if server.does(Behaviour::DuplicateReplies) {
        drop(request.notices.send(answer.clone()));
    }
    drop(request.notices.send(answer));
}
