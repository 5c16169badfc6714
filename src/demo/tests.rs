use std::io::{self, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::server::{Demo, envelope, serve};
use super::{lab::LabDemo, notes::NotesDemo, time::TimeDemo};

#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends the messages to a server and returns its answers, in order of arrival.
fn talk(demo: impl Demo, messages: &[Value]) -> Vec<Value> {
    let page = Page::default();
    let text: String = messages.iter().map(|message| format!("{message}\n")).collect();
    serve(demo, &mut text.as_bytes(), page.clone()).expect("memory does not fail");
    let bytes = page.0.lock().clone();
    let text = String::from_utf8(bytes).expect("JSON is UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "a literal reads better without a reference")]
fn request(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn answer(lines: &[Value], id: u64) -> Value {
    lines.iter().find(|line| line["id"] == id).cloned().unwrap_or_else(|| json!({"no answer": id, "in": lines}))
}

#[test]
fn both_eras_are_served() {
    let hello =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let lines = talk(
        TimeDemo,
        &[
            request(1, "initialize", hello),
            request(2, "server/discover", json!({"_meta": envelope()})),
            request(3, "server/discover", json!({})),
            request(4, "tools/list", json!({"_meta": envelope()})),
        ],
    );
    assert_eq!(answer(&lines, 1)["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(answer(&lines, 2)["result"]["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(answer(&lines, 3)["error"]["code"], -32601);
    assert_eq!(answer(&lines, 4)["result"]["resultType"], "complete");
}

#[test]
fn a_moment_is_converted() {
    let arguments = json!({"time": "2026-07-28T22:30:00Z", "offset": "+02:00"});
    let lines = talk(TimeDemo, &[request(1, "tools/call", json!({"name": "convert", "arguments": arguments}))]);
    assert_eq!(answer(&lines, 1)["result"]["content"][0]["text"], "2026-07-29T00:30:00+02:00");
}

#[test]
fn an_offset_of_another_type_is_refused() {
    for wrong in [json!(2), json!(true), json!({}), json!(["+02:00"])] {
        for (tool, arguments) in
            [("now", json!({"offset": wrong})), ("convert", json!({"time": "2026-07-28T22:30:00Z", "offset": wrong}))]
        {
            let lines = talk(TimeDemo, &[request(1, "tools/call", json!({"name": tool, "arguments": arguments}))]);
            let result = &answer(&lines, 1)["result"];
            assert_eq!(result["isError"], true, "{tool} {wrong}");
            assert_eq!(result["content"][0]["text"], "`offset` must be a string such as +02:00.");
        }
    }
    let lines = talk(TimeDemo, &[request(1, "tools/call", json!({"name": "now", "arguments": {"offset": null}}))]);
    assert_eq!(answer(&lines, 1)["result"]["isError"], false, "null is absent");
}

#[test]
fn a_note_becomes_a_resource_and_the_change_is_told() {
    let note = json!({"title": "T", "text": "body"});
    let lines = talk(
        NotesDemo::default(),
        &[
            request(
                1,
                "subscriptions/listen",
                json!({"notifications": {"resourcesListChanged": true}, "_meta": envelope()}),
            ),
            request(2, "tools/call", json!({"name": "add", "arguments": note, "_meta": envelope()})),
        ],
    );
    let told = |method: &str| lines.iter().any(|line| line["method"] == method);
    assert!(told("notifications/subscriptions/acknowledged"), "{lines:?}");
    assert!(told("notifications/resources/list_changed"), "{lines:?}");
    assert_eq!(answer(&lines, 2)["result"]["content"][0]["text"], "Added note://2.");
}

#[test]
fn progress_comes_before_the_answer() {
    let params =
        json!({"name": "countdown", "arguments": {"steps": 3, "delay_ms": 0}, "_meta": {"progressToken": "p"}});
    let page = talk(LabDemo, &[request(1, "tools/call", params)]);
    let steps: Vec<&Value> = page.iter().map(|line| &line["params"]["progress"]).collect();
    assert_eq!(steps, [&json!(1), &json!(2), &json!(3), &Value::Null], "{page:?}");
}

#[test]
fn a_cancelled_call_is_not_answered() {
    let lines = talk(
        LabDemo,
        &[
            request(1, "tools/call", json!({"name": "slow", "arguments": {"ms": 60_000}})),
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
            request(2, "ping", json!({})),
        ],
    );
    assert_eq!(lines, [json!({"jsonrpc": "2.0", "id": 2, "result": {}})]);
}
