//! Compares an answer with the answers that a case accepts.

use std::time::Duration;

use serde_json::{Value, json};

use super::case::Case;
use crate::tools::http::TestResponse;

/// The outcome of a case.
#[derive(Debug, Clone, Default)]
pub(super) struct CaseOutcome {
    pub(super) response: Option<TestResponse>,
    pub(super) closed: bool,
    pub(super) elapsed: Duration,
    pub(super) wrong: Vec<String>,
}

/// Checks all expectations about an HTTP answer.
pub(super) fn http(case: &Case, outcome: &CaseOutcome) -> Vec<String> {
    let mut wrong = Vec::new();
    if case.expects("close") && !outcome.closed {
        wrong.push("the connection stays open".to_owned());
    }
    if case.expect("within_ms").is_some() && outcome.elapsed > Duration::from_millis(case.within_ms() + 500) {
        wrong.push(format!("took {:?}", outcome.elapsed));
    }
    let Some(response) = &outcome.response else {
        return wrong;
    };
    let status = response.head.status;
    if let Some(accepted) = case.expect("http_status").and_then(Value::as_array)
        && !accepted.contains(&json!(status))
    {
        wrong.push(format!("status {status}, not {accepted:?}: {}", start(&response.text())));
    }
    if let Some(forbidden) = case.expect("forbid_interim").and_then(Value::as_u64)
        && response.head.interim.iter().any(|code| u64::from(*code) == forbidden)
    {
        wrong.push(format!("an interim {forbidden} was sent"));
    }
    wrong.extend(headers(case, response));
    let message: Value = serde_json::from_slice(&response.body).unwrap_or(Value::Null);
    let succeeded = case.expect("http_status").and_then(|list| list[0].as_u64()) == Some(200) && status == 200;
    if case.expect("jsonrpc_code").is_some() || case.expect("jsonrpc_id").is_some() {
        wrong.extend(rpc(case, &message, succeeded));
    }
    wrong.extend(members(case, &message));
    wrong
}

/// Checks code and id of one JSON-RPC answer.
pub(super) fn rpc(case: &Case, message: &Value, may_succeed: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let code = message.pointer("/error/code");
    let codes = case.expect("jsonrpc_code").and_then(Value::as_array);
    let must_succeed = codes.map_or(may_succeed, Vec::is_empty);
    let told = || start(&message.to_string());
    if must_succeed {
        if message.get("result").is_none() {
            wrong.push(format!("no result: {}", told()));
        }
    } else if let Some(codes) = codes
        && !code.is_some_and(|code| codes.contains(code))
    {
        wrong.push(format!("code {code:?}, not {codes:?}: {}", told()));
    }
    if let Some(accepted) = case.expect("jsonrpc_id") {
        let id = message.get("id").filter(|id| !id.is_null());
        let fits = |accepted: &Value| match accepted.as_str() {
            Some("absent") => id.is_none(),
            Some("absent-or-1") => id.is_none() || id == Some(&json!(1)),
            _ => id == Some(accepted),
        };
        let fit = accepted.as_array().map_or_else(|| fits(accepted), |list| list.iter().any(fits));
        if !fit {
            wrong.push(format!("id {id:?}, not {accepted}"));
        }
    }
    wrong
}

fn headers(case: &Case, response: &TestResponse) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, pattern) in case.expect("headers").and_then(Value::as_object).into_iter().flatten() {
        let pattern = pattern.as_str().unwrap();
        let value = response.head.header(name);
        let fits = match (pattern, value) {
            (_, None) => false,
            ("present", Some(_)) => true,
            ("[0-9]+", Some(value)) => !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()),
            (pattern, Some(value)) => {
                let plain = !pattern.contains(['*', '+', '[', '(', '\\', '|', '^', '$']);
                assert!(plain, "{}: teach the runner the pattern {pattern}", case.id);
                value.contains(pattern)
            }
        };
        if !fits {
            wrong.push(format!("{name}: {value:?}, not {pattern}"));
        }
    }
    for name in case.expect("forbid_headers").and_then(Value::as_array).into_iter().flatten() {
        if let Some(value) = response.head.header(name.as_str().unwrap()) {
            wrong.push(format!("{name} is {value}"));
        }
    }
    wrong
}

fn members(case: &Case, message: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, value) in case.expect("result_field").and_then(Value::as_object).into_iter().flatten() {
        if &message["result"][name] != value {
            wrong.push(format!("result.{name} is {}, not {value}", message["result"][name]));
        }
    }
    for name in case.expect("data_has").and_then(Value::as_array).into_iter().flatten() {
        if message["error"]["data"].get(name.as_str().unwrap()).is_none() {
            wrong.push(format!("error.data has no {name}"));
        }
    }
    if let Some(codes) = case.expect("array_codes").and_then(Value::as_array) {
        let mut found: Vec<Value> = Vec::new();
        for answer in message.as_array().into_iter().flatten() {
            found.push(answer.pointer("/error/code").cloned().unwrap_or(Value::Null));
        }
        let sorted = |list: &[Value]| {
            let mut texts: Vec<String> = list.iter().map(Value::to_string).collect();
            texts.sort();
            texts
        };
        if sorted(&found) != sorted(codes) {
            wrong.push(format!("codes {found:?}, not {codes:?}"));
        }
    }
    wrong
}

/// Returns the differences between two answers that must look alike; `whole` compares the header
/// fields too.
pub(super) fn same(one: &CaseOutcome, other: &CaseOutcome, whole: bool) -> Option<String> {
    let (Some(one), Some(other)) = (&one.response, &other.response) else {
        return Some("one of them has no answer".to_owned());
    };
    if one.head.status != other.head.status {
        return Some(format!("status {} and {}", one.head.status, other.head.status));
    }
    let fields = |response: &TestResponse| {
        let mut fields: Vec<String> = Vec::new();
        for (name, value) in &response.head.headers {
            if !name.eq_ignore_ascii_case("date") {
                fields.push(format!("{}: {value}", name.to_ascii_lowercase()));
            }
        }
        fields
    };
    if whole && fields(one) != fields(other) {
        return Some(format!("{:?} and {:?}", fields(one), fields(other)));
    }
    let (one, other) = (plain(one), plain(other));
    (one != other).then(|| format!("{one} and {other}"))
}

/// Returns the body without the names and ids that must differ.
fn plain(response: &TestResponse) -> String {
    let mut message: Value = serde_json::from_slice(&response.body).unwrap_or(Value::Null);
    if message.is_null() {
        return response.text();
    }
    if let Some(data) = message.pointer_mut("/error/data").and_then(Value::as_object_mut) {
        data.retain(|name, _| !name.starts_with("call"));
    }
    message.to_string().replace("fx__denied", "NAME").replace("fx__nope", "NAME")
}

fn start(text: &str) -> String {
    text.chars().take(300).collect()
}
