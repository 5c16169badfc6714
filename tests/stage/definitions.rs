//! A fake upstream with definitions that no schema of the protocol allows, for other tests.

use serde_json::{Value, json};

use super::harness::{Gateway, GatewaySetup};
use super::upstream::{Fake, Listening};

/// Returns the members that break a tool's definition, and whether the tool is still listed.
pub(crate) fn tools() -> Vec<(Value, bool)> {
    vec![
        (json!({"description": 7}), true),
        (json!({"annotations": "reads only"}), true),
        (json!({"annotations": {"readOnlyHint": "yes", "title": "One"}}), true),
        (json!({"inputSchema": {"type": "object", "properties": []}}), false),
        (json!({"inputSchema": {"type": "object", "required": "a"}}), false),
        (json!({"inputSchema": {"type": "string"}}), false),
        (json!({"inputSchema": {"properties": {"a": {}}}}), true),
        (json!({"outputSchema": {"type": "object", "properties": {"a": 1}}}), true),
        (json!({"title": null, "_meta": 7, "icons": "none", "execution": "now"}), true),
        (json!({"inputSchema": null}), true),
        (json!({"inputSchema": {"type": "object", "properties": null, "required": null, "$schema": null}}), true),
        (json!({"inputSchema": {"type": "object", "properties": {"a": true}}}), true),
    ]
}

/// Returns a patch that breaks items of the fake upstream, one of each kind and further tools.
pub(crate) fn patch() -> Value {
    let mut patch = json!({
        "p": {"description": [], "arguments": [{"name": "a", "required": "yes"}, {"name": 7}], "icons": {}},
        "fx://doc/1": {"size": "big", "annotations": {"priority": 9, "audience": "user"}, "mimeType": 7},
        "fx://doc/{id}": {"description": {}, "title": 7, "annotations": []},
        "sleep": {"annotations": {"readOnlyHint": true}},
    });
    for (n, (members, _)) in tools().into_iter().enumerate() {
        patch[format!("extra_{n:04}")] = members;
    }
    patch
}

/// Starts a gateway in front of the patched upstream.
pub(crate) fn stage(transport: &str, era: &str, keys: &str, policy: &str) -> (Gateway, Option<Listening>) {
    let setup = GatewaySetup::new();
    let file = setup.world.write("work/patch.json", &patch().to_string());
    let fake = match transport {
        "stdio" => Fake::stdio(era),
        "http" => Fake::http(era),
        _ => Fake::sse(),
    };
    let fake = fake.with("--tools", tools().len().to_string()).with("--patch", file.to_str().unwrap());
    let running = (transport != "stdio").then(|| fake.spawn());
    let target = match &running {
        Some(running) => format!("url = \"{}\"", running.url),
        None => format!("command = {}", fake.command()),
    };
    let setup = setup.toml(&format!("[upstreams.fx]\n{target}\n{keys}\n"));
    let setup = if policy.is_empty() { setup } else { setup.policy(policy) };
    (setup.start(), running)
}
