//! The apps of a merge: the URIs of views for clients, and the entries that no list shows.
//!
//! A view that a tool names is read by clients that see the tool, also if its server lists it
//! nowhere. A URI that a tool's result handed to a caller is read by way of an entry that stands
//! for all such URIs of its upstream.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::{Catalog, CatalogEntry, MergeSource, NamingRules, check_uri};
use crate::catalog::filter::ItemFilter;
use crate::catalog::name::{UpstreamName, canonical_uri, names_an_upstream, view_uri};
use crate::mcp::asking::kinds::Audience;
use crate::mcp::definition::annotations::{Annotations, StatedHints};
use crate::mcp::definition::app::{ToolApp, remove_view, rename_views};
use crate::mcp::definition::claims::Claims;
use crate::mcp::definition::item::Definition;
use crate::mcp::method::ItemList;
use crate::wire::digest::Digest;
use crate::wire::headers::ParamHeaders;
use crate::wire::json::raw::{RawJson, RawObject};

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

/// The URIs of views that have the name of their upstream for clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ViewNaming {
    transparent: bool,
    always: bool,
    shared: Arc<HashSet<String>>,
}

impl ViewNaming {
    pub(super) fn new(rules: NamingRules<'_>) -> Self {
        let shared = rules.shared_views.map(Arc::clone).unwrap_or_default();
        Self { transparent: rules.transparent, always: rules.prefix_uris, shared }
    }

    /// Reports whether clients see a view under [`view_uri`].
    pub(super) fn renames(&self, uri: &str) -> bool {
        !self.transparent && (self.always || self.shared.contains(uri) || names_an_upstream(uri))
    }

    fn exposed(&self, upstream: &UpstreamName, uri: &str) -> Option<String> {
        self.renames(uri).then(|| view_uri(upstream, uri))
    }
}

impl Catalog {
    /// Returns the URI under which a view of an upstream is handed to a client, if that is not its
    /// own. `is_taken` tells whether the client knows its own URI as one of another upstream.
    pub fn exposed_view(&self, upstream: &UpstreamName, uri: &str, is_taken: impl FnOnce() -> bool) -> Option<String> {
        let is_anothers = || {
            let at = self.find(ItemList::Resources, uri);
            at.and_then(|at| self.entry(at)).is_some_and(|entry| entry.upstream_name != *upstream)
        };
        let is_renamed = self.views.renames(uri) || !self.views.transparent && (is_anothers() || is_taken());
        is_renamed.then(|| view_uri(upstream, uri))
    }

    /// Returns the index of the entry by which a URI is read that a tool of this upstream handed
    /// out: the resource itself, or the entry for all such URIs. `None` for a URI that is withheld
    /// or that a filter hides.
    pub fn find_handed(&self, upstream: &UpstreamName, uri: &str) -> Option<usize> {
        let canonical = canonical_uri(upstream, uri);
        if self.withheld.contains(&canonical) {
            return None;
        }
        let of_it = || self.entries.iter().enumerate().filter(|(_, entry)| entry.upstream_name == *upstream);
        let own = of_it().find(|(_, entry)| entry.list == ItemList::Resources && *entry.original == *uri);
        let admits = |entry: &CatalogEntry| match &entry.reach {
            EntryReach::Handed(filters) => filters[0].admits(uri) && filters[1].admits(&canonical),
            EntryReach::Open | EntryReach::OfTools(_) => false,
        };
        own.or_else(|| of_it().skip_while(|(at, _)| *at < self.listed).find(|(_, entry)| admits(entry)))
            .map(|(at, _)| at)
    }
}

/// Writes a tool's views as clients see them, and removes them if their app waits for approval.
/// Returns their URIs at the upstream.
pub(super) fn write_app(
    item: &Definition,
    definition: &mut RawObject,
    source: &MergeSource<'_>,
    naming: &ViewNaming,
) -> Vec<Arc<str>> {
    if !source.apps || item.raw.get("_meta").is_none() {
        return Vec::new();
    }
    let mut views: Vec<Arc<str>> = Vec::new();
    rename_views(&mut item.raw.clone(), &mut |uri| {
        views.push(Arc::from(uri));
        None
    });
    if source.withheld_views.is_some_and(|withheld| views.iter().any(|view| withheld.contains(&**view))) {
        remove_view(definition);
    }
    rename_views(definition, &mut |uri| naming.exposed(source.upstream, uri));
    views
}

/// Moves listed views whose app waits behind the entries that lists show, and adds the views that
/// only tools name and an entry for handed URIs of each upstream. Returns the number of entries
/// that lists show.
pub(super) fn add_hidden_entries(
    entries: &mut Vec<CatalogEntry>,
    sources: &[MergeSource<'_>],
    rules: NamingRules<'_>,
    naming: &ViewNaming,
) -> usize {
    let source_of = |entry: &CatalogEntry| sources.iter().find(|source| source.index == entry.upstream);
    let waits = |entry: &mut CatalogEntry| {
        let withheld = source_of(entry).and_then(|source| source.withheld_views);
        entry.list == ItemList::Resources && withheld.is_some_and(|withheld| withheld.contains(&*entry.original))
    };
    let mut hidden: Vec<CatalogEntry> = entries.extract_if(.., waits).collect();
    let listed = entries.len();
    entries.append(&mut hidden);
    let mut named: BTreeMap<(usize, Arc<str>), Vec<usize>> = BTreeMap::new();
    for (at, entry) in entries.iter().enumerate() {
        for view in &entry.views {
            named.entry((entry.upstream, Arc::clone(view))).or_default().push(at);
        }
    }
    if !named.is_empty() {
        let has = |entry: &CatalogEntry| named.contains_key(&(entry.upstream, Arc::clone(&entry.original)));
        let known = entries.iter().filter(|entry| entry.list == ItemList::Resources && has(entry));
        let known: Vec<_> = known.map(|entry| (entry.upstream, Arc::clone(&entry.original))).collect();
        known.iter().for_each(|view| drop(named.remove(view)));
    }
    let in_profile = |uri: &str| rules.profile.is_none_or(|profile| profile.resources.admits(uri));
    for source in sources {
        let of_it = named.iter().filter(|((upstream, _), _)| *upstream == source.index);
        for ((_, uri), tools) in of_it {
            let is_withheld = source.withheld.is_some_and(|withheld| withheld.contains(&**uri));
            let canonical = canonical_uri(source.upstream, uri);
            if is_withheld
                || !source.filters.resources.admits(uri)
                || !in_profile(&canonical)
                || check_uri(uri).is_err()
            {
                continue;
            }
            let exposed = naming.exposed(source.upstream, uri).map_or_else(|| Arc::clone(uri), Arc::from);
            entries.push(unlisted(source, Arc::clone(uri), exposed, EntryReach::OfTools(tools.clone())));
        }
        let filters =
            [source.filters.resources.clone(), rules.profile.map(|p| p.resources.clone()).unwrap_or_default()];
        let nothing: Arc<str> = Arc::from("");
        entries.push(unlisted(source, Arc::clone(&nothing), nothing, EntryReach::Handed(Box::new(filters))));
    }
    listed
}

/// Builds the entry of a resource that its server does not list.
fn unlisted(source: &MergeSource<'_>, original: Arc<str>, exposed: Arc<str>, reach: EntryReach) -> CatalogEntry {
    CatalogEntry {
        list: ItemList::Resources,
        upstream: source.index,
        upstream_name: source.upstream.clone(),
        canonical: Arc::from(canonical_uri(source.upstream, &original)),
        original_json: RawJson::string(&original),
        original,
        exposed,
        definition: RawObject::default(),
        annotations: Annotations::default(),
        said: StatedHints::default(),
        claims: Claims::default(),
        is_new: false,
        definition_digest: Digest::of(b""),
        headers: ParamHeaders::default(),
        audience: Audience::ALL,
        app: ToolApp::default(),
        views: Vec::new(),
        reach,
        template: None,
    }
}
