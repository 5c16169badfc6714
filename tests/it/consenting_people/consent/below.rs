//! Tests of grants below a folder, at a terminal.

use super::operator::headend;
use super::*;
use crate::tools::terminal::Terminal;

#[test]
fn a_watch_offers_the_folder_and_takes_another_one() {
    let stage = ApprovalGateway::with(LONG, "");
    let mut client = stage.client(ClientEra::Modern, json!({}));
    let mut terminal = Terminal::start(&stage.gateway.world, &["approvals", "--watch"], "");
    terminal.wait_for("Ctrl-C ends");
    let mut open = |path: &str| client.open("tools/call", json!({"name": "fx__write", "arguments": {"path": path}}));
    for (call, answer, told) in [
        ("/srv/App/a", "b\n", "allowed always below /srv/App;"),
        ("/srv/other/a", "b /srv/other\n", "allowed always below /srv/other;"),
    ] {
        let mut held = open(call);
        terminal.wait_for(&format!("{call:?}"));
        terminal.wait_for("b1 or b PATH");
        std::thread::sleep(Duration::from_millis(300));
        terminal.type_in(answer);
        terminal.wait_for(told);
        assert_eq!(held.response()["result"]["content"][0]["text"], "write");
    }
    assert_eq!(open("/srv/App/b/c").response()["result"]["content"][0]["text"], "write");
    let grants = headend(&stage, &["grants", "--json"]);
    let grants: Value = serde_json::from_str(&grants).unwrap();
    let mut below: Vec<&str> =
        grants["grants"].as_array().unwrap().iter().filter_map(|one| one["below"].as_str()).collect();
    below.sort_unstable();
    assert_eq!(below, ["/srv/App", "/srv/other"]);
}
