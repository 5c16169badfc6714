//! Tests of states of calls that wait for a modern client's input: they continue after a restart,
//! and never twice.

use super::*;
use crate::stage::steps::revive::{asks_for_approval, going_on, got, server_says, state_of};

/// Starts a daemon whose calls all need an approval, in front of a modern server that answers as a
/// file says.
fn before(setup: GatewaySetup) -> (Gateway, InputLog) {
    let setup = setup.policy("default = \"ask\"\n[policy.consent]\nper-minute = 100\nmax-open = 100");
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let gateway = setup.fake("fx", &Fake::stdio("modern").logging(&log)).start();
    gateway.wait_for_tools(&["fx__raw"]);
    (gateway, log)
}

fn client(gateway: &Gateway, token: Option<String>) -> Mcp {
    Mcp::http_at(gateway.address, token, ClientEra::Modern, "/mcp", json!({"elicitation": {}}))
}

/// A call that was approved once and waits for input under that state of the server.
fn waiting(gateway: &Gateway, client: &mut Mcp, theirs: &str) -> (Value, Value) {
    let arguments = server_says(&gateway.world, Some(theirs));
    let first = client.call("fx__raw", arguments.clone());
    assert!(asks_for_approval(&first), "{}", first.raw);
    let second = client.request("tools/call", going_on(&arguments, &state_of(&first)));
    assert!(!asks_for_approval(&second), "{}", second.raw);
    (arguments, state_of(&second))
}

#[test]
fn a_state_is_gone_on_with_after_a_restart_by_its_own_client_and_once() {
    for by in [Signal::TERM, Signal::KILL] {
        let (gateway, log) = before(GatewaySetup::new().second_caller(TOKEN));
        let mut ours = client(&gateway, gateway.token());
        let (arguments, state) = waiting(&gateway, &mut ours, "theirs");
        let gateway = again(gateway, by, None);
        gateway.wait_for_tools(&["fx__raw"]);
        server_says(&gateway.world, None);
        let mut other = client(&gateway, Some(TOKEN.to_owned()));
        let capabilities = json!({"elicitation": {}, "sampling": {}});
        let mut able = Mcp::http_at(gateway.address, gateway.token(), ClientEra::Modern, "/mcp", capabilities);
        for (label, stranger) in [("caller", &mut other), ("capabilities", &mut able)] {
            let refused = stranger.request("tools/call", going_on(&arguments, &state));
            assert_eq!(refused.code(), Some(-32602), "another {label}: {}", refused.raw);
        }
        ours.follow(gateway.address);
        let done = ours.request("tools/call", going_on(&arguments, &state));
        assert_eq!(done.text(), "done", "{by:?}: {}", done.raw);
        assert_eq!(got(&log, "theirs"), 1);
        // Killed at once: the used state is on disk.
        let gateway = again(gateway, Signal::KILL, None);
        gateway.wait_for_tools(&["fx__raw"]);
        ours.follow(gateway.address);
        let twice = ours.request("tools/call", going_on(&arguments, &state));
        assert!(asks_for_approval(&twice), "{by:?}: {}", twice.raw);
        assert_eq!(got(&log, "theirs"), 1);
    }
}

#[test]
fn a_question_of_ours_is_asked_again_after_a_restart_and_its_answer_allows_nothing_before() {
    let (gateway, log) = before(GatewaySetup::new());
    let mut client = client(&gateway, gateway.token());
    let arguments = server_says(&gateway.world, None);
    let state = state_of(&client.call("fx__raw", arguments.clone()));
    let gateway = again(gateway, Signal::KILL, None);
    gateway.wait_for_tools(&["fx__raw"]);
    client.follow(gateway.address);
    let asked = client.request("tools/call", going_on(&arguments, &state));
    assert!(asks_for_approval(&asked), "{}", asked.raw);
    assert_eq!(log.count("tools/call"), 0);
    let done = client.request("tools/call", going_on(&arguments, &state_of(&asked)));
    assert_eq!(done.text(), "done", "{}", done.raw);
    assert_eq!(log.count("tools/call"), 1);
}

#[test]
fn a_store_that_was_made_anew_takes_no_state_of_the_one_before() {
    let (gateway, log) = before(GatewaySetup::new());
    let mut client = client(&gateway, gateway.token());
    let (arguments, used) = waiting(&gateway, &mut client, "theirs");
    server_says(&gateway.world, None);
    assert_eq!(client.request("tools/call", going_on(&arguments, &used)).text(), "done");
    // The new store does not know that the state was used.
    let gateway = anew(gateway);
    gateway.wait_for_tools(&["fx__raw"]);
    client.follow(gateway.address);
    let again = client.request("tools/call", going_on(&arguments, &used));
    assert_eq!(again.code(), Some(-32602), "{}", again.raw);
    assert_eq!(got(&log, "theirs"), 1);
}

#[test]
fn nothing_that_a_client_carries_is_taken_for_something_else() {
    let (gateway, log) = before(GatewaySetup::new().second_caller(TOKEN));
    let mut modern = client(&gateway, gateway.token());
    let session = gateway.legacy().session().unwrap();
    let (arguments, state) = waiting(&gateway, &mut modern, "theirs");
    let state = state.as_str().unwrap().to_owned();
    for forged in
        [session.clone(), state[..state.len() - 4].to_owned(), state.to_ascii_uppercase(), format!("{state}AAAA")]
    {
        let refused = modern.request("tools/call", going_on(&arguments, &json!(forged)));
        assert_eq!(refused.code(), Some(-32602), "{forged}: {}", refused.raw);
    }
    for cursor in [&state, &session] {
        let refused = modern.request("tools/list", json!({"cursor": cursor}));
        assert_eq!(refused.code(), Some(-32602), "{cursor}: {}", refused.raw);
    }
    // Ids of another caller's session, of a session that never was and of something else get one
    // answer.
    let answer = |id: &str, token: &str| {
        let headers = [
            ("Host", gateway.address.to_string()),
            ("Content-Type", "application/json".to_owned()),
            ("Accept", "application/json, text/event-stream".to_owned()),
            ("Authorization", format!("Bearer {token}")),
            ("Mcp-Session-Id", id.to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value));
        let mut conn = crate::stage::http::TestConnection::open(gateway.address).unwrap();
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
        conn.send(&crate::stage::http::request("POST", "/mcp", &headers, body.as_bytes())).unwrap();
        let answer = conn.response().unwrap();
        (answer.head.status, answer.text())
    };
    let local = gateway.token().unwrap();
    let unknown = answer(&format!("{}AAAA", &session[..session.len() - 4]), &local);
    assert_eq!(unknown.0, 404, "{unknown:?}");
    assert_eq!(answer(&session, &local).0, 200);
    for (label, id, token) in [("another caller's", &session, TOKEN), ("a state", &state, &local)] {
        assert_eq!(answer(id, token), unknown, "{label}");
    }
    assert_eq!(got(&log, "theirs"), 0);
}
