//! Every era of clients before every era of servers, with every question and notification of a
//! server: one table.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Gateway, GatewaySetup};
use crate::mcp::{ClientEra, Mcp, McpAnswer};
use crate::process::eventually;
use crate::upstream::{Listening, example, toml_array};

const WATCHED: &str = "test://watched-resource";

/// A request of a server to its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Feature {
    Elicitation,
    Sampling,
    Roots,
    Subscription,
}

impl Feature {
    const ALL: [Self; 4] = [Self::Elicitation, Self::Sampling, Self::Roots, Self::Subscription];

    fn tool(self) -> &'static str {
        match self {
            Self::Elicitation => "fx__test_input_required_result_elicitation",
            Self::Sampling => "fx__test_input_required_result_sampling",
            Self::Roots => "fx__test_input_required_result_list_roots",
            Self::Subscription => "fx__test_trigger_resource_update",
        }
    }

    /// Returns the tool's report of the answer.
    fn said(self) -> &'static str {
        match self {
            Self::Elicitation => "Hello, Ada!",
            Self::Sampling => "Paris",
            Self::Roots => "file:///work",
            Self::Subscription => "announced",
        }
    }
}

/// Starts a gateway in front of the reference server.
fn gateway(era: &str, transport: &str) -> (Gateway, Option<Listening>) {
    let program = example("conformance-fixture");
    let arguments = [transport, "--era", era].map(str::to_owned);
    let (target, listening) = if transport == "http" {
        let running = Listening::spawn(&program, &arguments);
        (format!("url = \"{}\"", running.url), Some(running))
    } else {
        let words = std::iter::once(program.to_str().unwrap()).chain(arguments.iter().map(String::as_str));
        (format!("command = {}", toml_array(words)), None)
    };
    let gateway = GatewaySetup::new().toml(&format!("[upstreams.fx]\n{target}\nroots = \"client\"")).start();
    gateway.wait_for_tools(&[Feature::Elicitation.tool()]);
    (gateway, listening)
}

/// Returns the answer of a person, a model or a host.
fn response(method: &str) -> Value {
    match method {
        "elicitation/create" => json!({"action": "accept", "content": {"name": "Ada"}}),
        "sampling/createMessage" => {
            json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "Paris"}})
        }
        "roots/list" => json!({"roots": [{"uri": "file:///work"}]}),
        other => panic!("{other} was asked"),
    }
}

/// Plays a legacy client, which answers a request on the stream of its call; returns the call's
/// answer.
fn asked_by_requests(client: &mut Mcp, feature: Feature) -> Value {
    let mut call = client.open("tools/call", json!({"name": feature.tool(), "arguments": {}}));
    loop {
        let message = call.next().expect("the call is answered");
        let Some(method) = message["method"].as_str() else { return message["result"].clone() };
        let result = response(method);
        client.respond(&message["id"], result);
    }
}

/// Plays a modern client, which sends its call again with the requested input; returns the call's
/// answer.
fn asked_by_results(client: &mut Mcp, feature: Feature) -> Value {
    let mut params = json!({"name": feature.tool(), "arguments": {}});
    for _ in 0..4 {
        let answer: McpAnswer = client.request("tools/call", params.clone());
        let result = answer.result().clone();
        if result["resultType"] != "input_required" {
            return result;
        }
        let requests = result["inputRequests"].as_object().unwrap().clone();
        let responses: serde_json::Map<String, Value> = requests
            .iter()
            .map(|(key, request)| (key.clone(), response(request["method"].as_str().unwrap())))
            .collect();
        params["inputResponses"] = Value::Object(responses);
        params["requestState"] = result["requestState"].clone();
    }
    panic!("asked again and again");
}

/// Subscribes to a resource, updates it, and waits for the notification.
fn told_of_an_update(client: &mut Mcp, era: ClientEra) -> Value {
    let mut stream = if era == ClientEra::Modern {
        client.open("subscriptions/listen", json!({"notifications": {"resourceSubscriptions": [WATCHED]}}))
    } else {
        assert_eq!(client.request("resources/subscribe", json!({"uri": WATCHED})).result(), &json!({}));
        client.listen()
    };
    if era == ClientEra::Modern {
        let first = stream.next().expect("an acknowledgement");
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
        assert_eq!(first["params"]["notifications"]["resourceSubscriptions"], json!([WATCHED]), "{first}");
    }
    let result = client.call(Feature::Subscription.tool(), json!({})).result().clone();
    let update = stream.next().expect("an update");
    assert_eq!(update["method"], "notifications/resources/updated", "{update}");
    assert_eq!(update["params"]["uri"], WATCHED, "{update}");
    result
}

#[test]
fn whatever_a_server_asks_or_tells_crosses_from_either_era_to_either_era() {
    for (server, transport) in [("legacy", "stdio"), ("legacy", "http"), ("modern", "stdio"), ("modern", "http")] {
        let (gateway, _running) = gateway(server, transport);
        for era in ClientEra::BOTH {
            for feature in Feature::ALL {
                let at = format!("{era:?} client, {server} server on {transport}, {feature:?}");
                let capabilities = json!({"elicitation": {}, "sampling": {}, "roots": {}});
                let mut client = Mcp::http_at(gateway.address, gateway.token(), era, "/mcp", capabilities);
                let result = match (feature, era) {
                    (Feature::Subscription, _) => told_of_an_update(&mut client, era),
                    (_, ClientEra::Modern) => asked_by_results(&mut client, feature),
                    (_, ClientEra::Legacy(_)) => asked_by_requests(&mut client, feature),
                };
                assert!(result["content"].to_string().contains(feature.said()), "{at}: {result}\n{}", gateway.story());
                assert!(result["isError"] != true, "{at}: {result}");
            }
        }
    }
}

#[test]
fn a_client_that_unsubscribes_ends_no_other_clients_subscription() {
    let (gateway, _running) = gateway("modern", "stdio");
    let mut clients: Vec<Mcp> = (0..4).map(|_| gateway.legacy()).collect();
    let mut streams: Vec<_> = clients.iter().map(Mcp::listen).collect();
    let watched = json!({"uri": WATCHED});
    for client in &mut clients[..3] {
        client.request("resources/subscribe", watched.clone()).result();
    }
    clients[0].request("resources/unsubscribe", watched.clone()).result();
    clients[3].request("resources/subscribe", watched.clone()).result();
    clients[3].request("resources/unsubscribe", watched).result();
    assert!(!clients[0].call(Feature::Subscription.tool(), json!({})).is_error());
    for n in [1, 2] {
        let update = streams[n].next_within(Duration::from_secs(10));
        let update = update.unwrap_or_else(|error| panic!("client {n} is told nothing: {error}")).unwrap();
        assert_eq!(update["method"], "notifications/resources/updated", "{update}");
    }
}

#[test]
fn a_list_that_really_changes_is_told_to_clients_of_either_era() {
    for server in ["legacy", "modern"] {
        let (gateway, _running) = gateway(server, "stdio");
        let mut client = gateway.modern();
        assert!(!client.call("fx__test_trigger_tool_change", json!({})).is_error());
        eventually("the tool is there", || client.tool_names().contains(&"fx__added_tool".to_owned()));
        assert!(!client.call("fx__test_trigger_tool_change", json!({})).is_error());
        eventually("the tool is gone", || !client.tool_names().contains(&"fx__added_tool".to_owned()));
    }
}
