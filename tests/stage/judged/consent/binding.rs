//! Tests that a grant is bound to its caller, its action and its evidence.

use super::*;

#[test]
fn arguments_swapped_between_the_question_and_the_answer_are_refused() {
    let stage = ConsentGateway::new();
    let mut client = stage.client(ClientEra::Modern, forms());
    let (_, state) = asked(&client.call("fx__echo", json!({"text": "harmless"})));
    for (label, name, arguments) in [
        ("arguments", "fx__echo", json!({"text": "harmful"})),
        ("more arguments", "fx__echo", json!({"text": "harmless", "more": 1})),
        ("none", "fx__echo", json!({})),
        ("tool", "fx__env", json!({"text": "harmless"})),
    ] {
        let answer = go_on(&mut client, name, &arguments, &state, &allow("once"));
        assert_eq!(answer.code(), Some(-32602), "{label}: {}", answer.raw);
    }
    assert_eq!(stage.called().len(), 0);
    let answer = go_on(&mut client, "fx__echo", &json!({"text": "harmless"}), &state, &allow("once"));
    assert_eq!(answer.text(), "harmless", "the prompt was still open");
}

#[test]
fn the_client_of_another_caller_cannot_answer() {
    let stage = ConsentGateway::new();
    let mut asking = stage.client(ClientEra::Modern, forms());
    let mut other = stage.second(ClientEra::Modern, forms());
    let arguments = json!({"text": "mine"});
    let (_, state) = asked(&asking.call("fx__echo", arguments.clone()));
    let stolen = go_on(&mut other, "fx__echo", &arguments, &state, &allow("session"));
    assert_eq!(stolen.code(), Some(-32602), "{}", stolen.raw);
    asked(&other.call("fx__echo", arguments.clone()));
    asked(&asking.call("fx__echo", arguments));
    assert_eq!(stage.called().len(), 0);
}

#[test]
fn a_client_that_accepts_everything_cannot_allow_what_may_destroy() {
    let stage = ConsentGateway::new();
    for era in ClientEra::BOTH {
        let mut client = stage.client(era, forms());
        let arguments = json!({"path": "/etc/passwd"});
        let mut answer = client.call("fx__write", arguments.clone());
        assert_eq!(reason(&answer), "awaiting_approval", "{era:?}: {}", answer.raw);
        assert!(answer.notices.is_empty(), "{era:?}: it is not even asked");
        for how in ["once", "session"] {
            let forged = json!({"name": "fx__write", "arguments": arguments, "requestState": "x",
                "inputResponses": {"gw.consent": allow(how)}});
            answer = client.request("tools/call", forged);
            assert!(answer.code() == Some(-32602) || answer.is_error(), "{era:?}: {}", answer.raw);
        }
    }
    assert_eq!(stage.called().len(), 0);
}

#[test]
fn one_consent_is_good_for_all_rounds_of_one_call_and_for_no_second_one() {
    let setup = GatewaySetup::new().policy("default = \"ask\"");
    let (world, log) = (setup.world.clone(), InputLog::new(&setup.world.path("work"), "fx"));
    let gateway = setup.fake("fx", &Fake::stdio("modern").logging(&log)).start();
    gateway.wait_for_tools(&["fx__raw"]);
    let round = json!({"resultType": "input_required", "requestState": "theirs", "inputRequests": {"who":
        {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema":
            {"type": "object", "properties": {"who": {"type": "string"}}}}}}});
    let file = world.write("work/raw.json", &round.to_string());
    let arguments = json!({"file": file});
    let mut client = Mcp::http_at(gateway.address, gateway.token(), ClientEra::Modern, "/mcp", forms());
    let (_, state) = asked(&client.call("fx__raw", arguments.clone()));
    let mut theirs = go_on(&mut client, "fx__raw", &arguments, &state, &allow("once"));
    let mut last = Value::Null;
    for round in 1..=3 {
        let requests = theirs.result()["inputRequests"].as_object().unwrap();
        let (key, question) = requests.iter().next().unwrap();
        assert!(question["params"]["message"].as_str().unwrap().starts_with("[fx] "), "{}", theirs.raw);
        let response = json!({"action": "accept", "content": {"who": "Ada"}});
        last = json!({"name": "fx__raw", "arguments": arguments, "requestState": theirs.result()["requestState"],
            "inputResponses": {key: response}});
        if round == 3 {
            world.write("work/raw.json", &json!({"resultType": "complete", "content": []}).to_string());
        }
        theirs = client.request("tools/call", last.clone());
    }
    assert!(!theirs.is_error() && theirs.result()["resultType"] == "complete", "{}", theirs.raw);
    assert_eq!(log.count("tools/call"), 4);
    // The state proves its permit once. Sent again, the request is a call like any other.
    let replayed = client.request("tools/call", last);
    let (question, _) = asked(&replayed);
    assert!(question["message"].as_str().unwrap().starts_with("headend needs your approval"), "{}", replayed.raw);
    assert_eq!(log.count("tools/call"), 4);
}

#[test]
fn a_rule_that_comes_while_a_person_thinks_has_the_last_word() {
    let stage = ConsentGateway::new();
    let mut client = stage.client(ClientEra::Modern, forms());
    let arguments = json!({"text": "x"});
    let (_, state) = asked(&client.call("fx__echo", arguments.clone()));
    let text = std::fs::read_to_string(&stage.gateway.config).unwrap();
    let rule = "[[policy.rules]]\nid = \"stop\"\neffect = \"deny\"\ntools = [\"fx__echo\"]\n";
    stage.gateway.world.write("headend.toml", &format!("{text}\n{rule}"));
    assert!(stage.gateway.world.run(&["reload", "--config", stage.gateway.config.to_str().unwrap()]).status.success());
    let answer = go_on(&mut client, "fx__echo", &arguments, &state, &allow("once"));
    assert_eq!(answer.code(), Some(-32602), "denied is hidden: {}", answer.raw);
    assert_eq!(stage.called().len(), 0);
}
