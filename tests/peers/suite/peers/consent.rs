//! Approvals from end to end with real SDK clients of both eras and a real browser: the person's
//! answer decides, the server's own log shows exactly the permitted calls, and the audit log shows
//! why.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use self::client::{ApprovingClient, Sdk};
use super::{ClientFace, PeerFolders};
use crate::consenting::{self as operator, ApprovalGateway};
use crate::process::eventually;

mod client;
mod forms;
mod many;
mod open_page;
mod operators;
mod page;
mod patience;
mod replicas;
mod strong;

/// Capabilities of a client whose person can see forms.
const FORMS: &str = r#"{"elicitation": {"form": {}}}"#;
/// Capabilities of a client whose person can open pages only.
const PAGES: &str = r#"{"elicitation": {"url": {}}}"#;
/// Capabilities of a client whose person can do both.
const BOTH: &str = r#"{"elicitation": {"form": {}, "url": {}}}"#;
/// Capabilities of a client without a person.
const NOBODY: &str = "{}";

/// Every SDK over the faces that it is tested on.
const CLIENTS: [(Sdk, ClientFace); 5] = [
    (Sdk::TypeScript1, ClientFace::Http),
    (Sdk::TypeScript1, ClientFace::Attached),
    (Sdk::TypeScript2, ClientFace::Http),
    (Sdk::Python, ClientFace::Http),
    (Sdk::Python, ClientFace::Attached),
];

/// The audit log about one item: the words of its records, by event.
#[derive(Debug)]
struct Audited(BTreeMap<&'static str, Vec<Value>>);

impl Audited {
    /// Waits until so many records of that event are there, then reads all of them.
    fn read(stage: &ApprovalGateway, item: &str, event: &str, count: usize) -> Self {
        let of = |event: &str| {
            let mut records = stage.audit(event);
            records.retain(|record| record["item"] == item);
            records
        };
        eventually(&format!("{count} {event} records of {item}"), || of(event).len() >= count);
        Self(["decision", "prompt", "answer", "outcome"].map(|event| (event, of(event))).into())
    }

    fn of(&self, event: &str) -> &[Value] {
        &self.0[event]
    }

    fn words(&self, event: &str) -> Vec<&str> {
        self.of(event).iter().map(|record| record["result"].as_str().unwrap()).collect()
    }

    /// Returns the records of calls that were allowed.
    fn allowed(&self) -> Vec<&Value> {
        self.of("decision").iter().filter(|record| record["result"] == "allow").collect()
    }

    /// Checks that every allowed call names a grant given by an answer of that evidence, and every
    /// answer its approval.
    fn hangs_together(&self, evidence: &str, by: &str, at: &str) {
        let answers = self.of("answer");
        for allowed in self.allowed() {
            assert_eq!((&allowed["evidence"], &allowed["by"]), (&json!(evidence), &json!(by)), "{at}: {allowed}");
            let gave = |answer: &&Value| answer["grant"] == allowed["grant"] && answer["result"] == "granted";
            let from = answers.iter().find(gave).unwrap_or_else(|| panic!("{at}: no answer gave {allowed}"));
            assert_eq!((&from["evidence"], &from["by"]), (&json!(evidence), &json!(by)), "{at}: {from}");
        }
        for answer in answers {
            let opened = self.of("prompt").iter().filter(|prompt| prompt["prompt"] == answer["prompt"]).count();
            assert_eq!((answer["prompt"].is_string(), opened), (true, 1), "{at}: {answer}");
        }
        let allowed: Vec<&Value> = self.allowed().into_iter().map(|record| &record["call"]).collect();
        let ended: Vec<&Value> = self.of("outcome").iter().map(|record| &record["call"]).collect();
        assert_eq!(allowed, ended, "{at}: what was allowed ended, and nothing else");
    }
}

/// Returns a call's only argument.
fn text(text: &str) -> Value {
    json!({"text": text})
}
