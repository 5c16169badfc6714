//! Tests of definitions that no schema of the protocol allows: strict clients get lists that they
//! accept, with all other items.

use serde_json::{Value, json};

use crate::stage::harness::Gateway;
use crate::stage::malformed::{stage, tools};
use crate::stage::mcp::{ClientEra, Mcp, names};
use crate::stage::process::{eventually, said};

/// Every revision with its official schema.
const SCHEMAS: [(&str, &str); 5] = [
    ("2024-11-05", include_str!("../../data/schema/2024-11-05.json")),
    ("2025-03-26", include_str!("../../data/schema/2025-03-26.json")),
    ("2025-06-18", include_str!("../../data/schema/2025-06-18.json")),
    ("2025-11-25", include_str!("../../data/schema/2025-11-25.json")),
    ("2026-07-28", include_str!("../../data/schema/2026-07-28.json")),
];

const LISTS: [(&str, &str, &str); 4] = [
    ("tools/list", "tools", "Tool"),
    ("prompts/list", "prompts", "Prompt"),
    ("resources/list", "resources", "Resource"),
    ("resources/templates/list", "resourceTemplates", "ResourceTemplate"),
];

/// Asserts that every list fits the schema of a revision, and returns the names of the tools.
fn assert_fits(client: &mut Mcp, revision: &str, at: &str) -> Vec<String> {
    let (_, schema) = SCHEMAS.iter().find(|(name, _)| *name == revision).unwrap();
    let schema: Value = serde_json::from_str(schema).unwrap();
    let place = if schema.get("$defs").is_some() { "$defs" } else { "definitions" };
    let mut tools = Vec::new();
    for (method, member, definition) in LISTS {
        let reference = format!("#/{place}/{definition}");
        let whole = json!({"$schema": schema["$schema"], place: schema[place], "$ref": reference});
        let validator = jsonschema::validator_for(&whole).unwrap();
        let items = client.list(method, member);
        assert!(!items.is_empty(), "{at}: {method}");
        for item in &items {
            let wrong: Vec<String> = validator.iter_errors(item).map(|error| error.to_string()).collect();
            assert!(wrong.is_empty(), "{at}: {item}: {wrong:?}");
        }
        if member == "tools" {
            tools = names(&items);
        }
    }
    tools
}

fn status(gateway: &Gateway) -> Value {
    let output = gateway.run(&["status", "fx", "--json"]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)))
}

#[test]
fn a_malformed_definition_costs_clients_of_no_revision_their_list() {
    for (transport, era) in
        [("stdio", "legacy"), ("stdio", "modern"), ("http", "legacy"), ("http", "modern"), ("sse", "legacy")]
    {
        let at = format!("{era} over {transport}");
        let (gateway, _running) = stage(transport, era, "", "");
        gateway.wait_for_tools(&["fx__echo", "fx__extra_0000"]);
        let wanted: Vec<String> = tools()
            .iter()
            .enumerate()
            .filter(|(_, (_, listed))| *listed)
            .map(|(n, _)| format!("fx__extra_{n:04}"))
            .collect();
        eventually("all is listed", || {
            !gateway.modern().list("resources/templates/list", "resourceTemplates").is_empty()
        });
        for (revision, _) in SCHEMAS {
            let mut client =
                gateway.client(if revision == "2026-07-28" { ClientEra::Modern } else { ClientEra::Legacy(revision) });
            let mut listed = assert_fits(&mut client, revision, &format!("{at}, {revision}"));
            assert!(listed.iter().any(|name| name == "fx__echo"), "{at}");
            listed.retain(|name| name.starts_with("fx__extra_"));
            assert_eq!(listed, wanted, "{at}, {revision}");
            assert_eq!(client.call("fx__extra_0000", json!({})).text(), "extra_0000", "{at}: it is called");
            let withheld = client.call("fx__extra_0003", json!({}));
            assert_eq!(withheld.code(), Some(-32602), "{at}: {}", withheld.raw);
        }
        for (client_era, revision) in [(ClientEra::LEGACY, "2025-11-25"), (ClientEra::Modern, "2026-07-28")] {
            let mut client = Mcp::stdio(gateway.pipe(), client_era);
            assert_fits(&mut client, revision, &format!("{at}, attached"));
        }
        let shown = gateway.run(&["status", "fx"]);
        let shown = String::from_utf8(shown.stdout).unwrap();
        for line in [
            "tool `extra_0000`: dropped `description`, which is not a text",
            "tool `extra_0002`: dropped `annotations.readOnlyHint`, which is not `true` or `false`",
            "tool `extra_0003`: withheld: `properties` of its `inputSchema` is not an object of schemas",
            "tool `extra_0006`: added the `type` of `inputSchema`, which is \"object\"",
            "prompt `p`: dropped an element of `arguments` that lacks what it must have",
            "resource `fx://doc/1`: dropped `size`, which is not a whole number",
            "resource template `fx://doc/{id}`: dropped `annotations`, which is not an object",
        ] {
            assert!(shown.contains(line), "{at}: {line} in {shown}");
        }
        let status = status(&gateway);
        let repairs = status["repairs"].as_u64().unwrap();
        let withheld = tools().iter().filter(|(_, listed)| !listed).count();
        assert_eq!(status["invalid-definitions"].as_array().unwrap().len() as u64, repairs + withheld as u64, "{at}");
        let metric = format!("headend_catalog_repairs{{upstream=\"fx\"}} {repairs}");
        assert!(gateway.scrape().contains(&metric), "{at}: {metric} in {}", gateway.scrape());
        assert!(gateway.scrape().contains(&format!("headend_catalog_withheld_items {withheld}")), "{at}");
        let pins = gateway.run(&["pins", "--json"]);
        let pins = String::from_utf8(pins.stdout).unwrap();
        assert!(pins.contains("fx__extra_0000") && !pins.contains("fx__extra_0003"), "{at}: {pins}");
        let warnings = gateway.stderr.all().iter().filter(|line| line.contains("were repaired")).count();
        assert_eq!(warnings, 1, "{at}: {}", gateway.story());
    }
}

#[test]
fn a_hint_that_is_not_valid_is_not_said() {
    let policy =
        "default = \"deny\"\n[[policy.rules]]\nid = \"reads\"\neffect = \"allow\"\nannotations = { read-only = true }";
    let (gateway, _running) = stage("stdio", "legacy", "trust = \"trusted\"", policy);
    gateway.wait_for_tools(&["fx__sleep"]);
    let mut client = gateway.modern();
    assert_eq!(client.call("fx__sleep", json!({})).text(), "slept");
    for name in ["fx__extra_0001", "fx__extra_0002"] {
        let refused = client.call(name, json!({}));
        assert!(refused.code().is_some() || refused.is_error(), "{name}: {}", refused.raw);
    }
}
