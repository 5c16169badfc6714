//! Checks answers: first by searching for the bytes of a terse server, then by parsing.

use anyhow::{Context, bail, ensure};
use memchr::memmem;
use serde_json::Value;

use crate::http::WholeResponse;

/// One page of a list.
#[derive(Debug)]
pub(crate) struct ToolListPage {
    pub(crate) tools: usize,
    pub(crate) next: Option<String>,
}

/// Checks that `answer` has `notices` progress notices for token `id`, in order, then the result of
/// call `id` with `text`.
///
/// # Errors
/// When any other message came.
pub(crate) fn check(answer: &WholeResponse<'_>, id: u64, text: &[u8], notices: usize) -> anyhow::Result<()> {
    ensure!(answer.status == 200, "status {}: {}", answer.status, excerpt(answer.body));
    let mut seen = 0;
    let mut messages = messages(answer).peekable();
    while let Some(message) = messages.next() {
        if messages.peek().is_none() {
            ensure!(seen == notices, "{seen} of {notices} progress notices arrived");
            ensure!(is_result(message, id, text), "not the result of call {id}: {}", excerpt(message));
            return Ok(());
        }
        seen += 1;
        ensure!(is_notice(message, id, seen), "not progress {seen} of call {id}: {}", excerpt(message));
    }
    bail!("an answer without a message");
}

/// Reads one page of `tools/list`.
///
/// # Errors
/// When the answer is no such page or answers another request.
pub(crate) fn page(answer: &WholeResponse<'_>, id: u64) -> anyhow::Result<ToolListPage> {
    ensure!(answer.status == 200, "tools/list: status {}: {}", answer.status, excerpt(answer.body));
    let message = messages(answer).last().context("tools/list: an answer without a message")?;
    let tools = memmem::find_iter(message, br#""inputSchema":"#).count();
    let more = memmem::find(message, br#""nextCursor""#).is_some();
    if has_id(message, id) && tools > 0 && !more {
        return Ok(ToolListPage { tools, next: None });
    }
    let parsed = parsed(message, id)?;
    let next = parsed.pointer("/result/nextCursor").and_then(Value::as_str).map(str::to_owned);
    Ok(ToolListPage { tools: tools_of(&parsed).len(), next })
}

/// Returns the names of the tools on a page of `tools/list`.
///
/// # Errors
/// As [`page`].
pub(crate) fn names(answer: &WholeResponse<'_>, id: u64) -> anyhow::Result<Vec<String>> {
    ensure!(answer.status == 200, "tools/list: status {}: {}", answer.status, excerpt(answer.body));
    let parsed = parsed(messages(answer).last().context("tools/list: an answer without a message")?, id)?;
    let names = tools_of(&parsed).iter().filter_map(|tool| tool.get("name")?.as_str());
    Ok(names.map(str::to_owned).collect())
}

/// Parses a page.
fn parsed(message: &[u8], id: u64) -> anyhow::Result<Value> {
    let parsed: Value = serde_json::from_slice(message).context("tools/list: read the answer")?;
    let is_list = parsed.pointer("/result/tools").is_some_and(Value::is_array);
    let is_ours = parsed.get("id").and_then(Value::as_u64) == Some(id);
    ensure!(is_list && is_ours, "tools/list: not a list for request {id}: {}", excerpt(message));
    Ok(parsed)
}

fn tools_of(page: &Value) -> &[Value] {
    page.pointer("/result/tools").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the beginning of `body` for an error message.
pub(crate) fn excerpt(body: &[u8]) -> String {
    String::from_utf8_lossy(body.get(..300).unwrap_or(body)).into_owned()
}

/// Returns the messages of a body; in an event stream each `data` line is taken as one.
fn messages<'a>(answer: &WholeResponse<'a>) -> impl Iterator<Item = &'a [u8]> {
    let body = answer.body;
    let whole = Some(body).filter(|_| !answer.events);
    let events = if answer.events { body } else { &[] };
    let mut start = 0;
    let lines = memchr::memchr_iter(b'\n', events).filter_map(move |end| {
        let line = events.get(start..end)?;
        start = end + 1;
        Some(line.strip_prefix(b"data:")?.trim_ascii()).filter(|data| !data.is_empty())
    });
    whole.into_iter().chain(lines)
}

fn is_result(message: &[u8], id: u64, text: &[u8]) -> bool {
    if has_id(message, id) && has_text(message, text) {
        return true;
    }
    let Ok(parsed) = serde_json::from_slice::<Value>(message) else {
        return false;
    };
    parsed.get("id").and_then(Value::as_u64) == Some(id)
        && parsed.pointer("/result/content/0/text").and_then(Value::as_str).map(str::as_bytes) == Some(text)
}

fn is_notice(message: &[u8], token: u64, number: usize) -> bool {
    let exact = format!(r#""progress":{number},"#);
    let has = |needle: &str| memmem::find(message, needle.as_bytes()).is_some();
    if has("notifications/progress") && has(&format!(r#""progressToken":{token}"#)) && has(&exact) {
        return true;
    }
    let Ok(parsed) = serde_json::from_slice::<Value>(message) else {
        return false;
    };
    parsed.get("method").and_then(Value::as_str) == Some("notifications/progress")
        && parsed.pointer("/params/progressToken").and_then(Value::as_u64) == Some(token)
        && parsed.pointer("/params/progress").and_then(Value::as_f64).map(|progress| progress.to_string())
            == Some(number.to_string())
}

/// Returns whether the first `"id"` of the message is this number.
fn has_id(message: &[u8], id: u64) -> bool {
    let Some(rest) = after(message, br#""id":"#) else {
        return false;
    };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    rest.get(..digits) == Some(id.to_string().as_bytes())
}

/// Returns whether the first `"text"` of the message is this one, which needs no escapes.
fn has_text(message: &[u8], text: &[u8]) -> bool {
    after(message, br#""text":""#)
        .and_then(|rest| rest.strip_prefix(text))
        .is_some_and(|rest| rest.first() == Some(&b'"'))
}

fn after<'m>(message: &'m [u8], needle: &[u8]) -> Option<&'m [u8]> {
    memmem::find(message, needle).and_then(|at| message.get(at + needle.len()..))
}
