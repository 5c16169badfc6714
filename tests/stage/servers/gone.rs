//! Calls of tools that the client's own list has shown and that are gone since: unknown tools.

use serde_json::json;

use crate::stage::harness::GatewaySetup;
use crate::stage::mcp::{ClientEra, Mcp, McpAnswer};
use crate::stage::process::{eventually, said};
use crate::stage::upstream::{Fake, InputLog, Patch};

/// The answer about an unknown tool, but for the tool's name.
fn unknown(answer: &McpAnswer, name: &str) -> (u16, Option<i64>, String) {
    let message = answer.message["error"]["message"].as_str().unwrap_or_default().replace(name, "NAME");
    (answer.status, answer.code(), message)
}

fn lists(client: &mut Mcp, name: &str) -> bool {
    client.tool_names().iter().any(|listed| listed == name)
}

#[test]
fn a_tool_that_left_is_answered_like_an_unknown_one() {
    let (setup, old) = (GatewaySetup::new(), Fake::stdio("both"));
    let (log, patch) = (InputLog::new(&setup.world.path("work"), "fx"), Patch::new(&setup));
    let fake = patch.of(Fake::stdio("both").logging(&log));
    let gateway = setup.fake("fx", &fake).fake("old", &old).start();
    gateway.wait_for_tools(&["fx__echo", "old__echo"]);
    let pipe = |era| Mcp::stdio(gateway.pipe(), era);
    let mut clients = [gateway.legacy(), gateway.modern(), pipe(ClientEra::LEGACY), pipe(ClientEra::Modern)];
    clients.iter_mut().for_each(|client| assert!(lists(client, "fx__echo") && lists(client, "old__echo")));

    // One is withheld for its change, one has another name, one is hidden by a rule, one server is
    // removed.
    patch.write(&json!({"echo": {"description": "Does something else."}, "fail": {"name": "failed"}}));
    assert_eq!(gateway.legacy().call("fx__mutate", json!({})).text(), "grown");
    let rule = "[[policy.rules]]\nid = \"no\"\neffect = \"deny\"\ntools = [\"fx__env\"]";
    let plan = gateway.reload(&GatewaySetup::new().fake("fx", &fake).toml(rule).text());
    assert!(plan.status.success(), "{}", said(&plan));
    let gone = ["fx__echo", "fx__fail", "fx__env", "old__echo"];
    for client in &mut clients {
        eventually("the tools have left", || gone.iter().all(|name| !lists(client, name)));
        let want = unknown(&client.call("fx__nobody", json!({})), "fx__nobody");
        assert_eq!((want.1, want.2.as_str()), (Some(-32602), "Unknown tool: NAME"));
        for name in gone {
            assert_eq!(unknown(&client.call(name, json!({})), name), want, "{name}");
        }
    }
    let called = log.lines_with(&["tools/call", "\"name\":\"echo\""]);
    assert!(called.is_empty(), "it was not forwarded: {called:?}");
}

#[test]
fn the_command_line_says_why_a_tool_left() {
    let setup = GatewaySetup::new();
    let patch = Patch::new(&setup);
    let gateway = setup.fake("fx", &patch.of(Fake::stdio("both"))).start();
    gateway.wait_for_tools(&["fx__echo"]);
    patch.write(&json!({"echo": {"description": "Does something else."}, "fail": {"name": "failed"}}));
    gateway.legacy().call("fx__mutate", json!({}));
    let mut client = gateway.legacy();
    eventually("the change is seen", || !lists(&mut client, "fx__echo"));
    let run = |args: &[&str]| gateway.run(args);
    let gone = run(&["call", "fx__fail"]);
    assert!(gone.status.code() == Some(1) && said(&gone).contains("Unknown tool"), "{}", said(&gone));
    let withheld = run(&["call", "fx__echo"]);
    assert_eq!(withheld.status.code(), Some(1));
    let told = String::from_utf8_lossy(&withheld.stderr).into_owned();
    assert!(told.contains("withheld: its definition changed"), "{told}");
    let ways = ["headend pins diff fx__echo", "headend pins approve fx__echo"];
    assert!(ways.iter().all(|way| told.contains(way)), "{told}");
}
