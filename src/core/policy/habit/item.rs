//! The item that a record is about.

use std::sync::Arc;

use crate::policy::chain::Line;
use crate::policy::kind::Kind;

/// An item by its kind and canonical name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Item {
    pub(super) kind: Kind,
    pub(super) name: Arc<str>,
}

/// Returns the kind of a record.
pub(super) fn kind_of(line: &Line<'_>) -> Option<Kind> {
    line.kind.as_deref()?.parse().ok()
}

impl Item {
    /// Returns the item of a record. Completions, subscriptions and tasks count as their item.
    pub(super) fn of(line: &Line<'_>) -> Option<Self> {
        let name = line.item.as_deref()?;
        let upstream = line.upstream.as_deref().unwrap_or_default();
        let is_uri = name.strip_prefix(upstream).is_some_and(|rest| rest.starts_with('+'));
        let kind = match kind_of(line)? {
            Kind::Tool | Kind::Task => Kind::Tool,
            Kind::Completion if !is_uri => Kind::Prompt,
            Kind::Prompt => Kind::Prompt,
            Kind::Resource | Kind::Subscription | Kind::Completion => Kind::Resource,
            Kind::Sampling | Kind::Elicitation | Kind::Launch => return None,
        };
        Some(Self { kind, name: Arc::from(name) })
    }
}
