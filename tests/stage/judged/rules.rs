//! Tests of rules that deny, ask and limit, with clients of both eras.

use serde_json::json;

use crate::stage::harness::GatewaySetup;
use crate::stage::mcp::ClientEra;
use crate::stage::process::eventually;
use crate::stage::upstream::{Fake, InputLog};

mod rights;

#[test]
fn a_denied_tool_is_hidden_and_indistinguishable_from_an_unknown_one() {
    let setup = GatewaySetup::new();
    let record = InputLog::new(&setup.world.path("work"), "fx");
    let gateway = setup
        .fake("fx", &Fake::stdio("both").logging(&record))
        .toml("[[policy.rules]]\nid = \"no-denied\"\neffect = \"deny\"\ntools = [\"fx__denied\"]")
        .start();
    gateway.wait_for_tools(&["fx__echo"]);
    for era in ClientEra::BOTH {
        let mut client = gateway.client(era);
        assert!(!client.tool_names().contains(&"fx__denied".to_owned()), "{era:?}");
        let denied = client.call("fx__denied", json!({}));
        let unknown = client.call("fx__nobody", json!({}));
        assert_eq!(denied.code(), Some(-32602), "{era:?}: {}", denied.raw);
        assert_eq!(denied.status, unknown.status, "{era:?}");
        let plain = |answer: &crate::stage::mcp::McpAnswer| answer.message["error"]["message"].to_string();
        assert_eq!(plain(&denied).replace("denied", "nobody"), plain(&unknown), "{era:?}");
    }
    assert_eq!(record.count("tools/call"), 0);
}

#[test]
fn a_denial_by_arguments_leaves_the_tool_listed_and_says_so() {
    let setup = GatewaySetup::new();
    let record = InputLog::new(&setup.world.path("work"), "fx");
    let gateway = setup
        .fake("fx", &Fake::stdio("both").logging(&record))
        .toml("[[policy.rules]]\nid = \"no-secrets\"\neffect = \"deny\"\ntools = [\"fx__echo\"]\narguments = [{ pointer = \"/text\", prefix = \"secret\" }]")
        .start();
    gateway.wait_for_tools(&["fx__echo"]);
    for era in ClientEra::BOTH {
        let mut client = gateway.client(era);
        assert_eq!(client.call("fx__echo", json!({"text": "open"})).text(), "open", "{era:?}");
        for (label, arguments) in [
            ("the argument", json!({"text": "secret plan"})),
            ("another type", json!({"text": ["secret plan"]})),
            ("another spelling", json!({"text": "open", "Text": "secret plan"})),
        ] {
            let denied = client.call("fx__echo", arguments);
            let reason = &denied.result()["_meta"]["headend/refusal"]["reason"];
            assert!(denied.is_error() && reason == "denied", "{era:?}, {label}: {}", denied.raw);
        }
        assert!(client.tool_names().contains(&"fx__echo".to_owned()), "{era:?}");
    }
    assert_eq!(record.lines_with(&["tools/call", "secret"]), [""; 0]);
}

#[test]
fn rules_that_contradict_themselves_are_refused_with_a_place() {
    for (label, rule, reason) in [
        ("kinds", "effect = \"deny\"\nkinds = [\"prompt\"]", "policy.rules[0].kinds: never matches"),
        (
            "arguments",
            "effect = \"deny\"\narguments = [{ pointer = \"/a\", eq = 1 }, { pointer = \"/a\", eq = 2 }]",
            "policy.rules[0].arguments[1]: cannot hold together",
        ),
    ] {
        let rule = format!("[[policy.rules]]\nid = \"r\"\ntools = [\"fx__echo\"]\n{rule}");
        let (world, config) = GatewaySetup::new().fake("fx", &Fake::stdio("both")).toml(&rule).write();
        let checked = world.run(&["check", "--config", config.to_str().unwrap()]);
        let told = String::from_utf8_lossy(&checked.stderr).into_owned();
        assert_eq!(checked.status.code(), Some(78), "{label}: {told}");
        assert!(told.contains(reason), "{label}: {told}");
    }
}

#[test]
fn a_policy_is_tried_out_without_a_daemon() {
    let rules = r#"
[[policy.rules]]
id = "no-etc"
effect = "deny"
tools = ["fx__read"]
arguments = [{ pointer = "/path", path-under = "/etc" }]
[[policy.rules]]
id = "env-waits"
effect = "ask"
tools = ["fx__env"]
min-evidence = "L3"
"#;
    let (world, config) = GatewaySetup::new().fake("fx", &Fake::stdio("both")).toml(rules).write();
    let config = config.to_str().unwrap();
    for (label, name, arguments, code, wanted) in [
        ("allowed", "fx__read", r#"{"path":"/srv/a"}"#, 0, ["decision     allow", "rule         default"]),
        ("denied", "fx__read", r#"{"path":"/etc/passwd"}"#, 1, ["decision     deny", "why          the rule matches"]),
        (
            "in doubt",
            "fx__read",
            r#"{"path":"/srv/../etc"}"#,
            1,
            ["rule         no-etc", "why          the rule may match"],
        ),
        ("asked", "fx__env", "{}", 1, ["decision     ask", "evidence     L3 or better"]),
        ("wrong", "fx__read", "[]", 64, ["", ""]),
        ("nobody's", "nobody__read", "{}", 64, ["", ""]),
    ] {
        let tried = world.run(&["policy", "test", "--config", config, "--tool", name, "--arguments", arguments]);
        let told = String::from_utf8_lossy(&tried.stdout).into_owned();
        assert_eq!(tried.status.code(), Some(code), "{label}: {told}");
        assert!(wanted.iter().all(|line| told.contains(line)), "{label}: {told}");
    }
    let tried = world.run(&["policy", "test", "--config", config, "--resource", "fx+file:///x", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&tried.stdout).unwrap();
    assert_eq!(
        (&told["decision"], &told["kind"], &told["known"]),
        (&json!("allow"), &json!("resource"), &json!(false))
    );
}

#[test]
fn what_no_rule_names_follows_the_default() {
    for (default, listed) in [("allow", true), ("deny", false)] {
        let setup = GatewaySetup::new().policy(&format!("default = \"{default}\""));
        let record = InputLog::new(&setup.world.path("work"), "fx");
        let gateway = setup
            .fake("fx", &Fake::stdio("both").logging(&record))
            .toml("[[policy.rules]]\nid = \"env\"\neffect = \"allow\"\ntools = [\"fx__env\"]")
            .start();
        gateway.wait_for_tools(&["fx__env"]);
        for era in ClientEra::BOTH {
            let mut client = gateway.client(era);
            assert_eq!(client.tool_names().contains(&"fx__echo".to_owned()), listed, "{default} {era:?}");
            assert!(!client.call("fx__env", json!({})).is_error(), "{default} {era:?}");
            let answer = client.call("fx__echo", json!({"text": "x"}));
            let hidden = answer.code() == Some(-32602);
            assert!(if listed { answer.text() == "x" } else { hidden }, "{default} {era:?}: {}", answer.raw);
        }
        let arrived = !record.lines_with(&["tools/call", "\"echo\""]).is_empty();
        assert_eq!(arrived, listed, "{default}: what is denied is never called");
    }
}

#[test]
fn a_limited_call_is_told_when_to_come_back() {
    let gateway = GatewaySetup::new()
        .fake("fx", &Fake::stdio("both"))
        .toml("[[policy.limits]]\nid = \"few\"\ntools = [\"fx__echo\"]\nkey = [\"caller\", \"tool\"]\nrate = \"2/m\"\nburst = 2")
        .start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut client = gateway.modern();
    for _ in 0..2 {
        assert_eq!(client.call("fx__echo", json!({"text": "in"})).text(), "in");
    }
    let limited = client.call("fx__echo", json!({"text": "over"}));
    assert!(limited.is_error(), "{}", limited.raw);
    let text = limited.text();
    assert!(text.chars().any(|c| c.is_ascii_digit()), "it says how many seconds: {text}");
    let refusal = &limited.result()["_meta"]["headend/refusal"];
    assert_eq!(refusal["reason"], "limited", "{}", limited.raw);
    assert_eq!(refusal["executed"], "no", "{}", limited.raw);
    let wait = refusal["retry-after-ms"].as_u64().unwrap_or_default();
    assert!((1..=30_000).contains(&wait), "{}", limited.raw);
    assert_eq!(gateway.legacy().call("fx__fail", json!({})).result()["isError"], true, "other tools are not limited");
}

#[test]
fn a_rule_can_forbid_a_launch_and_a_reload_takes_it_back() {
    let rule = "[[policy.rules]]\nid = \"not-this\"\neffect = \"deny\"\nkinds = [\"launch\"]\nupstreams = [\"fx\"]";
    let setup = GatewaySetup::new();
    let record = InputLog::new(&setup.world.path("work"), "fx");
    let setup = setup.fake("fx", &Fake::stdio("legacy").logging(&record)).fake("ok", &Fake::stdio("legacy"));
    let allowed = setup.text();
    let gateway = setup.toml(rule).start();
    gateway.wait_for_tools(&["ok__echo"]);
    let status = || String::from_utf8_lossy(&gateway.world.run(&["status", "--json"]).stdout).into_owned();
    eventually("the reason is told", || status().contains("the rule `not-this` forbids its launch"));
    assert!(!gateway.modern().tool_names().iter().any(|name| name.starts_with("fx__")));
    assert_eq!(record.count("initialize"), 0, "it was never started");
    gateway.world.write("headend.toml", &allowed);
    let config = gateway.config.to_str().unwrap();
    assert!(gateway.world.run(&["reload", "--config", config]).status.success());
    gateway.wait_for_tools(&["fx__echo", "ok__echo"]);
}
