//! Tests of many calls that race for one grant, several answers to one approval, and a daemon that
//! is killed between the two.

use rustix::process::Signal;

use super::super::hold::is_echo;
use super::*;

/// Counts the calls with these arguments at the server.
fn reached(stage: &ConsentGateway, arguments: &Value) -> usize {
    stage.called().iter().filter(|called| *called == arguments).count()
}

/// Makes a call by each client at the same moment.
fn at_once(clients: &mut [Mcp], arguments: &Value) -> Vec<Value> {
    let params = json!({"name": "fx__echo", "arguments": arguments});
    let calls: Vec<OpenCall> = clients.iter_mut().map(|client| client.open("tools/call", params.clone())).collect();
    calls.into_iter().map(|mut call| call.response()).collect()
}

/// Returns the id of the approval that a refused call waits for.
fn approval_of(response: &Value) -> &str {
    response["result"]["_meta"]["headend/refusal"]["approval"]["id"].as_str().unwrap()
}

#[test]
fn of_two_calls_at_once_one_gets_the_consent() {
    let stage = ConsentGateway::new();
    let arguments = json!({"text": "one of two"});
    let mut clients = [stage.client(ClientEra::Modern, json!({})), stage.client(ClientEra::LEGACY, json!({}))];
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
    let stage = ConsentGateway::new();
    let mut clients: Vec<Mcp> = (0..64).map(|_| stage.client(ClientEra::Modern, json!({}))).collect();
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
fn a_killed_daemon_forgets_no_use_of_a_consent() {
    let mut stage = ConsentGateway::new();
    let environment = [("SECOND_TOKEN".to_owned(), TOKEN.to_owned())];
    let arguments = |turns: usize| json!({"text": format!("turn {turns}")});
    let mut used = Vec::new();
    for turns in 0..TURNS / 2 {
        let mut client = stage.client(ClientEra::Modern, json!({}));
        let id = waits_for(&client.call("fx__echo", arguments(turns)));
        approve(&stage.gateway, &id);
        // Dropped only after the kill, so that no client hangs up.
        let retry = json!({"name": "fx__echo", "arguments": arguments(turns)});
        let retries = [client.open("tools/call", retry.clone()), client.open("tools/call", retry)];
        block_on(take_turns(turns));
        stage.gateway.kill("fx", Signal::KILL);
        stage.gateway.signal(Signal::KILL);
        assert!(stage.gateway.wait(Duration::from_secs(60)).is_some());
        drop(retries);
        let (world, config) = (stage.gateway.world.clone(), stage.gateway.config.clone());
        stage.gateway = Gateway::start(world, Some(config), &["serve"], &environment);
        stage.gateway.wait_for_tools(&["fx__echo"]);
        let again = stage.client(ClientEra::Modern, json!({})).call("fx__echo", arguments(turns));
        let is_used = !echoed(&again, &format!("turn {turns}"));
        if is_used {
            let output = stage.gateway.run(&["deny", &waits_for(&again)]);
            assert!(output.status.success(), "{}", said(&output));
        }
        used.push((turns, is_used, reached(&stage, &arguments(turns))));
    }
    assert!(used.iter().all(|(_, _, executions)| *executions <= 1), "{used:?}");
    assert!(used.iter().any(|(_, is_used, _)| *is_used) && used.iter().any(|(_, is_used, _)| !is_used), "{used:?}");
    let verdict = stage.gateway.run(&["audit", "verify"]);
    assert!(verdict.status.success(), "{}", said(&verdict));
}

#[test]
fn of_two_answers_at_once_one_counts_and_the_log_says_which() {
    let stage = ConsentGateway::new();
    let mut outcomes = Vec::new();
    for (turns, era) in (0..TURNS).flat_map(|turns| ClientEra::BOTH.map(|era| (turns, era))) {
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

/// Returns how a client of that era allows a call; the result says whether the call was then
/// executed.
fn client_question(era: ClientEra) -> fn(&mut Mcp, &mut OpenCall, &Value, &Value) -> bool {
    match era {
        ClientEra::Modern => |client, _, first, arguments| {
            let state = &first["result"]["requestState"];
            let answer = go_on(client, "fx__echo", arguments, state, &allow("once"));
            echoed(&answer, arguments["text"].as_str().unwrap())
        },
        ClientEra::Legacy(_) => |client, open, first, arguments| {
            assert_eq!(first["method"], "elicitation/create", "{first}");
            client.respond(&first["id"], allow("once"));
            let response = open.response();
            response["result"]["isError"] != true && response["result"]["content"][0]["text"] == arguments["text"]
        },
    }
}
