//! The entries of a catalog that no list shows.
//!
//! A view that a tool names is read by clients that see the tool, also if its server lists it
//! nowhere. A URI that a tool's result handed to a caller is read by way of an entry that stands
//! for all such URIs of its upstream.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Catalog, CatalogEntry, EntryReach, MergeSource, NamingRules, check_uri};
use crate::catalog::name::{UpstreamName, canonical_uri, view_uri};
use crate::mcp::asking::kinds::Audience;
use crate::mcp::definition::annotations::{Annotations, StatedHints};
use crate::mcp::definition::app::ToolApp;
use crate::mcp::definition::claims::Claims;
use crate::mcp::method::ItemList;
use crate::wire::digest::Digest;
use crate::wire::headers::ParamHeaders;
use crate::wire::json::raw::{RawJson, RawObject};

impl Catalog {
    /// Returns the URI under which a view of an upstream is handed to a client, if that is not its
    /// own. `is_taken` tells whether the client knows its own URI as one of another upstream.
    pub fn exposed_view(&self, upstream: &UpstreamName, uri: &str, is_taken: impl FnOnce() -> bool) -> Option<String> {
        let is_renamed = self.views.renames(upstream, uri) || self.views.may_rename() && is_taken();
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
            EntryReach::Handed(filters) => {
                let [of_upstream, of_profile] = &**filters;
                of_upstream.admits(uri) && of_profile.admits(&canonical)
            }
            EntryReach::Open | EntryReach::OfTools(_) => false,
        };
        own.or_else(|| of_it().skip_while(|(at, _)| *at < self.listed).find(|(_, entry)| admits(entry)))
            .map(|(at, _)| at)
    }

    /// Moves listed views whose app waits behind the entries that lists show, and adds the views
    /// that only tools name and an entry for handed URIs of each upstream.
    pub(super) fn add_hidden_entries(&mut self, sources: &[MergeSource<'_>], rules: NamingRules<'_>) {
        let source_of = |entry: &CatalogEntry| sources.iter().find(|source| source.index == entry.upstream);
        let waits = |entry: &mut CatalogEntry| {
            let withheld = || source_of(entry).and_then(|source| source.withheld_views);
            entry.list == ItemList::Resources && withheld().is_some_and(|withheld| withheld.contains(&*entry.original))
        };
        let (entries, naming) = (&mut self.entries, &self.views);
        let mut hidden: Vec<CatalogEntry> = entries.extract_if(.., waits).collect();
        self.listed = entries.len();
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
    }
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
