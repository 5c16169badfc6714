//! Tests that messages of one call reach that call's client and no other, byte for byte.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::thread;

use serde_json::{Value, json};

use crate::tools::harness::GatewaySetup;
use crate::tools::mcp::{ClientEra, Mcp, McpAnswer};
use crate::tools::upstream::Fake;

#[test]
fn two_sessions_with_the_same_ids_and_tokens_never_see_each_others_answers() {
    no_crossing(ClientEra::LEGACY, 3_000);
}

#[test]
fn two_stateless_clients_with_the_same_ids_and_tokens_never_see_each_others_answers() {
    no_crossing(ClientEra::Modern, 3_000);
}

fn assert_only_progress_of(answer: &McpAnswer, token: &Value, at: &str) {
    let mut last = f64::MIN;
    for notice in &answer.notices {
        assert_eq!(notice["method"], "notifications/progress", "{at}: {notice}");
        assert_eq!(&notice["params"]["progressToken"], token, "{at}: {notice}");
        let progress = notice["params"]["progress"].as_f64().unwrap();
        assert!(progress > last, "{at}: progress grows: {notice}");
        last = progress;
    }
}

/// Runs two clients with four connections each, the same ids and tokens in the same order, and
/// tagged payloads.
fn no_crossing(era: ClientEra, calls_each: usize) {
    const THREADS: usize = 4;
    let setup = GatewaySetup::new();
    let web = Fake::http("both").spawn();
    let gateway = setup.fake("fx", &Fake::stdio("both")).url("web", &web.url).start();
    gateway.wait_for_tools(&["fx__echo", "fx__progress", "web__echo"]);
    let (address, token) = (gateway.address, gateway.token());
    let wrong: Vec<String> = thread::scope(|scope| {
        let mut threads = Vec::new();
        for client in ["anna", "berta"] {
            for lane in 0..THREADS {
                let token = token.clone();
                threads.push(scope.spawn(move || one_lane(address, token, era, client, lane, calls_each / THREADS)));
            }
        }
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{} crossings, first: {}\n{}", wrong.len(), wrong[0], gateway.story());
}

fn one_lane(
    address: SocketAddr,
    token: Option<String>,
    era: ClientEra,
    who: &str,
    lane: usize,
    calls: usize,
) -> Vec<String> {
    let mut client = Mcp::http(address, token, era);
    let mut wrong = Vec::new();
    for call in 0..calls {
        let id = json!(call);
        let mut tag = format!("{who}/{lane}/{call}/");
        write!(tag, "{}", "x".repeat(call % 97)).unwrap();
        if call % 50 == 0 {
            let arguments = json!({"steps": 2, "delay_ms": 1, "tag": tag});
            let params = json!({"name": "fx__progress", "arguments": arguments, "_meta": {"progressToken": "t"}});
            let answer = client.request_as(&id, "tools/call", params);
            assert_only_progress_of(&answer, &json!("t"), &tag);
            continue;
        }
        let name = if call % 2 == 0 { "fx__echo" } else { "web__echo" };
        let answer = client.request_as(&id, "tools/call", json!({"name": name, "arguments": {"text": tag}}));
        if answer.message["id"] != id || answer.message.get("result").is_none() || answer.text() != tag {
            wrong.push(format!("{tag} under {id} got {}", answer.raw));
        }
    }
    wrong
}
