//! The gateway's own question to a client: the approval of a call.

use std::time::Duration;

use crate::mcp::asking::elicitation::{ALLOW_TITLE, DECISION, DENY, ONCE, SESSION, YES_ONCE};
use crate::mcp::asking::input::InputRequest;
use crate::policy::ActionKind;
use crate::policy::consent::unattended::REACTION;
use crate::policy::consent::{GrantLifetime, PersonAnswer};
use crate::wire::json::raw::{RawJson, RawObject};

/// Key of the question in `inputRequests`; no upstream's question has it.
pub const KEY: &str = "gw.consent";

/// Makes the form whose answer decides on a call. No choice is made in advance, so a person who
/// only confirms the form decides nothing.
///
/// `has_session` says whether the client has a session, with which a yes for a session ends.
pub fn form(message: &str, has_session: bool) -> InputRequest {
    let session = if has_session {
        "Yes, for this session"
    } else {
        "Yes, for a day, for all clients of this caller without a session"
    };
    elicitation(format!(
        r#"{{"mode":"form","message":{},"requestedSchema":{{"type":"object","properties":{{"{DECISION}":{{"type":"string","title":"{ALLOW_TITLE}","oneOf":[{{"const":"{ONCE}","title":"{YES_ONCE}"}},{{"const":"{SESSION}","title":"{session}"}},{{"const":"{DENY}","title":"No"}}]}}}},"required":["{DECISION}"]}}}}"#,
        RawJson::string(message).text()
    ))
}

/// Makes the request to open the page at `url`, such as the approval's.
pub fn page(message: &str, url: &str) -> InputRequest {
    elicitation(format!(
        r#"{{"mode":"url","message":{},"url":{}}}"#,
        RawJson::string(message).text(),
        RawJson::string(url).text()
    ))
}

/// Makes the form without fields of a call that is held, which says where the call can be approved.
/// Declining it refuses that call, and nothing in it can allow the call.
///
/// `console` is the console's address, if the console can take the answer. `name` is the item's
/// canonical name; a name that could be read as anything else is left out.
pub fn held_call_form(kind: ActionKind, name: &str, upstream: &str, console: Option<&str>) -> InputRequest {
    let is_name =
        |text: &str| text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    let what = if is_name(name) { format!("the {} {name}", kind.into_str()) } else { format!("a {}", kind.into_str()) };
    let terminal = "with `headend approvals --watch` on the machine where headend runs";
    let place =
        console.map_or(terminal.to_owned(), |address| format!("in the headend console ({address}) or {terminal}"));
    let message = format!(
        "headend needs your approval of a call of {what} of the server {upstream}. Answer it {place}; this question then goes away \
         by itself. Decline here to refuse this call."
    );
    elicitation(format!(
        r#"{{"mode":"form","message":{},"requestedSchema":{{"type":"object","properties":{{}}}}}}"#,
        RawJson::string(&message).text()
    ))
}

/// Returns whether a client's answer declines.
pub fn is_declined(result: &RawJson) -> bool {
    action(result).as_deref() == Some("decline")
}

/// Returns the `action` of a client's answer.
fn action(result: &RawJson) -> Option<String> {
    RawObject::parse(result).ok()?.string("action")
}

fn elicitation(params: String) -> InputRequest {
    InputRequest { method: "elicitation/create".to_owned(), params: Some(RawJson::trusted(params)) }
}

/// A kind of question about an approval, by what the answer to it can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalQuestionKind {
    /// [`form`]: its answer decides.
    Form,
    /// [`page`]: accepting it only means that the client opens the page.
    Page,
    /// [`held_call_form`]: it can only be declined.
    Notice,
}

/// The effect of a client's answer to a question about an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerEffect {
    /// The approval gets this answer.
    Answer(PersonAnswer),
    /// Nothing is decided, and the call waits on.
    Wait,
    /// Nothing is decided, since no person can have read the question: the call waits for the
    /// console and the terminal.
    Unattended,
}

/// The timing of an answer, which tells whether a person can have given it.
#[derive(Clone, Copy, Debug)]
pub struct AnswerTiming {
    /// Time from the question to the answer; `None` if the gateway does not know when it asked.
    pub waited: Option<Duration>,
    /// True if the host was found to have no person shortly before.
    pub is_unattended: bool,
}

/// Judges a client's answer to a question of that kind; `result` is `None` if the client sent an
/// error.
///
/// Only a choice of the form can allow or deny. An answer without a choice refuses the call, unless
/// it comes faster than a person can read or from a host without a person: then it decides nothing.
pub fn judge(kind: ApprovalQuestionKind, result: Option<&RawJson>, timing: AnswerTiming) -> AnswerEffect {
    let is_quick = timing.waited.is_some_and(|waited| waited < REACTION);
    let effect = read(kind, result);
    let is_refusal = matches!(effect, AnswerEffect::Answer(PersonAnswer::Decline | PersonAnswer::Dismiss));
    let says_nothing = effect == AnswerEffect::Wait && !accepts_nothing(kind, result);
    if is_quick && (is_refusal || says_nothing) {
        AnswerEffect::Unattended
    } else if timing.is_unattended && is_refusal {
        AnswerEffect::Wait
    } else {
        effect
    }
}

/// Returns whether the answer accepts a question that offers no choice, which says no more than
/// that the question was received.
fn accepts_nothing(kind: ApprovalQuestionKind, result: Option<&RawJson>) -> bool {
    kind != ApprovalQuestionKind::Form && result.and_then(action).as_deref() == Some("accept")
}

/// Judges an answer without regard to its timing.
fn read(kind: ApprovalQuestionKind, result: Option<&RawJson>) -> AnswerEffect {
    let decision = || RawObject::parse(result?).ok()?.object("content")?.string(DECISION);
    match (result.and_then(action).as_deref(), kind) {
        (Some("accept"), ApprovalQuestionKind::Form) => match decision().as_deref() {
            Some(ONCE) => AnswerEffect::Answer(PersonAnswer::Allow(GrantLifetime::Once)),
            Some(SESSION) => AnswerEffect::Answer(PersonAnswer::Allow(GrantLifetime::Session)),
            Some(DENY) => AnswerEffect::Answer(PersonAnswer::Deny),
            _ => AnswerEffect::Wait,
        },
        (Some("accept"), ApprovalQuestionKind::Page | ApprovalQuestionKind::Notice) => AnswerEffect::Wait,
        (Some("decline"), _) => AnswerEffect::Answer(PersonAnswer::Decline),
        (_, ApprovalQuestionKind::Notice) => AnswerEffect::Wait,
        (_, ApprovalQuestionKind::Form | ApprovalQuestionKind::Page) => AnswerEffect::Answer(PersonAnswer::Dismiss),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::version::Revision;

    #[test]
    fn only_a_choice_decides_and_declining_is_no_denial() {
        use ApprovalQuestionKind::{Form, Notice, Page};
        let [once, session] =
            &[GrantLifetime::Once, GrantLifetime::Session].map(|life| AnswerEffect::Answer(PersonAnswer::Allow(life)));
        let [deny, decline, dismiss] =
            &[PersonAnswer::Deny, PersonAnswer::Decline, PersonAnswer::Dismiss].map(AnswerEffect::Answer);
        let wait = &AnswerEffect::Wait;
        for (label, result, [form, page, notice]) in [
            ("once", r#"{"action":"accept","content":{"decision":"once"}}"#, [once, wait, wait]),
            ("session", r#"{"action":"accept","content":{"decision":"session"}}"#, [session, wait, wait]),
            ("no", r#"{"action":"accept","content":{"decision":"deny"}}"#, [deny, wait, wait]),
            ("accepted without a choice", r#"{"action":"accept","content":{}}"#, [wait; 3]),
            ("accepted without content", r#"{"action":"accept"}"#, [wait; 3]),
            ("an unknown choice", r#"{"action":"accept","content":{"decision":"always"}}"#, [wait; 3]),
            ("a wrong type", r#"{"action":"accept","content":{"decision":true}}"#, [wait; 3]),
            ("declined", r#"{"action":"decline","content":{"decision":"once"}}"#, [decline; 3]),
            ("cancelled", r#"{"action":"cancel"}"#, [dismiss, dismiss, wait]),
            ("no action", "{}", [dismiss, dismiss, wait]),
            ("no object", "[]", [dismiss, dismiss, wait]),
        ] {
            for (kind, want) in [(Form, form), (Page, page), (Notice, notice)] {
                for waited in [Some(REACTION), None] {
                    let timing = AnswerTiming { waited, is_unattended: false };
                    assert_eq!(&judge(kind, Some(&RawJson::trusted(result)), timing), want, "{label}, {kind:?}");
                }
            }
        }
        let slow = AnswerTiming { waited: Some(REACTION), is_unattended: false };
        let want = [dismiss, dismiss, wait].map(AnswerEffect::clone);
        assert_eq!([Form, Page, Notice].map(|kind| judge(kind, None, slow)), want, "an error");
    }

    #[test]
    fn an_answer_that_no_person_can_have_given_decides_nothing_unless_it_chooses() {
        use ApprovalQuestionKind::{Form, Notice, Page};
        let once = &AnswerEffect::Answer(PersonAnswer::Allow(GrantLifetime::Once));
        let deny = &AnswerEffect::Answer(PersonAnswer::Deny);
        let (quick, later) = (&AnswerEffect::Unattended, &AnswerEffect::Wait);
        // The answer at once, and a later one of a host without a person.
        for (label, result, [form, page, notice], [form_later, page_later, notice_later]) in [
            (
                "once",
                r#"{"action":"accept","content":{"decision":"once"}}"#,
                [once, later, later],
                [once, later, later],
            ),
            ("no", r#"{"action":"accept","content":{"decision":"deny"}}"#, [deny, later, later], [deny, later, later]),
            ("without a choice", r#"{"action":"accept","content":{}}"#, [quick, later, later], [later; 3]),
            ("declined", r#"{"action":"decline"}"#, [quick; 3], [later; 3]),
            ("cancelled", r#"{"action":"cancel"}"#, [quick; 3], [later; 3]),
            ("nothing", "{}", [quick; 3], [later; 3]),
        ] {
            let result = RawJson::trusted(result);
            let at = |waited, is_unattended| AnswerTiming { waited: Some(waited), is_unattended };
            for (kind, at_once, from_unattended) in
                [(Form, form, form_later), (Page, page, page_later), (Notice, notice, notice_later)]
            {
                let [before, after] = [Duration::ZERO, REACTION - Duration::from_millis(1)]
                    .map(|waited| judge(kind, Some(&result), at(waited, false)));
                assert_eq!((&before, &after), (at_once, at_once), "{label}, {kind:?}");
                assert_eq!(&judge(kind, Some(&result), at(REACTION, true)), from_unattended, "{label}, {kind:?}");
            }
        }
    }

    #[test]
    fn a_form_without_fields_names_the_console_and_the_command() {
        let evil = "fx__https://evil.example/`rm -rf ~`";
        let console = "Answer it in the headend console (http://127.0.0.1:7627) or with `headend approvals --watch` on";
        for (kind, name, address, wanted) in [
            (ActionKind::Tool, "fx__write", Some("http://127.0.0.1:7627"), "the tool fx__write of the server fx"),
            (ActionKind::Tool, "fx__write", Some("http://127.0.0.1:7627"), console),
            (ActionKind::Tool, "fx__write", None, "Answer it with `headend approvals --watch` on the machine"),
            (ActionKind::Tool, evil, None, "a call of a tool of the server fx"),
            (ActionKind::Resource, "fx+fx://doc/1", None, "a call of a resource of the server fx"),
            (ActionKind::Tool, "fx__write", None, "Decline here to refuse this call."),
        ] {
            let question = held_call_form(kind, name, "fx", address);
            for revision in [Revision::V2025_06_18, Revision::V2025_11_25] {
                let params = question.clone().for_revision(revision, String::new).unwrap().params.unwrap();
                let text = params.text();
                assert!(text.contains(wanted), "{text}");
                assert!(text.contains(r#""requestedSchema":{"type":"object","properties":{}}"#), "{text}");
                assert!(!text.contains("evil") && !text.contains("$"), "{text}");
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
            r#"{"message":"Sure?","requestedSchema":{"type":"object","properties":{"decision":{"type":"string","title":"Allow this call?","enum":["once","session","deny"],"enumNames":["Yes, once","Yes, for this session","No"]}},"required":["decision"]}}"#
        );
        assert_eq!(shown(Revision::V2025_11_25), form("Sure?", true).params.unwrap(), "as it is");
    }
}
