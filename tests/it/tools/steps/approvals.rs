//! Open approvals as the command lists them.

use serde_json::{Value, json};

use super::super::harness::TestHome;
use super::super::process::{eventually, said};

pub(crate) fn list(world: &TestHome, what: &str) -> Vec<Value> {
    let output = world.run(&[what, "--json"]);
    assert!(output.status.success(), "{}", said(&output));
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    listed[what].as_array().cloned().unwrap()
}

/// Waits until there are open approvals and returns them: a process stores them for others shortly
/// after it asked.
pub(crate) fn open(world: &TestHome) -> Vec<Value> {
    eventually("a question is listed", || !list(world, "approvals").is_empty());
    list(world, "approvals")
}

/// Returns texts in many scripts, some of them misleading.
pub(crate) fn texts() -> Value {
    json!({
        "text": "第一章\nGrüße 👍\u{202e}\u{3164}\r\nlast\n",
        "path": "/srv/p\u{430}ypal",
        "file": "word ".repeat(4000),
        "old_text": "one\ntwo\n",
        "new_text": "one\n2\n",
    })
}

/// Checks how `approvals show` displays a call with those texts.
pub(crate) fn assert_shown(text: &str) {
    for line in [
        "says it is \"it 1\" (not verified)",
        "WARNING:   2 hidden characters",
        "WARNING:   letters of several scripts in one word: \"p\u{430}ypal\" (\u{430} is U+0430)",
        "path: \"/srv/p\u{430}ypal\"",
        "  | 第一章\n  | Grüße 👍\\u{202e}\\u{3164}\\r\n  | last\n  | \n",
        "  | one\n  - | two\n  + | 2\n",
        &"word ".repeat(4000),
        "If you allow it once, \"fx\" runs this tool",
        "headend approve ",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(!text.contains(['\u{202e}', '\u{3164}', '\r', '\u{1b}']), "{text}");
}
