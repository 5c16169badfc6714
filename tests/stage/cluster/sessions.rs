//! Tests of what reaches its owner through another replica: each step on another one.

use super::*;
use crate::stage::old_client;

#[test]
fn every_request_of_a_legacy_session_passes_on_every_replica() {
    for scheme in ["http", "https"] {
        let cluster = TestCluster::start(scheme);
        let mut client = cluster.client(0, ClientEra::LEGACY, json!({"elicitation": {}}));
        let id = client.session().unwrap();
        assert!(id.len() <= 128, "{id}");
        for replica in [1, 2, 0] {
            cluster.move_to(&mut client, replica);
            assert_eq!(client.request("ping", json!({})).head.status, 200);
            assert!(client.tool_names().contains(&"fx__echo".to_owned()));
            let echoed = client.call("fx__echo", json!({"text": format!("at {replica}")}));
            assert_eq!(echoed.text(), format!("at {replica}"), "{}", echoed.raw);
        }
        assert_eq!(cluster.logs[0].lines_with(&["\"text\":\"at "]).len(), 3, "all at the owner");

        // The stream of the session, and a change of its owner's lists.
        cluster.move_to(&mut client, 1);
        let mut stream = client.listen();
        cluster.move_to(&mut client, 2);
        client.call("fx__mutate", json!({}));
        let told = stream.next_within(Duration::from_secs(60)).unwrap().unwrap();
        assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
        assert_eq!(client.end_session(), 204);
        for replica in [0, 1, 2] {
            cluster.move_to(&mut client, replica);
            let params = json!({"name": "fx__echo", "arguments": {}});
            assert_eq!(client.open("tools/call", params).head().status, 404, "it has ended, at {replica}");
        }
        assert_eq!(cluster.directory.claims(), 0, "its owner lives");
    }
}

#[test]
fn a_session_whose_terms_do_not_fit_into_its_id_passes_on_every_replica_and_ends_with_its_own() {
    let mut cluster = TestCluster::start("http");
    let long = json!({"elicitation": {"form": {"long": "x".repeat(2000)}}});
    let mut client = cluster.client(0, ClientEra::LEGACY, long);
    let id = client.session().unwrap();
    assert!(id.len() < 64, "{id}");
    for replica in [1, 2, 0] {
        cluster.move_to(&mut client, replica);
        let text = format!("at {replica}");
        assert_eq!(client.call("fx__echo", json!({"text": text})).text(), text);
    }
    assert_eq!(cluster.logs[0].lines_with(&["\"text\":\"at "]).len(), 3, "all at the owner");
    cluster.kill(0);
    cluster.move_to(&mut client, 1);
    // The first request may be lost on a connection that was open to the dead replica.
    client.open("ping", json!({})).head();
    assert_eq!(client.open("ping", json!({})).head().status, 404);
}

#[test]
fn a_question_on_a_stream_is_answered_through_another_replica() {
    let cluster = TestCluster::asking();
    let mut client = cluster.client(0, ClientEra::LEGACY, json!({"elicitation": {}}));
    cluster.move_to(&mut client, 1);
    let mut call = client.open("tools/call", json!({"name": "fx__inquire", "arguments": asks()}));
    let asked = call.next().expect("the client is asked");
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    cluster.move_to(&mut client, 2);
    client.respond(&asked["id"], json!({"action": "accept", "content": {"sure": true}}));
    let answer = call.response();
    assert!(answer["result"]["content"][0]["text"].as_str().unwrap().contains("accept"), "{answer}");
}

#[test]
fn a_session_belongs_to_its_caller_on_every_replica() {
    let cluster = TestCluster::start("http");
    let mut client = cluster.client(0, ClientEra::LEGACY, json!({}));
    cluster.move_to(&mut client, 1);
    client.present(cluster.replicas[1].token().unwrap());
    assert_eq!(client.open("ping", json!({})).head().status, 404, "another caller's session");
    client.present("no-token-of-any-replica-0123456789".to_owned());
    assert_eq!(client.open("ping", json!({})).head().status, 401);
    client.present(TOKEN.to_owned());
    assert_eq!(client.request("ping", json!({})).head.status, 200);
}

#[test]
fn a_modern_round_and_a_task_pass_on_every_replica() {
    let cluster = TestCluster::asking();
    let mut client = cluster.client(0, ClientEra::Modern, json!({"elicitation": {}}));
    let asked = client.call("fx__inquire", asks());
    let requests = asked.result()["inputRequests"].as_object().expect("the client is asked").clone();
    let accept = json!({"action": "accept", "content": {"sure": true}});
    let responses: Value = requests.keys().map(|key| (key.clone(), accept.clone())).collect();
    let params = json!({"name": "fx__inquire", "arguments": asks(), "inputResponses": responses,
        "requestState": asked.result()["requestState"]});
    cluster.move_to(&mut client, 2);
    let answer = client.request("tools/call", params);
    assert!(answer.text().contains("accept"), "{}", answer.raw);
    assert_eq!(cluster.calls("inquire"), 1, "the call is made once");
}

/// Returns the parameters with which a client allows the call of `fx__echo` that it was asked
/// about.
fn allowing(asked: &Value, arguments: &Value) -> Value {
    let responses = json!({"gw.consent": {"action": "accept", "content": {"decision": "once"}}});
    json!({"name": "fx__echo", "arguments": arguments, "inputResponses": responses, "requestState": asked["requestState"]})
}

#[test]
fn a_form_is_answered_through_another_replica_and_asked_again_after_the_death_of_its_own() {
    let mut cluster = TestCluster::sharing(Fake::http("legacy"), "default = \"ask\"");
    let mut client = cluster.client(0, ClientEra::Modern, json!({"elicitation": {}}));
    for (replica, text) in [(1, "first"), (2, "second")] {
        let arguments = json!({"text": text});
        cluster.move_to(&mut client, 0);
        let asked = client.call("fx__echo", arguments.clone());
        assert_eq!(asked.result()["resultType"], "input_required", "{}", asked.raw);
        cluster.move_to(&mut client, replica);
        // As long as a person takes to read.
        pass(Duration::from_secs(1));
        let answer = client.request("tools/call", allowing(asked.result(), &arguments));
        assert_eq!(answer.text(), text, "{}", answer.raw);
    }
    assert_eq!((cluster.calls("first"), cluster.calls("second")), (1, 1));

    cluster.move_to(&mut client, 0);
    let arguments = json!({"text": "third"});
    let asked = client.call("fx__echo", arguments.clone());
    cluster.kill(0);
    cluster.move_to(&mut client, 1);
    pass(Duration::from_secs(1));
    let again = client.request("tools/call", allowing(asked.result(), &arguments));
    assert_eq!(again.result()["resultType"], "input_required", "another approval is open: {}", again.raw);
    assert_eq!(cluster.calls("third"), 0);
    pass(Duration::from_secs(1));
    let answer = client.request("tools/call", allowing(again.result(), &arguments));
    assert_eq!((answer.text(), cluster.calls("third")), ("third".to_owned(), 1), "{}", answer.raw);
}

#[test]
fn a_task_is_asked_after_on_every_replica() {
    let extension = json!({"io.modelcontextprotocol/tasks": {}});
    let line = |result: Value| vec![format!("{{\"jsonrpc\":\"2.0\",\"id\":${{ID}},\"result\":{result}}}")];
    let discovered = json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}, "extensions": extension}, "ttlMs": 0, "cacheScope": "private"});
    let script = json!({
        "server/discover": line(discovered),
        "tools/call/echo": line(json!({"resultType": "task", "taskId": "t", "status": "working", "ttlMs": 60000})),
        "tasks/get": line(json!({"resultType": "complete", "taskId": "t", "status": "working", "ttlMs": 60000})),
    });
    let cluster = TestCluster::start_with("http", "", |setup, log| {
        let script = setup.world.write("work/script.json", &script.to_string());
        setup.fake("fx", &Fake::stdio("modern").logging(log).with("--script", script.to_str().unwrap()))
    });
    let mut client = cluster.client(0, ClientEra::Modern, json!({"extensions": extension}));
    let made = client.call("fx__echo", json!({"text": "x"}));
    let task = made.result()["taskId"].clone();
    assert!(task.is_string(), "{}", made.raw);
    for replica in [1, 2] {
        cluster.move_to(&mut client, replica);
        let answer = client.request("tasks/get", json!({"taskId": task}));
        assert_eq!(answer.result()["taskId"], task, "at {replica}: {}", answer.raw);
    }
    assert_eq!(cluster.logs[0].count("tasks/get"), 2, "both at the owner");
    client.present(cluster.replicas[2].token().unwrap());
    let answer = client.request("tasks/get", json!({"taskId": task}));
    assert!(answer.code().is_some() || answer.head.status == 503, "another caller's: {}", answer.raw);
    assert_eq!(cluster.logs[0].count("tasks/get"), 2);
}

#[test]
fn messages_of_the_old_transport_reach_the_replica_of_their_stream() {
    let cluster = TestCluster::start_with("http", "legacy-sse = true", |setup, log| {
        setup.fake("fx", &Fake::stdio("legacy").logging(log))
    });
    let mut client = old_client::OldClient::connect(&cluster.replicas[0], Some(TOKEN.to_owned()), "/sse");
    client.initialize("2024-11-05");
    let path = format!("/messages?sessionId={}", client.session());
    let params = json!({"name": "fx__echo", "arguments": {"text": "through another"}});
    let body = json!({"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": params}).to_string();
    let (status, text) = old_client::ask(cluster.replicas[1].address, Some(TOKEN), "POST", &path, &body);
    assert_eq!(status, 202, "{text}");
    let message = client.message();
    assert_eq!(message["result"]["content"][0]["text"], "through another", "{message}");
}

#[test]
fn the_status_lists_all_replicas_and_what_differs() {
    let cluster = TestCluster::start("http");
    let replicas = || {
        pass(Duration::from_secs(8));
        let status = cluster.replicas[0].run(&["status", "--json"]);
        let status: Value = serde_json::from_slice(&status.stdout).unwrap();
        status["replicas"].as_array().unwrap().clone()
    };
    let listed = replicas();
    let names: Vec<_> = listed.iter().map(|one| (one["name"].as_str().unwrap(), one["own"] == true)).collect();
    assert_eq!(names, [("r0", true), ("r1", false), ("r2", false)]);
    // Each has a log of its own upstream.
    assert!(listed.iter().all(|one| one["version"] == env!("CARGO_PKG_VERSION")), "{listed:?}");
    let config = fs::read_to_string(&cluster.replicas[1].config).unwrap();
    let reloaded = cluster.replicas[1].reload(&config.replace("default = \"allow\"", "default = \"deny\""));
    assert!(reloaded.status.success(), "{}", crate::stage::process::said(&reloaded));
    let listed = replicas();
    let differs = |at: usize| listed[at]["differs"].as_array().is_some_and(|what| what.contains(&json!("policy")));
    assert_eq!([0, 1, 2].map(differs), [false, true, false], "{listed:?}");
    let shown = String::from_utf8(cluster.replicas[0].run(&["status"]).stdout).unwrap();
    assert!(shown.contains("replica r0 (this one): headend") && shown.contains("warning: policy"), "{shown}");
}
