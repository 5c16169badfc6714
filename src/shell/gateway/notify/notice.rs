//! Writes a notice as JSON in one line.
//!
//! Foreign text is escaped, since a notifier may show it to a person as it is.

use bytes::Bytes;

use crate::policy::consent::ApprovalView;
use crate::policy::consent::view::ViewColours;
use crate::wire::foreign;
use crate::wire::json::raw::{RawJson, RawObject};

/// Approvals that one notice lists; the others are counted.
pub(super) const LISTED: usize = 20;
/// Longest arguments that a notice has as a whole, in bytes; of longer ones it has the beginning of
/// their view.
const ARGUMENTS: usize = 4096;

/// Advice about an approval whose agent was told to stop.
const ADVICE: &str = "Tell the agent to try again.";

/// A notice of these approvals and of `more` that it does not list, `open` being all that are.
pub(super) fn notice(listed: &[ApprovalView], more: usize, open: usize, arguments: bool, page: Option<&str>) -> Bytes {
    let mut out = RawObject::default();
    out.set("open", RawJson::number(open));
    out.set("more", RawJson::number(more));
    add(&mut out, "page", page);
    out.set("approvals", RawJson::list(listed.iter().map(|view| approval(view, arguments, page))));
    encode(&out)
}

/// Returns a test notice, marked as one, with an approval that does not exist.
pub(super) fn test_notice(page: Option<&str>) -> Bytes {
    let texts = [("caller", "local"), ("item", "headend__test"), ("effect", "none: this is a test of `notify`")];
    let mut approval = RawObject::of_strings(&texts);
    approval.set("age", RawJson::number(0_u8));
    add(&mut approval, "page", page);
    let approvals = RawJson::list(std::iter::once(approval.encode()));
    encode(&RawObject::of([("test", RawJson::boolean(true)), ("approvals", approvals)]))
}

fn approval(view: &ApprovalView, arguments: bool, page: Option<&str>) -> RawJson {
    let waits = view.waits == Some(true);
    let mut out = RawObject::default();
    add(&mut out, "caller", Some(view.caller.name()));
    add(&mut out, "item", Some(&view.item));
    add(&mut out, "effect", view.effect.as_deref());
    add(&mut out, "client", view.client.as_deref());
    out.set("age", RawJson::number(view.age));
    out.set("waits", RawJson::boolean(waits));
    add(&mut out, "after-a-yes", Some(ADVICE).filter(|_| !waits));
    add(&mut out, "page", page.map(|page| format!("{page}/approvals/{}", view.id)).as_deref());
    match &view.arguments {
        _ if !arguments => {}
        Some(json) if json.bytes().len() <= ARGUMENTS => {
            out.set("arguments", RawJson::trusted(foreign::json(&json.text())));
        }
        _ => {
            let whole = view.arguments_view(ARGUMENTS).map(|whole| whole.told(&ViewColours::NONE));
            let told = whole.as_deref().or(view.arguments_beginning.as_deref()).unwrap_or_default();
            let end = told.char_indices().map(|(at, _)| at).take_while(|at| *at <= ARGUMENTS).last().unwrap_or(0);
            let beginning = if told.len() > ARGUMENTS { told.get(..end).unwrap_or_default() } else { told };
            out.set("arguments-beginning", RawJson::string(&foreign::block(beginning)));
        }
    }
    out.encode()
}

fn add(out: &mut RawObject, name: &str, text: Option<&str>) {
    if let Some(text) = text {
        out.set(name, RawJson::string(&foreign::line(text)));
    }
}

fn encode(out: &RawObject) -> Bytes {
    Bytes::from(out.encode().text().into_owned() + "\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::mcp::client_name::ClientName;
    use crate::policy::consent::{AgentWait, ApprovalId, ApprovalSubject, CallDetails, OpenApproval, ReservedFolders};
    use crate::policy::{ActionKind, ApprovalEvidence, Caller, Digest, StatedHints};

    fn opened(number: u8, arguments: &str) -> OpenApproval {
        let text: Arc<str> = Arc::from("x");
        let digest = Digest::of(b"");
        let asked = ApprovalSubject {
            caller: Caller::named(&text),
            session: None,
            upstream: Arc::clone(&text),
            kind: ActionKind::Tool,
            item: Arc::from("x__\u{202e}y"),
            definition: digest,
            launch: digest,
            arguments: digest,
            rule: text,
            need: ApprovalEvidence::Client,
            destructive: false,
        };
        let name = ClientName::read(&RawJson::trusted(r#"{"name":"ed\u001b[2J"}"#));
        let arguments = RawJson::trusted(arguments.to_owned());
        let shown = CallDetails::new("y", StatedHints::default(), Some(&arguments)).asked_by(name);
        OpenApproval { id: ApprovalId::new([number; 16]), asked, shown, opened_at: 40, until: 900 }
    }

    fn read(approvals: &[OpenApproval], arguments: bool, page: Option<&str>) -> Value {
        let wait = |approval: &OpenApproval| {
            if approval.until > 900 { AgentWait::Waits { left: None } } else { AgentWait::Stopped }
        };
        let view = |approval: &OpenApproval| {
            ApprovalView::new(approval, &ReservedFolders::default()).at(42).with_wait(wait(approval))
        };
        let listed: Vec<ApprovalView> = approvals.iter().take(LISTED).map(view).collect();
        let line = notice(&listed, approvals.len() - listed.len(), 30, arguments, page);
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1, "one line");
        serde_json::from_slice(&line).unwrap()
    }

    #[test]
    fn a_notice_has_the_facts_with_foreign_text_spelled_out() {
        let told = read(&[opened(1, r#"{"a":"\u202eb","c":[1]}"#)], false, Some("http://127.0.0.1:1"));
        let page = format!("http://127.0.0.1:1/approvals/{}", ApprovalId::new([1; 16]));
        let approval = json!({"caller": "x", "item": r"x__\u{202e}y", "effect": "the server says nothing",
            "client": r"ed\u{1b}[2J", "age": 2, "waits": false, "after-a-yes": ADVICE, "page": page});
        assert_eq!(told, json!({"open": 30, "more": 0, "page": "http://127.0.0.1:1", "approvals": [approval]}));
        let bare = read(&[opened(1, "{}")], false, None);
        assert_eq!((bare.get("page"), bare["approvals"][0].get("page")), (None, None));
        let waiting = read(&[OpenApproval { until: 901, ..opened(1, "{}") }], false, None);
        let waiting = &waiting["approvals"][0];
        assert_eq!((&waiting["waits"], waiting.get("after-a-yes")), (&json!(true), None));
    }

    #[test]
    fn arguments_are_told_exactly_or_by_their_beginning() {
        let arguments = |json: &str| read(&[opened(1, json)], true, None)["approvals"][0].clone();
        assert_eq!(arguments(r#"{"a":"\u202eb","c":[1]}"#)["arguments"], json!({"a": "\u{202e}b", "c": [1]}));
        for length in [5000, 300_000] {
            let long = arguments(&format!(r#"{{"a":"b\u202e{}"}}"#, "é".repeat(length)));
            let beginning = long["arguments-beginning"].as_str().unwrap();
            assert!(long.get("arguments").is_none() && beginning.starts_with(r"a"), "{beginning}");
            assert!(beginning.len() <= ARGUMENTS && beginning.contains(r"b\u{202e}é"), "{}", beginning.len());
        }
    }

    #[test]
    fn of_many_approvals_twenty_are_listed() {
        let all: Vec<OpenApproval> = (0..30).map(|number| opened(number, "{}")).collect();
        let told = read(&all, true, None);
        assert_eq!((told["approvals"].as_array().map(Vec::len), &told["more"]), (Some(20), &json!(10)));
        let test: Value = serde_json::from_slice(&test_notice(None)).unwrap();
        assert_eq!((&test["test"], &test["approvals"][0]["item"]), (&json!(true), &json!("headend__test")));
    }
}
