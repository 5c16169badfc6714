//! The gateway's own question to a client: the approval of a call.

use crate::mcp::elicitation::{ALLOW_ONCE, DECISION, DENY, ONCE, SESSION};
use crate::mcp::input::InputRequest;
use crate::policy::consent::{Answer, Lifetime};
use crate::policy::{Evidence, Kind};
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

/// The form without fields of a call that is held: it says in words where the call can be approved, and has no address and no
/// command. The client's answer to it allows nothing.
///
/// `name` is the item's canonical name; one that could be read as anything but a name is left out.
pub fn elsewhere(kind: Kind, name: &str, upstream: &str, places: Places) -> InputRequest {
    let is_name =
        |text: &str| text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    let what = if is_name(name) { format!("the {} {name}", kind.into_str()) } else { format!("a {}", kind.into_str()) };
    let place = match places {
        Places::Terminal => "in a terminal on the machine where headend runs",
        Places::PageOrTerminal => "on the console page of headend, or in a terminal on the machine where headend runs",
    };
    let message = format!(
        "headend waits for your approval of a call of {what} of the server {upstream}. It cannot be given here. Give or refuse it \
         {place}; this question then goes away by itself. To refuse the call from here, decline. Any other answer here means nothing."
    );
    elicitation(format!(
        r#"{{"mode":"form","message":{},"requestedSchema":{{"type":"object","properties":{{}}}}}}"#,
        RawJson::string(&message).text()
    ))
}

/// The places where an approval can be given that its client cannot give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Places {
    Terminal,
    PageOrTerminal,
}

impl Places {
    /// For an approval that needs that evidence, where the gateway has a console or none.
    pub fn of(need: Evidence, has_console: bool) -> Self {
        if has_console && need <= Evidence::Page { Self::PageOrTerminal } else { Self::Terminal }
    }
}

/// Whether a client's answer declines. No answer to [`elsewhere`] means anything else.
pub fn is_declined(result: &RawJson) -> bool {
    RawObject::parse(result).is_ok_and(|result| result.string("action").as_deref() == Some("decline"))
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
    fn a_form_without_fields_names_a_place_in_words_and_nothing_to_follow() {
        let evil = "fx__https://evil.example/`rm -rf ~`";
        for (kind, name, need, has_console, wanted) in [
            (Kind::Tool, "fx__write", Evidence::Page, true, "the tool fx__write of the server fx"),
            (Kind::Tool, "fx__write", Evidence::Page, true, "console page"),
            (Kind::Tool, "fx__write", Evidence::Page, false, "Give or refuse it in a terminal"),
            (Kind::Tool, "fx__write", Evidence::Operator, true, "Give or refuse it in a terminal"),
            (Kind::Tool, evil, Evidence::Page, true, "a call of a tool of the server fx"),
            (Kind::Resource, "fx+fx://doc/1", Evidence::Client, true, "a call of a resource of the server fx"),
        ] {
            let question = elsewhere(kind, name, "fx", Places::of(need, has_console));
            for revision in [Revision::V2025_06_18, Revision::V2025_11_25] {
                let params = question.clone().for_revision(revision, String::new).unwrap().params.unwrap();
                let text = params.text();
                assert!(text.contains(wanted), "{text}");
                assert!(text.contains(r#""requestedSchema":{"type":"object","properties":{}}"#), "{text}");
                for part in ["://", "`", "headend approve", "$"] {
                    assert!(!text.contains(part), "{part} in {text}");
                }
            }
        }
    }

    #[test]
    fn only_declining_declines() {
        for (label, result, want) in [
            ("declined", r#"{"action":"decline"}"#, true),
            ("accepted", r#"{"action":"accept","content":{"decision":"deny"}}"#, false),
            ("cancelled", r#"{"action":"cancel"}"#, false),
            ("nothing", "{}", false),
            ("no object", r#""decline""#, false),
        ] {
            assert_eq!(is_declined(&RawJson::trusted(result)), want, "{label}");
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
