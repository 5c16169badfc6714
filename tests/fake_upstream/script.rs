//! Verbatim answers: a script's text for a request replaces the server's own answer.
//!
//! A script is a JSON object from `<method>` or `<method>/<name>` to lines: a string, `{"head",
//! "unit", "count", "tail"}` for a long one, or `{"storm", "count"}` for one that is repeated, ten
//! a millisecond. `${ID}` is the request's id, `${N}` the number of such requests so far.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;

use super::server::FakeRequest;

/// Lines for each request.
#[derive(Debug, Default)]
pub(crate) struct FakeScript {
    lines: HashMap<String, Vec<Value>>,
    asked: Mutex<HashMap<String, u64>>,
}

impl FakeScript {
    pub(crate) fn read(path: &Path) -> Self {
        let lines = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        Self { lines, asked: Mutex::default() }
    }

    /// Answers a request; `false` when the script has no answer for it.
    pub(crate) fn answers(&self, request: &FakeRequest, out: &mpsc::UnboundedSender<String>) -> bool {
        let named = format!("{}/{}", request.method, request.params["name"].as_str().unwrap_or_default());
        let keys = [named, request.method.clone()];
        let Some(key) = keys.into_iter().find(|key| self.lines.contains_key(key)) else { return false };
        let mut asked = self.asked.lock().unwrap();
        let count = asked.entry(key.clone()).or_default();
        *count += 1;
        let fill = |text: &str| text.replace("${ID}", &request.id.to_string()).replace("${N}", &count.to_string());
        for piece in &self.lines[&key] {
            let text = |member: &str| fill(piece[member].as_str().unwrap_or_default());
            let count = usize::try_from(piece["count"].as_u64().unwrap_or_default()).unwrap();
            match piece {
                Value::String(line) => drop(out.send(fill(line))),
                storm if storm.get("storm").is_some() => blow(text("storm"), count, out.clone()),
                _ => drop(out.send(format!("{}{}{}", text("head"), text("unit").repeat(count), text("tail")))),
            }
        }
        true
    }
}

fn blow(line: String, count: usize, out: mpsc::UnboundedSender<String>) {
    tokio::spawn(async move {
        let mut pace = tokio::time::interval(Duration::from_millis(1));
        for _ in 0..count / 10 {
            pace.tick().await;
            (0..10).for_each(|_| drop(out.send(line.clone())));
        }
    });
}
