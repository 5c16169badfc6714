//! Tests of owners that die: killed, silent, or gone in order.

use super::*;

#[test]
fn a_session_goes_on_after_its_owner_was_killed_and_its_call_is_not_made_again() {
    let mut cluster = TestCluster::start("https", || Fake::stdio("legacy"));
    let mut client = cluster.client(0, ClientEra::LEGACY, json!({}));
    cluster.move_to(&mut client, 1);
    let params = json!({"name": "fx__sleep", "arguments": {"ms": 3_600_000, "n": 4711}});
    let mut call = client.open("tools/call", params);
    // The call is under way, and its stream has begun.
    pass(Duration::from_secs(8));
    assert_eq!(cluster.calls("4711"), 1);
    let port = cluster.kill(0);
    assert!(net::connect(port).is_err(), "it refuses connections");
    assert_eq!(refusal(&call.response()["result"]), lost());
    for replica in [2, 1, 2] {
        cluster.move_to(&mut client, replica);
        let echoed = client.call("fx__echo", json!({"text": format!("at {replica}")}));
        assert_eq!(echoed.text(), format!("at {replica}"), "{}", echoed.raw);
    }
    assert_eq!(cluster.directory.claims(), 1, "one replica has taken it over");
    assert_eq!(cluster.logs[2].lines_with(&["\"text\":\"at "]).len(), 3, "the one with the first request");
    assert_eq!(cluster.calls("4711"), 1, "never run again");
    assert_eq!(client.end_session(), 204);
}

#[test]
fn what_a_dead_replica_held_for_a_modern_client_is_lost_and_never_run_again() {
    let mut cluster = TestCluster::start("http", || Fake::stdio("legacy").behaving("asks"));
    let mut client = cluster.client(0, ClientEra::Modern, json!({"elicitation": {}}));
    let question = json!({"method": "elicitation/create", "params": {"message": "Sure?", "requestedSchema":
        {"type": "object", "properties": {"sure": {"type": "boolean"}}}}});
    let arguments = json!({"rounds": [[question]], "via": "call"});
    let asked = client.call("fx__inquire", arguments.clone());
    let state = asked.result()["requestState"].clone();
    assert!(state.is_string(), "{}", asked.raw);
    cluster.kill(0);
    cluster.move_to(&mut client, 1);
    let params = json!({"name": "fx__inquire", "arguments": arguments, "requestState": state, "inputResponses": {}});
    let answer = client.request("tools/call", params);
    assert_eq!(refusal(answer.result()), lost(), "{}", answer.raw);
    let task = format!("{}.sealed", state.as_str().unwrap().split('.').next().unwrap());
    client.capabilities = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let answer = client.request("tasks/get", json!({"taskId": task}));
    assert!(answer.raw.contains("replica_lost"), "{}", answer.raw);
    assert_eq!(cluster.calls("inquire"), 1);
}

#[test]
fn a_mute_replica_costs_its_own_requests_and_is_dead_after_fifteen_seconds() {
    let mut cluster = TestCluster::start("http", || Fake::stdio("legacy"));
    let mut theirs = cluster.client(0, ClientEra::LEGACY, json!({}));
    let mut ours = cluster.client(1, ClientEra::LEGACY, json!({}));
    cluster.move_to(&mut theirs, 1);
    let port = cluster.kill(0);
    // It takes connections and says nothing.
    let mute = net::Listener::bind(port);
    let begun = crate::stage::now();
    let mut call = theirs.open("tools/call", json!({"name": "fx__echo", "arguments": {"text": "mute"}}));
    pass(Duration::from_secs(5));
    assert_eq!(ours.call("fx__echo", json!({"text": "on"})).text(), "on");
    assert!(crate::stage::now() - begun < Duration::from_secs(7));
    assert_eq!(refusal(&call.response()["result"]), lost());
    let waited = crate::stage::now() - begun;
    assert!((10..=20).contains(&waited.as_secs()), "{waited:?}");
    assert_eq!(theirs.call("fx__echo", json!({"text": "taken over"})).text(), "taken over");
    assert_eq!(cluster.calls("\"mute\""), 0);
    drop(mute);
}

#[test]
fn a_replica_that_ends_in_order_hands_its_sessions_over_at_once() {
    let mut cluster = TestCluster::start("http", || Fake::stdio("legacy"));
    let mut client = cluster.client(0, ClientEra::LEGACY, json!({}));
    cluster.replicas[0].stop();
    assert_eq!(cluster.directory.rows().len(), 2);
    let begun = crate::stage::now();
    cluster.move_to(&mut client, 2);
    assert_eq!(client.call("fx__echo", json!({"text": "on"})).text(), "on");
    assert!(crate::stage::now() - begun < Duration::from_secs(5));
}

#[test]
fn while_the_store_is_away_sessions_of_living_replicas_go_on() {
    let mut cluster = TestCluster::start("http", || Fake::stdio("legacy"));
    let mut client = cluster.client(0, ClientEra::LEGACY, json!({}));
    let mut other = cluster.client(1, ClientEra::LEGACY, json!({}));
    cluster.directory.set_away(true);
    pass(Duration::from_secs(60));
    cluster.move_to(&mut client, 2);
    assert_eq!(client.call("fx__echo", json!({"text": "on"})).text(), "on");
    cluster.kill(1);
    cluster.move_to(&mut other, 2);
    assert_eq!(other.request("ping", json!({})).head.status, 503, "nobody may take it over");
    cluster.directory.set_away(false);
    pass(Duration::from_secs(5));
    assert_eq!(other.request("ping", json!({})).head.status, 200);
    assert_eq!(client.call("fx__echo", json!({"text": "still"})).text(), "still");
    assert_eq!(cluster.logs[0].lines_with(&["\"text\":\"still\""]).len(), 1, "nobody took it from its owner");
}
