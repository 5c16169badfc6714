//! Calls that a simulated server continues as tasks, in both generations of tasks.

use super::chance::WorldChance;
use super::server::{WorldQuestionKind, WorldServer};
use super::truth::{WorldTruth, numbers};
use super::words::{self, Words, about, member, members, quoted};
use crate::mcp::extension::TASKS;

/// A call that became a task.
#[derive(Debug)]
pub(super) struct WorldTask {
    n: u64,
    capabilities: String,
    status: &'static str,
    /// The open question: its number, and its request or its entry in `inputRequests`.
    open: Option<(u64, String)>,
    /// The id and the stream of the request that waits for the result; legacy servers have one.
    waits: Option<(String, Option<u64>)>,
}

impl WorldTask {
    /// Returns whether the task has not ended.
    pub(super) fn is_open(&self) -> bool {
        self.status != "completed"
    }
}

impl WorldServer {
    /// Begins a task for a call of the tool whose calls are tasks.
    pub(super) fn begins(
        &mut self,
        words: &Words<'_>,
        on: Option<u64>,
        n: u64,
        capabilities: String,
        truth: &mut WorldTruth,
    ) {
        if self.is_modern() && !capabilities.contains("/tasks") {
            truth.proved(n);
            let error = format!(r#"{{"code":-32021,"message":"m","data":{}}}"#, TASKS.required_data().text());
            return self.say(on, words::error(words.id, &error), true);
        }
        assert!(self.is_modern() || member(words.params, "task").is_some(), "call {n} is no task: {words:?}");
        truth.took(n);
        let task = WorldTask { n, capabilities, status: "working", open: None, waits: None };
        let text = match self.is_modern() {
            true => self.shown(&task, r#""resultType":"task","#),
            false => format!(r#"{{"task":{}}}"#, self.shown(&task, "")),
        };
        self.tasks.push(task);
        self.say(on, words::result(words.id, &text), true);
    }

    fn shown(&self, task: &WorldTask, head: &str) -> String {
        let WorldTask { n, status, open, .. } = task;
        let asked =
            open.as_ref().filter(|_| self.is_modern()).map(|(_, entry)| format!(r#","inputRequests":{{{entry}}}"#));
        let result = if *status == "completed" && self.is_modern() {
            format!(r#","result":{{"content":[{{"type":"text","text":"c={n}"}}]}}"#)
        } else {
            String::new()
        };
        let asked = asked.unwrap_or_default();
        format!(
            r#"{{{head}"taskId":"t={n}","status":"{status}","pollIntervalMs":50,"pollInterval":50{asked}{result}}}"#
        )
    }

    /// Answers a request about a task.
    pub(super) fn about_task(&mut self, words: &Words<'_>, on: Option<u64>, truth: &mut WorldTruth) {
        let n = member(words.params, "taskId").and_then(|id| about(id, "t=")).expect("a task that this server named");
        let Some(at) = self.tasks.iter().position(|task| task.n == n) else {
            return self.say(on, words::error(words.id, r#"{"code":-32602,"message":"no such task"}"#), true);
        };
        let text = match words.method {
            "tasks/get" => {
                self.shown(&self.tasks[at], if self.is_modern() { r#""resultType":"complete","# } else { "" })
            }
            "tasks/update" => {
                for (key, response) in members(member(words.params, "inputResponses").unwrap_or("{}")) {
                    let (of, k) = numbers(key, "k=").expect("a key that this server gave out");
                    assert_eq!(of, n, "task {n} was given an answer about call {of}");
                    truth.heard(of, k, response);
                    let task = &mut self.tasks[at];
                    if task.open.as_ref().is_some_and(|(open, _)| *open == k) {
                        (task.open, task.status) = (None, "working");
                    }
                }
                r#"{"resultType":"complete"}"#.to_owned()
            }
            "tasks/cancel" => {
                self.tasks.swap_remove(at);
                r#"{"resultType":"complete"}"#.to_owned()
            }
            _ => {
                self.tasks[at].waits = Some((words.id.to_owned(), on));
                return self.asks_in_result(at);
            }
        };
        self.say(on, words::result(words.id, &text), true);
    }

    /// Lets a legacy task ask, or end, on the stream of the request that waits for its result.
    fn asks_in_result(&mut self, at: usize) {
        let WorldTask { n, status, open, waits, .. } = &mut self.tasks[at];
        let Some((id, on)) = waits.clone() else { return };
        if *status == "completed" {
            let text = words::result(&id, &format!(r#"{{"content":[{{"type":"text","text":"c={n}"}}]}}"#));
            self.tasks.swap_remove(at);
            return self.say(on, text, true);
        }
        if let Some((k, request)) = open
            && !request.is_empty()
        {
            let text = std::mem::take(request).replace("\"ID\"", &quoted(&format!("k={n}-{k}")));
            self.say(on, text, false);
        }
    }

    /// Continues one of its tasks; returns whether any is open.
    pub(super) fn works(&mut self, ends: bool, chance: &mut WorldChance, truth: &mut WorldTruth) -> bool {
        let live: Vec<usize> = (0..self.tasks.len()).filter(|at| self.tasks[*at].status != "completed").collect();
        if live.is_empty() {
            return false;
        }
        let (at, is_modern) = (chance.pick(&live), self.is_modern());
        let WorldTask { n, capabilities, open, .. } = &self.tasks[at];
        let kinds: Vec<WorldQuestionKind> =
            WorldQuestionKind::ALL.into_iter().filter(|kind| kind.is_in(capabilities)).collect();
        let n = *n;
        if ends || kinds.is_empty() || chance.one_in(2) {
            if open.is_none() || ends {
                truth.answered(n);
                (self.tasks[at].status, self.tasks[at].open) = ("completed", None);
                self.asks_in_result(at);
            }
            return true;
        }
        if open.is_none() {
            let (k, kind) = (truth.new_question(n), chance.pick(&kinds));
            let (method, params) = (kind.method(), kind.params(n, k));
            let text = match is_modern {
                true => format!(r#""k={n}-{k}":{{"method":"{method}","params":{params}}}"#),
                false => words::request("\"ID\"", method, &params),
            };
            (self.tasks[at].status, self.tasks[at].open) = ("input_required", Some((k, text)));
            self.asks_in_result(at);
        }
        true
    }

    /// Notes that the question of a legacy task is answered.
    pub(super) fn task_answered(&mut self, k: u64) {
        for task in self.tasks.iter_mut().filter(|task| task.open.as_ref().is_some_and(|(open, _)| *open == k)) {
            (task.open, task.status) = (None, "working");
        }
    }

    /// Forgets requests that wait for the result of a task.
    pub(super) fn result_unwanted(&mut self, is_it: impl Fn(&str, Option<u64>) -> bool) {
        for task in &mut self.tasks {
            task.waits = task.waits.take().filter(|(id, on)| !is_it(id, *on));
        }
    }
}
