//! Tests of an upgrade from 0.1.0: the program under test takes over the state directory and the
//! configuration of a daemon of that release.
//!
//! That daemon wrote the files itself, as described in `tests/README.md`. Its upstreams are shell
//! commands, so that a launch has the same digest on every machine with `/bin/sh`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::tools::harness::{Gateway, TestHome, headend};
use crate::tools::mcp::{ClientEra, Mcp};
use crate::tools::process::said;

/// The token of the caller `ci` in the configuration.
const CI: &str = "a-token-of-0.1.0-for-tests";
const TOOLS: [&str; 4] = ["notes__add", "notes__list", "notes__remove", "strange__fetch"];

/// Copies the files with the modes that a daemon gives them.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o700)).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::write(&to, fs::read(entry.path()).unwrap()).unwrap();
            fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
}

fn start(world: &TestHome) -> Gateway {
    let mut command = world.command(headend());
    // Programs were found in this folder.
    command.env("PATH", "/bin");
    Gateway::start_by(command, world.clone(), Some(world.path("headend.toml")), &["serve"], &[])
}

fn ok(gateway: &Gateway, args: &[&str]) -> String {
    let output = gateway.run(args);
    assert!(output.status.success(), "{args:?}: {}\n{}", said(&output), gateway.story());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn sorted(mut rows: Vec<Value>) -> Vec<Value> {
    rows.sort_by_key(Value::to_string);
    rows
}

/// Returns the pins that 0.1.0 wrote: kind, canonical name, state, digest, and time of the
/// decision.
fn pins_of_before(world: &TestHome) -> Vec<Value> {
    let store = Connection::open(world.path("state/headend/headend.db")).unwrap();
    let version: u32 = store.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(version, 1);
    let query = "SELECT kind, upstream, name, state, coalesce(approved_digest, waiting_digest), at FROM pins";
    let mut query = store.prepare(query).unwrap();
    let rows = query.query_map([], |row| {
        let [kind, upstream, name, state, digest] =
            [row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get::<_, String>(4)?];
        let name = if name.is_empty() { upstream } else { format!("{upstream}__{name}") };
        Ok(json!([kind, name, state, digest, row.get::<_, i64>(5)?]))
    });
    sorted(rows.unwrap().map(Result::unwrap).collect())
}

fn pins(gateway: &Gateway) -> Vec<Value> {
    let pins: Value = serde_json::from_str(&ok(gateway, &["pins", "--json"])).unwrap();
    let row = |pin: &Value| {
        let digest = if pin["approved-digest"].is_null() { &pin["waiting-digest"] } else { &pin["approved-digest"] };
        json!([pin["kind"], pin["name"], pin["state"], digest, pin["since"]])
    };
    sorted(pins["pins"].as_array().unwrap().iter().map(row).collect())
}

fn nothing_is_asked_again(gateway: &Gateway, before: &[Value]) {
    gateway.wait_for_tools(&TOOLS);
    assert_eq!(pins(gateway), before, "the same pins, decided when they were");
    let mut ci = Mcp::http(gateway.address, Some(CI.to_owned()), ClientEra::LEGACY);
    assert_eq!(ci.tool_names(), TOOLS, "a rejected tool stays away");
    assert_eq!(ci.call("notes__list", json!({})).text(), "done", "by the rule");
    assert_eq!(ci.call("notes__add", json!({"title": "Tea"})).text(), "done", "by a grant");
    assert_eq!(ci.call("strange__fetch", json!({"url": "https://example.com/3"})).text(), "fetched", "by a grant");
    let local = ok(gateway, &["call", "notes__remove", r#"{"title": "Tea"}"#]);
    assert!(local.contains("done"), "by a grant: {local}");
    assert!(!ok(gateway, &["tools", "--all"]).contains("new"), "its tools are not new");
    assert!(ok(gateway, &["approvals"]).contains("no approval is open"), "nothing is asked");
}

#[test]
fn no_pin_grant_or_launch_of_0_1_0_is_asked_about_again() {
    let world = TestHome::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/store/0.1.0");
    copy(&folder.join("state"), &world.path("state/headend"));
    world.write("headend.toml", &fs::read_to_string(folder.join("headend.toml")).unwrap());
    let before = pins_of_before(&world);
    assert_eq!(before.len(), 8, "{before:#?}");

    let mut gateway = start(&world);
    nothing_is_asked_again(&gateway, &before);
    let grants: Value = serde_json::from_str(&ok(&gateway, &["grants", "--json"])).unwrap();
    assert_eq!(grants["grants"].as_array().map(Vec::len), Some(3), "{grants}");
    gateway.signal(Signal::TERM);
    assert!(gateway.wait(Duration::from_secs(60)).is_some());

    let gateway = start(&world);
    nothing_is_asked_again(&gateway, &before);
    // The records of both releases are one chain.
    let verified = ok(&gateway, &["audit", "verify"]);
    assert!(verified.contains("main: ok"), "{verified}");
    // A grant for one call was used up.
    let again = gateway.run(&["call", "notes__add", r#"{"title": "Tea"}"#]);
    assert_eq!(again.status.code(), Some(1), "{}", said(&again));
    assert!(said(&again).contains("approval"), "{}", said(&again));
}
