//! Tests of rules about claims, by the console and with two processes on one store.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::tools::browser::Browser;
use crate::tools::harness::{Gateway, GatewaySetup};
use crate::tools::mcp::{ClientEra, Mcp};
use crate::tools::process::said;
use crate::tools::stdio::Pipe;
use crate::tools::upstream::{Fake, InputLog, Patch};

/// Allows tools that claim to read only and to stay inside; a person is asked about the others.
const READS: &str = "default = \"ask\"\n[[policy.rules]]\nid = \"reads\"\neffect = \"allow\"\n\
                     claims = { read-only = true, open-world = false }";

/// Returns `pin` and `effect` of the added tool, as `headend tools` shows them.
fn told(gateway: &Gateway) -> (String, String) {
    let output = gateway.run(&["tools", "--json"]);
    let tools: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
    let tools = tools["tools"].as_array().unwrap();
    let tool = tools.iter().find(|tool| tool["name"] == "fx__grown_0").unwrap();
    let word = |member: &str| tool[member].as_str().unwrap_or_default().to_owned();
    (word("pin"), word("effect"))
}

#[test]
fn the_console_confirms_a_tool_that_was_added() {
    let setup = GatewaySetup::new().policy(READS).toml("[console]\nlisten = \"127.0.0.1:0\"");
    let patch = Patch::new(&setup);
    let reads = json!({"annotations": {"readOnlyHint": true, "openWorldHint": false}});
    patch.write(&json!({"mutate": reads, "grown_0": reads}));
    let gateway = setup.fake("fx", &patch.of(Fake::stdio("both"))).start();
    gateway.wait_for_tools(&["fx__mutate"]);
    assert_eq!(gateway.modern().call("fx__mutate", json!({})).text(), "grown");
    gateway.wait_for_tools(&["fx__grown_0"]);
    let refused = gateway.modern().call("fx__grown_0", json!({}));
    assert!(refused.is_error() && told(&gateway).1 == "ask", "{}", refused.raw);
    let mut browser = Browser::signed_in(&gateway);
    let page = browser.get("/pins").text();
    let cards: Vec<&str> = page.split("<article ").skip(1).collect();
    assert!(cards.len() == 1 && cards[0].contains("fx__grown_0") && cards[0].contains("Confirm it"), "{page}");
    let value = |name: &str| {
        let (_, rest) = cards[0].split_once(&format!("name=\"{name}\" value=\"")).expect("a field");
        rest.split('"').next().unwrap().to_owned()
    };
    let (csrf, digest) = (value("csrf"), value("digest"));
    let form =
        |digest: &str| format!("csrf={csrf}&upstream=fx&kind=tool&name=fx__grown_0&digest={digest}&answer=approve");
    browser.post("/pins", &form(&"0".repeat(64)));
    assert_eq!(told(&gateway).0, "new", "another text than the shown one is not confirmed");
    assert_eq!(browser.post("/pins", &form(&digest)).head.status, 303);
    assert!(!gateway.modern().call("fx__grown_0", json!({})).is_error());
    assert_eq!(told(&gateway), ("pinned".to_owned(), "allow".to_owned()));
    assert!(!browser.get("/pins").text().contains("Confirm it"));
}

#[test]
fn two_configurations_of_one_store_leave_each_others_servers_alone() {
    let setup = GatewaySetup::new().policy("default = \"allow\"");
    let log = InputLog::new(&setup.world.path("work"), "one");
    let (world, config) = setup.fake("fx", &Fake::stdio("both").logging(&log)).write();
    let text = fs::read_to_string(&config).unwrap();
    let other = world.write("other.toml", &text.replace("one.log", "two.log"));
    let start = |config: &Path| {
        let mut client = Mcp::stdio(Pipe::start(&world, config, &["--no-daemon"]), ClientEra::Modern);
        assert_eq!(client.call("fx__echo", json!({"text": "x"})).text(), "x");
        client
    };
    let mut first = start(&config);
    let starts = log.count("server/discover");
    let mut second = start(&other);
    // By now each process has read the other's changes.
    for client in [&mut first, &mut second] {
        let answer = client.call("fx__sleep", json!({"ms": 1500}));
        assert!(!answer.is_error() && answer.code().is_none(), "{}", answer.raw);
    }
    assert_eq!(log.count("server/discover"), starts, "its server was not started anew");
}
