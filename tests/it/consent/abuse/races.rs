//! A daemon that is killed between an approval and its use.

use std::thread;

use super::*;

/// How often those calls reached the server.
fn reached(stage: &Stage, arguments: &Value) -> usize {
    stage.called().iter().filter(|called| *called == arguments).count()
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
