//! Tests of approving all waiting items at once, and of showing what waits and what is withheld.

use serde_json::{Value, json};

use super::{lists, ok, open};
use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::process::{eventually, said};
use crate::stage::upstream::{Fake, Patch};

/// Returns a patch that gives these items another description.
fn described(items: &[&str], text: &str) -> Value {
    let members = items.iter().map(|item| ((*item).to_owned(), json!({"description": text})));
    Value::Object(members.collect())
}

struct PinnedGateway {
    gateway: Gateway,
    patch: Patch,
}

impl PinnedGateway {
    /// Starts two servers that list the same items, all pinned.
    fn new() -> Self {
        let setup = GatewaySetup::new();
        let patch = Patch::new(&setup);
        let fake = patch.of(Fake::stdio("both"));
        let gateway = setup.fake("fx", &fake).fake("gx", &fake).start();
        gateway.wait_for_tools(&["fx__echo", "gx__echo"]);
        Self { gateway, patch }
    }

    /// Changes the lists of both, and waits until these items wait.
    fn change(&self, patch: &Value, waiting: &[&str]) {
        self.patch.write(patch);
        for name in ["fx", "gx"] {
            assert_eq!(self.gateway.modern().call(&format!("{name}__mutate"), json!({})).text(), "grown");
        }
        eventually(&format!("waiting: {waiting:?}"), || open(&self.gateway) == waiting);
    }

    fn ok(&self, args: &[&str]) -> String {
        ok(&self.gateway, args)
    }

    /// Starts both servers and changes three tools of each.
    fn changed() -> Self {
        let stage = Self::new();
        let all = ["echo", "fail", "write"].map(|item| format!("{item} tool changed"));
        let of = |name: &str| all.clone().map(|line| format!("{name}__{line}"));
        let lines: Vec<String> = of("fx").into_iter().chain(of("gx")).collect();
        stage.change(
            &described(&["echo", "fail", "write"], "Changed once."),
            &lines.iter().map(String::as_str).collect::<Vec<_>>(),
        );
        stage
    }
}

#[test]
fn what_waits_is_approved_by_the_name_of_its_server_by_a_pattern_or_all_at_once() {
    let stage = PinnedGateway::changed();
    let waiting = stage.ok(&["pins", "--waiting"]);
    assert!(waiting.contains("fx__echo") && waiting.contains("gx__write"), "{waiting}");
    assert!(!waiting.contains("fx__sleep") && !waiting.contains("launch  "), "{waiting}");
    let json: Value = serde_json::from_str(&stage.ok(&["pins", "list", "--waiting", "--json"])).unwrap();
    assert_eq!(json["pins"].as_array().unwrap().len(), 6, "{json}");

    let unasked = stage.gateway.run(&["pins", "approve", "fx"]);
    assert_eq!(unasked.status.code(), Some(64), "{}", said(&unasked));
    assert!(said(&unasked).contains("--yes") && said(&unasked).contains("3 tools of fx"), "{}", said(&unasked));
    assert!(String::from_utf8_lossy(&unasked.stdout).contains("+[\"Changed]+"), "it was shown: {}", said(&unasked));
    assert_eq!(open(&stage.gateway).len(), 6, "nothing was approved");
    for (args, why) in [
        (&["pins", "approve", "nobody", "--yes"][..], "no pin has the name"),
        (&["pins", "approve", "zz__*", "--yes"], "nothing of zz__* waits"),
        (&["pins", "approve", "fx__sleep"], "nothing waits for approval"),
        (&["pins", "approve", "fx__sleep", "fx", "--yes"], "nothing of fx__sleep waits"),
    ] {
        let refused = stage.gateway.run(args);
        assert!(refused.status.code() == Some(1) && said(&refused).contains(why), "{args:?}: {}", said(&refused));
    }
    for args in [&["pins", "approve"][..], &["pins", "approve", "fx[", "--yes"], &["pins", "approve", "fx", "--all"]] {
        assert_eq!(stage.gateway.run(args).status.code(), Some(64), "{args:?}");
    }
    assert_eq!(open(&stage.gateway).len(), 6);

    let diff = stage.ok(&["pins", "diff", "fx"]);
    assert!(diff.contains("fx__echo") && diff.contains("fx__write") && !diff.contains("gx__"), "{diff}");
    let told = stage.ok(&["pins", "approve", "fx__[ef]*", "--yes"]);
    assert!(told.contains("approved: 2 tools of fx"), "{told}");
    assert_eq!(open(&stage.gateway)[0], "fx__write tool changed");
    let told = stage.ok(&["pins", "approve", "gx", "--kind", "tool", "--yes"]);
    assert!(told.contains("approved: 3 tools of gx"), "{told}");
    assert_eq!(open(&stage.gateway), ["fx__write tool changed"]);
    let told = stage.ok(&["pins", "approve", "--all", "--yes"]);
    assert!(told.contains("approved: 1 tool of fx"), "{told}");
    assert!(open(&stage.gateway).is_empty());
    assert!(stage.ok(&["pins", "approve", "--all", "--yes"]).contains("nothing waits"));
    assert!(stage.ok(&["pins", "--waiting"]).contains("nothing waits"));
    let mut client = stage.gateway.modern();
    let tools = client.list("tools/list", "tools");
    let changed = tools.iter().filter(|tool| tool["description"] == "Changed once.").count();
    assert_eq!(changed, 6, "{tools:#?}");
    assert_eq!(client.call("fx__echo", json!({"text": "x"})).text(), "x");
    let tail = stage.ok(&["audit", "tail", "-n", "1000", "--json"]);
    let is_approval = |line: &&str| line.contains(r#""event":"pin""#) && line.contains(r#""result":"pinned""#);
    assert_eq!(tail.lines().filter(is_approval).count(), 6, "each is in the log: {tail}");
}

#[test]
fn rejecting_a_server_rejects_what_waits_and_stops_nothing() {
    let stage = PinnedGateway::changed();
    assert!(stage.ok(&["pins", "reject", "fx"]).contains("rejected: 3 tools of fx"));
    assert_eq!(open(&stage.gateway).iter().filter(|line| line.ends_with("rejected")).count(), 3);
    assert_eq!(stage.gateway.modern().call("fx__sleep", json!({})).text(), "slept");
    let told = stage.ok(&["pins", "approve", "--all", "--yes"]);
    assert!(told.contains("approved: 3 tools of gx"), "what was rejected waits no more: {told}");
}

#[test]
fn what_is_withheld_is_in_its_servers_row_and_among_all_tools() {
    let stage = PinnedGateway::changed();
    stage.ok(&["pins", "reject", "fx__fail"]);
    let status: Value = serde_json::from_str(&stage.ok(&["status", "--json"])).unwrap();
    let fx = status["upstreams"].as_array().unwrap().iter().find(|upstream| upstream["name"] == "fx").unwrap();
    assert_eq!(fx["withheld"], 3, "{fx}");
    let named = fx["withheld-list"].as_array().unwrap();
    assert!(
        named.contains(&json!({"name": "fx__echo", "kind": "tool", "why": "its definition changed"})),
        "{named:#?}"
    );
    let about = stage.ok(&["status", "fx"]);
    assert!(about.contains("fx__echo (tool): its definition changed"), "{about}");
    let table = stage.ok(&["status"]);
    assert!(table.contains("WITHHELD"), "{table}");

    let plain = stage.ok(&["tools"]);
    assert!(!plain.contains("fx__echo") && plain.contains("6 more are withheld"), "{plain}");
    let all = stage.ok(&["tools", "--all"]);
    let row = |name: &str| all.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {all}"));
    assert!(row("fx__echo").contains("changed") && row("fx__echo").ends_with("its definition changed"), "{all}");
    assert!(row("fx__fail").contains("rejected") && row("fx__sleep").contains("pinned"), "{all}");
    let json: Value = serde_json::from_str(&stage.ok(&["tools", "--all", "--json"])).unwrap();
    let echo = json["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "fx__echo").unwrap();
    assert_eq!((&echo["pin"], &echo["withheld"]), (&json!("changed"), &json!("its definition changed")), "{echo}");
}

#[test]
fn what_each_kind_of_client_sees_is_listed() {
    let server = Fake::http("legacy").behaving("asks").behaving("coy").spawn();
    let rule = "[[policy.rules]]\nid = \"no\"\neffect = \"deny\"\ntools = [\"fx__env\"]";
    let gateway = GatewaySetup::new().url("fx", &server.url).toml(rule).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let listed = |args: &[&str]| -> Vec<String> {
        let output = gateway.run(&[&["tools", "--json"], args].concat());
        let tools: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
        crate::stage::mcp::names(tools["tools"].as_array().unwrap())
    };
    let has = |names: &[String], name: &str| names.iter().any(|listed| listed == name);
    eventually("the tools that ask are listed", || has(&listed(&[]), "fx__inquire"));
    assert!(has(&listed(&[]), "fx__env"), "the operator sees what rules hide");
    for (kind, asks, capabilities) in [
        ("none", false, json!({})),
        ("forms", true, json!({"elicitation": {"form": {}}})),
        ("all", true, json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}})),
    ] {
        let seen = listed(&["--as", kind]);
        assert!(
            has(&seen, "fx__browse") == (kind == "all") && has(&seen, "fx__sample") == (kind == "all"),
            "{kind}: {seen:?}"
        );
        assert!(has(&seen, "fx__inquire") == asks && has(&seen, "fx__echo") && !has(&seen, "fx__env"), "{kind}");
        for era in ClientEra::BOTH {
            let mut client = Mcp::http_at(gateway.address, gateway.token(), era, "/mcp", capabilities.clone());
            assert_eq!(client.tool_names(), seen, "{kind}, {era:?}");
        }
    }
    for args in [&["tools", "--as", "nobody"][..], &["tools", "--as", "all", "--all"]] {
        assert_eq!(gateway.run(args).status.code(), Some(64), "{args:?}");
    }
}
