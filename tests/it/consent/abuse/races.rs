//! Many calls that race for one grant, several answers to one approval, and a daemon that is killed between the two.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use super::*;

/// How often those calls reached the server.
fn reached(stage: &Stage, arguments: &Value) -> usize {
    stage.called().iter().filter(|called| *called == arguments).count()
}

/// All of them call at the same moment.
fn at_once(clients: &mut [Mcp], arguments: &Value) -> Vec<Answer> {
    let barrier = Barrier::new(clients.len());
    thread::scope(|scope| {
        let start = |client| {
            let barrier = &barrier;
            scope.spawn(move || {
                let client: &mut Mcp = client;
                barrier.wait();
                client.call("fx__echo", arguments.clone())
            })
        };
        let calls: Vec<_> = clients.iter_mut().map(start).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    })
}

#[test]
fn of_two_calls_at_once_one_gets_the_consent() {
    let stage = Stage::new();
    let arguments = json!({"text": "one of two"});
    let mut clients = [stage.client(Era::Modern, json!({})), stage.client(Era::LEGACY, json!({}))];
    let mut id = waits_for(&clients[0].call("fx__echo", arguments.clone()));
    for round in 1..=50 {
        approve(&stage.gateway, &id);
        let answers = at_once(&mut clients, &arguments);
        let (got, waits): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| echoed(answer, "one of two"));
        assert_eq!((got.len(), waits.len()), (1, 1), "round {round}: {answers:?}");
        assert_eq!(reached(&stage, &arguments), round, "round {round}");
        id = waits_for(waits[0]);
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
        let answers = at_once(&mut clients, &arguments);
        let got = answers.iter().filter(|answer| echoed(answer, "one of many")).count();
        assert_eq!((got, reached(&stage, &arguments)), (1, round), "round {round}");
    }
}

#[test]
fn a_killed_daemon_forgets_no_use_of_a_consent() {
    const ROUNDS: u64 = 20;
    let mut stage = Stage::new();
    let environment = [("SECOND_TOKEN".to_owned(), TOKEN.to_owned())];
    let arguments = |round: u64| json!({"text": format!("round {round}")});
    let mut in_time = 0;
    for round in 0..ROUNDS {
        let mut client = stage.client(Era::Modern, json!({}));
        let id = waits_for(&client.call("fx__echo", arguments(round)));
        approve(&stage.gateway, &id);
        // Dropped only after the kill, so that no client hangs up.
        let retry = json!({"name": "fx__echo", "arguments": arguments(round)});
        let retries = [client.open("tools/call", retry.clone()), client.open("tools/call", retry)];
        thread::sleep(Duration::from_micros(round * 7919 % ROUNDS * 500));
        stage.gateway.signal(Signal::KILL);
        assert!(stage.gateway.wait(Duration::from_secs(60)).is_some());
        drop(retries);
        let (world, config) = (stage.gateway.world.clone(), stage.gateway.config.clone());
        stage.gateway = Gateway::start(world, Some(config), &["serve"], &environment);
        stage.gateway.wait_for_tools(&["fx__echo"]);
        let again = stage.client(Era::Modern, json!({})).call("fx__echo", arguments(round));
        if !echoed(&again, &format!("round {round}")) {
            in_time += 1;
            let output = stage.gateway.run(&["deny", &waits_for(&again)]);
            assert!(output.status.success(), "{}", said(&output));
        }
    }
    let counts: Vec<usize> = (0..ROUNDS).map(|round| reached(&stage, &arguments(round))).collect();
    eprintln!("consents used up before the kill: {in_time}; executions by round: {counts:?}");
    assert!(counts.iter().all(|count| *count <= 1), "executions by round: {counts:?}");
    let verdict = stage.gateway.run(&["audit", "verify"]);
    assert!(verdict.status.success(), "{}", said(&verdict));
}

#[test]
fn of_two_answers_at_once_one_counts_and_the_log_says_which() {
    let stage = Stage::new();
    let mut outcomes = Vec::new();
    for round in 0..16_u32 {
        let era = Era::BOTH[usize::from(round % 2 == 0)];
        let (text, mut client) = (format!("round {round}"), stage.client(era, forms()));
        let arguments = json!({"text": text});
        let call = json!({"name": "fx__echo", "arguments": arguments});
        let begun = Instant::now();
        let (mut open, question) = (client.open("tools/call", call), client_question(era));
        let first = open.next().unwrap();
        let begun_listing = Instant::now();
        let id = operator::pending(&stage).remove(0);
        // A machine that was slow once says nothing about the next round.
        let usual = begun_listing.elapsed().min(Duration::from_millis(200));
        assert!(begun.elapsed() < Duration::from_secs(20), "round {round}");
        let (denied, got) = thread::scope(|scope| {
            let deny = scope.spawn(|| stage.gateway.run(&["deny", &id]));
            // Sooner and later than the other, from round to round.
            thread::sleep(usual * (round / 2) / 4);
            let got = question(&mut client, &mut open, &first, &arguments);
            (deny.join().unwrap().status.success(), got)
        });
        let of_this = || stage.audit("answer").into_iter().filter(|record| record["prompt"] == id.as_str());
        eventually("the answer is written", || of_this().next().is_some());
        let records: Vec<Value> = of_this().collect();
        assert_eq!(records.len(), 1, "round {round}: {records:?}");
        let granted = records[0]["result"] == "granted";
        let said = json!([records[0]["result"], records[0]["evidence"]]);
        assert_eq!(said, if granted { json!(["granted", "L1"]) } else { json!(["denied", "L3"]) }, "round {round}");
        let executed = reached(&stage, &arguments);
        assert_eq!((executed, got, denied), (usize::from(granted), granted, !granted), "round {round}, {era:?}");
        outcomes.push(granted);
    }
    eprintln!("granted, by round: {outcomes:?}");
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
