//! The gateway's own question to a client: the approval of a call.

use crate::mcp::elicitation::{ALLOW_ONCE, DECISION, DENY, ONCE, SESSION};
use crate::mcp::input::InputRequest;
use crate::policy::consent::{Answer, Lifetime};
use crate::wire::raw::{RawJson, RawObject};

/// Its name among those of `inputRequests`; no upstream's question has it.
pub const KEY: &str = "gw.consent";

/// Our form. A refusal is what it says unless somebody chooses otherwise.
///
/// `has_session` says whether what is allowed for a session ends with one.
pub fn form(message: &str, has_session: bool) -> InputRequest {
    let session = if has_session {
        "Allow for this session"
    } else {
        "Allow for a day, to all clients of this caller without a session"
    };
    elicitation(format!(
        r#"{{"mode":"form","message":{},"requestedSchema":{{"type":"object","properties":{{"{DECISION}":{{"type":"string","title":"Decision","oneOf":[{{"const":"{DENY}","title":"Deny"}},{{"const":"{ONCE}","title":"{ALLOW_ONCE}"}},{{"const":"{SESSION}","title":"{session}"}}],"default":"{DENY}"}}}},"required":["{DECISION}"]}}}}"#,
        RawJson::string(message).text()
    ))
}

/// The request to open the approval's page.
pub fn page(message: &str, url: &str) -> InputRequest {
    elicitation(format!(
        r#"{{"mode":"url","message":{},"url":{}}}"#,
        RawJson::string(message).text(),
        RawJson::string(url).text()
    ))
}

fn elicitation(params: String) -> InputRequest {
    InputRequest { method: "elicitation/create".to_owned(), params: Some(RawJson::trusted(params)) }
}

/// Reads a client's answer to our form. Every answer that is not clearly a yes is a no.
pub fn read(result: &RawJson) -> Answer {
    let Ok(result) = RawObject::parse(result) else { return Answer::Dismiss };
    let decision = || result.object("content")?.string(DECISION);
    match result.string("action").as_deref() {
        Some("accept") => match decision().as_deref() {
            Some(ONCE) => Answer::Allow(Lifetime::Once),
            Some(SESSION) => Answer::Allow(Lifetime::Session),
            _ => Answer::Deny,
        },
        Some("decline") => Answer::Deny,
        _ => Answer::Dismiss,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::version::Revision;

    #[test]
    fn only_a_clear_yes_is_a_yes() {
        for (label, result, want) in [
            ("once", r#"{"action":"accept","content":{"decision":"once"}}"#, Answer::Allow(Lifetime::Once)),
            ("session", r#"{"action":"accept","content":{"decision":"session"}}"#, Answer::Allow(Lifetime::Session)),
            ("the default", r#"{"action":"accept","content":{"decision":"deny"}}"#, Answer::Deny),
            ("accepted without a decision", r#"{"action":"accept"}"#, Answer::Deny),
            ("an unknown decision", r#"{"action":"accept","content":{"decision":"always"}}"#, Answer::Deny),
            ("a wrong type", r#"{"action":"accept","content":{"decision":true}}"#, Answer::Deny),
            ("declined", r#"{"action":"decline","content":{"decision":"once"}}"#, Answer::Deny),
            ("cancelled", r#"{"action":"cancel"}"#, Answer::Dismiss),
            ("no action", "{}", Answer::Dismiss),
            ("no object", "[]", Answer::Dismiss),
        ] {
            assert_eq!(read(&RawJson::trusted(result)), want, "{label}");
        }
    }

    #[test]
    fn every_revision_gets_the_form_that_it_can_show() {
        let shown = |revision| form("Sure?", true).for_revision(revision, String::new).unwrap().params.unwrap();
        assert_eq!(
            shown(Revision::V2025_06_18).text(),
            r#"{"message":"Sure?","requestedSchema":{"type":"object","properties":{"decision":{"type":"string","title":"Decision","enum":["deny","once","session"],"enumNames":["Deny","Allow once","Allow for this session"]}},"required":["decision"]}}"#
        );
        assert_eq!(shown(Revision::V2025_11_25), form("Sure?", true).params.unwrap(), "as it is");
    }
}
