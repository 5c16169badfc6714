//! Tests that a slow, dead, flooding or lying upstream does not affect the others, and that no call
//! is lost or made twice.

use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::stage::harness::{GatewaySetup, status_of, upstream_pid};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::process::{eventually, within};
use crate::stage::upstream::{Fake, InputLog, example, toml_array};
use crate::stage::{now, pass};

#[test]
fn a_missing_program_is_a_state_and_not_a_failed_start() {
    let gateway = GatewaySetup::new()
        .fake("fx", &Fake::stdio("both"))
        .toml("[upstreams.gone]\ncommand = [\"/nonexistent/server\"]\n[upstreams.refused]\nurl = \"http://127.0.0.1:9/mcp\"")
        .start();
    gateway.wait_for_tools(&["fx__echo"]);
    let status = gateway.run(&["status", "--json"]);
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    let text = status.to_string();
    assert!(text.contains("gone") && text.contains("refused"), "{text}");
}

#[test]
fn a_server_that_changes_all_the_time_is_not_asked_all_the_time() {
    for era in ["legacy", "modern"] {
        let setup = GatewaySetup::new();
        let log = InputLog::new(&setup.world.path("work"), "fx");
        let server = Fake::http(era).logging(&log).spawn();
        let gateway = setup.url("fx", &server.url).start();
        gateway.wait_for_tools(&["fx__mutate"]);
        let mut client = gateway.modern();
        let (begun, before) = (now(), log.count("tools/list"));
        let mut grown = 0;
        while (now() - begun) < Duration::from_secs(3) {
            assert_eq!(client.call("fx__mutate", json!({})).text(), "grown", "{era}");
            // Paced by the server, so that its list stays within the bound.
            client.call("fx__sleep", json!({"ms": 5}));
            grown += 1;
        }
        gateway.wait_for_tools(&[&format!("fx__grown_{}", grown - 1)]);
        let asked = log.count("tools/list") - before;
        // A legacy server's lists are read twice: for clients with and without input.
        let most = if era == "legacy" { 24 } else { 12 };
        assert!((1..=most).contains(&asked), "{era}: {grown} changes, {asked} lists read in {:?}", (now() - begun));
    }
}

#[test]
fn killing_an_upstream_under_load_gives_every_call_one_answer_and_repeats_none() {
    const CALLS: usize = 100;
    let setup = GatewaySetup::new();
    let record = InputLog::new(&setup.world.path("work"), "fx");
    let gateway = setup.fake("fx", &Fake::stdio("legacy").logging(&record)).start();
    gateway.wait_for_tools(&["fx__sleep", "fx__env"]);
    let pid = upstream_pid(&gateway, "fx");
    let before = record.count("tools/call");
    let mut clients = ClientEra::BOTH.map(|era| gateway.client(era));
    let call = |n: usize| {
        let arguments = json!({"ms": 200, "tag": format!("tag-{n}-")});
        clients[n % 2].open("tools/call", json!({"name": "fx__sleep", "arguments": arguments}))
    };
    let calls: Vec<_> = (0..CALLS).map(call).collect();
    eventually("ten calls arrive", || record.count("tools/call") >= before + 10);
    gateway.kill("fx", Signal::KILL);
    let answers: Vec<Value> = calls.into_iter().map(|mut call| call.response()).collect();
    assert_eq!(answers.len(), CALLS);
    let (mut good, mut refused) = (0, 0);
    for answer in &answers {
        let failed = answer.pointer("/result/isError") == Some(&json!(true)) || answer.get("error").is_some();
        *(if failed { &mut refused } else { &mut good }) += 1;
        assert!(answer.get("result").is_some() != answer.get("error").is_some(), "one outcome: {answer}");
    }
    assert!(refused > 0, "the calls in flight cannot have succeeded ({good} good)");
    let mut executed: HashMap<usize, usize> = HashMap::new();
    for n in 0..CALLS {
        executed.insert(n, record.lines_with(&["tools/call", &format!("tag-{n}-")]).len());
    }
    let twice: Vec<_> = executed.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "executed more than once: {twice:?}");
    within(Duration::from_secs(60), "calls work after the restart", || {
        let answer = gateway.modern().call("fx__echo", json!({"text": "back"}));
        answer.message.get("result").is_some() && answer.text() == "back"
    });
    assert_ne!(upstream_pid(&gateway, "fx"), pid, "another process answers");
}

#[test]
fn a_call_that_was_not_written_before_its_server_ended_is_made_after_the_restart_and_once() {
    let setup = GatewaySetup::new();
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let gateway = setup.fake("fx", &Fake::stdio("both").logging(&log)).start();
    gateway.wait_for_tools(&["fx__echo"]);
    for round in 0..12 {
        within(Duration::from_secs(30), "it is back", || {
            !gateway.modern().call("fx__echo", json!({"text": "-"})).is_error()
        });
        let mut client = gateway.modern();
        let calls = [0, 1, 2, 3].map(|n| {
            let text = format!("{round}-{n}");
            let call = client.open("tools/call", json!({"name": "fx__echo", "arguments": {"text": text}}));
            // Each call runs for `round` turns before the next begins.
            (0..round).for_each(|_| pass(Duration::ZERO));
            call
        });
        gateway.kill("fx", Signal::KILL);
        for mut call in calls {
            let answer = call.response().to_string();
            assert!(!answer.contains(r#""executed":"no""#), "{round}: {answer}");
        }
        for n in 0..4 {
            let made = log.lines_with(&["tools/call", &format!("\"{round}-{n}\"")]).len();
            assert!(made <= 1, "{round}-{n} was made {made} times");
        }
    }
}

#[test]
fn an_upstream_that_crashes_again_and_again_keeps_answering_between_its_crashes() {
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("legacy").behaving("crash-after=5")).start();
    within(Duration::from_secs(30), "eight calls succeed over at least one crash", {
        let mut succeeded = 0;
        let gateway = &gateway;
        move || {
            let answer = gateway.modern().call("fx__echo", json!({"text": "x"}));
            succeeded += usize::from(answer.message.get("result").is_some() && !answer.is_error());
            succeeded >= 8
        }
    });
}

#[test]
fn a_call_that_takes_too_long_is_answered_and_cancelled_upstream() {
    let setup = GatewaySetup::new();
    let record = InputLog::new(&setup.world.path("work"), "fx");
    let command = Fake::stdio("legacy").logging(&record).command();
    let gateway = setup.toml(&format!("[upstreams.fx]\ncommand = {command}\ncall-timeout = \"1s\"")).start();
    gateway.wait_for_tools(&["fx__sleep"]);
    for era in ClientEra::BOTH {
        let answer = gateway.client(era).call("fx__sleep", json!({"ms": 30_000}));
        assert!(answer.is_error(), "{era:?}: {}", answer.raw);
        let refusal = &answer.result()["_meta"]["headend/refusal"];
        assert_eq!(refusal["executed"], "unknown", "{era:?}: {}", answer.raw);
    }
    eventually("both are cancelled", || record.count("notifications/cancelled") == 2);
}

#[test]
fn an_upstream_that_refuses_the_handshake_without_a_challenge_is_refused_and_left_alone() {
    for (fake, status) in [(Fake::http("modern"), 401), (Fake::http("legacy"), 403)] {
        let fake = fake.behaving(&format!("status={status}")).spawn();
        let gateway = GatewaySetup::new().url("crm", &fake.url).start();
        eventually("status says so", || {
            let crm = status_of(&gateway, "crm");
            crm["state"] == "refused" && crm["last-error"].as_str().unwrap().contains(&status.to_string())
        });
        let series = r#"headend_upstream_state{state="refused",upstream="crm"} 1"#;
        eventually("the metrics say so", || gateway.scrape().contains(series));
        let told =
            |lines: &[String]| lines.iter().any(|line| line.contains("does not admit the gateway")).then_some(());
        gateway.stderr.wait_for(Duration::from_secs(60), told).expect("the log says so");
        let restarts = status_of(&gateway, "crm")["restarts"].clone();
        pass(Duration::from_secs(3));
        assert_eq!(status_of(&gateway, "crm")["restarts"], restarts, "it is not asked again");
    }
}

#[test]
fn an_error_that_a_server_sends_with_403_is_its_answer_and_no_refusal_of_credentials() {
    for era in ["modern", "legacy"] {
        let fake = Fake::http(era).behaving("forbid-calls").spawn();
        let gateway = GatewaySetup::new().url("crm", &fake.url).start();
        gateway.wait_for_tools(&["crm__echo"]);
        let answer = gateway.modern().call("crm__echo", json!({"text": "a"}));
        assert_eq!(answer.message["error"]["message"], "this tool is not yours", "{era}: {}", answer.raw);
        assert_eq!(status_of(&gateway, "crm")["state"], "ready", "{era}");
    }
}

#[test]
fn a_call_that_is_refused_for_its_credentials_was_not_made_and_shows_that_the_upstream_needs_login() {
    for (era, status) in [("modern", 401), ("modern", 403), ("legacy", 403)] {
        let fake = Fake::http(era).behaving(&format!("refuse-calls={status}")).spawn();
        let gateway = GatewaySetup::new().url("crm", &fake.url).start();
        gateway.wait_for_tools(&["crm__echo"]);
        assert_eq!(status_of(&gateway, "crm")["state"], "ready");
        let answer = gateway.modern().call("crm__echo", json!({"text": "a"}));
        let refusal = &answer.result()["_meta"]["headend/refusal"];
        assert_eq!((&refusal["reason"], &refusal["executed"]), (&json!("needs_login"), &json!("no")), "{}", answer.raw);
        assert_eq!(status_of(&gateway, "crm")["state"], "needs-login", "{era} {status}");
    }
}
