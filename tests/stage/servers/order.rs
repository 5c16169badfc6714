//! Tests of servers that write lists in their schemas in another order at every start: nothing is
//! withheld, and clients keep the bytes that were pinned.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use headend_core::wire::digest::Digest;
use rusqlite::Connection;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::process::{eventually, said};
use crate::stage::upstream::Fake;

/// Returns a schema with its lists in one of three orders.
fn schema(order: usize) -> Value {
    let rotated = |words: [&str; 3]| {
        let mut words = words.map(str::to_owned).to_vec();
        words.rotate_left(order % 3);
        words
    };
    let fields = rotated(["summary", "status", "labels"]);
    json!({
        "type": "object",
        "required": rotated(["text", "fields", "order"]),
        "properties": {
            "text": {"type": rotated(["string", "null", "number"]), "description": "b, a"},
            "fields": {"type": "string", "default": fields.join(",")},
            "order": {"enum": rotated(["up", "down", "none"])},
            "required": {"type": "array", "default": ["b", "a"]},
        },
    })
}

/// Returns a patch with which the tool `echo` has its lists in that order, and these further
/// members.
fn patched(order: usize, members: &[(&str, Value)]) -> Value {
    let mut echo = json!({"inputSchema": schema(order)});
    for (name, value) in members {
        echo[*name] = value.clone();
    }
    json!({"echo": echo, "sleep": {"inputSchema": schema(order)}})
}

fn write(file: &Path, patch: &Value) {
    let fresh = file.with_extension("new");
    fs::write(&fresh, patch.to_string()).unwrap();
    fs::rename(fresh, file).unwrap();
}

/// Returns the bytes of each tool's definition as a client gets it.
fn listed(client: &mut Mcp) -> HashMap<String, String> {
    let raw = client.request("tools/list", json!({})).raw;
    let value: Value = serde_json::from_str(&raw).unwrap();
    let answer: HashMap<String, &RawValue> = serde_json::from_str(&raw).unwrap();
    let result: HashMap<String, &RawValue> = serde_json::from_str(answer["result"].get()).unwrap();
    let tools: Vec<&RawValue> = serde_json::from_str(result["tools"].get()).unwrap();
    let names =
        value["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
    names.zip(tools.into_iter().map(|tool| tool.get().to_owned())).collect()
}

/// Returns the names and states of pins that are not `pinned`.
fn open(gateway: &Gateway) -> Vec<String> {
    let output = gateway.run(&["pins", "--json"]);
    let pins: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
    let open = pins["pins"].as_array().unwrap().iter().filter(|pin| pin["state"] != "pinned");
    open.map(|pin| format!("{} {}", pin["name"].as_str().unwrap(), pin["state"].as_str().unwrap())).collect()
}

fn stopped(mut gateway: Gateway) -> Gateway {
    gateway.signal(rustix::process::Signal::TERM);
    assert!(gateway.wait(Duration::from_secs(60)).is_some());
    gateway
}

fn again(gateway: Gateway) -> Gateway {
    let gateway = stopped(gateway);
    Gateway::start(gateway.world.clone(), Some(gateway.config.clone()), &["serve"], &[])
}

#[test]
fn another_order_withholds_nothing_and_changes_no_byte_for_clients() {
    for (transport, era) in
        [("stdio", "legacy"), ("stdio", "modern"), ("http", "legacy"), ("http", "modern"), ("sse", "legacy")]
    {
        let at = format!("{era} over {transport}");
        let setup = GatewaySetup::new();
        let file = setup.world.path("work").join("patch.json");
        write(&file, &patched(0, &[]));
        let fake = match transport {
            "stdio" => Fake::stdio(era),
            "http" => Fake::http(era),
            _ => Fake::sse(),
        };
        let fake = fake.with("--patch", file.to_str().unwrap());
        let running = (transport != "stdio").then(|| fake.spawn());
        let setup = match &running {
            Some(running) => setup.url("fx", &running.url),
            None => setup.fake("fx", &fake),
        };
        let gateway = setup.start();
        gateway.wait_for_tools(&["fx__echo", "fx__mutate"]);
        let mut clients = ClientEra::BOTH.map(|era| gateway.client(era));
        let before = clients.each_mut().map(|client| listed(client)["fx__echo"].clone());
        assert!(before[0].contains("summary,status,labels"), "{at}: {}", before[0]);

        write(&file, &patched(1, &[]));
        assert!(!clients[1].call("fx__mutate", json!({})).is_error(), "{at}");
        let has_grown = |client: &mut Mcp| client.tool_names().iter().any(|name| name.contains("grown"));
        eventually("the list is read again", || has_grown(&mut clients[1]));
        for (client, before) in clients.iter_mut().zip(&before) {
            assert_eq!(listed(client)["fx__echo"], *before, "{at}");
            assert_eq!(client.call("fx__echo", json!({"text": "x"})).text(), "x", "{at}");
        }
        assert_eq!(open(&gateway), [""; 0], "{at}");

        write(&file, &patched(2, &[]));
        let gateway = again(gateway);
        gateway.wait_for_tools(&["fx__echo"]);
        // Until the upstream's lists are read, those of the last run are offered.
        eventually("it is read", || {
            gateway.run(&["status", "fx", "--json"]).stdout.windows(7).any(|w| w == b"\"ready\"")
        });
        gateway.modern().call("fx__mutate", json!({}));
        let mut clients = ClientEra::BOTH.map(|era| gateway.client(era));
        eventually("the list is read again", || has_grown(&mut clients[1]));
        for (client, before) in clients.iter_mut().zip(&before) {
            assert_eq!(listed(client)["fx__echo"], *before, "{at}, after a restart");
        }
        assert_eq!(open(&gateway), [""; 0], "{at}");

        write(&file, &patched(1, &[("description", json!("Does something else."))]));
        gateway.modern().call("fx__mutate", json!({}));
        eventually("a change is seen", || open(&gateway) == ["fx__echo changed"]);
        eventually("it is withheld", || !listed(&mut clients[0]).contains_key("fx__echo"));
        assert!(listed(&mut clients[1]).contains_key("fx__sleep"), "{at}");
        let diff = gateway.run(&["pins", "diff", "fx__echo"]);
        let digest = said(&diff).lines().find_map(|line| line.strip_prefix("digest ").map(str::to_owned)).unwrap();
        write(&file, &patched(2, &[("description", json!("Does something else."))]));
        gateway.modern().call("fx__mutate", json!({}));
        let approved = gateway.run(&["pins", "approve", "fx__echo", "--digest", &digest]);
        assert!(approved.status.success(), "{at}: in any order it is what was shown: {}", said(&approved));
        eventually("it is back", || listed(&mut clients[0]).contains_key("fx__echo"));
        assert_eq!(open(&gateway), [""; 0], "{at}");
    }
}

#[test]
fn pins_grants_and_denials_with_the_digests_of_the_first_release_stay_in_force() {
    let setup = GatewaySetup::new().policy("default = \"ask\"\n[policy.consent]\nper-minute = 100");
    let file = setup.world.path("work").join("patch.json");
    write(&file, &patched(0, &[]));
    let gateway = setup.fake("fx", &Fake::stdio("both").with("--patch", file.to_str().unwrap())).start();
    gateway.wait_for_tools(&["fx__echo", "fx__sleep", "fx__env"]);
    let ok = |gateway: &Gateway, args: &[&str]| {
        let output = gateway.run(args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
    };
    let mut client = gateway.modern();
    let before = listed(&mut client)["fx__echo"].clone();
    let refused = client.call("fx__echo", json!({"text": "x"}));
    let id = refused.result()["_meta"]["headend/refusal"]["approval"]["id"].as_str().unwrap().to_owned();
    ok(&gateway, &["approve", &id, "--for", "always"]);
    assert_eq!(client.call("fx__echo", json!({"text": "x"})).text(), "x");
    ok(&gateway, &["pins", "reject", "fx__sleep"]);

    // The first release took digests of definitions as they came.
    let gateway = stopped(gateway);
    let store = Connection::open(gateway.world.path("state/headend/headend.db")).unwrap();
    let texts: Vec<(String, Option<String>, Option<String>)> = {
        let mut pins = store.prepare("SELECT name, approved, waiting FROM pins WHERE kind = 'tool'").unwrap();
        let rows = pins.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let exact = |text: &Option<String>| text.as_ref().map(|text| Digest::of(text.as_bytes()).hex());
    let mut others = 0;
    for (name, approved, waiting) in &texts {
        let (approved, waiting) = (exact(approved), exact(waiting));
        let query = "UPDATE pins SET approved_digest = ?2, waiting_digest = ?3 WHERE kind = 'tool' AND name = ?1
            AND (approved_digest IS NOT ?2 OR waiting_digest IS NOT ?3)";
        others += store.execute(query, (name, &approved, &waiting)).unwrap();
        store
            .execute(
                "UPDATE grants SET definition = ?2 WHERE item = 'fx__' || ?1 AND ?2 IS NOT NULL",
                (name, &approved),
            )
            .unwrap();
    }
    assert_eq!(others, 2, "the digests of the two tools with lists are others now");
    drop(store);

    write(&file, &patched(1, &[]));
    let gateway = Gateway::start(gateway.world.clone(), Some(gateway.config.clone()), &["serve"], &[]);
    gateway.wait_for_tools(&["fx__echo", "fx__env"]);
    for _ in 0..2 {
        let mut client = gateway.modern();
        assert_eq!(listed(&mut client)["fx__echo"], before);
        assert_eq!(client.call("fx__echo", json!({"text": "x"})).text(), "x", "the grant is for it");
        assert!(!listed(&mut client).contains_key("fx__sleep"), "it stays rejected");
        assert_eq!(open(&gateway), ["fx__sleep rejected"]);
        // By now certainly the upstream's own list, not that of the last run.
        eventually("it is read", || {
            gateway.run(&["status", "fx", "--json"]).stdout.windows(7).any(|w| w == b"\"ready\"")
        });
    }
}
