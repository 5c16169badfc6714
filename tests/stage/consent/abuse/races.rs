//! Many calls that race for one grant, and several answers to one approval.

use super::super::hold::is_echo;
use super::*;

/// How often those calls reached the server.
fn reached(stage: &Stage, arguments: &Value) -> usize {
    stage.called().iter().filter(|called| *called == arguments).count()
}

/// All of them call at the same moment.
fn at_once(clients: &mut [Mcp], arguments: &Value) -> Vec<Value> {
    let params = json!({"name": "fx__echo", "arguments": arguments});
    let calls: Vec<Open> = clients.iter_mut().map(|client| client.open("tools/call", params.clone())).collect();
    calls.into_iter().map(|mut call| call.response()).collect()
}

/// The approval that a refused call waits for.
fn approval_of(response: &Value) -> &str {
    response["result"]["_meta"]["headend/refusal"]["approval"]["id"].as_str().unwrap()
}

#[test]
fn of_two_calls_at_once_one_gets_the_consent() {
    let stage = Stage::new();
    let arguments = json!({"text": "one of two"});
    let mut clients = [stage.client(Era::Modern, json!({})), stage.client(Era::LEGACY, json!({}))];
    let mut id = waits_for(&clients[0].call("fx__echo", arguments.clone()));
    for round in 1..=20 {
        approve(&stage.gateway, &id);
        let responses = at_once(&mut clients, &arguments);
        let (got, waits): (Vec<_>, Vec<_>) = responses.iter().partition(|response| is_echo(response, "one of two"));
        assert_eq!((got.len(), waits.len()), (1, 1), "round {round}: {responses:?}");
        assert_eq!(reached(&stage, &arguments), round, "round {round}");
        id = approval_of(waits[0]).to_owned();
    }
}

#[test]
fn of_many_retries_one_gets_the_consent() {
    let stage = Stage::new();
    let mut clients: Vec<Mcp> = (0..64).map(|_| stage.client(Era::Modern, json!({}))).collect();
    for round in 1..=5 {
        let arguments = json!({"text": "one of many"});
        let id = waits_for(&clients[0].call("fx__echo", arguments.clone()));
        approve(&stage.gateway, &id);
        let responses = at_once(&mut clients, &arguments);
        let got = responses.iter().filter(|response| is_echo(response, "one of many")).count();
        assert_eq!((got, reached(&stage, &arguments)), (1, round), "round {round}");
    }
}

#[test]
fn of_two_answers_at_once_one_counts_and_the_log_says_which() {
    let stage = Stage::new();
    let mut outcomes = Vec::new();
    for (turns, era) in (0..TURNS).flat_map(|turns| Era::BOTH.map(|era| (turns, era))) {
        let at = format!("turn {turns}, {era:?}");
        let (arguments, mut client) = (json!({"text": at}), stage.client(era, forms()));
        let call = json!({"name": "fx__echo", "arguments": arguments});
        let (mut open, question) = (client.open("tools/call", call), client_question(era));
        let first = open.next().unwrap();
        let id = operator::pending(&stage).remove(0);
        let denying = stage.answer_after(turns, &id, "deny");
        let got = question(&mut client, &mut open, &first, &arguments);
        let denied = block_on(denying).unwrap();
        let records: Vec<Value> =
            stage.audit("answer").into_iter().filter(|record| record["prompt"] == id.as_str()).collect();
        assert_eq!(records.len(), 1, "{at}: {records:?}");
        let granted = records[0]["result"] == "granted";
        let said = json!([records[0]["result"], records[0]["evidence"]]);
        assert_eq!(said, if granted { json!(["granted", "L1"]) } else { json!(["denied", "L3"]) }, "{at}");
        let executed = reached(&stage, &arguments);
        assert_eq!((executed, got, denied), (usize::from(granted), granted, !granted), "{at}");
        outcomes.push(granted);
    }
    assert!(outcomes.contains(&true) && outcomes.contains(&false), "{outcomes:?}");
}

/// How a client of that era allows a call, and whether the call was executed then.
fn client_question(era: Era) -> fn(&mut Mcp, &mut Open, &Value, &Value) -> bool {
    match era {
        Era::Modern => |client, _, first, arguments| {
            let state = &first["result"]["requestState"];
            let answer = go_on(client, "fx__echo", arguments, state, &allow("once"));
            echoed(&answer, arguments["text"].as_str().unwrap())
        },
        Era::Legacy(_) => |client, open, first, arguments| {
            assert_eq!(first["method"], "elicitation/create", "{first}");
            client.respond(&first["id"], allow("once"));
            let response = open.response();
            response["result"]["isError"] != true && response["result"]["content"][0]["text"] == arguments["text"]
        },
    }
}
