//! Tests of approvals without a daemon: processes that share one store and one state directory.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::tools::harness::{Gateway, GatewaySetup, TestHome};
use crate::tools::mcp::{ClientEra, Mcp};
use crate::tools::process::{eventually, said};
use crate::tools::stdio::Pipe;
use crate::tools::steps::approvals::{assert_shown, list, open, texts};
use crate::tools::terminal::Terminal;
use crate::tools::upstream::Fake;

/// Starts a gateway within `headend stdio` that asks for an approval of every call.
fn alone() -> (TestHome, Mcp) {
    let setup = GatewaySetup::new().policy("default = \"ask\"\n[policy.consent]\nper-minute = 100");
    let (world, config) = setup.fake("fx", &Fake::stdio("legacy")).write();
    let mut client = Mcp::stdio(Pipe::start(&world, &config, &["--no-daemon"]), ClientEra::LEGACY);
    eventually("echo is listed", || client.tool_names().iter().any(|name| name == "fx__echo"));
    (world, client)
}

/// Returns the records of an event from all chains. The last line of a chain may still be
/// incomplete.
fn recorded(world: &TestHome, event: &str) -> Vec<Value> {
    let files = fs::read_dir(world.path("state/headend/audit")).unwrap().map(|file| file.unwrap().path());
    let texts: Vec<String> = files.map(|path| fs::read_to_string(path).unwrap()).collect();
    let whole = texts.iter().flat_map(|text| text.rfind('\n').map_or("", |end| &text[..end]).lines());
    let lines = whole.map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["event"] == event).collect()
}

#[test]
fn without_a_daemon_the_process_that_asked_takes_the_answer_from_the_store() {
    let (world, mut client) = alone();
    let arguments = json!({"text": "by hand"});
    assert!(client.call("fx__echo", arguments.clone()).is_error());
    let approvals = open(&world);
    assert_eq!(approvals.len(), 1, "{approvals:?}");
    let id = approvals[0]["id"].as_str().unwrap();
    let shown = world.run(&["approvals"]);
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(text.contains(&id[..8]) && text.contains("fx__echo") && text.contains("by hand"), "{text}");

    assert_eq!(world.run(&["approve", &id[..3]]).status.code(), Some(64), "three characters are too few");
    assert_eq!(world.run(&["approve", "zzzzzz"]).status.code(), Some(1));
    assert_eq!(world.run(&["approve", id, "--for", "ever"]).status.code(), Some(64));
    let approved = world.run(&["approvals", "approve", &id[..6], "--for", "8h"]);
    let text = String::from_utf8_lossy(&approved.stdout);
    assert!(approved.status.success(), "{}", said(&approved));
    let granted = "granted: tool fx__echo for caller local, for 8h, any arguments\nTell the agent to try again.\n";
    assert_eq!(text, granted, "its call was refused before");
    assert_eq!(client.call("fx__echo", arguments.clone()).text(), "by hand");
    assert_eq!(client.call("fx__echo", json!({"text": "other"})).text(), "other");

    let grants = list(&world, "grants");
    assert_eq!((&grants[0]["lifetime"], &grants[0]["evidence"]), (&json!("until"), &json!("L3")), "{grants:?}");
    let revoked = world.run(&["grants", "revoke", &grants[0]["id"].as_str().unwrap()[..8]]);
    assert!(revoked.status.success(), "{}", said(&revoked));
    assert_eq!(list(&world, "grants"), Vec::<Value>::new());
    let recorded = recorded(&world, "revoke");
    let by = format!("uid:{}", rustix::process::getuid().as_raw());
    assert!(recorded.iter().any(|line| line["grant"] == grants[0]["id"] && line["by"] == by), "{recorded:?}");
    assert!(world.run(&["audit", "verify"]).status.success());
    // A call that was decided before the revocation and not sent yet is refused without an
    // approval.
    eventually("it is asked again", || {
        client.call("fx__echo", arguments.clone()).text().contains("waits for a person's approval")
    });
    let open = open(&world);
    let denied = world.run(&["approvals", "deny", open[0]["id"].as_str().unwrap(), "--json"]);
    let told: Value = serde_json::from_slice(&denied.stdout).unwrap();
    assert_eq!((&told["outcome"], &told["item"]), (&json!("denied"), &json!("fx__echo")), "{}", said(&denied));
}

#[test]
fn an_approval_is_shown_with_all_of_its_arguments_from_the_store() {
    let (world, mut client) = alone();
    assert!(client.call("fx__echo", texts()).is_error());
    let listed = open(&world).remove(0);
    assert!(listed["left"].as_u64().is_some_and(|left| left > 60) && listed["age"].as_u64().is_some(), "{listed}");
    assert!(listed.get("arguments").is_none(), "the list stays short: {listed}");
    let id = listed["id"].as_str().unwrap();
    let shown = world.run(&["approvals", "show", &id[..6]]);
    assert!(shown.status.success(), "{}", said(&shown));
    assert_shown(std::str::from_utf8(&shown.stdout).unwrap());
    let json = world.run(&["approvals", "show", id, "--json"]);
    let told: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&told["arguments"], &told["client"]), (&texts(), &json!("it 1")), "{told}");
    assert!(told["left"].is_u64() && told["age"].is_u64() && told["description"] == "Does echo.", "{told}");
    assert_eq!(world.run(&["approvals", "show", "zzzzzz"]).status.code(), Some(1));
    assert_eq!(world.run(&["approvals", "show", "zzz"]).status.code(), Some(64));

    let (code, screen) = Terminal::start(&world, &["approvals", "show", id], "").end();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("\u{1b}[1;31m\\u{202e}\\u{3164}\u{1b}[0m") && screen.contains("第一章"), "{screen}");
    assert!(!screen.contains(['\u{202e}', '\u{3164}']), "{screen}");
}

#[test]
fn a_second_daemon_of_the_same_state_is_refused_and_a_pipe_beside_it_is_not() {
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("legacy")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let config = gateway.config.to_str().unwrap();
    let second = gateway.run(&["serve", "--config", config]);
    assert_eq!(second.status.code(), Some(75), "{}", said(&second));
    let text = said(&second);
    assert!(text.contains("another headend daemon") && text.contains(&gateway.pid().to_string()), "{text}");
    let mut client = Mcp::stdio(Pipe::start(&gateway.world, &gateway.config, &["--no-daemon"]), ClientEra::LEGACY);
    eventually("echo is listed", || client.tool_names().iter().any(|name| name == "fx__echo"));
}

#[test]
fn a_daemon_starts_after_one_that_was_killed_while_a_process_of_it_still_has_the_lock() {
    let mut gateway = GatewaySetup::new().fake("fx", &Fake::stdio("legacy")).start();
    gateway.signal(Signal::KILL);
    assert!(gateway.wait(Duration::from_secs(60)).is_some());
    let (world, config) = (gateway.world.clone(), gateway.config.clone());
    drop(gateway);
    // Simulates a server's process that does not run its program yet.
    let lock = fs::File::open(world.path("state/headend/headend.lock")).unwrap();
    eventually("the lock is free", || lock.try_lock().is_ok());
    let child = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(1));
        drop(lock);
    });
    Gateway::start(world, Some(config), &["serve"], &[]).wait_for_tools(&["fx__echo"]);
    child.join().unwrap();
}

#[test]
fn the_questions_of_a_process_end_with_it_and_after_its_death_nobody_takes_an_answer() {
    let (world, mut client) = alone();
    drop(client.call("fx__echo", json!({})));
    eventually("the question is listed", || list(&world, "approvals").len() == 1);
    assert!(client.pipe().close(Duration::from_secs(60)).is_some_and(|status| status.success()));
    assert_eq!(list(&world, "approvals"), Vec::<Value>::new());

    let (world, mut client) = alone();
    drop(client.call("fx__echo", json!({})));
    eventually("the question is listed", || list(&world, "approvals").len() == 1);
    let pid = i32::try_from(client.pipe().pid()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    drop(client);
    let id = list(&world, "approvals")[0]["id"].as_str().unwrap().to_owned();
    let approved = world.run(&["approve", &id]);
    assert_eq!(approved.status.code(), Some(1), "{}", said(&approved));
    assert!(said(&approved).contains("did not take the answer"), "{}", said(&approved));
}
