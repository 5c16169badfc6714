use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};
use tokio::sync::oneshot;

use super::*;
use crate::catalog::inventory::Inventory;
use crate::config::{self, SecretSettings};
use crate::daemon::gateway::ConfigSource;
use crate::operator::alone::open_state;
use crate::wire::json::raw::RawJson;

/// One side of a pipe in memory.
struct PipeSide {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    write: WriteHalf<DuplexStream>,
}

impl PipeSide {
    fn of(stream: DuplexStream) -> Self {
        let (read, write) = tokio::io::split(stream);
        Self { lines: BufReader::new(read).lines(), write }
    }

    async fn send(&mut self, message: Value) {
        self.write.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn next(&mut self) -> Value {
        serde_json::from_str(&self.lines.next_line().await.unwrap().unwrap()).unwrap()
    }

    /// The answer to a request, after notices.
    async fn ask(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        loop {
            let message = self.next().await;
            if message["id"] == id {
                return message;
            }
        }
    }
}

/// A gateway that stands in before one server that `marker` would show to have been started, and
/// whose tool is known from an earlier run.
fn gateway(dir: &Path, marker: &Path) -> RunningGateway {
    let text = format!(
        "[policy]\ndefault = \"allow\"\n[upstreams.notes]\ncommand = [\"/usr/bin/touch\", {:?}]\n",
        marker.display().to_string()
    );
    let path = dir.join("headend.toml");
    fs::write(&path, text).unwrap();
    let loading = config::load(&path);
    let (config, _) = loading.outcome.unwrap();
    let store = open_state(dir.join("state"), SecretSettings::default(), true).unwrap();
    let kept = r#"{"version":1,"revision":"2025-06-18","tools":[{"name":"read","inputSchema":{"type":"object"}}],"prompts":[],"resources":[],"resourceTemplates":[]}"#;
    let (inventory, revision) = Inventory::from_json(&RawJson::trusted(kept)).unwrap();
    store.remember(&config.upstreams[0].launch_identity(), &inventory, revision).unwrap();
    let source = ConfigSource {
        path: Some(path.clone()),
        load: Box::new(move || config::load(&path)),
        remembers: true,
        files: parking_lot::Mutex::new(loading.files),
        warned: parking_lot::Mutex::default(),
    };
    RunningGateway::stand_in(config, source, store, StopTimes::PIPE).unwrap()
}

fn handshake() -> Value {
    json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "codex", "version": "1"}})
}

#[tokio::test]
async fn a_stand_in_lists_calls_nothing_and_makes_way_for_the_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let marker = dir.path().join("started");
    let gateway = gateway(dir.path(), &marker);
    let (host, ours) = tokio::io::duplex(1 << 16);
    let (stdin, stdout) = tokio::io::split(ours);
    let (found, back) = oneshot::channel::<RelayLink>();
    let back = parking_lot::Mutex::new(Some(back));
    let relay = Relay {
        stdin,
        stdout,
        search: move |patience: Option<Duration>| -> DaemonSearch {
            assert_eq!(patience, None, "it looks for ever");
            let back = back.lock().take().unwrap();
            Box::pin(async move { back.await.map_err(|error| CommandFailure::new(SOFTWARE, error)) })
        },
        patience: Duration::from_secs(1),
        last_answers: Duration::from_secs(1),
    };
    let link = RelayLink::into_stand_in(&gateway, None);
    let mut host = PipeSide::of(host);
    let talk = async {
        let answer = host.ask(1, "initialize", handshake()).await;
        assert_eq!(answer["result"]["protocolVersion"], "2025-06-18");
        host.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        let answer = host.ask(2, "tools/list", json!({})).await;
        assert_eq!(answer["result"]["tools"][0]["name"], "notes__read", "{answer}");
        let answer = host.ask(3, "tools/call", json!({"name": "notes__read", "arguments": {}})).await;
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        let refusal = &answer["result"]["_meta"]["headend/refusal"];
        assert_eq!((&refusal["reason"], &refusal["executed"]), (&json!("daemon_away"), &json!("no")), "{answer}");
        for (id, method, params) in [
            (4, "resources/read", json!({"uri": "notes:x"})),
            (5, "prompts/get", json!({"name": "notes__x"})),
            (6, "resources/subscribe", json!({"uri": "notes:x"})),
        ] {
            let answer = host.ask(id, method, params).await;
            assert_eq!(answer["error"]["data"]["reason"], "daemon_away", "{answer}");
        }
        let (daemon, link) = tokio::io::duplex(1 << 16);
        let (read, write) = tokio::io::split(link);
        drop(found.send(RelayLink::of(read, write)));
        let mut daemon = PipeSide::of(daemon);
        let repeated = daemon.next().await;
        assert_eq!((&repeated["method"], &repeated["id"]), (&json!("initialize"), &json!(1)));
        daemon.send(json!({"jsonrpc": "2.0", "id": 1, "result": {}})).await;
        assert_eq!(daemon.next().await["method"], "notifications/initialized");
        for list in ["tools", "prompts", "resources"] {
            assert_eq!(host.next().await["method"], format!("notifications/{list}/list_changed"));
        }
        host.send(json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {}})).await;
        assert_eq!(daemon.next().await["id"], 7);
        daemon.send(json!({"jsonrpc": "2.0", "id": 7, "result": {"content": []}})).await;
        assert_eq!(host.next().await["id"], 7);
        daemon
    };
    let (end, ended) = oneshot::channel::<()>();
    let (done, daemon) = tokio::join!(relay.run(link, Some(gateway), async { drop(ended.await) }), async {
        let daemon = talk.await;
        drop(end);
        daemon
    });
    drop(daemon);
    assert_eq!(done.unwrap(), OK);
    assert!(!marker.exists(), "no server was started");
}
