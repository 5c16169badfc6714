//! Tests of hints on tools: hosts see the server's own if it is trusted at all, rules use tightened
//! ones.

use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::process::{eventually, said};
use crate::stage::upstream::{Fake, Listening};

const CLAIMED: &str = "headend/claimed-annotations";

/// Starts a gateway in front of a server whose tool `sleep` says that it only reads; the other
/// tools have their usual hints.
fn stage(transport: &str, keys: &str, more: &str) -> (Gateway, Option<Listening>) {
    let setup = GatewaySetup::new();
    let patch = json!({"sleep": {"annotations": {"title": "Zzz", "readOnlyHint": true, "x": 1.50}}});
    let file = setup.world.write("work/patch.json", &patch.to_string());
    let fake = if transport == "stdio" { Fake::stdio("both") } else { Fake::http("both") };
    let fake = fake.with("--patch", file.to_str().unwrap());
    let running = (transport != "stdio").then(|| fake.spawn());
    let target = match &running {
        Some(running) => format!("url = \"{}\"", running.url),
        None => format!("command = {}", fake.command()),
    };
    (setup.toml(&format!("[upstreams.fx]\n{target}\n{keys}\n{more}")).start(), running)
}

fn tool(client: &mut Mcp, name: &str) -> Value {
    let tools = client.list("tools/list", "tools");
    tools.into_iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("{name} is not listed"))
}

#[test]
fn hosts_see_the_hints_of_a_server_as_they_are() {
    for transport in ["stdio", "http"] {
        for trust in ["standard", "trusted"] {
            let profile = "[profiles.strict]\nhints = \"tightened\"";
            let (gateway, _running) = stage(transport, &format!("trust = \"{trust}\""), profile);
            gateway.wait_for_tools(&["fx__sleep"]);
            let attached = || gateway.pipe();
            for era in ClientEra::BOTH {
                let at = format!("{transport} {trust} {era:?}");
                for mut client in [gateway.client(era), Mcp::stdio(attached(), era)] {
                    let sleep = tool(&mut client, "fx__sleep");
                    assert_eq!(sleep["annotations"], json!({"title": "Zzz", "readOnlyHint": true, "x": 1.5}), "{at}");
                    assert!(sleep["_meta"].get(CLAIMED).is_none(), "{at}: {sleep}");
                    assert!(tool(&mut client, "fx__echo").get("annotations").is_none(), "{at}: none are made up");
                }
                let mut strict = Mcp::http_at(gateway.address, gateway.token(), era, "/mcp/strict", json!({}));
                let sleep = tool(&mut strict, "fx__sleep");
                let reads = trust == "trusted";
                assert_eq!(sleep["annotations"]["readOnlyHint"], reads, "{at}: {sleep}");
                assert_eq!(sleep["_meta"].get(CLAIMED).is_some(), !reads, "{at}: {sleep}");
            }
        }
    }
}

#[test]
fn the_operators_word_goes_before_a_servers_and_an_untrusted_server_is_not_believed() {
    let annotations = "annotations = { sleep = { read-only = false }, echo = { read-only = true } }";
    let (gateway, _running) = stage("stdio", annotations, "");
    gateway.wait_for_tools(&["fx__sleep"]);
    for era in ClientEra::BOTH {
        let mut client = gateway.client(era);
        let sleep = tool(&mut client, "fx__sleep");
        assert_eq!(sleep["annotations"], json!({"title": "Zzz", "readOnlyHint": false, "x": 1.5}), "{era:?}");
        assert_eq!(sleep["_meta"][CLAIMED]["readOnlyHint"], true, "{era:?}: {sleep}");
        assert_eq!(tool(&mut client, "fx__echo")["annotations"], json!({"readOnlyHint": true}), "{era:?}");
    }

    let (gateway, _running) = stage("stdio", "trust = \"untrusted\"", "");
    let approved = || gateway.run(&["pins", "approve", "fx", "--yes"]);
    eventually("the items wait and are approved", || approved().status.success());
    gateway.wait_for_tools(&["fx__sleep"]);
    for era in ClientEra::BOTH {
        let sleep = tool(&mut gateway.client(era), "fx__sleep");
        assert_eq!(sleep["annotations"]["readOnlyHint"], false, "{era:?}: {sleep}");
        assert_eq!(sleep["_meta"][CLAIMED]["readOnlyHint"], true, "{era:?}: {sleep}");
    }
}

#[test]
fn rules_go_by_tightened_hints_and_a_person_is_told_whose_word_it_is() {
    let rules = "[[policy.rules]]\nid = \"changes\"\nannotations = { read-only = false }\neffect = \"ask\"";
    let (gateway, _running) = stage("stdio", "", rules);
    gateway.wait_for_tools(&["fx__sleep"]);
    for era in ClientEra::BOTH {
        let refused = gateway.client(era).call("fx__sleep", json!({"ms": 0}));
        assert!(refused.is_error(), "{era:?}: a claim opens no rule over annotations");
    }
    let told = said(&gateway.run(&["approvals", "list", "--json"]));
    assert!(told.contains("only reads (the server says so)"), "{told}");
}
