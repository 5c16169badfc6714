//! Tests of a gateway without descriptors or with a full disk, which need the limits of a process.

use std::fs;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;

use crate::consenting_people::audit::limit;
use crate::tools::harness::{Gateway, GatewaySetup, headend};
use crate::tools::http;
use crate::tools::http::TestConnection;
use crate::tools::mcp::ClientEra;
use crate::tools::process::{said, within};
use crate::tools::steps::health::{BACK, ask, is_degraded, is_well, readiness, told, works};
use crate::tools::upstream::Fake;
use crate::traffic::failures::status_of;

#[test]
fn an_audit_log_that_takes_nothing_is_told_and_comes_back_without_a_call() {
    for (on_failure, status) in [("deny", 503), ("continue", 200)] {
        let audit = format!("[audit]\non-failure = \"{on_failure}\"");
        let (world, config) = GatewaySetup::new().fake("fx", &Fake::stdio("both")).toml(&audit).write();
        let mut command = world.command("/bin/sh");
        command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", headend()]);
        let gateway = Gateway::start_by(command, world, Some(config), &["serve"], &[]);
        gateway.wait_for_tools(&["fx__echo"]);
        within(BACK, "all is well", || is_well(&gateway));
        limit(&gateway, Some(10));
        let mut client = gateway.modern();
        within(BACK, "it is noticed", || {
            client.call("fx__echo", json!({"text": "x"}));
            is_degraded(&gateway, status, "audit-log")
        });
        assert_eq!(client.call("fx__echo", json!({"text": "x"})).is_error(), status == 503, "{on_failure}");
        let (_, text) = readiness(&gateway);
        assert!(text.contains("File too large"), "{text}");
        limit(&gateway, None);
        within(BACK, "the log takes records again", || told(&gateway, "takes records again") > 0);
        assert_eq!(client.call("fx__echo", json!({"text": "x"})).text(), "x");
        let (status, text) = readiness(&gateway);
        assert!(status == 200 || text.contains("are lost"), "{status} {text}");
        assert!(!text.contains("File too large"), "{text}");
        assert_eq!(told(&gateway, "the audit log takes no records"), 1, "{}", gateway.story());
        assert_eq!(told(&gateway, "takes records again"), 1, "{}", gateway.story());
        let verdict = gateway.run(&["audit", "verify"]);
        assert!(verdict.status.success(), "{}", said(&verdict));
    }
}

/// Opens connections until one is not served, and returns its answer.
fn fill(gateway: &Gateway, held: &mut Vec<TestConnection>) -> http::TestResponse {
    loop {
        let (conn, answer) = ask(gateway);
        if answer.head.status != 405 {
            return answer;
        }
        held.push(conn);
        assert!(held.len() < 200, "{}", gateway.story());
    }
}

/// Sets how many files the daemon may have open; `None` for the maximum.
fn descriptors(gateway: &Gateway, limit: Option<u64>) {
    let pid = gateway.pid();
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let hard = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let hard: u64 = hard.split_whitespace().nth(4).unwrap().parse().unwrap();
    let limit = Rlimit { current: Some(limit.unwrap_or(hard)), maximum: Some(hard) };
    prlimit(Pid::from_raw(i32::try_from(pid).unwrap()), Resource::Nofile, limit).unwrap();
}

#[test]
fn without_descriptors_clients_get_503_and_operators_see_why() {
    let server = Fake::http("modern").behaving("no-changes").spawn();
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).url("web", &server.url).start();
    gateway.wait_for_tools(&["fx__echo", "web__echo"]);
    let mut client = gateway.modern();
    assert!(works(&mut client));
    let open = fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap();
    let open: Vec<u64> = open.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok()).collect();
    // Below it there is room for the spare descriptors; a descriptor that this test inherited may
    // have a far higher number.
    let highest = open.iter().filter(|number| **number < 2 * open.len() as u64).max().unwrap();
    descriptors(&gateway, Some(highest + 1));
    let mut held = Vec::new();
    for _ in 0..5 {
        let refused = fill(&gateway, &mut held);
        assert_eq!(refused.head.status, 503, "{}", refused.text());
        assert!(refused.head.header("retry-after").is_some() && refused.text().contains("file descriptor"));
        assert!(works(&mut client), "calls on open connections go on");
    }
    within(BACK, "it is told", || {
        fill(&gateway, &mut held);
        is_degraded(&gateway, 200, "descriptors")
    });
    // One for the probe of a moment ago, at most.
    let (down, unreached) = (told(&gateway, "upstream down"), client.call("web__echo", json!({"text": "x"})));
    assert!(
        down == 0 && status_of(&gateway, "web")["state"] == "ready",
        "it is not the upstream's fault: {}",
        unreached.raw
    );
    within(BACK, "the log says so", || told(&gateway, "connection not accepted") > 0);
    assert!(told(&gateway, "connection not accepted") <= 4, "one line of each listener: {}", gateway.story());
    drop(held);
    descriptors(&gateway, None);
    within(BACK, "all is well", || is_well(&gateway));
    assert_eq!(ask(&gateway).1.head.status, 405);
    assert_eq!(gateway.client(ClientEra::Modern).call("web__echo", json!({"text": "x"})).text(), "x");
}
