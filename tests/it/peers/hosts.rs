//! Real hosts with a scripted model before a running daemon. Each host starts `headend stdio`
//! itself, with only those variables that this host always passes on.

use serde_json::json;

use self::desk::Desk;
use self::host::{Host, Session};
use super::Peers;

mod desk;
mod host;

/// Has the host list the tools and make a call that needs no approval.
fn lists_and_reads(host: Host, is_moved: bool) {
    let Some(peers) = Peers::find() else { return };
    let Some(program) = host.find(&peers) else { return };
    let desk = Desk::new(is_moved);
    let calls = [("fx__env", json!({})), ("nx__echo", json!({"text": "from the other server"}))];
    let mut session = Session::start(&peers, &desk, host, &program, &calls);
    session.wait_for_end();
    session.offers(&["fx__env", "fx__echo", "fx__write", "nx__echo"]);
    let results = session.results();
    assert!(results[0].contains("HOME") && results[1].contains("from the other server"), "{results:?}");
    desk.started_each_server_once();
}

#[test]
fn claude_code_uses_the_servers_of_the_daemon() {
    lists_and_reads(Host::ClaudeCode, false);
}

#[test]
fn claude_code_uses_the_servers_of_a_daemon_with_moved_directories() {
    lists_and_reads(Host::ClaudeCode, true);
}

#[test]
fn codex_uses_the_servers_of_the_daemon() {
    lists_and_reads(Host::Codex, false);
}

#[test]
fn codex_uses_the_servers_of_a_daemon_with_moved_directories() {
    lists_and_reads(Host::Codex, true);
}

#[test]
fn gemini_cli_uses_the_servers_of_the_daemon() {
    lists_and_reads(Host::Gemini, false);
}

#[test]
fn opencode_uses_the_servers_of_the_daemon() {
    lists_and_reads(Host::OpenCode, false);
}
