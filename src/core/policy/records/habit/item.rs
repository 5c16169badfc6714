//! The item that a record is about.

use std::sync::Arc;

use crate::policy::kind::ActionKind;
use crate::policy::records::chain::AuditLine;

/// An item by its kind and canonical name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HabitItem {
    pub(super) kind: ActionKind,
    pub(super) name: Arc<str>,
}

/// Returns the kind of a record.
pub(super) fn kind_of(line: &AuditLine<'_>) -> Option<ActionKind> {
    line.kind.as_deref()?.parse().ok()
}

impl HabitItem {
    /// Returns the item of a record. Completions, subscriptions and tasks count as their item.
    pub(super) fn of(line: &AuditLine<'_>) -> Option<Self> {
        let name = line.item.as_deref()?;
        let upstream = line.upstream.as_deref().unwrap_or_default();
        let is_uri = name.strip_prefix(upstream).is_some_and(|rest| rest.starts_with('+'));
        let kind = match kind_of(line)? {
            ActionKind::Tool | ActionKind::Task => ActionKind::Tool,
            ActionKind::Completion if !is_uri => ActionKind::Prompt,
            ActionKind::Prompt => ActionKind::Prompt,
            ActionKind::Resource | ActionKind::Subscription | ActionKind::Completion => ActionKind::Resource,
            ActionKind::Sampling | ActionKind::Elicitation | ActionKind::Launch => return None,
        };
        Some(Self { kind, name: Arc::from(name) })
    }
}
