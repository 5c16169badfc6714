//! Tests of what reaches its owner through another replica: each step on another one.

use super::*;
use crate::stage::old_client;

#[test]
fn every_request_of_a_legacy_session_passes_on_every_replica() {
    for scheme in ["http", "https"] {
        let cluster = TestCluster::start(scheme, || Fake::stdio("legacy").behaving("asks"));
        let mut client = cluster.client(0, ClientEra::LEGACY, json!({"elicitation": {}}));
        let id = client.session().unwrap();
        assert!(id.len() <= 128, "{id}");
        for replica in [1, 2, 0] {
            cluster.move_to(&mut client, replica);
            assert_eq!(client.request("ping", json!({})).head.status, 200);
            assert!(client.tool_names().contains(&"fx__inquire".to_owned()));
            let echoed = client.call("fx__echo", json!({"text": format!("at {replica}")}));
            assert_eq!(echoed.text(), format!("at {replica}"), "{}", echoed.raw);
        }
        assert_eq!(cluster.logs[0].lines_with(&["\"text\":\"at "]).len(), 3, "all at the owner");

        // A stream through one replica; the answer to its question through another.
        cluster.move_to(&mut client, 1);
        let question = json!({"method": "elicitation/create", "params": {"message": "Sure?", "requestedSchema":
            {"type": "object", "properties": {"sure": {"type": "boolean"}}}}});
        let arguments = json!({"rounds": [[question]], "via": "call"});
        let mut call = client.open("tools/call", json!({"name": "fx__inquire", "arguments": arguments}));
        let asked = call.next().expect("the client is asked");
        assert_eq!(asked["method"], "elicitation/create", "{asked}");
        cluster.move_to(&mut client, 2);
        client.respond(&asked["id"], json!({"action": "accept", "content": {"sure": true}}));
        assert!(call.response()["result"]["content"][0]["text"].as_str().unwrap().contains("accept"));

        // The stream of the session, and a change of its owner's lists.
        let mut stream = client.listen();
        cluster.move_to(&mut client, 1);
        client.call("fx__mutate", json!({}));
        let told = stream.next_within(Duration::from_secs(60)).unwrap().unwrap();
        assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
        assert_eq!(client.end_session(), 204);
        for replica in [0, 1, 2] {
            cluster.move_to(&mut client, replica);
            assert_eq!(client.request("ping", json!({})).head.status, 404, "it has ended, at {replica}");
        }
        assert_eq!(cluster.directory.claims(), 0, "its owner lives");
    }
}

#[test]
fn a_session_belongs_to_its_caller_on_every_replica() {
    let cluster = TestCluster::start("http", || Fake::stdio("legacy"));
    let mut client = cluster.client(0, ClientEra::LEGACY, json!({}));
    cluster.move_to(&mut client, 1);
    client.present(cluster.replicas[1].token().unwrap());
    assert_eq!(client.request("ping", json!({})).head.status, 404, "another caller's session");
    client.present("no-token-of-any-replica-0123456789".to_owned());
    assert_eq!(client.request("ping", json!({})).head.status, 401);
    client.present(TOKEN.to_owned());
    assert_eq!(client.request("ping", json!({})).head.status, 200);
}

#[test]
fn a_modern_round_and_a_task_pass_on_every_replica() {
    let cluster = TestCluster::start("http", || Fake::stdio("legacy").behaving("asks"));
    let mut client = cluster.client(0, ClientEra::Modern, json!({"elicitation": {}}));
    let question = json!({"method": "elicitation/create", "params": {"message": "Sure?", "requestedSchema":
        {"type": "object", "properties": {"sure": {"type": "boolean"}}}}});
    let arguments = json!({"rounds": [[question]], "via": "call"});
    let asked = client.call("fx__inquire", arguments.clone());
    let requests = asked.result()["inputRequests"].as_object().expect("the client is asked").clone();
    let accept = json!({"action": "accept", "content": {"sure": true}});
    let responses: Value = requests.keys().map(|key| (key.clone(), accept.clone())).collect();
    let params = json!({"name": "fx__inquire", "arguments": arguments, "inputResponses": responses,
        "requestState": asked.result()["requestState"]});
    cluster.move_to(&mut client, 2);
    let answer = client.request("tools/call", params);
    assert!(answer.text().contains("accept"), "{}", answer.raw);
    assert_eq!(cluster.calls("fx__inquire") + cluster.calls("inquire"), 1, "the call is made once");
}

#[test]
fn a_task_is_asked_after_on_every_replica() {
    let extensions = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let cluster = TestCluster::start("http", || Fake::stdio("modern").behaving("tasks"));
    let mut client = cluster.client(0, ClientEra::Modern, extensions);
    let made = client.call("fx__job", json!({"polls": 1}));
    let task = made.result()["taskId"].clone();
    assert!(task.is_string(), "{}", made.raw);
    for replica in [1, 2] {
        cluster.move_to(&mut client, replica);
        let answer = client.request("tasks/get", json!({"taskId": task}));
        assert!(answer.result()["status"].is_string(), "at {replica}: {}", answer.raw);
    }
    let mut client = cluster.client(1, ClientEra::Modern, json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}));
    client.present(cluster.replicas[1].token().unwrap());
    let answer = client.request("tasks/get", json!({"taskId": task}));
    assert_ne!(answer.head.status, 200, "another caller's: {}", answer.raw);
}

#[test]
fn messages_of_the_old_transport_reach_the_replica_of_their_stream() {
    let cluster = TestCluster::start_with("http", "legacy-sse = true", || Fake::stdio("legacy"));
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
