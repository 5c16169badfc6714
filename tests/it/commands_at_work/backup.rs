//! Tests of `headend backup`: copies the state of a running daemon, and starts a daemon on the
//! copy.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::tools::harness::{Gateway, GatewaySetup, TestHome};
use crate::tools::mcp::{Mcp, McpAnswer};
use crate::tools::process::{eventually, said};
use crate::tools::upstream::Fake;

/// An argument of a call that was approved once.
const ONCE: &str = "marker-in-a-once-grant";

/// Copies a backup over another world's state directory, as the printed `cp -a` does.
pub(crate) fn restore(backup: &Path, world: &TestHome) {
    let state = world.path("state/headend");
    fs::create_dir(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
    for entry in fs::read_dir(backup).unwrap().flatten() {
        fs::copy(entry.path(), state.join(entry.file_name())).unwrap();
    }
}

/// Starts a daemon on a backup in a world of its own.
pub(crate) fn start_on(backup: &Path, config: &Path) -> Gateway {
    let world = TestHome::new();
    restore(backup, &world);
    let config = world.write("headend.toml", &fs::read_to_string(config).unwrap());
    Gateway::start(world, Some(config), &["serve"], &[])
}

pub(crate) fn ok(gateway: &Gateway, args: &[&str]) -> String {
    let output = gateway.run(args);
    assert!(output.status.success(), "{args:?}: {}\n{}", said(&output), gateway.story());
    String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Calls a tool that needs an approval, and approves the call.
fn approve(gateway: &Gateway, client: &mut Mcp, (tool, arguments): (&str, Value), more: &[&str]) {
    assert!(client.call(tool, arguments).is_error());
    let mut id = String::new();
    eventually("the approval is listed", || {
        let listed: Value = serde_json::from_str(&ok(gateway, &["approvals", "--json"])).unwrap();
        id = listed["approvals"][0]["id"].as_str().unwrap_or_default().to_owned();
        !id.is_empty()
    });
    ok(gateway, &[&["approve", &id], more].concat());
}

fn reason(answer: &McpAnswer) -> String {
    answer.result()["_meta"]["headend/refusal"]["reason"].as_str().unwrap_or_default().to_owned()
}

/// Counts the records of the restore in the audit log.
fn records(gateway: &Gateway) -> usize {
    ok(gateway, &["audit", "tail", "--json", "-n", "1000"]).matches("restored from a backup of").count()
}

fn is_due(gateway: &Gateway) -> bool {
    ok(gateway, &["status"]).contains("restored from a backup of")
}

#[test]
fn a_restored_daemon_has_the_grants_that_last_and_asks_for_a_review() {
    let gateway = GatewaySetup::new().policy("default = \"ask\"").fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo", "fx__env"]);
    let mut client = gateway.modern();
    approve(&gateway, &mut client, ("fx__env", json!({})), &["--for", "always"]);
    approve(&gateway, &mut client, ("fx__echo", json!({"text": ONCE})), &[]);
    let dir = gateway.world.path("work/backup");
    let told = ok(&gateway, &["backup", dir.to_str().unwrap()]);
    for part in ["1 grant,", "the token of clients", "left out: once-grants", "is not in it", "to restore: stop"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!dir.join("secrets.key").exists() && !dir.join("audit").exists());
    let again = gateway.run(&["backup", dir.to_str().unwrap()]);
    assert_eq!(again.status.code(), Some(1), "{}", said(&again));
    assert!(said(&again).contains("is not empty"), "{}", said(&again));
    let inside = gateway.run(&["backup", gateway.world.path("state/headend/b").to_str().unwrap()]);
    assert_eq!(inside.status.code(), Some(64), "{}", said(&inside));
    assert_eq!(gateway.run(&["grants", "reviewed"]).status.code(), Some(1), "nothing was restored");
    assert!(!client.call("fx__echo", json!({"text": ONCE})).is_error(), "the original goes on");

    let mut restored = start_on(&dir, &gateway.config);
    assert_eq!(restored.token(), gateway.token(), "clients need no other token");
    restored.wait_for_tools(&["fx__echo", "fx__env"]);
    let mut client = restored.modern();
    assert!(!client.call("fx__env", json!({})).is_error(), "{}", restored.story());
    assert_eq!(reason(&client.call("fx__echo", json!({"text": ONCE}))), "awaiting_approval");
    eventually("the restore is on record", || records(&restored) == 1);
    assert!(ok(&restored, &["audit", "verify"]).contains("main: ok"));
    assert!(is_due(&restored) && restored.story().contains("restored from a backup of"));
    assert!(said(&restored.run(&["doctor", "--all"])).contains("headend grants reviewed"));

    restored.signal(Signal::TERM);
    assert!(restored.wait(Duration::from_secs(60)).is_some());
    let (world, config) = (restored.world.clone(), restored.config.clone());
    let restored = Gateway::start(world, Some(config), &["serve"], &[]);
    assert!(is_due(&restored), "until a person has looked");
    assert_eq!(records(&restored), 1, "once");
    assert!(ok(&restored, &["grants", "reviewed"]).starts_with("reviewed the backup of"));
    assert!(!is_due(&restored));
    assert_eq!(restored.run(&["grants", "reviewed"]).status.code(), Some(1));
}

#[test]
fn a_store_without_a_daemon_is_backed_up_and_reviewed_too() {
    let (world, _) = GatewaySetup::new().fake("fx", &Fake::stdio("both")).write();
    let dir = world.path("work/backup");
    let none = world.run(&["backup", dir.to_str().unwrap()]);
    assert_eq!(none.status.code(), Some(1), "{}", said(&none));
    assert!(said(&none).contains("nothing to back up") && !dir.exists(), "{}", said(&none));
    let mut gateway = Gateway::start(world.clone(), Some(world.path("headend.toml")), &["serve"], &[]);
    gateway.signal(Signal::KILL);
    gateway.wait(Duration::from_secs(60));
    let done = world.run(&["backup", "--json", "--with-key", dir.to_str().unwrap()]);
    assert!(done.status.success(), "{}", said(&done));
    let told: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&told["key"], &told["grants"]), (&json!("included"), &json!(0)), "{told}");

    let other = TestHome::new();
    restore(&dir, &other);
    let reviewed = other.run(&["grants", "reviewed", "--json"]);
    assert!(reviewed.status.success(), "{}", said(&reviewed));
    let again = other.run(&["grants", "reviewed"]);
    assert!(said(&again).contains("no review is due"), "{}", said(&again));
}
