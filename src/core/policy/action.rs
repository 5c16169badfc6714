//! An action: one caller doing one thing with one item, as that item is defined and its server launched.
//!
//! Made once for a request, when its item is found. Decisions, consents, audit records and sealed states take what they need from
//! it, so all of them are about the same thing.

use std::sync::Arc;

use super::caller::Caller;
use super::kind::Kind;
use crate::catalog::merge::Entry;
use crate::mcp::annotations::{Annotations, Said};
use crate::mcp::claims::Claims;
use crate::mcp::client_name::ClientName;
use crate::wire::digest::Digest;
use crate::wire::raw::RawJson;

/// The facts about a tool that rules match beside its name. Nothing else has any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The effective ones.
    pub annotations: Annotations,
    pub claims: Claims,
}

impl From<&Entry> for Facts {
    fn from(entry: &Entry) -> Self {
        Self { annotations: entry.annotations, claims: entry.claims }
    }
}

impl From<Annotations> for Facts {
    fn from(annotations: Annotations) -> Self {
        Self { annotations, claims: Claims::default() }
    }
}

/// One caller doing one thing with one item.
#[derive(Clone, Debug)]
pub struct Action {
    /// The client's caller.
    pub caller: Caller,
    /// The name that the client gives itself, for the audit log. No rule looks at it.
    pub client: Option<ClientName>,
    /// The view that the client looks through.
    pub profile: Option<Arc<str>>,
    /// The number of the client's session or pipe, unique within this process.
    pub session: u64,
    pub kind: Kind,
    pub upstream: Arc<str>,
    /// The name to judge by, see [`Policy::item_rules`](super::compiled::Policy::item_rules).
    pub canonical: Arc<str>,
    /// The catalog's name of the item; for a URI that is not listed, that of its template. The audit log has this one: the URI
    /// itself is text of the client.
    pub listed: Arc<str>,
    /// The effective ones of a tool. Nothing else has any.
    pub annotations: Annotations,
    /// The hints behind them.
    pub said: Said,
    /// The words of its definition.
    pub claims: Claims,
    /// Digest of the item's definition.
    pub definition: Digest,
    /// Digest of the answering program or address.
    pub launch: Digest,
    /// The text that the upstream gets.
    pub arguments: Option<RawJson>,
}

impl Action {
    /// What a caller does with an item of the catalog, without arguments.
    pub fn on(
        entry: &Entry,
        kind: Kind,
        launch: Digest,
        caller: Caller,
        profile: Option<Arc<str>>,
        session: u64,
    ) -> Self {
        Self {
            caller,
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
        }
    }

    /// The facts that rules match.
    pub const fn facts(&self) -> Facts {
        Facts { annotations: self.annotations, claims: self.claims }
    }

    /// The view that the client looks through; empty where it has none.
    pub fn profile(&self) -> &str {
        self.profile.as_deref().unwrap_or_default()
    }

    /// An action for dry runs and tests: a client of the caller with that name and without a
    /// profile calls a tool that says nothing. Its digests are of no bytes, so no consent covers
    /// it.
    pub fn stand_in(caller: &str, upstream: &str, canonical: &str) -> Self {
        let (canonical, none) = (Arc::<str>::from(canonical), Digest::of(b""));
        Self {
            caller: Caller::named(caller),
            client: None,
            profile: None,
            session: 0,
            kind: Kind::Tool,
            upstream: upstream.into(),
            listed: Arc::clone(&canonical),
            canonical,
            annotations: Annotations::ASSUMED,
            said: Said::default(),
            claims: Claims::default(),
            definition: none,
            launch: none,
            arguments: None,
        }
    }
}
