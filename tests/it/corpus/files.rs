//! Plays configuration cases: `check` in a world of its own, `reload` against a running daemon.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use super::case::Case;
use super::stage::CorpusGateway;
use crate::tools::harness::{GatewaySetup, TestHome};

/// Plays the case and returns the differences.
pub(super) fn play(case: &Case, running: &CorpusGateway) -> Vec<String> {
    let mut wrong = Vec::new();
    let open_to_all = case.text("document").contains("mode 0666");
    let text = if open_to_all { GatewaySetup::new().text() } else { case.text("document").to_owned() };
    let world = TestHome::new();
    let path = world.write("case.toml", &text);
    if open_to_all {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    }
    let output = world.run(&["check", "--config", path.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr).to_lowercase();
    let wanted = case.expect("exit_code").and_then(Value::as_i64);
    if output.status.code().map(i64::from) != wanted {
        wrong.push(format!("exit {:?}, not {wanted:?}: {said}", output.status.code()));
    }
    if let Some(word) = case.expect("stderr").and_then(Value::as_str)
        && !said.contains(word)
    {
        wrong.push(format!("no {word} in {said:?}"));
    }
    if case.expect("reload").is_some() && !open_to_all {
        let reloaded = running.gateway.reload(&text);
        if reloaded.status.code() != Some(1) {
            wrong.push(format!("reload gave {:?}", reloaded.status));
        }
        if !running.gateway.modern().tool_names().contains(&"fx__echo".to_owned()) {
            wrong.push("the running configuration changed".to_owned());
        }
    }
    wrong
}
