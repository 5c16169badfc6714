//! Tasks of both generations: calls that their server continues after its first response.
//!
//! The extension of 2026-07-28 ([`super::extension`]) passes to clients that declare it. The core
//! feature of 2025-11-25 is used towards servers only, for tools that cannot be called without it.
//! Sources: MCP extension `io.modelcontextprotocol/tasks`; MCP 2025-11-25, basic/utilities/tasks.
//!
//! | client | server | what happens |
//! |---|---|---|
//! | declares the extension | modern, with it | the task passes; its id is sealed to caller, upstream and tool (`engine::task_id`). `tasks/get`, `tasks/update` and `tasks/cancel` go to that upstream, decided like a call of that tool, except that limits do not count them |
//! | any other | modern, tool needs it | the server refuses the call with -32021, which proves that it did not execute it; the gateway makes the call again with the extension declared and polls its task until it ends (`upstream::call::task`) |
//! | any | 2025-11-25, tool needs a task | the gateway makes the call as a task and polls it likewise; tools with optional tasks are called without one |
//!
//! The extension is offered while some upstream has it. A call whose task the gateway polls is one
//! call in all other respects: it keeps its slot and its deadlines, of which the hard one bounds
//! the whole task; questions of the task reach the client like those of a call; status messages
//! become progress; and the task is cancelled when its client is gone or its time is over.

use std::time::Duration;

use crate::mcp::asking::elicitation::ElicitationTerms;
use crate::mcp::asking::input::{InputError, check_requests};
use crate::mcp::voice::{self, RemovedWords};
use crate::wire::code;
use crate::wire::json::raw::{RawJson, RawObject};
use crate::wire::message::error_object;

/// The time for which a client can ask for a task, from its creation on.
pub const LIFE: Duration = Duration::from_secs(24 * 3600);
/// The interval between two polls of a task whose server names none, and the bounds of the interval
/// that it may name.
const POLL: Duration = Duration::from_secs(1);
const POLL_LEAST: Duration = Duration::from_millis(50);
const POLL_MOST: Duration = Duration::from_secs(10);
/// The members of a task that reach the client.
const MEMBERS: [&str; 12] = [
    "resultType",
    "taskId",
    "status",
    "statusMessage",
    "createdAt",
    "lastUpdatedAt",
    "ttlMs",
    "pollIntervalMs",
    "inputRequests",
    "result",
    "error",
    "_meta",
];

/// Reports whether a server of 2025-11-25 accepts tool calls as tasks.
pub(crate) fn accepts_task_calls(capabilities: &RawObject) -> bool {
    let section = |raw: Option<&RawJson>, name: &str| RawObject::parse(raw?).ok()?.get(name).cloned();
    let requests = section(capabilities.get("tasks"), "requests");
    let tools = section(requests.as_ref(), "tools");
    section(tools.as_ref(), "call").is_some_and(|call| call.is_object())
}

/// Reports whether a tool of 2025-11-25 can only be called as a task.
pub fn is_required(definition: &RawObject) -> bool {
    let execution = definition.object("execution");
    execution.is_some_and(|execution| execution.string("taskSupport").as_deref() == Some("required"))
}

/// The status of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum TaskStatus {
    Working,
    InputRequired,
    Completed,
    Failed,
    Cancelled,
}

impl TaskStatus {
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// A task as its server describes it.
#[derive(Debug)]
pub struct ServerTask {
    pub id: String,
    pub status: TaskStatus,
    pub message: Option<String>,
    /// The time to wait before the next poll.
    pub poll: Duration,
    /// Counts of the reserved words that were removed from its error.
    pub taken: RemovedWords,
    object: RawObject,
}

impl ServerTask {
    /// Reads the task in the response to a tool call. `None` for any other result.
    pub fn created(result: &RawJson, legacy: bool) -> Option<Self> {
        let object = RawObject::parse(result).ok()?;
        if legacy {
            return Self::read(object.object("task")?);
        }
        (object.string("resultType").as_deref() == Some("task")).then(|| Self::read(object)).flatten()
    }

    /// Reads the task in the response to `tasks/get`; replaces an error that could be taken for the
    /// gateway's.
    pub fn got(result: &RawJson, upstream: &str) -> Option<Self> {
        let mut task = Self::read(RawObject::parse(result).ok()?)?;
        let error = task.object.get("error");
        if let Some(instead) = error.and_then(|error| voice::replace_own_error(error, upstream, &mut task.taken)) {
            task.object.set("error", instead);
        }
        Some(task)
    }

    /// Returns how long the server keeps the task, at most [`LIFE`].
    pub fn life(&self) -> Duration {
        let millis = self.object.get("ttlMs").and_then(|raw| raw.parse::<u64>().ok());
        millis.map_or(LIFE, |millis| Duration::from_millis(millis).min(LIFE))
    }

    /// Reads a task; `None` without an id or a known status.
    fn read(object: RawObject) -> Option<Self> {
        let (id, status) = (object.string("taskId")?, object.string("status")?.parse().ok()?);
        let interval = object.get("pollIntervalMs").or_else(|| object.get("pollInterval"));
        let interval = interval.and_then(|raw| raw.parse::<f64>().ok()).filter(|ms| ms.is_finite());
        // Negative and huge numbers become the longest interval.
        let poll = interval.map_or(POLL, |ms| Duration::try_from_secs_f64(ms / 1000.0).unwrap_or(POLL_MOST));
        let poll = poll.clamp(POLL_LEAST, POLL_MOST);
        let message = object.string("statusMessage");
        Some(Self { id, status, message, poll, taken: RemovedWords::default(), object })
    }

    /// Returns the outcome of the call: the result of a completed task, or the error object of a
    /// failed one.
    pub fn outcome(&self) -> Option<Result<RawJson, RawJson>> {
        match self.status {
            TaskStatus::Completed => Some(Ok(self.object.get("result").and_then(strip_task_members)?)),
            TaskStatus::Failed => Some(Err(self.object.get("error").filter(|raw| raw.is_object())?.clone())),
            TaskStatus::Working | TaskStatus::InputRequired | TaskStatus::Cancelled => None,
        }
    }

    /// Returns the server's requests for input, by key, unchecked.
    pub fn asks(&self) -> Option<Vec<(String, RawJson)>> {
        RawObject::parse(self.object.get("inputRequests")?).ok()?.into_sorted().ok()
    }

    /// Writes the response to a tool call for the client, under an id of headend's own.
    pub fn for_caller(mut self, id: &str) -> RawJson {
        self.object.retain(|name| {
            MEMBERS.contains(&name) && !matches!(name, "inputRequests" | "result" | "error" | "requestState")
        });
        self.object.set("taskId", RawJson::string(id));
        self.bound_life();
        self.object.encode()
    }

    /// Limits `ttlMs` to [`LIFE`]: no client is promised a task for longer than its id is valid.
    fn bound_life(&mut self) {
        let ttl = self.object.get("ttlMs").and_then(|raw| raw.parse::<f64>().ok());
        let most = LIFE.as_millis();
        if ttl.is_none_or(|ttl| Duration::try_from_secs_f64(ttl / 1000.0).is_ok_and(|ttl| ttl > LIFE)) {
            self.object.set("ttlMs", RawJson::trusted(most.to_string()));
        }
    }

    /// Writes the response to `tasks/get` for the client, under the id that it sent. Also returns
    /// the questions that it does not get because they are declined, by key.
    ///
    /// # Errors
    /// [`InputError`]: the server asks for input that the client did not offer, or its result
    /// cannot be read.
    pub fn shown(
        mut self,
        id: &str,
        terms: &ElicitationTerms,
    ) -> Result<(RawJson, Vec<(String, InputError)>), InputError> {
        let status = self.status;
        self.object.retain(|name| {
            MEMBERS.contains(&name)
                && match name {
                    "inputRequests" => status == TaskStatus::InputRequired,
                    "result" => status == TaskStatus::Completed,
                    "error" => status == TaskStatus::Failed,
                    _ => true,
                }
        });
        self.object.set("resultType", RawJson::string("complete"));
        self.object.set("taskId", RawJson::string(id));
        self.bound_life();
        let mut declined = Vec::new();
        if let Some(requests) = self.object.get("inputRequests") {
            let passed;
            (passed, declined) = check_requests(requests, terms)?;
            if !declined.is_empty() && passed.is_empty() {
                self.object.remove("inputRequests");
                self.object.set("status", RawJson::string("working"));
            } else {
                self.object.set("inputRequests", passed.encode());
            }
        }
        if let Some(result) = self.object.get("result") {
            self.object.set("result", strip_task_members(result).ok_or(InputError::Malformed)?);
        }
        if let Some(error) = self.object.get("error").map(outward) {
            self.object.set("error", error);
        }
        Ok((self.object.encode(), declined))
    }
}

/// Returns a result inside of a task without the members that belong to tasks of 2025-11-25.
///
/// `None` if it is no object or has a duplicate key, of which one would stay.
pub(crate) fn strip_task_members(result: &RawJson) -> Option<RawJson> {
    let mut object = RawObject::parse(result).ok()?;
    // Removed, since the task is the envelope here; a result that asks for input or is itself a
    // task ends no task.
    object.remove("resultType");
    if let Some(meta) = object.remove("_meta").and_then(|raw| RawObject::parse(&raw).ok()) {
        let mut meta = meta;
        meta.retain(|key| !key.ends_with("/related-task"));
        if !meta.is_empty() {
            object.set("_meta", meta.encode());
        }
    }
    Some(object.encode())
}

/// Returns an error inside of a task, with a code that may pass.
fn outward(error: &RawJson) -> RawJson {
    let error = RawObject::parse(error).unwrap_or_default();
    let code = error.get("code").and_then(|raw| raw.parse::<i64>().ok()).unwrap_or(code::INTERNAL);
    if code == code::URL_ELICITATION_REQUIRED {
        // Pages to open are requested by a task's own questions; here neither the pages nor the
        // words about them would be checked.
        return error_object(code::INTERNAL, "The server wants a page opened first.", None);
    }
    let message = error.string("message").unwrap_or_default();
    error_object(code::outward(code), &message, error.get("data"))
}

/// Builds the result of a call whose task was cancelled at its server.
pub fn cancelled(upstream: &str, message: Option<&str>) -> RawJson {
    let why = message.map(|message| format!(": {message}")).unwrap_or_default();
    let text = RawJson::string(&format!("The server `{upstream}` cancelled this call{why}"));
    RawJson::trusted(format!(r#"{{"content":[{{"type":"text","text":{}}}],"isError":true}}"#, text.text()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::asking::kinds::InputKinds;

    fn raw(text: &str) -> RawJson {
        RawJson::trusted(text.to_owned())
    }

    #[test]
    fn the_older_generation_is_declared_for_tool_calls() {
        for (label, text, want) in [
            ("tool calls", r#"{"tasks":{"requests":{"tools":{"call":{}}}}}"#, true),
            ("no tool calls", r#"{"tasks":{"requests":{"sampling":{"createMessage":{}}}}}"#, false),
            ("the extension", r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#, false),
        ] {
            assert_eq!(accepts_task_calls(&RawObject::parse(&raw(text)).unwrap()), want, "{label}");
        }
    }

    #[test]
    fn a_new_task_passes_under_our_id_with_nothing_that_does_not_belong_to_it() {
        let text = r#"{"resultType":"task","taskId":"theirs","status":"working","ttlMs":null,"requestState":"s","result":{},"x":1}"#;
        let task = ServerTask::created(&raw(text), false).unwrap();
        assert_eq!(
            task.for_caller("ours").text(),
            r#"{"resultType":"task","taskId":"ours","status":"working","ttlMs":86400000}"#
        );
        for (label, text, legacy) in [
            ("complete", r#"{"resultType":"complete","taskId":"t","status":"working"}"#, false),
            ("no id", r#"{"resultType":"task","status":"working"}"#, false),
            ("unknown status", r#"{"resultType":"task","taskId":"t","status":"sleeping"}"#, false),
            ("flat in 2025-11-25", r#"{"taskId":"t","status":"working"}"#, true),
        ] {
            assert!(ServerTask::created(&raw(text), legacy).is_none(), "{label}");
        }
        let nested = r#"{"task":{"taskId":"t","status":"working","pollInterval":250}}"#;
        let nested = ServerTask::created(&raw(nested), true).unwrap();
        assert_eq!((nested.id.as_str(), nested.poll), ("t", Duration::from_millis(250)));
    }

    #[test]
    fn a_task_is_asked_after_neither_too_often_nor_too_seldom() {
        for (interval, want) in [
            ("1", POLL_LEAST),
            ("700", Duration::from_millis(700)),
            ("1e300", POLL_MOST),
            ("-4", POLL_MOST),
            ("{}", POLL),
        ] {
            let text = format!(r#"{{"taskId":"t","status":"working","pollIntervalMs":{interval}}}"#);
            assert_eq!(ServerTask::got(&raw(&text), "git").unwrap().poll, want, "{interval}");
        }
    }

    fn shown(text: &str, offered: InputKinds) -> Result<String, InputError> {
        let terms = ElicitationTerms::for_tests(offered);
        ServerTask::got(&raw(text), "git").unwrap().shown("ours", &terms).map(|(raw, _)| raw.text().into_owned())
    }

    #[test]
    fn what_a_task_asks_for_is_gated_and_names_its_server() {
        let asks = r#"{"resultType":"task","taskId":"t","status":"input_required","ttlMs":9,"inputRequests":{"k":{"method":"elicitation/create","params":{"message":"Sure?"}}},"requestState":"s"}"#;
        let form = InputKinds { form: true, ..InputKinds::default() };
        let passed = shown(asks, form).unwrap();
        assert_eq!(
            passed,
            r#"{"resultType":"complete","taskId":"ours","status":"input_required","ttlMs":9,"inputRequests":{"k":{"method":"elicitation/create","params":{"message":"[git] Sure? [git]"}}}}"#
        );
        assert_eq!(shown(asks, InputKinds::default()), Err(InputError::NotOffered));
        let secret = asks.replace(
            "\"message\":\"Sure?\"",
            r#""message":"Who?","requestedSchema":{"properties":{"pw":{"format":"password"}}}"#,
        );
        let passed = shown(&secret, form).unwrap();
        assert!(passed.contains(r#""status":"working""#) && !passed.contains("inputRequests"), "{passed}");
    }

    #[test]
    fn a_failed_task_names_no_page_that_nothing_judged() {
        let failed = r#"{"taskId":"t","status":"failed","error":{"code":-32042,"message":"open javascript:alert(1)",
            "data":{"elicitations":[{"url":"javascript:alert(1)"}]}}}"#;
        let passed = shown(failed, InputKinds { url: true, ..InputKinds::default() }).unwrap();
        assert!(passed.contains(r#""code":-32603"#) && !passed.contains("javascript"), "{passed}");
    }

    #[test]
    fn an_ended_task_carries_what_its_status_says_and_no_related_task() {
        let done = r#"{"resultType":"complete","taskId":"t","status":"completed","ttlMs":9,"result":{"resultType":"complete","content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}},"error":{"code":1}}"#;
        assert_eq!(
            shown(done, InputKinds::default()).unwrap(),
            r#"{"resultType":"complete","taskId":"ours","status":"completed","ttlMs":9,"result":{"content":[]}}"#
        );
        let failed = r#"{"taskId":"t","status":"failed","error":{"code":-32001,"message":"m"}}"#;
        let passed = shown(failed, InputKinds::default()).unwrap();
        assert!(passed.contains(r#""error":{"code":-32603,"message":"m"}"#), "{passed}");
        assert!(ServerTask::got(&raw(failed), "git").unwrap().outcome().unwrap().is_err());
        assert!(
            ServerTask::got(&raw(r#"{"taskId":"t","status":"completed"}"#), "git").unwrap().outcome().is_none(),
            "no result"
        );
    }

    #[test]
    fn a_task_ends_with_no_result_that_readers_understand_differently() {
        for result in [
            r#"{"resultType":"complete","resultType":"input_required","inputRequests":{}}"#,
            r#"{"content":[],"content":[]}"#,
            "[]",
        ] {
            let done = format!(r#"{{"taskId":"t","status":"completed","result":{result}}}"#);
            assert_eq!(shown(&done, InputKinds::default()), Err(InputError::Malformed), "{result}");
            assert!(ServerTask::got(&raw(&done), "git").unwrap().outcome().is_none(), "{result}");
        }
    }
}
