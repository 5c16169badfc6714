//! Translates an upstream's outcome for a client.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::gateway::answer::RequestAnswer;
use crate::mcp::asking::elicitation::bound_message;
use crate::mcp::asking::input::{InputError, RequestsByKey};
use crate::mcp::method::Method;
use crate::mcp::version::{Era, Revision};
use crate::wire::code;
use crate::wire::json::raw::{RawJson, RawObject};
use crate::wire::json::tokens::has_escaped_ascii;
use crate::wire::message::error_object;

/// Whether a tool's result says `"isError": true`.
pub(super) fn is_tool_error(raw: &RawJson) -> bool {
    // Built once: preparing a search costs as much as searching most results.
    static IS_ERROR: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"isError\""));
    let text = raw.bytes();
    let mut said = IS_ERROR.find_iter(text);
    let Some(at) = said.next() else { return false };
    // Written once and as false, as by most servers, it is false wherever it stands; no parse
    // needed.
    let is_denied = text.get(at..).is_some_and(|text| text.starts_with(br#""isError":false"#));
    if is_denied && said.next().is_none() && !has_escaped_ascii(text, |c| c.is_ascii_alphabetic()) {
        return false;
    }
    RawObject::parse(raw).is_ok_and(|o| o.is_true("isError"))
}

/// Translates an upstream's error for the client's revision. `wanted`: the pages that an error
/// -32042 wants opened, or why they are not.
///
/// Source: the error table of ARCHITECTURE.md.
pub fn translate(
    method: Method,
    raw: &RawJson,
    revision: Revision,
    wanted: &Result<RequestsByKey, InputError>,
) -> RequestAnswer {
    let Ok(mut object) = RawObject::parse(raw) else {
        return RequestAnswer::error(code::INTERNAL, "The server answered with an error that cannot be read.", None);
    };
    let code = object.get("code").and_then(|raw| raw.parse::<i64>().ok()).unwrap_or(code::INTERNAL);
    let message = object.string("message").unwrap_or_else(|| "The server gave no message.".to_owned());
    let not_found = matches!(method, Method::ResourcesRead | Method::ResourcesSubscribe)
        && code != code::URL_ELICITATION_REQUIRED
        && (code == code::RESOURCE_NOT_FOUND || message.to_ascii_lowercase().contains("not found"));
    let outward = match code {
        _ if not_found => revision.features().resource_not_found,
        code::URL_ELICITATION_REQUIRED => {
            match wanted {
                Ok(pages) if revision.features().elicitation_ids => return url_elicitation_error(&message, pages),
                Err(why) if why.is_declined() => return RequestAnswer::error(code::INTERNAL, &why.to_string(), None),
                Ok(_) | Err(_) => {}
            }
            // Not the server's own words: they may hold the address too.
            let text = "A page must be opened first, which this client cannot be asked for.";
            return capability_answer(method, text, None, revision);
        }
        code::MISSING_CAPABILITY => return missing_capability(method, &object, &message, revision),
        code => code::outward(code),
    };
    object.retain(|name| matches!(name, "code" | "message" | "data"));
    object.set("code", RawJson::trusted(outward.to_string()));
    object.set("message", RawJson::string(&message));
    RequestAnswer::failed(object.encode())
}

/// Returns the error that wants pages opened, each checked and marked with its server's name.
fn url_elicitation_error(message: &str, pages: &RequestsByKey) -> RequestAnswer {
    let pages = RawJson::list(pages.iter().filter_map(|(_, page)| page.params.clone()));
    let data = RawJson::trusted(format!(r#"{{"elicitations":{}}}"#, pages.text()));
    RequestAnswer::error(code::URL_ELICITATION_REQUIRED, &bound_message(message), Some(&data))
}

/// Returns the error of an upstream that needs a client capability which is not relayed.
fn missing_capability(method: Method, error: &RawObject, message: &str, revision: Revision) -> RequestAnswer {
    if revision.era() == Era::Modern {
        return RequestAnswer::error(code::MISSING_CAPABILITY, message, error.get("data")).with_status(400);
    }
    let text = format!("The server needs a client capability for this call: {message}");
    capability_answer(method, &text, error.get("data"), revision)
}

/// Returns the answer to a call whose need the client cannot meet: a tool error for a tool call, so
/// that a model may find another way.
fn capability_answer(method: Method, text: &str, data: Option<&RawJson>, revision: Revision) -> RequestAnswer {
    if method == Method::ToolsCall {
        let text = RawJson::string(text);
        let head = revision.features().result_head;
        let result = format!(r#"{{{head}"content":[{{"type":"text","text":{}}}],"isError":true}}"#, text.text());
        return RequestAnswer::ok(RawJson::trusted(result));
    }
    RequestAnswer::failed(error_object(code::INTERNAL, text, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "javascript:alert(1)";

    fn told(method: Method, error: &str, revision: Revision, wanted: &Result<RequestsByKey, InputError>) -> String {
        let answer = translate(method, &RawJson::trusted(error.to_owned()), revision, wanted);
        answer.outcome.unwrap_or_else(|error| error).text().into_owned()
    }

    #[test]
    fn no_client_reads_an_address_in_an_error_that_nothing_judged() {
        let data = format!(r#"{{"elicitations":[{{"mode":"url","message":"Go","url":"{URL}"}}]}}"#);
        for message in [format!("open {URL}"), "not found".to_owned()] {
            let error = format!(r#"{{"code":-32042,"message":"{message}","data":{data}}}"#);
            for method in [Method::ToolsCall, Method::ResourcesRead, Method::ResourcesSubscribe] {
                for &revision in Revision::ALL {
                    for why in [InputError::NotOffered, InputError::Malformed, InputError::Secret] {
                        let told = told(method, &error, revision, &Err(why));
                        assert!(!told.contains(URL) && !told.contains("-32042"), "{method:?} {revision} {why}: {told}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_tool_s_error_is_one_by_its_own_member_alone() {
        for (result, want) in [
            (r#"{"content":[]}"#, false),
            (r#"{"content":[],"isError":false}"#, false),
            (r#"{"content":[],"isError":true}"#, true),
            (r#"{"content":[],"isError" : true}"#, true),
            (r#"{"content":[],"isError" : false}"#, false),
            (r#"{"isError":null}"#, false),
            (r#"{"structuredContent":{"isError":false},"isError":true}"#, true),
            (r#"{"structuredContent":{"isError":true},"isError":false}"#, false),
            (r#"{"structuredContent":{"isError":true}}"#, false),
            (r#"{"structuredContent":{"isError":false},"isErr\u006fr":true}"#, true),
            (r#"{"isError":false,"isError":true}"#, false),
        ] {
            assert_eq!(is_tool_error(&RawJson::trusted(result)), want, "{result}");
        }
    }

    #[test]
    fn a_resource_that_is_not_found_has_the_code_of_the_client_s_revision() {
        for method in [Method::ResourcesRead, Method::ResourcesSubscribe] {
            for (error, revision, want) in [
                (r#"{"code":-32002,"message":"gone"}"#, Revision::V2025_11_25, code::RESOURCE_NOT_FOUND),
                (r#"{"code":-32602,"message":"Not found"}"#, Revision::V2025_11_25, code::RESOURCE_NOT_FOUND),
                (r#"{"code":-32002,"message":"gone"}"#, Revision::V2026_07_28, code::INVALID_PARAMS),
                (r#"{"code":"1001","message":"no"}"#, Revision::V2025_11_25, code::INTERNAL),
            ] {
                let told = told(method, error, revision, &Err(InputError::NotOffered));
                assert!(told.contains(&format!(r#""code":{want}"#)), "{method:?} {error}: {told}");
            }
        }
    }
}
