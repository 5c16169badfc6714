//! Real hosts with a scripted model before a running daemon. Each host starts `headend stdio`
//! itself, with only those variables that this host always passes on.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use self::desk::DesktopSession;
use self::host::{HostRun, NpmHost};
use super::PeerFolders;
use crate::browser::Browser;
use crate::harness::headend;
use crate::process::{eventually, output_within, said};

mod desk;
mod host;

/// Has the host list the tools and make a call that needs no approval.
fn lists_and_reads(host: NpmHost, is_moved: bool) {
    let Some(peers) = PeerFolders::find() else { return };
    let Some(program) = host.find(&peers) else { return };
    let desk = DesktopSession::new(is_moved);
    let calls = [("fx__env", json!({})), ("nx__echo", json!({"text": "from the other server"}))];
    let mut session = HostRun::start(&peers, &desk, host, &program, &calls);
    session.wait_for_end();
    session.offers(&["fx__env", "fx__echo", "fx__write", "nx__echo"]);
    let results = session.results();
    assert!(results[0].contains("HOME") && results[1].contains("from the other server"), "{results:?}");
    desk.started_each_server_once();
}

#[test]
fn claude_code_uses_the_servers_of_the_daemon() {
    lists_and_reads(NpmHost::ClaudeCode, false);
}

#[test]
fn claude_code_uses_the_servers_of_a_daemon_with_moved_directories() {
    lists_and_reads(NpmHost::ClaudeCode, true);
}

#[test]
fn codex_uses_the_servers_of_the_daemon() {
    lists_and_reads(NpmHost::Codex, false);
}

#[test]
fn codex_uses_the_servers_of_a_daemon_with_moved_directories() {
    lists_and_reads(NpmHost::Codex, true);
}

#[test]
fn gemini_cli_uses_the_servers_of_the_daemon() {
    lists_and_reads(NpmHost::Gemini, false);
}

#[test]
fn opencode_uses_the_servers_of_the_daemon() {
    lists_and_reads(NpmHost::OpenCode, false);
}

/// Connects the host by `headend connect --move`, has its own command list headend and its model
/// call a tool through it, and disconnects it.
fn is_connected_and_disconnected(host: NpmHost) {
    let Some(peers) = PeerFolders::find() else { return };
    let Some(program) = host.find(&peers) else { return };
    let desk = DesktopSession::new(false);
    let (name, file) = host.own_file();
    let file = desk.gateway.world.path(file);
    let run = |words: &[&str]| {
        let mut command = desk.gateway.world.command(headend());
        command.env_clear().envs(desk.session().iter().cloned()).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = output_within(command.spawn().unwrap(), Duration::from_secs(60), "headend");
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        said(&output)
    };
    let (mut before, mut connected) = (String::new(), String::new());
    let calls = [("fx__env", json!({})), ("nx__echo", json!({"text": "from the other server"}))];
    let mut session = HostRun::start_connected(&peers, &desk, host, &program, &calls, |own| {
        before = fs::read_to_string(&file).unwrap();
        run(&["connect", name, "--move", "--yes"]);
        connected = fs::read_to_string(&file).unwrap();
        let list = own(&["mcp", "list"]);
        assert!(list.contains("headend") && !list.contains("clock-server"), "{host:?}: {list}");
        desk.gateway.wait_for_tools(&["clock__now"]);
    });
    session.wait_for_end();
    session.offers(&["fx__env", "nx__echo", "clock__now"]);
    assert!(session.results()[1].contains("from the other server"), "{:?}", session.results());
    let between = fs::read_to_string(&file).unwrap();
    run(&["disconnect", name, "--yes"]);
    let after = fs::read_to_string(&file).unwrap();
    if between == connected {
        assert_eq!(after, before, "{host:?}");
    } else {
        eprintln!("{host:?} wrote its file itself, and kept what it wrote");
        assert!(after.contains("clock-server") && !after.contains("\"headend\""), "{host:?}: {after}");
        let own = |text: &str| serde_json::from_str::<Value>(text).map(|value| value["mcpServers"].clone()).unwrap();
        assert_eq!(own(&after), own(&before), "{host:?}");
        fs::write(&file, &connected).unwrap();
    }
}

#[test]
fn claude_code_is_connected_and_disconnected() {
    is_connected_and_disconnected(NpmHost::ClaudeCode);
}

#[test]
fn codex_is_connected_and_disconnected() {
    is_connected_and_disconnected(NpmHost::Codex);
}

#[test]
fn gemini_cli_is_connected_and_disconnected() {
    is_connected_and_disconnected(NpmHost::Gemini);
}

#[test]
fn opencode_is_connected_and_disconnected() {
    is_connected_and_disconnected(NpmHost::OpenCode);
}

/// Returns the id of the open approval of a call of that tool.
fn open_approval(desk: &DesktopSession, tool: &str) -> String {
    let mut id = None;
    eventually(&format!("{tool} waits for an approval"), || {
        let listed = desk.gateway.run(&["approvals", "--json"]);
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
        let open = listed["approvals"].as_array().into_iter().flatten().find(|approval| approval["item"] == tool);
        id = open.and_then(|approval| approval["id"].as_str()).map(str::to_owned);
        id.is_some()
    });
    id.unwrap()
}

/// Has the host make a call that needs the client's word at most and one that needs the
/// operator's, and the same again: the operator allows the first two by the command, the others on
/// the console.
fn waits_for_the_operator(host: NpmHost) {
    let Some(peers) = PeerFolders::find() else { return };
    let Some(program) = host.find(&peers) else { return };
    let desk = DesktopSession::new(false);
    let calls = [
        ("fx__echo", json!({"text": "first"})),
        ("fx__write", json!({"path": "a"})),
        ("fx__echo", json!({"text": "second"})),
        ("fx__write", json!({"path": "b"})),
    ];
    let mut session = HostRun::start(&peers, &desk, host, &program, &calls);
    let mut console = Browser::signed_in(&desk.gateway);
    for (place, (tool, _)) in calls.iter().enumerate() {
        let id = open_approval(&desk, tool);
        if place < 2 {
            let approved = desk.gateway.run(&["approve", &id]);
            assert!(approved.status.success(), "{tool}: {}", said(&approved));
        } else {
            console.answer(&id, "once");
        }
    }
    session.wait_for_end();
    let results = session.results();
    let wanted = ["first", "write", "second", "write"];
    assert!(results.iter().zip(wanted).all(|(result, text)| result.contains(text)), "{results:?}\n{}", session.story());
    desk.started_each_server_once();
}

#[test]
fn calls_of_claude_code_without_a_person_wait_for_the_operator() {
    waits_for_the_operator(NpmHost::ClaudeCode);
}

#[test]
fn calls_of_codex_without_a_person_wait_for_the_operator() {
    waits_for_the_operator(NpmHost::Codex);
}
