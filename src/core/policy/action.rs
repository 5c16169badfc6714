//! An action: a caller, an item, and the use that the caller makes of the item, with the digests of
//! the item's definition and of its server's launch.
//!
//! An action is made once for a request, when its item is found. Decisions, approvals, audit
//! records and sealed states take their facts from it, so all of them are about the same call.

use std::sync::Arc;

use super::caller::{Caller, CallerRights};
use super::kind::ActionKind;
use crate::catalog::merge::CatalogEntry;
use crate::mcp::client_name::ClientName;
use crate::mcp::definition::annotations::{Annotations, StatedHints};
use crate::mcp::definition::claims::Claims;
use crate::wire::digest::Digest;
use crate::wire::json::raw::RawJson;

/// Facts about a tool that rules match besides its name. Other items have default facts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolFacts {
    /// The effective annotations of the tool.
    pub annotations: Annotations,
    pub claims: Claims,
}

impl From<&CatalogEntry> for ToolFacts {
    fn from(entry: &CatalogEntry) -> Self {
        Self { annotations: entry.annotations, claims: entry.claims }
    }
}

impl From<Annotations> for ToolFacts {
    fn from(annotations: Annotations) -> Self {
        Self { annotations, claims: Claims::default() }
    }
}

/// A caller's use of one item.
#[derive(Clone, Debug)]
pub struct PolicyAction {
    /// The identity of the client.
    pub caller: Caller,
    /// The scopes and groups of the client's credential.
    pub rights: Arc<CallerRights>,
    /// The name that the client gives itself, for the audit log. No rule looks at it.
    pub client: Option<ClientName>,
    /// The profile through which the client sees the catalog.
    pub profile: Option<Arc<str>>,
    /// The number of the client's session or pipe, unique within this process.
    pub session: u64,
    pub kind: ActionKind,
    pub upstream: Arc<str>,
    /// The name to judge by, see [`Policy::item_rules`](super::compiled::Policy::item_rules).
    pub canonical: Arc<str>,
    /// The catalog's canonical name of the item, for the audit log. For a URI that is not listed
    /// this is the name of its template, because the URI is text of the client.
    pub listed: Arc<str>,
    /// The effective annotations of a tool. Other items have defaults.
    pub annotations: Annotations,
    /// The hints that the annotations come from, as the server and the operator stated them.
    pub said: StatedHints,
    /// The claims of the tool's definition.
    pub claims: Claims,
    /// Digest of the item's definition.
    pub definition: Digest,
    /// Digest of the upstream's launch: its program or address.
    pub launch: Digest,
    /// The arguments as the upstream gets them.
    pub arguments: Option<RawJson>,
    /// True if the client called a tool by its bare name, as apps do. No rule looks at it.
    pub is_bare: bool,
}

impl PolicyAction {
    /// Makes the action of a caller on an item of the catalog, without arguments.
    pub fn on(
        entry: &CatalogEntry,
        kind: ActionKind,
        launch: Digest,
        (caller, rights): (Caller, Arc<CallerRights>),
        profile: Option<Arc<str>>,
        session: u64,
    ) -> Self {
        Self {
            caller,
            rights,
            client: None,
            profile,
            session,
            kind,
            upstream: entry.upstream_name.shared(),
            canonical: Arc::clone(&entry.canonical),
            listed: Arc::clone(&entry.canonical),
            annotations: entry.annotations,
            said: entry.said,
            claims: entry.claims,
            definition: entry.definition_digest,
            launch,
            arguments: None,
            is_bare: false,
        }
    }

    /// Returns the facts that rules match.
    pub const fn facts(&self) -> ToolFacts {
        ToolFacts { annotations: self.annotations, claims: self.claims }
    }

    /// Returns the client's profile; empty if it has none.
    pub fn profile(&self) -> &str {
        self.profile.as_deref().unwrap_or_default()
    }

    /// Makes an action for dry runs and tests: a client of the named caller, without a profile,
    /// calls a tool without hints. Its digests are of no bytes, so no grant covers it.
    pub fn stand_in(caller: &str, upstream: &str, canonical: &str) -> Self {
        let (canonical, none) = (Arc::<str>::from(canonical), Digest::of(b""));
        let caller = Caller::named(caller);
        Self {
            rights: caller.assumed_rights(),
            caller,
            client: None,
            profile: None,
            session: 0,
            kind: ActionKind::Tool,
            upstream: upstream.into(),
            listed: Arc::clone(&canonical),
            canonical,
            annotations: Annotations::ASSUMED,
            said: StatedHints::default(),
            claims: Claims::default(),
            definition: none,
            launch: none,
            arguments: None,
            is_bare: false,
        }
    }
}
