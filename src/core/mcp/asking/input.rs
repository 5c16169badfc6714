//! Input that a server asks for in the middle of a call, in the form of 2026-07-28: a result of
//! type `input_required`. Requests of legacy servers are checked by the same functions.
//!
//! Source: MCP 2026-07-28, basic/patterns/mrtr.

use crate::mcp::asking::elicitation::{self, ElicitationTerms};
use crate::mcp::asking::imitation::is_reserved_key;
use crate::mcp::version::Revision;
use crate::wire::json::raw::{RawJson, RawObject, elements};

pub use crate::mcp::asking::input_error::InputError;

/// The roots that a server may learn. Real servers let their client's roots widen what they touch,
/// so the operator decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Roots {
    /// No roots: the capability is not declared to the server.
    #[default]
    Hidden,
    /// These URIs, for every client.
    Fixed(Vec<String>),
    /// The roots of the client that makes the call.
    Client,
}

/// Builds the result of `roots/list`.
pub(crate) fn roots_result(uris: &[String]) -> RawJson {
    let roots = RawJson::list(uris.iter().map(|uri| RawObject::of_strings(&[("uri", uri)]).encode()));
    RawJson::trusted(format!(r#"{{"roots":{}}}"#, roots.text()))
}

/// The limit of questions in one result, and in one task over its life.
pub(crate) const MAX_QUESTIONS: usize = 64;
/// The limit of pages that one error may ask to open.
const MAX_PAGES: usize = 8;

/// A request for input that a server sends to the client: method and parameters.
#[derive(Clone, Debug)]
pub struct InputRequest {
    pub method: String,
    pub params: Option<RawJson>,
}

impl InputRequest {
    pub fn read(request: &RawJson) -> Result<Self, InputError> {
        let request = RawObject::parse(request).map_err(|_| InputError::Malformed)?;
        let method = request.string("method").ok_or(InputError::Malformed)?;
        Ok(Self { method, params: request.get("params").cloned() })
    }

    /// Checks and labels a legacy server's request like a modern server's, without its task and
    /// progress members.
    ///
    /// # Errors
    /// [`InputError`].
    pub fn of_legacy(method: &str, params: Option<&RawJson>, terms: &ElicitationTerms) -> Result<Self, InputError> {
        let mut request = RawObject::default();
        request.set("method", RawJson::string(method));
        if let Some(params) = params {
            let mut params = RawObject::parse(params).map_err(|_| InputError::Malformed)?;
            params.remove("task");
            if let Some(meta) = params.remove("_meta") {
                let mut meta = RawObject::parse(&meta).map_err(|_| InputError::Malformed)?;
                meta.retain(|key| key != "progressToken" && !key.ends_with("/related-task"));
                if !meta.is_empty() {
                    params.set("_meta", meta.encode());
                }
            }
            request.set("params", params.encode());
        }
        Self::read(&check_request(&request.encode(), terms)?)
    }

    /// Writes the request as a modern client reads it: an entry of `inputRequests`.
    pub fn entry(&self) -> RawJson {
        let mut request = RawObject::default();
        request.set("method", RawJson::string(&self.method));
        if let Some(params) = self.params.as_ref().and_then(|raw| RawObject::parse(raw).ok()) {
            let mut params = params;
            params.remove("elicitationId");
            if self.method == "elicitation/create" && params.get("mode").is_none() {
                params.set("mode", RawJson::string("form"));
            }
            request.set("params", params.encode());
        }
        request.encode()
    }

    /// Rewrites the request for a client of a legacy revision; `id` makes the identifier that
    /// 2025-11-25 wants for a URL.
    ///
    /// # Errors
    /// [`InputError::NotOffered`] for a form that this revision cannot show, and for a page if it
    /// has none.
    pub fn for_revision(mut self, revision: Revision, id: impl FnOnce() -> String) -> Result<Self, InputError> {
        let params = self.params.as_ref().filter(|_| self.method == "elicitation/create");
        if let Some(mut params) = params.and_then(|raw| RawObject::parse(raw).ok()) {
            let features = revision.features();
            let is_page = params.string("mode").as_deref() == Some("url");
            if !features.elicitation_modes {
                if is_page {
                    return Err(InputError::NotOffered);
                }
                params.remove("mode");
                if let Some(schema) = params.get("requestedSchema") {
                    params.set("requestedSchema", older_form(schema)?);
                }
            } else if features.elicitation_ids && is_page && params.get("elicitationId").is_none() {
                params.set("elicitationId", RawJson::string(&id()));
            }
            self.params = Some(params.encode());
        }
        Ok(self)
    }
}

/// Rewrites a form for revisions before 2025-11-25: choices with titles become `enum` and
/// `enumNames`, only booleans keep defaults, and a choice of several values is refused.
fn older_form(schema: &RawJson) -> Result<RawJson, InputError> {
    let mut schema = RawObject::parse(schema).map_err(|_| InputError::Malformed)?;
    let Some(properties) = schema.get("properties") else { return Ok(schema.encode()) };
    let mut properties = RawObject::parse(properties).map_err(|_| InputError::Malformed)?;
    properties.try_map(|field| {
        let mut field = RawObject::parse(field).map_err(|_| InputError::Malformed)?;
        let kind = field.string("type");
        if kind.as_deref() == Some("array") {
            return Err(InputError::NotOffered);
        }
        if kind.as_deref() != Some("boolean") {
            field.remove("default");
        }
        if let Some(choices) = field.remove("oneOf") {
            let choices = elements(&choices).map_err(|_| InputError::Malformed)?;
            let choices: Vec<RawObject> = choices.iter().filter_map(|choice| RawObject::parse(choice).ok()).collect();
            let values = choices.iter().filter_map(|choice| choice.get("const"));
            let titles = choices.iter().filter_map(|choice| choice.get("title").or_else(|| choice.get("const")));
            field.set("enum", RawJson::list(values.cloned()));
            field.set("enumNames", RawJson::list(titles.cloned()));
        }
        Ok(field.encode())
    })?;
    schema.set("properties", properties.encode());
    Ok(schema.encode())
}

/// Checked requests for input by key.
pub type RequestsByKey = Vec<(String, InputRequest)>;

/// The content of a server's `input_required` result.
#[derive(Debug, Default)]
pub struct WantedInput {
    /// The requests that may reach the client.
    pub asked: RequestsByKey,
    /// The keys of questions that reach no client, each with the reason.
    pub declined: Vec<(String, InputError)>,
    /// The server's own state.
    pub state: Option<String>,
}

/// Reads and checks a server's `input_required` result.
///
/// # Errors
/// [`InputError`]: no part of the result may reach the client, and the call cannot continue.
pub fn read_input_required(result: &RawJson, terms: &ElicitationTerms) -> Result<WantedInput, InputError> {
    let mut result = RawObject::parse(result).map_err(|_| InputError::Malformed)?;
    let mut wanted = WantedInput { state: check(&result)?, ..WantedInput::default() };
    if let Some(requests) = result.remove("inputRequests") {
        let (requests, declined) = check_requests(&requests, terms)?;
        wanted.declined = declined;
        for (key, request) in requests.into_sorted().map_err(|_| InputError::Malformed)? {
            wanted.asked.push((key, InputRequest::read(&request)?));
        }
    }
    Ok(wanted)
}

/// Reads requests for input by key; fails if there are too many.
fn questions(requests: &RawJson) -> Result<RawObject, InputError> {
    let requests = RawObject::parse(requests).map_err(|_| InputError::Malformed)?;
    if requests.len() > MAX_QUESTIONS { Err(InputError::Malformed) } else { Ok(requests) }
}

/// Builds the response that declines a question in the person's name.
pub fn decline() -> RawJson {
    RawJson::trusted(r#"{"action":"decline"}"#)
}

/// Builds the response for a person who does not answer.
pub fn cancel() -> RawJson {
    RawJson::trusted(r#"{"action":"cancel"}"#)
}

/// Reports whether the response to an elicitation accepts it.
pub fn is_accepted(response: &RawJson) -> bool {
    RawObject::parse(response).is_ok_and(|response| response.string("action").as_deref() == Some("accept"))
}

/// Builds the responses that decline every question of a result, and returns the result's state.
/// `None` if a request is no elicitation, so that the call cannot continue.
pub fn decline_all(result: &RawJson) -> Option<(RawJson, Option<String>)> {
    let result = RawObject::parse(result).ok()?;
    let state = check(&result).ok()?;
    let mut requests = questions(result.get("inputRequests")?).ok()?;
    let decline = |request: &RawJson| {
        let method = RawObject::parse(request).ok().and_then(|request| request.string("method"));
        (method.as_deref() == Some("elicitation/create")).then(decline).ok_or(())
    };
    requests.try_map(decline).ok()?;
    Some((requests.encode(), state))
}

/// Returns the state of an `input_required` result. Fails if it lacks both state and requests.
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

/// Writes an upstream's `input_required` result for the client. `reseal` seals the upstream's state
/// into one of headend's.
///
/// Elicitations name the server that asks, since the client can only name headend. Source: MCP
/// 2026-07-28, client/elicitation, "Safe URL handling" and "Trust".
///
/// # Errors
/// [`InputError`], also if any question is declined: no part of the result may reach the client.
pub fn write_for_client(
    result: &RawJson,
    terms: &ElicitationTerms,
    reseal: impl FnOnce(Option<String>) -> Option<String>,
) -> Result<RawJson, InputError> {
    let mut result = RawObject::parse(result).map_err(|_| InputError::Malformed)?;
    let state = check(&result)?;
    if let Some(requests) = result.get("inputRequests") {
        let (requests, declined) = check_requests(requests, terms)?;
        if let Some((_, why)) = declined.first() {
            return Err(*why);
        }
        result.set("inputRequests", requests.encode());
    }
    let sealed = reseal(state).ok_or(InputError::Malformed)?;
    result.retain(|name| matches!(name, "resultType" | "inputRequests" | "_meta"));
    result.set("requestState", RawJson::string(&sealed));
    Ok(result.encode())
}

/// Checks and labels requests for input. Returns the ones that pass, by key, and the keys of the
/// declined ones with the reasons.
///
/// # Errors
/// [`InputError`]: none of them may reach the client.
pub(crate) fn check_requests(
    requests: &RawJson,
    terms: &ElicitationTerms,
) -> Result<(RawObject, Vec<(String, InputError)>), InputError> {
    let mut requests = questions(requests)?;
    let mut verdicts = Vec::new();
    requests.try_map(|request| match check_request(request, terms) {
        Ok(passed) => {
            verdicts.push(None);
            Ok(passed)
        }
        Err(why) if why.is_declined() => {
            verdicts.push(Some(why));
            Ok(RawJson::EMPTY_OBJECT)
        }
        Err(why) => Err(why),
    })?;
    let (mut declined, mut verdicts) = (Vec::new(), verdicts.into_iter());
    requests.retain(|key| {
        let why = verdicts.next().flatten().or_else(|| is_reserved_key(key).then_some(InputError::Imitates));
        declined.extend(why.map(|why| (key.to_owned(), why)));
        why.is_none()
    });
    Ok((requests, declined))
}

/// Builds an `input_required` result: the questions by key, and the state to send back.
pub fn input_required<'q>(asked: impl Iterator<Item = (impl AsRef<str>, &'q InputRequest)>, state: &str) -> RawJson {
    let mut requests = RawObject::default();
    for (key, request) in asked {
        requests.set(key.as_ref(), request.entry());
    }
    let mut result = RawObject::default();
    result.set("resultType", RawJson::string("input_required"));
    result.set("inputRequests", requests.encode());
    result.set("requestState", RawJson::string(state));
    result.encode()
}

/// Reads the pages that an error -32042 wants opened before the call, as requests for input.
///
/// Source: MCP 2025-11-25, client/elicitation, "URL Elicitation Required Error".
///
/// # Errors
/// [`InputError`]: none of the pages may be opened; [`InputError::Malformed`] also if there are
/// none or too many.
pub fn read_pages(error: &RawObject, terms: &ElicitationTerms) -> Result<RequestsByKey, InputError> {
    if !terms.offered.url {
        return Err(InputError::NotOffered);
    }
    let data = error.object("data").ok_or(InputError::Malformed)?;
    let pages = data.list("elicitations").ok_or(InputError::Malformed)?;
    if pages.is_empty() || pages.len() > MAX_PAGES {
        return Err(InputError::Malformed);
    }
    let page = |(n, params): (usize, &RawJson)| {
        let page = InputRequest::of_legacy("elicitation/create", Some(params), terms)?;
        Ok((format!("page-{}", n + 1), page))
    };
    pages.iter().enumerate().map(page).collect()
}

/// Reports whether all of these questions were accepted.
pub fn all_accepted<'k>(responses: &RawJson, mut keys: impl Iterator<Item = &'k str>) -> bool {
    let Ok(responses) = RawObject::parse(responses) else { return false };
    keys.all(|key| responses.get(key).is_some_and(is_accepted))
}

/// Checks and labels one request for input. Refuses a kind that the client did not offer before it
/// reads the rest.
fn check_request(request: &RawJson, terms: &ElicitationTerms) -> Result<RawJson, InputError> {
    let mut request = RawObject::parse(request).map_err(|_| InputError::Malformed)?;
    let method = request.string("method").ok_or(InputError::Malformed)?;
    let offered = terms.offered;
    let is_offered = match method.as_str() {
        "elicitation/create" => offered.form || offered.url,
        "sampling/createMessage" => offered.sampling,
        "roots/list" => offered.roots,
        _ => return Err(InputError::Malformed),
    };
    if !is_offered {
        return Err(InputError::NotOffered);
    }
    let has_params = request.get("params").is_some();
    let params = request.get("params").map_or_else(|| Ok(RawObject::default()), RawObject::parse);
    let mut params = params.map_err(|_| InputError::Malformed)?;
    if method == "elicitation/create" {
        elicitation::check_elicitation(&mut params, terms)?;
    }
    if method == "sampling/createMessage" {
        let tools = params.get("tools").is_some() || params.get("toolChoice").is_some();
        if tools && !offered.sampling_tools {
            return Err(InputError::NotOffered);
        }
        // At our client "this server" would mean all upstreams together.
        if params.get("includeContext").is_some() {
            params.set("includeContext", RawJson::string("none"));
        }
    }
    if has_params {
        request.set("params", params.encode());
    }
    Ok(request.encode())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::asking::kinds::InputKinds;

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
            ("{}", InputKinds::default()),
            (r#"{"elicitation":{}}"#, InputKinds { form: true, ..InputKinds::default() }),
            (r#"{"elicitation":{"url":{}}}"#, InputKinds { url: true, ..InputKinds::default() }),
            (r#"{"elicitation":{"url":{},"form":{}}}"#, InputKinds { url: true, form: true, ..InputKinds::default() }),
            (
                r#"{"sampling":{},"roots":{"listChanged":true}}"#,
                InputKinds { sampling: true, roots: true, ..InputKinds::default() },
            ),
            (r#"{"elicitation":true}"#, InputKinds::default()),
        ] {
            assert_eq!(InputKinds::of(Some(&RawJson::trusted(capabilities))), want, "{capabilities}");
        }
    }

    fn pass(request: &str, offered: InputKinds) -> Result<String, InputError> {
        let result =
            format!(r#"{{"resultType":"input_required","inputRequests":{{"k":{request}}},"requestState":"theirs"}}"#);
        write_for_client(&RawJson::trusted(result), &ElicitationTerms::for_tests(offered), |state| {
            Some(format!("ours({})", state.unwrap_or_default()))
        })
        .map(|raw| raw.text().into_owned())
    }

    #[test]
    fn only_offered_kinds_pass_and_elicitations_name_their_server() {
        let all = InputKinds { form: true, url: true, sampling: true, sampling_tools: true, roots: true };
        for (label, request, without) in [
            ("form", FORM, InputKinds { form: false, ..all }),
            ("url", URL, InputKinds { url: false, ..all }),
            ("sampling", SAMPLE, InputKinds { sampling: false, ..all }),
            ("roots", ROOTS, InputKinds { roots: false, ..all }),
        ] {
            assert_eq!(pass(request, without), Err(InputError::NotOffered), "{label}");
            let passed = pass(request, all).unwrap();
            assert!(passed.contains(r#""requestState":"ours(theirs)""#), "{label}: {passed}");
        }
        assert!(pass(FORM, all).unwrap().contains(r#""message":"[git] Which? [git]""#));
        assert!(pass(URL, all).unwrap().contains(r#""url":"https://x.example/?a=%2F""#), "URLs stay as they are");
        assert!(pass(SAMPLE, all).unwrap().contains(r#""includeContext":"none""#));
        assert_eq!(pass(r#"{"method":"tools/call"}"#, all), Err(InputError::Malformed));
        let forged = FORM.replace("Which?", "headend asks");
        assert_eq!(pass(&forged, InputKinds::default()), Err(InputError::NotOffered), "before its text is looked at");
        assert_eq!(pass(&forged, all), Err(InputError::Imitates));
    }

    #[test]
    fn neither_requests_nor_state_is_nothing_to_go_on_with() {
        let bare = RawJson::trusted(r#"{"resultType":"input_required"}"#);
        let passed =
            write_for_client(&bare, &ElicitationTerms::for_tests(InputKinds::default()), |_| Some(String::new()));
        assert_eq!(passed.map(|raw| raw.text().into_owned()), Err(InputError::Malformed));
    }

    #[test]
    fn an_error_that_wants_pages_names_them_and_all_must_be_accepted() {
        let error = r#"{"code":-32042,"message":"m","data":{"elicitations":[
            {"mode":"url","message":"Log in","url":"https://x.example/","elicitationId":"e"}]}}"#;
        let error = RawObject::parse(&RawJson::trusted(error)).unwrap();
        let terms = ElicitationTerms::for_tests(InputKinds { url: true, ..InputKinds::default() });
        let found = read_pages(&error, &terms).unwrap();
        assert_eq!(
            found[0].1.entry().text(),
            r#"{"method":"elicitation/create","params":{"mode":"url","message":"[git] Log in [git]","url":"https://x.example/"}}"#
        );
        let forms = ElicitationTerms::for_tests(InputKinds { form: true, ..InputKinds::default() });
        assert_eq!(read_pages(&error, &forms).unwrap_err(), InputError::NotOffered);
        for (responses, want) in [
            (r#"{"page-1":{"action":"accept"}}"#, true),
            (r#"{"page-1":{"action":"decline"}}"#, false),
            (r#"{"page-2":{"action":"accept"}}"#, false),
            ("[]", false),
        ] {
            assert_eq!(all_accepted(&RawJson::trusted(responses), ["page-1"].into_iter()), want, "{responses}");
        }
    }

    #[test]
    fn forms_are_shown_to_older_clients_as_far_as_they_can_be() {
        let form = |fields: &str, revision| {
            let params = format!(
                r#"{{"mode":"form","message":"m","requestedSchema":{{"type":"object","properties":{fields}}}}}"#
            );
            let request =
                InputRequest { method: "elicitation/create".to_owned(), params: Some(RawJson::trusted(params)) };
            request.for_revision(revision, String::new).map(|request| request.params.unwrap().text().into_owned())
        };
        let titled = r#"{"b":{"type":"string","oneOf":[{"const":"x","title":"X"},{"const":"y"}],"default":"x"},"a":{"type":"boolean","default":true}}"#;
        assert_eq!(
            form(titled, Revision::V2025_06_18).unwrap(),
            r#"{"message":"m","requestedSchema":{"type":"object","properties":{"b":{"type":"string","enum":["x","y"],"enumNames":["X","y"]},"a":{"type":"boolean","default":true}}}}"#
        );
        assert!(form(titled, Revision::V2025_11_25).unwrap().contains("oneOf"));
        let several = r#"{"c":{"type":"array","items":{"enum":["x"]}}}"#;
        assert_eq!(form(several, Revision::V2025_06_18), Err(InputError::NotOffered));
        assert!(form(several, Revision::V2025_11_25).is_ok());
    }

    #[test]
    fn no_page_is_asked_for_where_the_revision_knows_none() {
        for &revision in Revision::ALL {
            let page = InputRequest::read(&RawJson::trusted(URL)).unwrap().for_revision(revision, || "id".to_owned());
            assert_eq!(page.is_ok(), revision.features().elicitation_modes, "{revision}");
        }
    }

    #[test]
    fn a_server_that_asks_too_much_at_once_is_not_heard() {
        let terms = ElicitationTerms::for_tests(InputKinds { form: true, ..InputKinds::default() });
        for (number, is_heard) in [(MAX_QUESTIONS, true), (MAX_QUESTIONS + 1, false)] {
            let questions: Vec<String> = (0..number).map(|n| format!(r#""k{n}":{FORM}"#)).collect();
            let questions = format!("{{{}}}", questions.join(","));
            let result = format!(r#"{{"resultType":"input_required","inputRequests":{questions}}}"#);
            let result = RawJson::trusted(result);
            assert_eq!(read_input_required(&result, &terms).is_ok(), is_heard, "{number}");
            assert_eq!(write_for_client(&result, &terms, |_| Some(String::new())).is_ok(), is_heard, "{number}");
            assert_eq!(check_requests(&RawJson::trusted(questions), &terms).is_ok(), is_heard, "{number}");
            assert_eq!(decline_all(&result).is_some(), is_heard, "{number}");
        }
    }
}
