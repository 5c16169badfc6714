//! Tests of commands about rules: dry runs of a call, and rules that the audit log suggests.

use std::fs;
use std::process::Output;

use serde_json::{Value, json};

use crate::stage::harness::GatewaySetup;
use crate::stage::process::{eventually, said};
use crate::stage::upstream::Fake;

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", said(output)))
}

#[test]
fn a_dry_run_decides_what_a_profile_shows_and_names_that_no_run_has_seen() {
    let rules = r#"
        [[policy.rules]]
        id = "no-secrets"
        effect = "deny"
        resources = ["fx+fx://doc/secret"]
        [profiles.few]
        upstreams = ["fx"]
        tools = { allow = ["fx__echo"] }
    "#;
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).toml(rules).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let config = gateway.config.to_str().unwrap();
    let run = |words: &[&str]| gateway.run(&[&["policy", "test", "--json", "--config", config], words].concat());
    let rows: [(&[&str], &str, &str, bool); 6] = [
        (&["--tool", "fx__echo"], "fx__echo", "allow", true),
        (&["--tool", "fx__echo", "--profile", "few"], "fx__echo", "allow", true),
        (&["--tool", "fx__none"], "fx__none", "allow", false),
        (&["--prompt", "fx__p"], "fx__p", "allow", true),
        (&["--resource", "fx://doc/77"], "fx+fx://doc/77", "allow", true),
        (&["--resource", "fx://doc/secret"], "fx+fx://doc/secret", "deny", true),
    ];
    for (words, item, decision, known) in rows {
        let said = json_of(&run(words));
        assert_eq!(
            (&said["item"], &said["decision"], &said["known"]),
            (&json!(item), &json!(decision), &json!(known)),
            "{words:?}: {said}"
        );
        assert_eq!(said["profile"], words.get(3).map_or(Value::Null, |profile| json!(profile)), "{said}");
    }
    let timed = json_of(&run(&["--tool", "fx__echo", "--repeat", "64"]));
    assert!(timed["took-ns"].is_u64(), "{timed}");
    for (words, why) in [
        (["--tool", "fx__echo", "--profile", "none"].as_slice(), "there is no profile `none`"),
        (&["--tool", "elsewhere"], "`elsewhere` is no item that was offered last"),
    ] {
        let refused = run(words);
        assert!(refused.status.code() == Some(64) && said(&refused).contains(why), "{}", said(&refused));
    }
}

#[test]
fn a_dry_run_has_the_scopes_and_groups_that_it_is_given() {
    let rules = r#"
        [server.auth.scopes]
        "mcp:read" = { upstreams = ["fx"] }
        "mcp:write" = { tools = ["fx__add"] }
        [[policy.rules]]
        id = "no-visitors"
        effect = "deny"
        tools = ["fx__add"]
        groups = ["visitors"]
    "#;
    let setup = GatewaySetup::new().fake("fx", &Fake::stdio("both"));
    let text = setup.text() + rules;
    let config = setup.world.write("headend.toml", &text);
    let start = ["policy", "test", "--config", config.to_str().unwrap(), "--tool", "fx__add"];
    let run = |words: &[&str]| setup.world.run(&[&start, words].concat());
    let alice = ["--caller", "corp:alice", "--json"];
    for (words, decision, rule, scopes, groups) in [
        (vec!["--groups", "dev"], "allow", "default", json!(null), json!(["dev"])),
        (vec!["--groups", "dev,visitors"], "deny", "no-visitors", json!(null), json!(["dev", "visitors"])),
        (vec![], "deny", "no-visitors", json!(null), json!(null)),
        (vec!["--groups", "", "--scopes", ""], "deny", "scope:mcp:read", json!([]), json!([])),
        (vec!["--groups", "", "--scopes", "mcp:read"], "deny", "scope:mcp:write", json!(["mcp:read"]), json!([])),
        (
            vec!["--groups", "", "--scopes", "mcp:read,mcp:write"],
            "allow",
            "default",
            json!(["mcp:read", "mcp:write"]),
            json!([]),
        ),
    ] {
        let said = json_of(&run(&[&alice[..], &words].concat()));
        let told = (&said["decision"], &said["rule"], &said["scopes"], &said["groups"]);
        assert_eq!(told, (&json!(decision), &json!(rule), &scopes, &groups), "{words:?}: {said}");
    }
    let told = run(&["--caller", "corp:alice", "--groups", "", "--scopes", "mcp:read"]);
    assert!(said(&told).contains("needs the scopes mcp:read mcp:write"), "{}", said(&told));
    let refused = run(&["--caller", "ci", "--groups", "dev"]);
    assert!(refused.status.code() == Some(64) && said(&refused).contains("in no group"), "{}", said(&refused));
}

#[test]
fn a_log_of_real_calls_becomes_a_rule_that_ends_the_questions() {
    let setup = GatewaySetup::new().fake("fx", &Fake::stdio("both")).policy("default = \"ask\"");
    let gateway = setup.toml("[audit]\ncapture-arguments = \"full\"").start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut client = gateway.modern();
    for _ in 0..5 {
        client.call("fx__echo", json!({"text": "hello"}));
        let listed = json_of(&gateway.run(&["approvals", "--json"]));
        let id = listed["approvals"][0]["id"].as_str().unwrap().to_owned();
        assert!(gateway.run(&["approve", &id]).status.success());
        assert_eq!(client.call("fx__echo", json!({"text": "hello"})).text(), "hello");
    }
    // A record is on disk within a second.
    let mut rules = String::new();
    eventually("a rule is suggested", || {
        let config = gateway.world.path("headend.toml");
        let suggested = gateway.run(&["policy", "suggest", "--config", config.to_str().unwrap()]);
        assert!(suggested.status.success(), "{}", said(&suggested));
        rules = String::from_utf8(suggested.stdout).unwrap();
        rules.contains("[[policy.rules]]")
    });
    assert!(rules.contains("callers = [\"local\"]") && rules.contains("eq = \"hello\""), "{rules}");
    let config = fs::read_to_string(gateway.world.path("headend.toml")).unwrap();
    let reloaded = gateway.reload(&(config + "\n" + &rules));
    assert!(reloaded.status.success(), "{}", said(&reloaded));
    assert_eq!(client.call("fx__echo", json!({"text": "hello"})).text(), "hello", "no question any more");
    let other = client.call("fx__echo", json!({"text": "other"}));
    assert!(other.text().contains("approval"), "{}", other.text());
}
