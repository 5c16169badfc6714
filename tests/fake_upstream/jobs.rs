//! Tasks of 2025-11-25: one tool that can only be called as a task.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::asking::ask;
use super::server::{FakeError, FakeReply, FakeRequest, FakeServer};

/// The tasks of the server, by id.
#[derive(Debug, Default)]
pub(crate) struct FakeTasks(Mutex<HashMap<String, FakeTask>>);

#[derive(Debug)]
struct FakeTask {
    /// Polls that are left before the task ends.
    polls: u64,
    arguments: Value,
    cancelled: bool,
}

impl FakeTask {
    fn shown(&self, id: &str) -> Value {
        let status = match (self.cancelled, self.polls, self.arguments["end"].as_str()) {
            (true, ..) | (_, 0, Some("cancelled")) => "cancelled",
            (_, 0, Some("error")) => "failed",
            (_, 0, Some("ask")) => "input_required",
            (_, 0, _) => "completed",
            _ => "working",
        };
        let at = "2026-01-01T00:00:00Z";
        json!({"taskId": id, "status": status, "statusMessage": format!("{} to go", self.polls), "createdAt": at,
            "lastUpdatedAt": at, "ttl": 60000, "pollInterval": 50})
    }
}

/// Returns the definition of the tool. Its task ends as `end` says after `polls` polls.
pub(crate) fn definition() -> Value {
    json!({"name": "job", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}})
}

impl FakeTasks {
    /// Starts a task.
    pub(crate) fn call(&self, params: &Value) -> Result<FakeReply, FakeError> {
        if params["task"]["ttl"].as_u64().is_none() {
            return Err(FakeError::new(-32601, "This tool is a task"));
        }
        let mut jobs = self.0.lock().unwrap();
        let id = format!("job-{}", jobs.len());
        let arguments = params["arguments"].clone();
        let job = FakeTask { polls: arguments["polls"].as_u64().unwrap_or(2), arguments, cancelled: false };
        let task = job.shown(&id);
        jobs.insert(id, job);
        Ok(FakeReply::of(json!({"task": task})))
    }

    /// If the task ends with a question, asks the client before the result, with `params` if the
    /// arguments have them; the result contains the answer.
    pub(crate) async fn question(&self, server: &Arc<FakeServer>, request: &FakeRequest) {
        let id = request.params["taskId"].as_str().unwrap_or_default();
        let asks = |job: &FakeTask| job.arguments["end"] == "ask";
        if request.method != "tasks/result" || !self.0.lock().unwrap().get(id).is_some_and(asks) {
            return;
        }
        let meta = json!({"io.modelcontextprotocol/related-task": {"taskId": id}});
        let schema = json!({"type": "object", "properties": {"sure": {"type": "boolean"}}});
        let given = self.0.lock().unwrap().get(id).map(|job| job.arguments["params"].clone()).unwrap_or_default();
        let usual = json!({"message": "Sure?", "requestedSchema": schema, "_meta": meta});
        let params = if given.is_object() { given } else { usual };
        let question = json!({"method": "elicitation/create", "params": params});
        if let Ok(answer) = ask(server, request, &json!({}), &json!(id), &question).await {
            self.0.lock().unwrap().get_mut(id).unwrap().arguments["answer"] = answer["result"]["action"].clone();
        }
    }

    /// Answers `tasks/get`, `tasks/result` and `tasks/cancel`.
    pub(crate) fn about(&self, method: &str, params: &Value) -> Result<FakeReply, FakeError> {
        let mut jobs = self.0.lock().unwrap();
        let id = params["taskId"].as_str().unwrap_or_default();
        let job = jobs.get_mut(id).ok_or_else(|| FakeError::params("Unknown task"))?;
        match method {
            "tasks/cancel" => job.cancelled = true,
            "tasks/result" if job.arguments["end"] == "error" => {
                return Err(FakeError::new(-32603, "The job broke the protocol"));
            }
            "tasks/result" => {
                let meta = json!({"io.modelcontextprotocol/related-task": {"taskId": id}});
                let text = job.arguments["answer"].as_str().unwrap_or("done");
                return Ok(FakeReply::of(json!({"content": [{"type": "text", "text": text}], "_meta": meta})));
            }
            _ => job.polls = job.polls.saturating_sub(1),
        }
        Ok(FakeReply::of(job.shown(id)))
    }
}
