//! The views of apps in a catalog: their URIs for clients, and the clients that reach them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::catalog::filter::ItemFilter;
use crate::catalog::name::{UpstreamName, names_an_upstream, view_uri};
use crate::mcp::definition::app::{fold_view_uri, remove_view, rename_views};
use crate::mcp::definition::item::Definition;
use crate::wire::json::raw::RawObject;

/// The clients that reach an entry, among those whom the rules leave it.
#[derive(Clone, Debug, Default)]
pub enum EntryReach {
    #[default]
    Open,
    /// Clients that see one of these tools, by index in the catalog.
    OfTools(Vec<usize>),
    /// Callers to whom a tool handed a URI. Holds the filters of such URIs: the upstream's, on
    /// original URIs, and the profile's, on canonical ones.
    Handed(Box<[ItemFilter; 2]>),
}

impl PartialEq for EntryReach {
    /// Filters do not count: with other filters, there is another configuration.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::OfTools(tools), Self::OfTools(others)) => tools == others,
            (Self::Open, Self::Open) | (Self::Handed(_), Self::Handed(_)) => true,
            (Self::Open | Self::OfTools(_) | Self::Handed(_), _) => false,
        }
    }
}

/// The upstreams that have each view, in all spellings of its URI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewOwners(HashMap<String, ViewOwner>);

/// The upstreams that have one view.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ViewOwner {
    One(UpstreamName),
    Several,
}

impl ViewOwners {
    /// Adds an upstream that has a view.
    pub fn add(&mut self, upstream: &UpstreamName, uri: &str) {
        let new = || ViewOwner::One(upstream.clone());
        let owner = self.0.entry(fold_view_uri(uri).into_owned()).or_insert_with(new);
        if *owner != new() {
            *owner = ViewOwner::Several;
        }
    }

    /// Reports whether another upstream has this view.
    fn has_another(&self, upstream: &UpstreamName, uri: &str) -> bool {
        let owner = self.0.get(&*fold_view_uri(uri));
        owner.is_some_and(|owner| !matches!(owner, ViewOwner::One(only) if only == upstream))
    }
}

/// The URIs of views that have the name of their upstream for clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ViewNaming {
    transparent: bool,
    always: bool,
    owners: Arc<ViewOwners>,
}

impl ViewNaming {
    /// Names the views of one catalog: none if it is `transparent`, all with `always`, and else
    /// those that several upstreams have.
    pub(crate) fn new(transparent: bool, always: bool, owners: Option<&Arc<ViewOwners>>) -> Self {
        Self { transparent, always, owners: owners.map(Arc::clone).unwrap_or_default() }
    }

    /// Reports whether a view that another upstream has too may get the name of its upstream.
    pub(crate) const fn may_rename(&self) -> bool {
        !self.transparent
    }

    /// Reports whether clients see a view of an upstream under [`view_uri`].
    pub(crate) fn renames(&self, upstream: &UpstreamName, uri: &str) -> bool {
        !self.transparent && (self.always || names_an_upstream(uri) || self.owners.has_another(upstream, uri))
    }

    /// Returns the URI under which clients see a view, if that is not its own.
    pub(crate) fn exposed(&self, upstream: &UpstreamName, uri: &str) -> Option<String> {
        self.renames(upstream, uri).then(|| view_uri(upstream, uri))
    }
}

/// Writes a tool's views as clients see them, and removes them if the app of one is `withheld`.
/// Returns their URIs at the upstream.
pub(crate) fn write_app(
    item: &Definition,
    definition: &mut RawObject,
    upstream: &UpstreamName,
    withheld: Option<&HashSet<String>>,
    naming: &ViewNaming,
) -> Vec<Arc<str>> {
    if item.raw.get("_meta").is_none() {
        return Vec::new();
    }
    let mut views: Vec<Arc<str>> = Vec::new();
    rename_views(&mut item.raw.clone(), &mut |uri| {
        views.push(Arc::from(uri));
        None
    });
    if withheld.is_some_and(|withheld| views.iter().any(|view| withheld.contains(&**view))) {
        remove_view(definition);
    }
    rename_views(definition, &mut |uri| naming.exposed(upstream, uri));
    views
}
