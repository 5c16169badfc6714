//! Pins as the command lists them.

use serde_json::Value;

use super::super::harness::Gateway;
use super::super::mcp::Mcp;
use super::super::process::said;

/// A marker in every text that is not approved.
pub(crate) const MARKER: &str = "NOBODY-APPROVED-THIS";

/// Returns the states of all pins that are not pinned, by name.
pub(crate) fn open(gateway: &Gateway) -> Vec<String> {
    let output = gateway.run(&["pins", "--json"]);
    let pins: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
    let pins = pins["pins"].as_array().cloned().unwrap_or_default();
    let text = |pin: &Value, member: &str| pin[member].as_str().unwrap_or_default().to_owned();
    let open = pins.iter().filter(|pin| pin["state"] != "pinned");
    open.map(|pin| format!("{} {} {}", text(pin, "name"), text(pin, "kind"), text(pin, "state"))).collect()
}

pub(crate) fn ok(gateway: &Gateway, args: &[&str]) -> String {
    let output = gateway.run(args);
    assert!(output.status.success(), "{args:?}: {}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn lists(client: &mut Mcp, name: &str) -> bool {
    client.tool_names().iter().any(|listed| listed == name)
}
