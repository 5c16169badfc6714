//! Tests that responses without a state answer no question: the call starts anew.

use super::*;

/// Returns a call of each method that can ask.
fn calls() -> [(&'static str, Value); 3] {
    [
        ("tools/call", json!({"name": "fx__echo", "arguments": {"text": "x"}})),
        ("prompts/get", json!({"name": "fx__p", "arguments": {"a": "b"}})),
        ("resources/read", json!({"uri": "fx://doc/1"})),
    ]
}

fn with_responses(mut params: Value) -> Value {
    params["inputResponses"] = json!({"gw.consent": allow("session"), "other": {"action": "accept"}});
    params
}

#[test]
fn responses_without_a_state_are_asked_about_and_never_a_consent() {
    let stage = ConsentGateway::new();
    let setup = GatewaySetup::new().policy("default = \"ask\"");
    let log = InputLog::new(&setup.world.path("work"), "piped");
    let piped = setup.fake("fx", &Fake::stdio("legacy").logging(&log)).start();
    let over_pipes = Mcp::stdio_with(piped.pipe(), ClientEra::Modern, forms());
    let over_http = stage.client(ClientEra::Modern, forms());
    for (face, mut client, log) in [("http", over_http, &stage.log), ("stdio", over_pipes, &log)] {
        for (method, params) in calls() {
            let first = client.request(method, with_responses(params.clone()));
            let (_, state) = asked(&first);
            asked(&client.request(method, with_responses(params.clone())));
            assert_eq!(log.count(method), 0, "{face}, {method}: nothing reached the server");
            // The question that was asked is still valid.
            let mut again = params;
            again["requestState"] = state;
            again["inputResponses"] = json!({"gw.consent": allow("deny")});
            let denied = client.request(method, again);
            assert!(denied.code() == Some(1001) || denied.is_error(), "{face}, {method}: {}", denied.raw);
        }
    }
}

#[test]
fn responses_without_a_state_go_to_no_server() {
    for era in ["legacy", "modern"] {
        let setup = GatewaySetup::new();
        let log = InputLog::new(&setup.world.path("work"), "fx");
        let gateway = setup.fake("fx", &Fake::stdio(era).logging(&log)).start();
        gateway.wait_for_tools(&["fx__echo"]);
        let pipe = gateway.pipe();
        let over_pipes = Mcp::stdio(pipe, ClientEra::Modern);
        // For a legacy client `inputResponses` is a member that its protocol does not define.
        for mut client in [gateway.modern(), over_pipes, gateway.legacy()] {
            for (method, params) in calls() {
                let answer = client.request(method, with_responses(params));
                assert!(answer.code().is_none() && !answer.is_error(), "{era}, {method}: {}", answer.raw);
            }
        }
        assert_eq!(log.work(), 9, "{era}");
        assert_eq!(log.lines_with(&["inputResponses"]), [""; 0], "{era}");
    }
}
