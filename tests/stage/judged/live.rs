//! Tests of settings that change while the daemon runs: `conf.d`, limits, the audit log, approvals,
//! and the report of what a reload opens.

use std::fs;
use std::time::Duration;

use serde_json::json;

use crate::stage::harness::{Gateway, GatewaySetup, upstream_pid};
use crate::stage::http::{self, TestConnection};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::pass;
use crate::stage::process::{eventually, said};
use crate::stage::upstream::Fake;

mod tokens;

fn fx(name: &str) -> String {
    format!("[upstreams.{name}]\ncommand = {}\n", Fake::stdio("both").command())
}

/// Reloads the configuration and returns the logged plan.
#[track_caller]
fn reloaded(gateway: &Gateway, text: &str) -> String {
    let before = gateway.stderr.all().len();
    let output = gateway.reload(text);
    assert!(output.status.success(), "{}", said(&output));
    let plan = |lines: &[String]| {
        let plans = lines.iter().skip(before).filter_map(|line| line.split_once("configuration reloaded plan="));
        plans.map(|(_, plan)| plan.to_owned()).find(|plan| plan != "nothing changed")
    };
    gateway.stderr.wait_for(Duration::from_secs(10), plan).unwrap_or_else(|| panic!("{}", gateway.story()))
}

#[test]
fn the_files_of_conf_d_are_parts_of_the_configuration() {
    let setup = GatewaySetup::new().toml(&fx("one"));
    let world = setup.world.clone();
    fs::create_dir(world.path("conf.d")).unwrap();
    world.write("conf.d/20-b.toml", &fx("b"));
    world.write("conf.d/10-a.toml", &fx("a"));
    world.write("conf.d/30-off.toml.disabled", "nonsense");
    let gateway = setup.start();
    gateway.wait_for_tools(&["one__echo", "a__echo", "b__echo"]);
    let config = gateway.config.display().to_string();
    let checked = || gateway.run(&["check", "--resolved", "--config", &config]);
    let output = checked();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let at = |what: &str| shown.find(what).unwrap_or_else(|| panic!("{what} is not in\n{shown}"));
    assert!(at("# ") < at("conf.d/10-a.toml") && at("conf.d/10-a.toml") < at("conf.d/20-b.toml"), "{shown}");
    assert!(at("[upstreams.one]") < at("[upstreams.a]") && at("[upstreams.a]") < at("[upstreams.b]"), "{shown}");
    world.write("conf.d/15-c.toml", &fx("c"));
    assert!(gateway.run(&["reload"]).status.success());
    gateway.wait_for_tools(&["c__echo"]);
    fs::remove_file(world.path("conf.d/15-c.toml")).unwrap();
    assert!(gateway.run(&["reload"]).status.success());
    eventually("its tools leave", || !gateway.modern().tool_names().contains(&"c__echo".to_owned()));
    // An upstream defined in two files refuses all of them, and the error names both.
    world.write("conf.d/30-again.toml", &fx("a"));
    for output in [checked(), gateway.run(&["reload"])] {
        let told = said(&output);
        assert!(!output.status.success(), "{told}");
        assert!(told.contains("30-again.toml:1: upstreams.a: stands in") && told.contains("10-a.toml:1 too"), "{told}");
    }
    gateway.wait_for_tools(&["one__echo", "a__echo", "b__echo"]);
}

#[test]
fn limits_and_hosts_change_without_a_restart() {
    const TOKEN: &str = "token-of-ci-0123456789abcdef";
    let rate = "limits.caller-rate = \"100000/s\"\nlimits.caller-burst = 100000";
    let base = |server: &str| {
        GatewaySetup::new()
            .env("CI", TOKEN)
            .server(&format!("auth.tokens.ci = {{ env = \"CI\" }}\n{server}"))
            .toml(&fx("fx"))
    };
    let gateway = base(rate).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let pid = upstream_pid(&gateway, "fx");
    let mut client = Mcp::http(gateway.address, Some(TOKEN.to_owned()), ClientEra::Modern);
    let long = json!({"text": "x".repeat(3000)});
    let status = |host: &str| {
        let mut conn = TestConnection::open(gateway.address).unwrap();
        let headers = [("Host".to_owned(), host.to_owned())];
        conn.send(&http::request("POST", "/mcp", &headers, b"")).unwrap();
        conn.head().unwrap().status
    };
    assert_eq!(client.call("fx__echo", long.clone()).status, 200);
    assert_eq!(status("gw.example"), 403);

    let plan = reloaded(
        &gateway,
        &base(&format!("{rate}\nlimits.max-body = \"2KiB\"\nallowed-hosts = [\"gw.example\"]")).text(),
    );
    assert!(plan.contains("new settings of server.allowed-hosts, server.limits.max-body"), "{plan}");
    assert!(plan.contains("opens more: the host gw.example"), "{plan}");
    assert_eq!(client.call("fx__echo", long.clone()).status, 413);
    assert_eq!(status("gw.example"), 401, "the host is ours, and a token is missing");

    let plan = reloaded(&gateway, &base(&format!("{rate}\nlimits.max-result = \"1KiB\"")).text());
    assert!(plan.contains("server.limits.max-result") && !plan.contains("opens more"), "{plan}");
    assert_eq!(client.call("fx__echo", long).result()["_meta"]["headend/refusal"]["reason"], "result_too_large");
    assert_eq!(status("gw.example"), 403);

    reloaded(&gateway, &base("limits.caller-rate = \"2/h\"\nlimits.caller-burst = 2").text());
    let statuses: Vec<u16> = (0..3).map(|_| client.call("fx__echo", json!({"text": "a"})).status).collect();
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(upstream_pid(&gateway, "fx"), pid, "nothing was restarted");

    let refused = gateway.reload(&base("endpoint = \"/other\"").text());
    let told = said(&refused);
    assert!(!refused.status.success() && told.contains("server.endpoint; nothing was changed"), "{told}");
}

#[test]
fn the_audit_log_changes_without_a_restart() {
    let base = |audit: &str| GatewaySetup::new().toml(&fx("fx")).toml(&format!("[audit]\n{audit}"));
    let gateway = base("").start();
    gateway.wait_for_tools(&["fx__echo"]);
    let records = |text: &str| {
        gateway.modern().call("fx__echo", json!({"text": text}));
        let output = gateway.run(&["audit", "tail", "-n", "1000", "--json"]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(!records("before-the-change").contains("before-the-change"));
    let plan = reloaded(&gateway, &base("capture-arguments = \"full\"\nstrict = true").text());
    assert_eq!(plan, "new settings of audit.capture-arguments, audit.strict");
    assert!(records("after-the-change").contains("after-the-change"), "strict: it is on disk before the answer");
    reloaded(&gateway, &base("").text());
    assert!(!records("and-back-again").contains("and-back-again"));
    let verified = gateway.run(&["audit", "verify"]);
    assert!(verified.status.success(), "{}", said(&verified));
}

#[test]
fn a_stricter_consent_setting_holds_for_open_approvals() {
    let base = |policy: &str| GatewaySetup::new().policy(policy).toml(&fx("fx"));
    let gateway = base("default = \"ask\"").start();
    gateway.wait_for_tools(&["fx__echo"]);
    let open = |text: &str| {
        let refused = gateway.modern().call("fx__echo", json!({"text": text}));
        let id = refused.result()["_meta"]["headend/refusal"]["approval"]["id"].as_str();
        id.unwrap_or_else(|| panic!("{}", refused.raw)).to_owned()
    };
    let id = open("one");
    reloaded(&gateway, &base("default = \"ask\"\n[policy.consent]\napproval-life = \"1s\"").text());
    pass(Duration::from_millis(2100));
    let late = gateway.run(&["approve", &id]);
    assert!(!late.status.success() && said(&late).contains("no open approval with an id"), "{}", said(&late));

    let plan = reloaded(&gateway, &base("default = \"ask\"").text());
    assert_eq!(plan, "new settings of policy.consent; opens more: policy.consent.approval-life is longer");
    // An earlier approval says nothing about a rule that was added since.
    let id = open("two");
    reloaded(
        &gateway,
        &base("default = \"ask\"\n[[policy.rules]]\nid = \"no\"\neffect = \"deny\"\ntools = [\"fx__echo\"]").text(),
    );
    drop(gateway.run(&["approve", &id, "--for", "1h"]));
    let refused = gateway.modern().call("fx__echo", json!({"text": "two"}));
    assert_eq!(refused.code(), Some(-32602), "{}", refused.raw);
}

#[test]
fn a_form_that_is_answered_after_a_rule_wants_more_evidence_allows_nothing() {
    let base = |rules: &str| GatewaySetup::new().policy(&format!("default = \"ask\"\n{rules}")).toml(&fx("fx"));
    let gateway = base("").start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut client =
        Mcp::http_at(gateway.address, gateway.token(), ClientEra::Modern, "/mcp", json!({"elicitation": {}}));
    let arguments = json!({"text": "x"});
    let asked = client.call("fx__echo", arguments.clone());
    let state = asked.result()["requestState"].clone();
    assert!(state.is_string(), "{}", asked.raw);
    let rule = "[[policy.rules]]\nid = \"more\"\neffect = \"ask\"\ntools = [\"fx__echo\"]\nmin-evidence = \"L3\"\n";
    assert_eq!(reloaded(&gateway, &base(rule).text()), "new policy");
    let answer = json!({"gw.consent": {"action": "accept", "content": {"decision": "once"}}});
    let params = json!({"name": "fx__echo", "arguments": arguments, "requestState": state, "inputResponses": answer});
    let refused = client.request("tools/call", params);
    assert!(refused.is_error() || refused.result()["resultType"] == "input_required", "{}", refused.raw);
    assert!(!refused.raw.contains("\"text\":\"x\""), "{}", refused.raw);
}

#[test]
fn a_reload_that_opens_more_says_so_before_and_after() {
    let base = |policy: &str| GatewaySetup::new().policy(policy).toml(&fx("fx"));
    let rule = "[[policy.rules]]\nid = \"no-write\"\neffect = \"deny\"\ntools = [\"fx__write\"]\n";
    let gateway = base(&format!("default = \"ask\"\n{rule}")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let wanted =
        "new policy; opens more: the default is \"allow\", it was \"ask\", the rule no-write is gone, which denies";
    let next = base("default = \"allow\"").text();
    let file = gateway.world.write("next.toml", &next);
    let rehearsed = gateway.run(&["reload", "--dry-run", "--config", file.to_str().unwrap()]);
    assert_eq!(String::from_utf8_lossy(&rehearsed.stdout).trim(), wanted, "{}", said(&rehearsed));
    assert!(gateway.modern().call("fx__echo", json!({"text": "x"})).is_error(), "nothing has changed");
    assert_eq!(reloaded(&gateway, &next), wanted);
    assert!(!gateway.modern().call("fx__echo", json!({"text": "x"})).is_error());
    let told = |lines: &[String]| lines.iter().any(|line| line.contains("allows more than the old one")).then_some(());
    gateway.stderr.wait_for(Duration::from_secs(10), told).expect("the log says so");
    eventually("the audit log says so", || {
        let audit = gateway.run(&["audit", "tail", "-n", "1000", "--json"]);
        String::from_utf8_lossy(&audit.stdout).contains("no-write is gone")
    });
}
