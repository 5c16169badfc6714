//! Input that a server asks for in the middle of a call, in the form of 2026-07-28: a result of type `input_required`.
//!
//! Source: MCP 2026-07-28, basic/patterns/mrtr.

use crate::mcp::meta::{CLIENT_CAPABILITIES, Meta};
use crate::mcp::version::Revision;
use crate::wire::raw::{RawJson, RawObject};

/// The kinds of input that a client offers for one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kinds {
    pub(crate) form: bool,
    pub(crate) url: bool,
    pub(crate) sampling: bool,
    pub(crate) roots: bool,
}

/// The client capabilities that are about input; no other is passed to an upstream.
const ABOUT_INPUT: [&str; 3] = ["elicitation", "sampling", "roots"];

impl Meta {
    /// What a modern request declares about input, as an object to declare upstream. `None` where there is nothing.
    pub(crate) fn input_capabilities(&self) -> Option<RawJson> {
        self.get(CLIENT_CAPABILITIES).filter(|_| self.has_claim()).and_then(about_input)
    }
}

/// The part of a client's capabilities that is about input; `None` where there is none.
pub(crate) fn about_input(capabilities: &RawJson) -> Option<RawJson> {
    if capabilities.bytes().as_ref() == b"{}" {
        return None;
    }
    let mut declared = RawObject::parse(capabilities).ok()?;
    declared.retain(|name| ABOUT_INPUT.contains(&name));
    (!declared.is_empty()).then(|| declared.encode())
}

/// One thing that a server wants of the client.
#[derive(Clone, Debug)]
pub(crate) struct InputRequest {
    /// The server's name for it.
    pub(crate) key: String,
    pub(crate) method: String,
    pub(crate) params: Option<RawJson>,
}

impl InputRequest {
    /// The request as a client of a legacy revision knows it; `id` makes the identifier that 2025-11-25 wants for a URL.
    pub(crate) fn for_revision(mut self, revision: Revision, id: impl FnOnce() -> String) -> Self {
        let params = self.params.as_ref().filter(|_| self.method == "elicitation/create");
        if let Some(mut params) = params.and_then(|raw| RawObject::parse(raw).ok()) {
            if revision < Revision::V2025_11_25 {
                params.remove("mode");
            } else if params.string("mode").as_deref() == Some("url") {
                params.set("elicitationId", RawJson::string(&id()));
            }
            self.params = Some(params.encode());
        }
        self
    }
}

/// What a server's `input_required` result asks for, and its state.
///
/// # Errors
/// [`InputError`]: nothing of it may reach the client then.
pub(crate) fn requests(
    result: &RawJson,
    offered: Kinds,
    upstream: &str,
) -> Result<(Vec<InputRequest>, Option<String>), InputError> {
    let mut result = RawObject::parse(result).map_err(|_| InputError::Malformed)?;
    let state = check(&result)?;
    let mut asked_for = Vec::new();
    if let Some(requests) = result.remove("inputRequests") {
        let requests = RawObject::parse(&requests).map_err(|_| InputError::Malformed)?;
        for (key, request) in requests.into_sorted().map_err(|_| InputError::Malformed)? {
            let request = RawObject::parse(&asked(&request, offered, upstream)?).map_err(|_| InputError::Malformed)?;
            let method = request.string("method").ok_or(InputError::Malformed)?;
            asked_for.push(InputRequest { key, method, params: request.get("params").cloned() });
        }
    }
    Ok((asked_for, state))
}

/// The state of a result that asks for input.
fn check(result: &RawObject) -> Result<Option<String>, InputError> {
    if result.string("resultType").as_deref() != Some("input_required") {
        return Err(InputError::Malformed);
    }
    let state = match result.get("requestState") {
        None => None,
        Some(raw) => Some(raw.parse::<String>().map_err(|_| InputError::Malformed)?),
    };
    if state.is_none() && result.get("inputRequests").is_none() {
        return Err(InputError::Malformed);
    }
    Ok(state)
}

impl Kinds {
    /// What capabilities offer. An empty `elicitation` means forms.
    pub(crate) fn of(capabilities: Option<&RawJson>) -> Self {
        let Some(declared) = capabilities.and_then(|raw| RawObject::parse(raw).ok()) else { return Self::default() };
        let has = |name: &str| declared.get(name).is_some_and(RawJson::is_object);
        let modes = declared.get("elicitation").and_then(|raw| RawObject::parse(raw).ok());
        let mode = |name: &str| modes.as_ref().is_some_and(|modes| modes.get(name).is_some());
        let elicits = modes.is_some();
        Self {
            form: elicits && (mode("form") || !mode("url")),
            url: mode("url"),
            sampling: has("sampling"),
            roots: has("roots"),
        }
    }
}

/// Why a request for input cannot be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InputError {
    #[error("The server asked for input in a way that the protocol does not know.")]
    Malformed,
    #[error("The server asked for input that the client did not offer.")]
    NotOffered,
}

/// The upstream's `input_required` result as our client gets it. `reseal` makes our state of the upstream's.
///
/// Elicitations name the server that asks, since the client can only name us. Source: MCP 2026-07-28, client/elicitation,
/// "Safe URL handling" and "Trust".
///
/// # Errors
/// [`InputError`]: nothing of it may reach the client then.
pub(crate) fn passed_on(
    result: &RawJson,
    offered: Kinds,
    upstream: &str,
    reseal: impl FnOnce(Option<String>) -> Option<String>,
) -> Result<RawJson, InputError> {
    let mut result = RawObject::parse(result).map_err(|_| InputError::Malformed)?;
    let state = check(&result)?;
    if let Some(requests) = result.get("inputRequests") {
        let mut requests = RawObject::parse(requests).map_err(|_| InputError::Malformed)?;
        requests.try_map(|request| asked(request, offered, upstream))?;
        result.set("inputRequests", requests.encode());
    }
    let sealed = reseal(state).ok_or(InputError::Malformed)?;
    result.retain(|name| matches!(name, "resultType" | "inputRequests" | "_meta"));
    result.set("requestState", RawJson::string(&sealed));
    Ok(result.encode())
}

/// One request for input, checked and labelled.
fn asked(request: &RawJson, offered: Kinds, upstream: &str) -> Result<RawJson, InputError> {
    let mut request = RawObject::parse(request).map_err(|_| InputError::Malformed)?;
    let method = request.string("method").ok_or(InputError::Malformed)?;
    let params = request.get("params").map_or_else(|| Ok(RawObject::default()), RawObject::parse);
    let mut params = params.map_err(|_| InputError::Malformed)?;
    let is_offered = match method.as_str() {
        "elicitation/create" => {
            let message = params.string("message").ok_or(InputError::Malformed)?;
            params.set("message", RawJson::string(&format!("[{upstream}] {message}")));
            match params.string("mode").as_deref() {
                None | Some("form") => offered.form,
                Some("url") => offered.url,
                Some(_) => return Err(InputError::Malformed),
            }
        }
        "sampling/createMessage" => {
            // At our client "this server" would mean all upstreams together.
            if params.get("includeContext").is_some() {
                params.set("includeContext", RawJson::string("none"));
            }
            offered.sampling
        }
        "roots/list" => offered.roots,
        _ => return Err(InputError::Malformed),
    };
    if !is_offered {
        return Err(InputError::NotOffered);
    }
    if request.get("params").is_some() {
        request.set("params", params.encode());
    }
    Ok(request.encode())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: &str =
        r#"{"method":"elicitation/create","params":{"message":"Which?","requestedSchema":{"type":"object"}}}"#;
    const URL: &str =
        r#"{"method":"elicitation/create","params":{"mode":"url","message":"Go","url":"https://x.example/?a=%2F"}}"#;
    const SAMPLE: &str =
        r#"{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":9,"includeContext":"allServers"}}"#;
    const ROOTS: &str = r#"{"method":"roots/list"}"#;

    #[test]
    fn capabilities_say_what_a_client_offers() {
        for (capabilities, want) in [
            ("{}", Kinds::default()),
            (r#"{"elicitation":{}}"#, Kinds { form: true, ..Kinds::default() }),
            (r#"{"elicitation":{"url":{}}}"#, Kinds { url: true, ..Kinds::default() }),
            (r#"{"elicitation":{"url":{},"form":{}}}"#, Kinds { url: true, form: true, ..Kinds::default() }),
            (
                r#"{"sampling":{},"roots":{"listChanged":true}}"#,
                Kinds { sampling: true, roots: true, ..Kinds::default() },
            ),
            (r#"{"elicitation":true}"#, Kinds::default()),
        ] {
            assert_eq!(Kinds::of(Some(&RawJson::trusted(capabilities))), want, "{capabilities}");
        }
    }

    fn pass(request: &str, offered: Kinds) -> Result<String, InputError> {
        let result =
            format!(r#"{{"resultType":"input_required","inputRequests":{{"k":{request}}},"requestState":"theirs"}}"#);
        passed_on(&RawJson::trusted(result), offered, "git", |state| {
            Some(format!("ours({})", state.unwrap_or_default()))
        })
        .map(|raw| raw.text().into_owned())
    }

    #[test]
    fn only_offered_kinds_pass_and_elicitations_name_their_server() {
        let all = Kinds { form: true, url: true, sampling: true, roots: true };
        for (label, request, without) in [
            ("form", FORM, Kinds { form: false, ..all }),
            ("url", URL, Kinds { url: false, ..all }),
            ("sampling", SAMPLE, Kinds { sampling: false, ..all }),
            ("roots", ROOTS, Kinds { roots: false, ..all }),
        ] {
            assert_eq!(pass(request, without), Err(InputError::NotOffered), "{label}");
            let passed = pass(request, all).unwrap();
            assert!(passed.contains(r#""requestState":"ours(theirs)""#), "{label}: {passed}");
        }
        assert!(pass(FORM, all).unwrap().contains(r#""message":"[git] Which?""#));
        assert!(pass(URL, all).unwrap().contains(r#""url":"https://x.example/?a=%2F""#), "URLs stay as they are");
        assert!(pass(SAMPLE, all).unwrap().contains(r#""includeContext":"none""#));
        assert_eq!(pass(r#"{"method":"tools/call"}"#, all), Err(InputError::Malformed));
    }

    #[test]
    fn neither_requests_nor_state_is_nothing_to_go_on_with() {
        let bare = RawJson::trusted(r#"{"resultType":"input_required"}"#);
        let passed = passed_on(&bare, Kinds::default(), "git", |_| Some(String::new()));
        assert_eq!(passed.map(|raw| raw.text().into_owned()), Err(InputError::Malformed));
    }
}
