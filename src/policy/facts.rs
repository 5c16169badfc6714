//! What a decision is made on.

use super::kind::Kind;
use crate::mcp::annotations::Annotations;
use crate::wire::raw::RawJson;

/// The caller of this machine's own user, which the generated token stands for too. No configuration has to name it.
pub(crate) const LOCAL: &str = "local";

/// What is known about a call when it is decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    /// Who the client is, after authentication. Never empty.
    pub(crate) caller: &'a str,
    /// The view that the client looks through; empty where it has none.
    pub(crate) profile: &'a str,
    pub(crate) upstream: &'a str,
    /// Canonical name of the item, see [`Policy::item_rules`](super::Policy::item_rules).
    pub(crate) canonical: &'a str,
    pub(crate) kind: Kind,
    /// The effective ones of a tool. Nothing else has any.
    pub(crate) annotations: Annotations,
    /// The same text that the upstream gets.
    pub(crate) arguments: Option<&'a RawJson>,
}
