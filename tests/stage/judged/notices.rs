//! Tests of notices of open approvals to a program.

use std::time::Duration;

use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::pass;
use crate::stage::process::{eventually, said};
use crate::stage::upstream::{Fake, InputLog};

/// Starts a gateway whose calls all need an approval, and whose notices go to that program.
fn gateway(setup: GatewaySetup, notifier: &Fake) -> Gateway {
    let policy = format!("default = \"ask\"\n[policy.consent]\nnotify = {}", notifier.command());
    let gateway = setup.policy(&policy).fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    gateway
}

/// Makes a call that is refused and leaves an approval open.
fn leave_open(gateway: &Gateway, text: &str) {
    let answer = gateway.modern().call("fx__echo", json!({"text": text}));
    let refusal = &answer.result()["_meta"]["headend/refusal"];
    assert_eq!(refusal["reason"], "awaiting_approval", "{}", answer.raw);
}

fn count(gateway: &Gateway, outcome: &str) -> u64 {
    let start = format!("headend_notices_total{{outcome=\"{outcome}\"}} ");
    gateway.scrape().lines().find_map(|line| line.strip_prefix(&start)?.parse().ok()).unwrap_or(0)
}

#[test]
fn a_program_is_told_of_each_approval_once_and_of_no_arguments() {
    let setup = GatewaySetup::new();
    let log = InputLog::new(&setup.world.path("work"), "notifier");
    let gateway = gateway(setup, &Fake::stdio("both").logging(&log));
    let told = || -> Vec<Value> {
        log.lines_with(&["\"approvals\""]).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    for n in 1..=3 {
        leave_open(&gateway, &format!("canary {n}"));
        eventually("the program is told", || told().len() == n);
        pass(Duration::from_secs(30));
        let told = told();
        let (last, approvals) = (&told[n - 1], told[n - 1]["approvals"].as_array().unwrap());
        assert_eq!((told.len(), approvals.len(), &last["open"]), (n, 1, &json!(n)), "{last}");
        assert_eq!((&approvals[0]["item"], &approvals[0]["caller"]), (&json!("fx__echo"), &json!("local")), "{last}");
        assert!(!last.to_string().contains("canary"), "{last}");
    }
    assert_eq!((count(&gateway, "ok"), count(&gateway, "failed")), (3, 0));
    let tried = gateway.run(&["approvals", "notify"]);
    assert!(tried.status.success() && said(&tried).contains("took a test notice"), "{}", said(&tried));
    assert_eq!(told().last().unwrap()["test"], true);
}

#[test]
fn a_program_that_fails_is_counted_and_named_in_one_line_of_the_log() {
    let gateway = gateway(GatewaySetup::new(), &Fake::stdio("both").behaving("exit-at-start"));
    for n in 1..=3 {
        leave_open(&gateway, &format!("canary {n}"));
        eventually("it has failed", || count(&gateway, "failed") == n);
    }
    let story = gateway.story();
    assert_eq!(story.matches("notices of open approvals do not get through").count(), 1, "{story}");
    assert!(story.contains("exit status: 3") && !story.contains("canary"), "{story}");
    let tried = gateway.run(&["approvals", "notify"]);
    assert!(!tried.status.success() && said(&tried).contains("exit status: 3"), "{}", said(&tried));
}

#[test]
fn a_program_that_does_not_end_is_ended_after_ten_seconds_and_delays_no_call() {
    let gateway = gateway(GatewaySetup::new(), &Fake::stdio("both").behaving("slow-start=3600000"));
    leave_open(&gateway, "first");
    eventually("it runs", || gateway.programs("notify") == 1);
    let began = crate::stage::now();
    leave_open(&gateway, "second");
    assert!(crate::stage::now() - began < Duration::from_secs(1), "calls do not wait for it");
    eventually("it has failed", || count(&gateway, "failed") == 1);
    assert!(gateway.story().contains("it took longer than 10 s and was ended"), "{}", gateway.story());
}
