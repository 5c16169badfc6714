//! A slow, dead, flooding or lying upstream does not affect the others, and no call is lost or made twice.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::faces::upstream_pid;
use crate::harness::{Gateway, Setup};
use crate::mcp::{Era, Mcp};
use crate::process::{eventually, within};
use crate::upstream::{Fake, Log, example, toml_array};

#[test]
fn six_good_upstreams_are_callable_at_once_beside_four_bad_ones() {
    let mut setup = Setup::new();
    let good: Vec<String> = (1..=6).map(|n| format!("good{n}")).collect();
    for (n, name) in good.iter().enumerate() {
        setup = setup.fake(name, &Fake::stdio(if n % 2 == 0 { "legacy" } else { "modern" }));
    }
    let bad = |behaviour: &str| Fake::stdio("legacy").behaving(behaviour);
    let gateway = setup
        .fake("silent", &bad("never-answer"))
        .fake("dead", &bad("exit-at-start"))
        .fake("garbage", &bad("garbage"))
        .fake("flood", &bad("flood"))
        .start();
    for era in Era::BOTH {
        let mut client = gateway.client(era);
        for name in &good {
            eventually(&format!("{name} answers"), || {
                let answer = client.call(&format!("{name}__echo"), json!({"text": name}));
                answer.message.get("result").is_some() && answer.text() == *name
            });
        }
    }
    // An upstream whose handshake times out after two minutes: no client waited for that.
    let status = gateway.run(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    let silent = status["upstreams"].as_array().unwrap().iter().find(|one| one["name"] == "silent").unwrap();
    assert_eq!(silent["state"], "starting", "{status}");
}

#[test]
fn a_missing_program_is_a_state_and_not_a_failed_start() {
    let gateway = Setup::new()
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
fn an_endless_line_costs_bounded_memory_and_nobody_elses_calls() {
    for behaviour in ["no-newline", "huge-line"] {
        let gateway = Setup::new()
            .fake("fx", &Fake::stdio("both"))
            .fake("bad", &Fake::stdio("legacy").behaving(behaviour))
            .start();
        gateway.wait_for_tools(&["fx__echo"]);
        let before = gateway.resident();
        let until = Instant::now() + Duration::from_secs(2);
        let mut client = gateway.modern();
        while Instant::now() < until {
            assert_eq!(client.call("fx__echo", json!({"text": "calm"})).text(), "calm", "{behaviour}");
        }
        let grown = gateway.resident().saturating_sub(before) / (1024 * 1024);
        assert!(grown < 96, "{behaviour}: grew by {grown} MiB");
    }
}

#[test]
fn a_server_that_changes_all_the_time_is_not_asked_all_the_time() {
    for era in ["legacy", "modern"] {
        let setup = Setup::new();
        let log = Log::new(&setup.world.path("work"), "fx");
        let server = Fake::http(era).logging(&log).spawn();
        let gateway = setup.url("fx", &server.url).start();
        gateway.wait_for_tools(&["fx__mutate"]);
        let mut client = gateway.modern();
        let (begun, before) = (Instant::now(), log.count("tools/list"));
        let mut grown = 0;
        while begun.elapsed() < Duration::from_secs(3) {
            assert_eq!(client.call("fx__mutate", json!({})).text(), "grown", "{era}");
            // Paced by the server, so that its list stays within the bound.
            client.call("fx__sleep", json!({"ms": 5}));
            grown += 1;
        }
        gateway.wait_for_tools(&[&format!("fx__grown_{}", grown - 1)]);
        let asked = log.count("tools/list") - before;
        // A legacy server's lists are read twice: for clients with and without input.
        let most = if era == "legacy" { 24 } else { 12 };
        assert!((1..=most).contains(&asked), "{era}: {grown} changes, {asked} lists read in {:?}", begun.elapsed());
    }
}

#[test]
fn killing_an_upstream_under_load_gives_every_call_one_answer_and_repeats_none() {
    const CALLS: usize = 100;
    let setup = Setup::new();
    let record = Log::new(&setup.world.path("work"), "fx");
    let gateway = setup.fake("fx", &Fake::stdio("legacy").logging(&record)).start();
    gateway.wait_for_tools(&["fx__sleep", "fx__env"]);
    let pid = upstream_pid(&gateway, "fx");
    let before = record.count("tools/call");
    let (address, token) = (gateway.address, gateway.token());
    let answers: Vec<Value> = thread::scope(|scope| {
        let call = |n: usize| {
            let token = token.clone();
            move || {
                let era = Era::BOTH[n % 2];
                let mut client = Mcp::http(address, token, era);
                client.call("fx__sleep", json!({"ms": 200, "tag": format!("tag-{n}-")})).message
            }
        };
        let threads: Vec<_> = (0..CALLS).map(|n| scope.spawn(call(n))).collect();
        eventually("ten calls arrive", || record.count("tools/call") >= before + 10);
        kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
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
    let setup = Setup::new();
    let log = Log::new(&setup.world.path("work"), "fx");
    let gateway = setup.fake("fx", &Fake::stdio("both").logging(&log)).start();
    gateway.wait_for_tools(&["fx__echo"]);
    for round in 0..12_u64 {
        within(Duration::from_secs(30), "it is back", || {
            !gateway.modern().call("fx__echo", json!({"text": "-"})).is_error()
        });
        let pid = Pid::from_raw(i32::try_from(upstream_pid(&gateway, "fx")).unwrap()).unwrap();
        let clients: Vec<Mcp> = (0..4).map(|_| gateway.modern()).collect();
        thread::scope(|scope| {
            for (n, mut client) in clients.into_iter().enumerate() {
                scope.spawn(move || {
                    thread::sleep(Duration::from_micros(round * 100 + n as u64 * 150));
                    let text = format!("{round}-{n}");
                    let answer = client.call("fx__echo", json!({"text": text}));
                    assert!(!answer.raw.contains(r#""executed":"no""#), "{text}: {}", answer.raw);
                });
            }
            kill_process(pid, Signal::KILL).unwrap();
        });
        for n in 0..4 {
            let made = log.lines_with(&["tools/call", &format!("\"{round}-{n}\"")]).len();
            assert!(made <= 1, "{round}-{n} was made {made} times");
        }
    }
}

#[test]
fn an_upstream_that_crashes_again_and_again_keeps_answering_between_its_crashes() {
    let gateway = Setup::new().fake("fx", &Fake::stdio("legacy").behaving("crash-after=5")).start();
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
    let setup = Setup::new();
    let record = Log::new(&setup.world.path("work"), "fx");
    let command = Fake::stdio("legacy").logging(&record).command();
    let gateway = setup.toml(&format!("[upstreams.fx]\ncommand = {command}\ncall-timeout = \"1s\"")).start();
    gateway.wait_for_tools(&["fx__sleep"]);
    for era in Era::BOTH {
        let answer = gateway.client(era).call("fx__sleep", json!({"ms": 30_000}));
        assert!(answer.is_error(), "{era:?}: {}", answer.raw);
        let refusal = &answer.result()["_meta"]["headend/refusal"];
        assert_eq!(refusal["executed"], "unknown", "{era:?}: {}", answer.raw);
    }
    eventually("both are cancelled", || record.count("notifications/cancelled") == 2);
}

#[test]
fn an_upstreams_environment_holds_what_was_given_to_it_and_no_secret_of_ours() {
    let command = toml_array([example("fake-upstream").to_str().unwrap(), "stdio", "--era", "both"]);
    let gateway = Setup::new()
        .toml(&format!("[upstreams.fx]\ncommand = {command}\nenv = {{ GIVEN = \"yes-given\" }}"))
        .env("HIDDEN_SECRET", "canary-4711")
        .env("HEADEND_LOG", "info")
        .start();
    gateway.wait_for_tools(&["fx__env"]);
    let text = gateway.modern().call("fx__env", json!({})).text();
    assert!(text.contains("yes-given"), "{text}");
    assert!(!text.contains("canary-4711") && !text.contains("HEADEND_LOG"), "{text}");
}

/// What `headend status` says of an upstream.
pub(crate) fn status_of(gateway: &Gateway, name: &str) -> Value {
    let status = gateway.run(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    status["upstreams"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap().clone()
}

#[test]
fn an_upstream_that_refuses_the_handshake_without_a_challenge_is_refused_and_left_alone() {
    for (fake, status) in [(Fake::http("modern"), 401), (Fake::http("legacy"), 403)] {
        let fake = fake.behaving(&format!("status={status}")).spawn();
        let gateway = Setup::new().url("crm", &fake.url).start();
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
        thread::sleep(Duration::from_secs(3));
        assert_eq!(status_of(&gateway, "crm")["restarts"], restarts, "it is not asked again");
    }
}

#[test]
fn an_error_that_a_server_sends_with_403_is_its_answer_and_no_refusal_of_credentials() {
    for era in ["modern", "legacy"] {
        let fake = Fake::http(era).behaving("forbid-calls").spawn();
        let gateway = Setup::new().url("crm", &fake.url).start();
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
        let gateway = Setup::new().url("crm", &fake.url).start();
        gateway.wait_for_tools(&["crm__echo"]);
        assert_eq!(status_of(&gateway, "crm")["state"], "ready");
        let answer = gateway.modern().call("crm__echo", json!({"text": "a"}));
        let refusal = &answer.result()["_meta"]["headend/refusal"];
        assert_eq!((&refusal["reason"], &refusal["executed"]), (&json!("needs_login"), &json!("no")), "{}", answer.raw);
        assert_eq!(status_of(&gateway, "crm")["state"], "needs-login", "{era} {status}");
    }
}
