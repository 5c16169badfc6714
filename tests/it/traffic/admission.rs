//! Tests of the rate limit for a caller's requests, and of the cost of a batch, on the admin socket
//! shared with other users.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::tools::harness::{Gateway, GatewaySetup};

use crate::tools::mcp::dressed;
use crate::tools::process::{eventually, said};
use crate::tools::socket::{OTHER, Socket};

const TOKEN: &str = "token-of-the-second-caller-0123456789";
/// The only revision with batches.
const BATCHES: &str = "2025-03-26";

/// Creates a gateway whose callers have ten requests for the whole test.
fn setup() -> GatewaySetup {
    GatewaySetup::new()
        .env("SECOND_TOKEN", TOKEN)
        .server("auth.tokens.second = { env = \"SECOND_TOKEN\" }")
        .server("limits.caller-rate = \"1/h\"\nlimits.caller-burst = 10")
}

/// Creates a batch of this many requests, and a notification that does not count.
fn pings(count: usize) -> Value {
    let notice = json!({"jsonrpc": "2.0", "method": "notifications/none"});
    let ping = |n: usize| json!({"jsonrpc": "2.0", "id": format!("{count}/{n}"), "method": "ping"});
    (0..count).map(ping).chain([notice]).collect()
}

impl Socket {
    fn initialize(&mut self) {
        let greeting = self.ask("initialize", json!({"protocolVersion": BATCHES, "capabilities": {}}));
        assert_eq!(greeting["result"]["protocolVersion"], BATCHES, "{greeting}");
    }
}

fn is_over_rate(answer: &Value) -> bool {
    answer["error"]["message"].as_str().is_some_and(|text| text.starts_with("too many requests; try again in "))
}

/// Starts a daemon whose admin socket another user may use; `None` if this test cannot act as
/// another user.
fn shared(setup: GatewaySetup) -> Option<Gateway> {
    if !rustix::process::getuid().is_root() {
        eprintln!("left out: the socket for other users: only root can become another user");
        return None;
    }
    let gateway = setup.toml(&format!("[admin]\nusers = [\"{OTHER}\"]\ngroup = \"{OTHER}\"")).start();
    for folder in ["", "run"] {
        fs::set_permissions(gateway.world.path(folder), fs::Permissions::from_mode(0o755)).unwrap();
    }
    Some(gateway)
}

#[test]
fn other_users_of_the_admin_socket_have_the_rate_of_a_caller() {
    let Some(gateway) = shared(setup()) else { return };
    let (_, mut admin) = Socket::other(&gateway, "admin");
    let (_, mut client) = Socket::other(&gateway, "mcp");
    client.initialize();
    for n in 0..9 {
        let answer = if n % 2 == 0 { admin.ask("tools", json!({})) } else { client.ask("ping", json!({})) };
        assert!(answer["result"].is_object(), "{n}: {answer}");
    }
    for (socket, method) in [(&mut admin, "tools"), (&mut client, "ping")] {
        let refused = socket.ask(method, json!({}));
        assert!(is_over_rate(&refused), "{method}: {refused}");
    }
    // A notification needs no answer, so it is neither counted nor refused.
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    assert!(is_over_rate(&client.ask("ping", json!({}))), "the connection goes on");
    let (_, mut local) = Socket::local(&gateway, "mcp");
    local.initialize();
    assert!((0..20).all(|_| local.ask("ping", json!({}))["result"].is_object()), "the local user has no rate");
    let status = gateway.run(&["status"]);
    assert!(status.status.success(), "{}", said(&status));
}

#[test]
fn each_request_of_a_batch_counts_on_the_admin_socket() {
    let Some(gateway) = shared(setup()) else { return };
    let (_, mut client) = Socket::other(&gateway, "mcp");
    client.initialize();
    for (count, admitted) in [(4, true), (6, false), (5, true), (1, false)] {
        client.send(&pings(count));
        for n in 0..count {
            let answer = client.line();
            assert_eq!(answer["id"], format!("{count}/{n}"), "{answer}");
            assert_eq!(
                (answer["result"].is_object(), is_over_rate(&answer)),
                (admitted, !admitted),
                "{count}: {answer}"
            );
        }
    }
}

#[test]
fn subscriptions_on_the_admin_socket_are_streams_of_their_caller() {
    let Some(gateway) = shared(GatewaySetup::new().server("limits.streams-per-caller = 1")) else { return };
    let listen = |socket: &mut Socket, id: u64| {
        let params = dressed(json!({"notifications": {"toolsListChanged": true}}), &json!({}));
        socket.send(&json!({"jsonrpc": "2.0", "id": id, "method": "subscriptions/listen", "params": params}));
        socket.line()
    };
    let acknowledged = |answer: &Value| answer["method"] == "notifications/subscriptions/acknowledged";
    let (_, mut client) = Socket::other(&gateway, "mcp");
    let first = listen(&mut client, 1);
    assert!(acknowledged(&first), "{first}");
    let second = listen(&mut client, 2);
    assert!(second["id"] == 2 && second["error"]["message"] == "too many streams", "{second}");
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}));
    let mut id = 2;
    eventually("there is room again", || {
        id += 1;
        acknowledged(&listen(&mut client, id))
    });
    let (_, mut local) = Socket::local(&gateway, "mcp");
    assert!((0..4).all(|id| acknowledged(&listen(&mut local, id))), "the local user has no share");
}

#[test]
fn other_users_of_the_admin_socket_have_the_connections_of_a_caller() {
    let Some(gateway) = shared(setup().server("limits.connections-per-caller = 2")) else { return };
    let mut held: Vec<Socket> = Vec::new();
    for want in ["mcp", "admin"] {
        let (hello, socket) = Socket::other(&gateway, want);
        assert!(hello["error"].is_null(), "{hello}");
        held.push(socket);
    }
    let (refused, _socket) = Socket::other(&gateway, "mcp");
    let why = refused["error"].as_str().unwrap_or_default();
    assert!(why.contains("too many connections") && why.contains("connections-per-caller"), "{refused}");
    let local: Vec<_> = (0..4).map(|_| Socket::local(&gateway, "admin")).collect();
    assert!(local.iter().all(|(hello, _)| hello["error"].is_null()), "the local user has no share");
    held.pop();
    eventually("there is room again", || Socket::other(&gateway, "admin").0["error"].is_null());
}
