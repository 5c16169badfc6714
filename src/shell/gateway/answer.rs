//! Answers to requests: labels of a call for metrics and logs, and the wording of refusals.

use std::time::Instant;

pub use crate::engine::answer::{RequestAnswer, invalid_params, method_not_found};
use crate::engine::failure::CallFailure;
use crate::engine::route::RouteError;
use crate::mcp::method::Method;
use crate::mcp::version::Revision;
use crate::telemetry::metrics::MethodLabel;
use crate::wire::code;
use crate::wire::json::raw::{RawJson, RawObject};

/// A call's method, number and arrival, for metrics, logs and refusals.
#[derive(Clone, Copy, Debug)]
pub struct CallLabels {
    pub method: Method,
    pub label: MethodLabel,
    pub call: u64,
    pub arrived: Instant,
}

/// Returns the answer for a call that the gateway refused: a tool result for a tool call, else an
/// error. A lack of scopes is an error of each.
pub fn refusal_answer(failure: &CallFailure, labels: &CallLabels, revision: Revision) -> RequestAnswer {
    if labels.method == Method::ToolsCall && failure.scopes.is_none() {
        RequestAnswer::ok(failure.tool_result(labels.call, revision))
    } else {
        error_answer(failure, labels.call)
    }
}

/// Returns the error for a request that the gateway refused. `call` is its number. For a lack of
/// scopes the HTTP status is 403, so that a client asks for more of them.
pub fn error_answer(failure: &CallFailure, call: u64) -> RequestAnswer {
    let answer = RequestAnswer::failed(failure.error_object(call));
    match &failure.scopes {
        Some(scopes) => RequestAnswer { scopes: Some(scopes.clone()), ..answer.with_status(403) },
        None => answer,
    }
}

/// Returns the answer for a request that names no item the client can see; unknown and hidden items
/// look the same.
pub fn unknown_item_answer(error: &RouteError, params: &RawObject, revision: Revision) -> RequestAnswer {
    if !matches!(error, RouteError::UnknownResource(_)) {
        return RequestAnswer::error(code::INVALID_PARAMS, &error.to_string(), None);
    }
    let uri = params.get("uri").cloned().unwrap_or_else(|| RawJson::string(""));
    let data = RawJson::trusted(format!(r#"{{"uri":{}}}"#, uri.text()));
    RequestAnswer::error(revision.features().resource_not_found, &error.to_string(), Some(&data))
}

/// Returns an empty completion: completions are declared to clients even if this upstream has none.
pub(super) fn no_completions(revision: Revision) -> RawJson {
    let head = revision.features().result_head;
    RawJson::trusted(format!(r#"{{{head}"completion":{{"values":[],"total":0,"hasMore":false}}}}"#))
}

/// Returns the metrics label of a method.
#[expect(clippy::wildcard_enum_match_arm, reason = "only calls are counted by method")]
pub(super) fn label(method: Method) -> MethodLabel {
    match method {
        Method::ToolsCall => MethodLabel::ToolsCall,
        Method::PromptsGet => MethodLabel::PromptsGet,
        Method::ResourcesRead => MethodLabel::ResourcesRead,
        Method::Complete => MethodLabel::Complete,
        _ => MethodLabel::Other,
    }
}
