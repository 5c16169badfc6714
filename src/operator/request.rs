//! The methods of the admin socket, and which of them leave a record of an operator's action.

use self::MethodEffect::{Act, Look, RecordedElsewhere};
use crate::policy::OperatorAction;
use crate::store::audit::Audit;
use crate::wire::raw::{RawJson, RawObject};

/// What a method does, as far as the audit log needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MethodEffect {
    /// Changes nothing.
    Look,
    /// An operator's action, and the param that says what it is about.
    Act(OperatorAction, Option<&'static str>),
    /// Recorded where it is carried out: a call as a decision, a reload together with those by
    /// signal, a wrong code once a minute.
    RecordedElsewhere,
}

/// All methods. A method that is missing here does not exist.
pub(crate) const METHODS: [(&str, MethodEffect); 27] = [
    ("approvals.answer", Act(OperatorAction::Approve, Some("id"))),
    ("approvals.list", Look),
    ("approvals.notify", Act(OperatorAction::Notify, None)),
    ("approvals.show", Look),
    ("approvals.unblock", Act(OperatorAction::Unblock, Some("id"))),
    ("call", RecordedElsewhere),
    ("console.link", Act(OperatorAction::ConsoleLink, None)),
    ("grants.list", Look),
    ("grants.reviewed", Act(OperatorAction::Review, None)),
    ("grants.revoke", Act(OperatorAction::Revoke, Some("id"))),
    ("login.begin", Act(OperatorAction::LoginBegin, Some("name"))),
    ("login.paste", Act(OperatorAction::LoginEnd, None)),
    ("login.wait", Look),
    ("logout", Act(OperatorAction::Logout, Some("name"))),
    ("logs", Look),
    ("operator.challenge", Look),
    ("operator.prove", RecordedElsewhere),
    ("pins.approve", Act(OperatorAction::PinsApprove, Some("name"))),
    ("pins.diff", Look),
    ("pins.list", Look),
    ("pins.reject", Act(OperatorAction::PinsReject, Some("name"))),
    ("pins.show", Look),
    ("reload", RecordedElsewhere),
    ("restart", Act(OperatorAction::Restart, Some("name"))),
    ("status", Look),
    ("tools", Look),
    ("tools.show", Look),
];

/// Members of answers that tell the outcome of an action, none of which is a secret.
const TOLD: [&str; 7] = ["outcome", "revoked", "decided", "state", "issuer", "was-there", "to"];

impl MethodEffect {
    /// Returns the effect of a method with these params; `None` if there is no such method.
    pub(crate) fn of(method: &str, params: &RawObject) -> Option<Self> {
        let (_, effect) = METHODS.iter().find(|(name, _)| *name == method)?;
        let is_denial = method == "approvals.answer" && params.string("answer").as_deref() == Some("deny");
        Some(if is_denial { Act(OperatorAction::Deny, Some("id")) } else { *effect })
    }
}

/// Does an operator's action, and records its outcome.
///
/// # Errors
/// As those of the action, and that it cannot be recorded, so that it was not done.
pub(crate) async fn recorded(
    audit: &Audit,
    (action, about): (OperatorAction, Option<&'static str>),
    by: &str,
    params: &RawObject,
    performed: impl Future<Output = Result<RawJson, (i64, String)>>,
) -> Result<RawJson, (i64, String)> {
    let is_all = action == OperatorAction::Revoke && params.is_true("all");
    let is_of_pins = matches!(action, OperatorAction::PinsApprove | OperatorAction::PinsReject);
    let has_items = is_of_pins && params.get("items").is_some();
    // A param that the method does not read says nothing about the action.
    let name = if is_all {
        Some("all".to_owned())
    } else {
        about.filter(|_| !has_items).and_then(|about| params.string(about))
    };
    let record = audit.begin(action, by, name.as_deref()).await;
    let mut record = record.map_err(|error| (1, format!("nothing was done: {error}")))?;
    if let Some(items) = params.list("items").filter(|_| has_items) {
        record.set_count(items.len());
    }
    let outcome = performed.await;
    match &outcome {
        Ok(answer) => {
            let answer = RawObject::parse(answer).unwrap_or_default();
            // The id of a login opens its page, so the record has the name of its upstream instead.
            if action == OperatorAction::LoginEnd
                && let Some(upstream) = answer.string("upstream")
            {
                record.set_name(&upstream);
            }
            record.end(Ok(&told(&answer)));
        }
        Err((_, why)) => record.end(Err(why)),
    }
    outcome
}

/// Says the outcome of an action in a few words.
fn told(answer: &RawObject) -> String {
    let told = TOLD.iter().filter_map(|name| {
        let value = answer.string(name).or_else(|| Some(answer.get(name)?.text().into_owned()))?;
        Some(format!("{name}: {value}"))
    });
    told.collect::<Vec<_>>().join(", ")
}
