//! Fuzz tests with clients that send damaged requests to every listener of the daemon.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};

use super::Round;
use super::mutation::mutate;
use super::scene::Scene;
use crate::tools::browser::Browser;
use crate::tools::harness::{Gateway, GatewaySetup};
use crate::tools::http::{TestConnection, request};
use crate::tools::mcp::{ClientEra, Mcp};
use crate::tools::old_client::OldClient;

/// How long to wait for an answer: an incomplete request has none.
const PATIENCE: Duration = Duration::from_millis(120);
/// Number of steps after which sessions are replaced.
const STEPS: u64 = 24;

type Fields = Vec<(String, String)>;

/// Valid requests as bytes, with their addresses.
struct Dialogues {
    requests: Vec<(SocketAddr, Vec<u8>)>,
    // Keeps the sessions open.
    _clients: (Mcp, OldClient),
}

impl Dialogues {
    fn new(gateway: &Gateway, browser: &Browser) -> Self {
        let legacy = gateway.legacy();
        let modern = gateway.modern();
        let old = OldClient::connect(gateway, gateway.token(), "/sse");
        let mut requests = Vec::new();
        let mut add = |address: SocketAddr, method: &str, path: &str, fields: &Fields, body: &str| {
            requests.push((address, request(method, path, fields, body.as_bytes())));
        };
        let calls = [
            (
                "initialize",
                json!({"protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "f", "version": "1"}}),
            ),
            ("server/discover", json!({})),
            ("ping", json!({})),
            ("tools/list", json!({})),
            ("tools/list", json!({"cursor": "AAAA"})),
            ("tools/call", json!({"name": "fx__echo", "arguments": {"text": "é"}, "_meta": {"progressToken": 1}})),
            ("tools/call", json!({"name": "fx__region", "arguments": {"region": "eu", "n": 3}})),
            (
                "tools/call",
                json!({"name": "fx__ask", "arguments": {}, "requestState": "AAAA", "inputResponses": {"gw.consent": {"action": "accept"}}}),
            ),
            ("prompts/get", json!({"name": "fx__p", "arguments": {"a": "b"}})),
            ("resources/read", json!({"uri": "fx+fx://doc/1"})),
            ("resources/subscribe", json!({"uri": "fx+fx://doc/1"})),
            (
                "subscriptions/listen",
                json!({"notifications": {"toolsListChanged": true, "resourceSubscriptions": ["fx+fx://doc/1"]}}),
            ),
            (
                "completion/complete",
                json!({"ref": {"type": "ref/prompt", "name": "fx__p"}, "argument": {"name": "a", "value": "b"}}),
            ),
            ("logging/setLevel", json!({"level": "debug"})),
            ("tasks/get", json!({"taskId": "AAAA"})),
            ("notifications/cancelled", json!({"requestId": 7})),
        ];
        for (method, params) in calls {
            for client in [&legacy, &modern] {
                let params = client.dress(params.clone());
                let fields = client.headers(method, &params);
                let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string();
                add(gateway.address, "POST", "/mcp", &fields, &body);
            }
            let fields = fields(gateway.address, gateway.token());
            let path = format!("/messages?sessionId={}", old.session());
            let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string();
            add(gateway.address, "POST", &path, &fields, &body);
        }
        let answers = legacy.headers("", &Value::Null);
        add(
            gateway.address,
            "POST",
            "/mcp",
            &answers,
            r#"{"jsonrpc":"2.0","id":1,"result":{"action":"accept","content":{}}}"#,
        );
        add(gateway.address, "GET", "/mcp", &answers, "");
        let mut resumed = answers.clone();
        resumed.push(("Last-Event-ID".to_owned(), "1-1".to_owned()));
        add(gateway.address, "GET", "/mcp", &resumed, "");
        add(gateway.address, "DELETE", "/mcp", &answers, "");
        add(gateway.address, "GET", "/sse", &fields(gateway.address, gateway.token()), "");
        let mut chunked = answers;
        chunked.push(("Transfer-Encoding".to_owned(), "chunked".to_owned()));
        add(
            gateway.address,
            "POST",
            "/mcp",
            &chunked,
            "2e\r\n{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}     \r\n0\r\n\r\n",
        );
        let metrics = gateway.metrics.unwrap();
        for path in ["/metrics", "/healthz", "/readyz", "/"] {
            add(metrics, "GET", path, &fields(metrics, None), "");
        }
        let mut forms = browser.headers();
        forms.push(("Origin".to_owned(), format!("http://{}", browser.address)));
        forms.push(("Sec-Fetch-Site".to_owned(), "same-origin".to_owned()));
        forms.push(("Content-Type".to_owned(), "application/x-www-form-urlencoded".to_owned()));
        for path in [
            "/",
            "/grants",
            "/pins",
            "/upstreams",
            "/decisions",
            "/calls?day=2026-02-30&after=x",
            "/approvals/abc",
            "/sign-in?then=%2Fpins",
            "/events",
            "/static/console.js",
        ] {
            add(browser.address, "GET", path, &browser.headers(), "");
        }
        for (path, form) in [
            ("/sign-in", "token=wrong&then=%2Fpins"),
            ("/open/AAAAAAAAAAAAAAAAAAAAAAAA", ""),
            ("/approvals/abc", "csrf=a&answer=once"),
            ("/grants", "csrf=a&id=1"),
            ("/pins", "csrf=a&upstream=fx&list=tools&key=echo&digest=0&answer=approve"),
        ] {
            add(browser.address, "POST", path, &forms, form);
        }
        Self { requests, _clients: (legacy, old) }
    }
}

fn fields(address: SocketAddr, token: Option<String>) -> Fields {
    let mut fields =
        vec![("Host".to_owned(), address.to_string()), ("Content-Type".to_owned(), "application/json".to_owned())];
    fields.extend(token.map(|token| ("Authorization".to_owned(), format!("Bearer {token}"))));
    fields
}

#[test]
fn damaged_requests_are_answered_or_hung_up_on() {
    let mut round = Round::new("clients", 2 * STEPS);
    let rule = "[[policy.rules]]\nid = \"asks\"\neffect = \"ask\"\ntools = [\"fx__ask\"]\n";
    let mut scene = Scene::new(GatewaySetup::new().toml(&format!("{rule}[console]\nlisten = \"127.0.0.1:0\"")));
    // Only once: damaged sign-ins block sign-ins for a minute.
    let browser = Browser::signed_in(&scene.gateway);
    let mut dialogues = Dialogues::new(&scene.gateway, &browser);
    let (good, bad) = (AtomicU64::new(0), AtomicU64::new(0));
    while let Some(step) = round.step() {
        if step % STEPS == 0 {
            dialogues = Dialogues::new(&scene.gateway, &browser);
        }
        thread::scope(|scope| {
            for lane in 0..8 {
                let requests = &dialogues.requests;
                let mut rng = Rng::with_seed(round.seed * 1_000_000 + step * 8 + lane);
                let (good, bad) = (&good, &bad);
                scope.spawn(move || send(requests, &mut rng, good, bad));
            }
        });
        scene.look();
    }
    drop(dialogues);
    assert!(good.into_inner() > 0 && bad.into_inner() > 0, "some requests pass, and some damage is noticed");
    scene.end();
}

/// Sends one request, damaged or not, in random pieces, and reads the answer.
fn send(requests: &[(SocketAddr, Vec<u8>)], rng: &mut Rng, good: &AtomicU64, bad: &AtomicU64) {
    let (address, whole) = &requests[rng.usize(..requests.len())];
    let (_, other) = &requests[rng.usize(..requests.len())];
    let bytes = match rng.u8(0..10) {
        0 => whole.clone(),
        1..7 => mutate(rng, whole, other),
        // The body alone.
        7 | 8 => {
            let body = whole.windows(4).position(|end| end == b"\r\n\r\n").map_or(whole.len(), |at| at + 4);
            let damaged = mutate(rng, &whole[body..], other);
            let length = format!("Content-Length: {}\r\n", whole.len() - body);
            let head = String::from_utf8_lossy(&whole[..body])
                .replace(&length, &format!("Content-Length: {}\r\n", damaged.len()));
            [head.as_bytes(), &damaged].concat()
        }
        // Another one right after it.
        _ => [&whole[..], &mutate(rng, other, whole)].concat(),
    };
    let mut conn = TestConnection::open(*address).unwrap();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rng.usize(1..=rest.len()));
        if conn.send(piece).is_err() {
            break;
        }
        rest = after;
    }
    if rng.u8(0..8) == 0 {
        return;
    }
    conn.patience(PATIENCE);
    match conn.head() {
        Ok(head) => {
            assert!(
                (200..600).contains(&head.status) && head.status != 500,
                "{} for b\"{}\"",
                head.status,
                bytes.escape_ascii()
            );
            if head.status < 300 { good } else { bad }.fetch_add(1, Ordering::Relaxed);
            let mut body = Vec::new();
            // A stream has no end, and the answer to HEAD has no body.
            while let Ok(Some(piece)) = conn.piece() {
                body.extend(piece);
            }
            let is_json = head.header("content-type").is_some_and(|kind| kind.starts_with("application/json"));
            if is_json && !body.is_empty() && head.header("content-length") == Some(&body.len().to_string()) {
                let message: Value = serde_json::from_slice(&body).unwrap();
                assert!(message.get("result").is_some() != message.get("error").is_some(), "{message}");
            }
        }
        Err(error) => {
            let is_end = matches!(
                error.kind(),
                ErrorKind::TimedOut | ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
            );
            assert!(is_end, "{error} for b\"{}\"", bytes.escape_ascii());
        }
    }
}

#[test]
fn the_era_of_a_damaged_request_does_not_matter_to_its_neighbours() {
    let mut scene = Scene::new(GatewaySetup::new());
    for era in ClientEra::BOTH {
        let client = scene.gateway.client(era);
        let mut conn = TestConnection::open(scene.gateway.address).unwrap();
        let fields = client.headers("tools/call", &json!({"name": "fx__sleep"}));
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"fx__sleep","arguments":{{"x":{}1{}}}}}}}"#,
            "[".repeat(20_000),
            "]".repeat(20_000)
        );
        conn.send(&request("POST", "/mcp", &fields, deep.as_bytes())).unwrap();
        assert_eq!(conn.head().unwrap().status, 400);
        scene.look();
    }
    scene.end();
}
