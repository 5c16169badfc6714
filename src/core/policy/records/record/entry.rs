//! Entries of the audit log as values. They are built where the event happens, and written
//! elsewhere.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::list_changes::ListChanges;
use super::operator_action::OperatorAction;
use super::removal::RecordRemoval;
use crate::mcp::client_name::ClientName;
use crate::policy::action::ToolFacts;
use crate::policy::caller::Caller;
use crate::policy::evidence::ApprovalEvidence;
use crate::policy::kind::ActionKind;
use crate::wire::digest::Digest;
use crate::wire::json::raw::RawJson;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum AuditEvent {
    /// A call was decided.
    Decision,
    /// A call ended.
    Outcome,
    /// A person is asked for an approval.
    Prompt,
    /// A person answered, or the approval timed out.
    Answer,
    /// A grant was given or used up.
    Grant,
    /// A grant was revoked.
    Revoke,
    /// A definition was pinned, approved, rejected or found changed.
    Pin,
    /// A program or address of an upstream was pinned, approved, rejected or found changed.
    Launch,
    /// The gateway started, stopped, or reports about the log itself.
    Gateway,
    /// Calls of items that their caller cannot see. The first such call of a caller is a decision;
    /// this event counts the following ones.
    Refusals,
    /// An operator did more than look, or tried to.
    Action,
}

/// One entry of the audit log. Members without a value are left out of its line.
///
/// Building an entry costs the clones of shared texts; the writer formats and digests.
#[derive(Clone, Debug)]
pub struct AuditEntry {
    pub event: AuditEvent,
    pub action: Option<OperatorAction>,
    /// The upstream, approval, grant or pin that the action is about.
    pub name: Option<Arc<str>>,
    /// The number by which logs and refusals name the call.
    pub call: Option<u64>,
    pub caller: Option<Caller>,
    /// The name that the client gives itself.
    pub client: Option<ClientName>,
    /// The number of the client's session or pipe.
    pub session: Option<u64>,
    /// The client's profile.
    pub profile: Option<Arc<str>>,
    pub upstream: Option<Arc<str>>,
    pub kind: Option<ActionKind>,
    /// The catalog's canonical name of the requested item.
    pub item: Option<Arc<str>>,
    /// The facts about a tool that rules could match at the decision, so that it can be made again
    /// under other rules.
    pub facts: Option<ToolFacts>,
    /// Digest of the item's definition.
    pub definition: Option<Digest>,
    /// The arguments as received. The writer digests them under the installation's key.
    pub arguments: Option<RawJson>,
    /// The decision, outcome or answer in one word; empty if the event needs none.
    pub result: &'static str,
    /// The rule or limit that decided.
    pub rule: Option<Arc<str>>,
    /// Id of the grant.
    pub grant: Option<Arc<str>>,
    /// Id of the approval.
    pub approval: Option<Arc<str>>,
    pub evidence: Option<ApprovalEvidence>,
    /// The person or cause behind the event.
    pub by: Option<Arc<str>>,
    /// The reason, for people; empty if there is none.
    pub why: Cow<'static, str>,
    /// Duration of the call.
    pub duration: Option<Duration>,
    /// The number of calls, pins or attempts that the entry stands for, if it is not one.
    pub count: Option<u64>,
    /// Old records that were removed.
    pub removed: Option<Box<RecordRemoval>>,
    /// The pins that one reading changed, if the entry stands for all of them.
    pub changes: Option<Box<ListChanges>>,
}

impl AuditEntry {
    /// Makes an entry with only its event. Set the other fields with `AuditEntry { ..,
    /// ..AuditEntry::new(event) }`.
    pub const fn new(event: AuditEvent) -> Self {
        Self {
            event,
            action: None,
            name: None,
            call: None,
            caller: None,
            client: None,
            session: None,
            profile: None,
            upstream: None,
            kind: None,
            item: None,
            facts: None,
            definition: None,
            arguments: None,
            result: "",
            rule: None,
            grant: None,
            approval: None,
            evidence: None,
            by: None,
            why: Cow::Borrowed(""),
            duration: None,
            count: None,
            removed: None,
            changes: None,
        }
    }

    /// Makes an entry about the gateway or its log.
    pub fn gateway(result: &'static str, why: impl Into<Cow<'static, str>>) -> Self {
        Self { result, why: why.into(), ..Self::new(AuditEvent::Gateway) }
    }

    /// Makes the entry for a reading of an upstream's lists that changed many pins, which have no
    /// entries of their own.
    pub fn relisted(upstream: Arc<str>, changes: ListChanges) -> Self {
        let ListChanges { added, changed, withheld, removed, .. } = changes;
        let why = format!(
            "one reading of its lists: {added} added, {changed} changed, {withheld} of both withheld, {removed} removed"
        );
        Self {
            upstream: Some(upstream),
            result: ListChanges::RESULT,
            count: Some(changes.count()),
            changes: Some(Box::new(changes)),
            why: why.into(),
            ..Self::new(AuditEvent::Pin)
        }
    }

    /// Makes the entry about the removal of old records. It must be on disk before their files are
    /// removed.
    pub fn removal(removal: RecordRemoval) -> Self {
        Self { removed: Some(Box::new(removal)), ..Self::gateway(RecordRemoval::RESULT, "") }
    }
}
