//! Tests of what clients carry over a restart of the daemon, by a clean end or kill -9: cursors,
//! sessions, states of calls.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::mcp::{ClientEra, Mcp, McpAnswer};
use crate::stage::process::eventually;
use crate::stage::upstream::{Fake, InputLog};

mod sessions;
mod states;

/// Token of a second caller besides the local one.
const TOKEN: &str = "token-of-the-second-caller-0123456789";

/// Ends the daemon by this signal and starts it again, with another configuration if one is given.
fn again(mut gateway: Gateway, by: Signal, config: Option<&str>) -> Gateway {
    gateway.signal(by);
    assert!(gateway.wait(Duration::from_secs(60)).is_some(), "{}", gateway.story());
    let (world, path) = (gateway.world.clone(), gateway.config.clone());
    drop(gateway);
    if let Some(text) = config {
        world.write("headend.toml", text);
    }
    let environment = [("SECOND_TOKEN".to_owned(), TOKEN.to_owned())];
    Gateway::start(world, Some(path), &["serve"], &environment)
}

/// Stops the daemon and starts it with a new store, but the old store's key.
fn anew(mut gateway: Gateway) -> Gateway {
    gateway.signal(Signal::TERM);
    assert!(gateway.wait(Duration::from_secs(60)).is_some(), "{}", gateway.story());
    let state = gateway.world.path("state/headend");
    assert!(state.join("secrets.key").exists());
    for file in ["headend.db", "headend.db-wal", "headend.db-shm"] {
        let _not_there = fs::remove_file(state.join(file));
    }
    fs::remove_dir_all(state.join("audit")).unwrap_or_default();
    let (world, path) = (gateway.world.clone(), gateway.config.clone());
    drop(gateway);
    let environment = [("SECOND_TOKEN".to_owned(), TOKEN.to_owned())];
    Gateway::start(world, Some(path), &["serve"], &environment)
}

/// Requests the page of tools at a cursor, by a new client.
fn page(gateway: &Gateway, token: Option<String>, era: ClientEra, path: &str, cursor: &Value) -> McpAnswer {
    let mut client = Mcp::http_at(gateway.address, token, era, path, json!({}));
    client.request("tools/list", json!({"cursor": cursor}))
}

#[test]
fn a_cursor_leads_on_after_a_restart_exactly_when_the_list_is_the_same() {
    let setup = |tools: usize| {
        let fake = Fake::stdio("both").with("--tools", tools.to_string());
        GatewaySetup::new().second_caller(TOKEN).fake("fx", &fake).toml("[profiles.work]\nupstreams = [\"fx\"]")
    };
    let mut gateway = setup(1900).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let cursors = ClientEra::BOTH.map(|era| {
        let first = gateway.client(era).request("tools/list", json!({}));
        assert_eq!(first.result()["tools"].as_array().unwrap().len(), 1000, "{era:?}");
        first.result()["nextCursor"].clone()
    });
    assert!(cursors.iter().all(Value::is_string), "{cursors:?}");
    let whole = gateway.modern().tool_names();
    for by in [Signal::TERM, Signal::KILL] {
        gateway = again(gateway, by, None);
        gateway.wait_for_tools(&["fx__echo"]);
        for (era, cursor) in ClientEra::BOTH.into_iter().zip(&cursors) {
            let second = page(&gateway, gateway.token(), era, "/mcp", cursor);
            let names = crate::stage::mcp::names(second.result()["tools"].as_array().unwrap());
            assert_eq!(names, whole[1000..], "{era:?} after {by:?}");
            for (label, other) in [
                ("another caller", page(&gateway, Some(TOKEN.to_owned()), era, "/mcp", cursor)),
                ("another profile", page(&gateway, gateway.token(), era, "/mcp/work", cursor)),
            ] {
                assert_eq!(other.code(), Some(-32602), "{label}, {era:?}: {}", other.raw);
            }
        }
        let other = page(&gateway, gateway.token(), ClientEra::Modern, "/mcp", &cursors[0]);
        assert_eq!(other.code(), Some(-32602), "another revision: {}", other.raw);
    }
    let more = setup(1901).text();
    gateway = again(gateway, Signal::TERM, Some(&more));
    eventually("the list is another one", || gateway.modern().tool_names().len() == whole.len() + 1);
    for (era, cursor) in ClientEra::BOTH.into_iter().zip(&cursors) {
        let refused = page(&gateway, gateway.token(), era, "/mcp", cursor);
        assert_eq!(refused.code(), Some(-32602), "{era:?}: {}", refused.raw);
        assert!(refused.raw.contains("list again from the start"), "{}", refused.raw);
    }
}

#[test]
fn a_cursor_leads_on_while_other_things_change() {
    let setup = |more: &str| GatewaySetup::new().fake("fx", &Fake::stdio("both").with("--tools", "1900")).toml(more);
    let gateway = setup("").start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut client = gateway.modern();
    let cursor = client.request("tools/list", json!({})).result()["nextCursor"].clone();
    let reloaded = gateway.reload(&setup("[profiles.other]\nupstreams = [\"fx\"]").text());
    assert!(reloaded.status.success(), "{}", crate::stage::process::said(&reloaded));
    let second = client.request("tools/list", json!({"cursor": cursor}));
    assert!(second.result()["tools"].as_array().is_some_and(|tools| tools.len() > 900), "{}", second.raw);
    assert!(!client.call("fx__mutate", json!({})).is_error());
    eventually("the list is another one", || {
        client.request("tools/list", json!({"cursor": cursor})).code() == Some(-32602)
    });
}
