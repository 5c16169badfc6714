//! Merges the inventories of all upstreams into one catalog for one view. Item names are resolved
//! here, by look-up, and nowhere else.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;

pub use crate::catalog::app_views::{EntryReach, ViewOwners};
use crate::catalog::app_views::{ViewNaming, write_app};
use crate::catalog::apps::{AppItem, BareName, BareNames, OfferedApps};
use crate::catalog::filter::ItemFilter;
use crate::catalog::inventory::Inventory;
use crate::catalog::name::{ItemKind, UpstreamName, canonical_name, canonical_uri, collisions, expose, view_uri};
use crate::catalog::template::UriTemplate;
use crate::mcp::asking::kinds::Audience;
use crate::mcp::definition::annotations;
use crate::mcp::definition::annotations::{Annotations, Hints, StatedHints};
use crate::mcp::definition::app::{ToolApp, fold_view_uri, is_view_uri};
use crate::mcp::definition::claims::{Claims, PinStatus};
use crate::mcp::definition::item::Definition;
use crate::mcp::method::ItemList;
use crate::wire::digest::Digest;
use crate::wire::foreign;
use crate::wire::headers::ParamHeaders;
use crate::wire::json::raw::{RawJson, RawObject};

mod hidden;
mod withheld;

pub use self::withheld::{WithheldItem, WithheldPart};

/// The judged hints on a tool, for policy and for clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct JudgedHints {
    /// The hints that policy goes by.
    pub effective: Annotations,
    /// The hints that clients see. An absent hint stays as the server wrote it.
    pub shown: Hints,
    /// The hints as the server and the operator stated them.
    pub said: StatedHints,
    /// Whether an allow rule may go by the server's own hints, unless something else about the tool
    /// rules it out.
    pub is_heard: bool,
}

/// A judge of the hints on an upstream's tools.
pub trait HintJudge: std::fmt::Debug {
    /// Judges the hints on one tool. `original` is the tool's name at the upstream and `claims` are
    /// the upstream's hints. With `tightened`, clients see the effective hints.
    fn annotate(&self, original: &str, claims: &Hints, tightened: bool) -> JudgedHints;
}

/// One upstream and its inventory, as input of the merge. Sources are in the configuration's order.
#[derive(Clone, Copy, Debug)]
pub struct MergeSource<'a> {
    pub upstream: &'a UpstreamName,
    pub prefix: &'a str,
    pub inventory: &'a Inventory,
    pub filters: &'a ItemFilters,
    pub annotate: &'a dyn HintJudge,
    /// Whether tools with invalid `x-mcp-header` annotations are withheld, because the upstream
    /// would refuse their calls.
    pub needs_headers: bool,
    /// Index of the upstream in the table of handles.
    pub index: usize,
    /// URIs of the upstream's resources that wait for approval. No template may reach them.
    pub withheld: Option<&'a HashSet<String>>,
    /// Original names of the upstream's tools that are withheld.
    pub withheld_tools: Option<&'a HashSet<String>>,
    /// Whether the upstream may have apps.
    pub apps: bool,
    /// URIs at the upstream of the views whose apps wait for approval. Tools lose these views, and
    /// no list shows them.
    pub withheld_views: Option<&'a HashSet<String>>,
    /// States of the upstream's tools, by original name, as their pins record them.
    pub standings: Option<&'a HashMap<String, PinStatus>>,
}

/// Filters of one upstream (on original names) or of one profile (on canonical names).
#[derive(Clone, Debug, Default)]
pub struct ItemFilters {
    pub tools: ItemFilter,
    pub prompts: ItemFilter,
    pub resources: ItemFilter,
}

impl ItemFilters {
    /// Returns the filter that applies to a list.
    pub fn of(&self, list: ItemList) -> &ItemFilter {
        match list {
            ItemList::Tools => &self.tools,
            ItemList::Prompts => &self.prompts,
            ItemList::Resources | ItemList::Templates => &self.resources,
        }
    }
}

/// The naming rules of one view.
#[derive(Clone, Copy, Debug, Default)]
pub struct NamingRules<'a> {
    /// Longest exposed name, in bytes.
    pub max_length: usize,
    /// Whether every URI is prefixed with its upstream's name.
    pub prefix_uris: bool,
    /// Whether names and URIs stay unchanged. Only for a view of one upstream.
    pub transparent: bool,
    /// Whether clients see the effective hints of every tool.
    pub tightened: bool,
    /// The filters of the view's profile.
    pub profile: Option<&'a ItemFilters>,
    /// The upstreams of the installation that have each view.
    pub view_owners: Option<&'a Arc<ViewOwners>>,
}

impl NamingRules<'_> {
    fn of_views(self) -> ViewNaming {
        ViewNaming::new(self.transparent, self.prefix_uris, self.view_owners)
    }
}

/// One item that clients can reach.
#[derive(Debug)]
pub struct CatalogEntry {
    pub list: ItemList,
    /// Index of the item's upstream in the table of handles.
    pub upstream: usize,
    pub upstream_name: UpstreamName,
    /// The item's name or URI at the upstream, and the only name that is sent there.
    pub original: Arc<str>,
    /// The original name as a JSON string.
    pub original_json: RawJson,
    /// The name or URI that clients see.
    pub exposed: Arc<str>,
    /// The item's name in rules, limits, audit and metrics.
    pub canonical: Arc<str>,
    /// The item's definition as clients see it.
    pub definition: RawObject,
    /// Effective annotations of a tool; meaningless for other items.
    pub annotations: Annotations,
    /// The stated hints that the effective annotations come from.
    pub said: StatedHints,
    /// The claims of a tool's definition.
    pub claims: Claims,
    /// True for a tool that appeared after the first inventory of its upstream's launch and that no
    /// operator has confirmed.
    pub is_new: bool,
    /// Digest of the upstream's own definition.
    pub definition_digest: Digest,
    /// Arguments that the upstream wants repeated in headers.
    pub headers: ParamHeaders,
    /// The clients that the item's server shows it to.
    pub audience: Audience,
    /// The app of a tool. Other items are for models and apps; a view has itself as its view.
    pub app: ToolApp,
    /// URIs of the views of a tool's app at the upstream.
    pub views: Vec<Arc<str>>,
    pub reach: EntryReach,
    template: Option<UriTemplate>,
}

impl CatalogEntry {
    /// Reports whether the item exists for clients that declared Apps, or for those that did not.
    pub const fn is_for(&self, apps: bool) -> bool {
        apps || self.app.for_model
    }

    fn app_item((at, entry): (usize, &Self)) -> AppItem<'_> {
        let Self { list, upstream, original, app, .. } = entry;
        AppItem { at, upstream: *upstream, list: *list, original, app }
    }
}

/// Indices of entries by exposed name.
type NameIndex = HashMap<Arc<str>, usize, RandomState>;

/// The merged namespace of one view.
#[derive(Default, Debug)]
pub struct Catalog {
    /// The entries that lists show, then the others.
    entries: Vec<CatalogEntry>,
    /// Number of entries that lists show.
    listed: usize,
    views: ViewNaming,
    /// Indices of entries by exposed name, for each list.
    by_name: HashMap<ItemList, NameIndex, RandomState>,
    /// Whether any tool repeats arguments in headers. Hardly any tool does.
    pub mirrors_arguments: bool,
    /// URIs of resources that wait for approval, each with and without its upstream's name.
    withheld: HashSet<String>,
    bare: BareNames,
}

impl Catalog {
    /// Returns the entries that lists show.
    pub fn entries(&self) -> &[CatalogEntry] {
        self.entries.get(..self.listed).unwrap_or_default()
    }

    /// Returns all entries: those that lists show, then those that are only read.
    pub fn all_entries(&self) -> &[CatalogEntry] {
        &self.entries
    }

    pub fn entry(&self, at: usize) -> Option<&CatalogEntry> {
        self.entries.get(at)
    }

    /// Returns the index of the tool or prompt with this exposed name, or of the resource or
    /// template with exactly this URI.
    pub fn find(&self, list: ItemList, exposed: &str) -> Option<usize> {
        self.by_name.get(&list)?.get(exposed).copied()
    }

    /// Finds the tool that an app calls by its bare name. `visible` says whether the client may see
    /// the entry with this index.
    pub fn find_bare(&self, name: &str, visible: impl Fn(usize) -> bool) -> BareName {
        self.bare.find(name, visible)
    }

    /// Returns the index of the first tool of this bare name, visible or not.
    pub fn bare_owner(&self, name: &str) -> Option<usize> {
        self.bare.owner(name)
    }

    /// Returns the index of the template that matches a URI. If several templates of one upstream
    /// match, the first is returned; if templates of several upstreams match, none is. A resource
    /// that waits for approval is not reached through a template either.
    pub fn find_template(&self, uri: &str) -> Option<usize> {
        if self.withheld.contains(uri) {
            return None;
        }
        let mut found: Option<usize> = None;
        for (at, entry) in self.entries.iter().enumerate() {
            if entry.template.as_ref().is_some_and(|template| template.matches(uri)) {
                match found.and_then(|first| self.entries.get(first)) {
                    Some(first) if first.upstream != entry.upstream => return None,
                    Some(_) => {}
                    None => found = Some(at),
                }
            }
        }
        found
    }

    /// Whether the two catalogs have the same entries in the same order, so that clients and policy
    /// see no difference.
    pub fn same_as(&self, other: &Self) -> bool {
        self.entries.len() == other.entries.len()
            && self.listed == other.listed
            && (&self.withheld, &self.views) == (&other.withheld, &other.views)
            && self.entries.iter().zip(&other.entries).all(|(a, b)| {
                a.list == b.list
                    && a.upstream == b.upstream
                    && a.exposed == b.exposed
                    && a.canonical == b.canonical
                    && (a.audience, &a.app) == (b.audience, &b.app)
                    && a.definition == b.definition
                    && a.definition_digest == b.definition_digest
                    && (a.annotations, a.said) == (b.annotations, b.said)
                    && (a.claims, a.is_new) == (b.claims, b.is_new)
                    && a.reach == b.reach
            })
    }
}

/// Merges the inventories of one view into a catalog, and returns the items that are withheld. The
/// order of entries is the configuration's and items with colliding names are all withheld, so the
/// result does not depend on which upstream answered first.
pub fn merge(sources: &[MergeSource<'_>], rules: NamingRules<'_>) -> (Catalog, Vec<WithheldItem>) {
    let mut dropped = Vec::new();
    let mut entries = Vec::new();
    let views = rules.of_views();
    for list in ItemList::ALL {
        let mut candidates = Vec::new();
        for source in sources {
            for item in source.inventory.items(list) {
                match build_entry(source, item, rules) {
                    Ok(Some(entry)) => candidates.push(entry),
                    Ok(None) => {}
                    Err(why) => dropped.push(WithheldItem {
                        upstream: source.upstream.clone(),
                        part: WithheldPart::Item(list),
                        item: foreign::line(&item.key).into_owned(),
                        exposed: exposed_name(source, item, rules).ok(),
                        pin: None,
                        why,
                    }),
                }
            }
        }
        if !rules.transparent && is_uri(list) {
            tell_uris_apart(&mut candidates, rules.prefix_uris, &views);
        }
        withhold_collisions(&mut candidates, &mut dropped);
        entries.extend(candidates);
    }
    let mirrors_arguments = entries.iter().any(|entry| !entry.headers.is_empty());
    let withheld = sources.iter().flat_map(|source| {
        let both = |uri: &String| [uri.clone(), canonical_uri(source.upstream, uri)];
        source.withheld.into_iter().flatten().flat_map(both)
    });
    let withheld = withheld.collect();
    let mut catalog = Catalog { entries, views, mirrors_arguments, withheld, ..Catalog::default() };
    catalog.add_hidden_entries(sources, rules);
    let named = |(_, entry): &(usize, &CatalogEntry)| !matches!(entry.reach, EntryReach::Handed(_));
    for (at, entry) in catalog.entries.iter().enumerate().filter(named) {
        // The name of an entry that no list shows may be taken.
        catalog.by_name.entry(entry.list).or_default().entry(Arc::clone(&entry.exposed)).or_insert(at);
    }
    let is_tool = |item: &&WithheldItem| item.part == WithheldPart::Item(ItemList::Tools);
    let collided = dropped.iter().filter(is_tool).map(|item| item.item.clone());
    let waiting = sources.iter().flat_map(|source| source.withheld_tools.into_iter().flatten().cloned());
    let items = catalog.entries.iter().enumerate().map(CatalogEntry::app_item);
    catalog.bare = BareNames::of(items, collided.chain(waiting));
    (catalog, dropped)
}

/// Builds the entry of one item under its name in this view. Returns `None` if a filter of the
/// operator hides the item, and the reason if the item is withheld.
fn build_entry(
    source: &MergeSource<'_>,
    item: &Definition,
    rules: NamingRules<'_>,
) -> Result<Option<CatalogEntry>, String> {
    let filter = source.filters.of(item.list);
    let is_uri = is_uri(item.list);
    let canonical =
        if is_uri { canonical_uri(source.upstream, &item.key) } else { canonical_name(source.upstream, &item.key) };
    let in_profile = rules.profile.is_none_or(|profile| profile.of(item.list).admits(&canonical));
    if !filter.admits(&item.key) || !in_profile {
        return Ok(None);
    }
    if let Some(fault) = item.fault {
        return Err(fault.to_owned());
    }
    if item.bad_headers && source.needs_headers {
        return Err("its `x-mcp-header` annotations break the rules of the protocol".to_owned());
    }
    let exposed = exposed_name(source, item, rules)?;
    let template = if item.list == ItemList::Templates {
        Some(UriTemplate::parse(&item.key).ok_or("its URI template is too large or has an unclosed brace")?)
    } else {
        None
    };
    let mut definition = item.raw.clone();
    let is_tool = item.list == ItemList::Tools;
    let has_app = is_tool && source.apps;
    let mut write = || write_app(item, &mut definition, source.upstream, source.withheld_views, &rules.of_views());
    let views = if has_app { write() } else { Vec::new() };
    let offered = OfferedApps { is_on: source.apps, withheld_views: source.withheld_views };
    let Some(app) = offered.judge(item, &mut definition) else { return Ok(None) };
    let mut annotated = JudgedHints::default();
    let (mut claims, mut is_new) = (Claims::default(), false);
    if is_tool {
        annotated = source.annotate.annotate(&item.key, &Hints::of(&item.raw), rules.tightened);
        annotations::set_shown_hints(&mut definition, &annotated.shown);
        let standing = source.standings.and_then(|all| all.get(&item.key)).copied().unwrap_or_default();
        (claims, is_new) = (Claims::of(item, standing, annotated.is_heard), standing.is_new);
    }
    Ok(Some(CatalogEntry {
        list: item.list,
        upstream: source.index,
        upstream_name: source.upstream.clone(),
        original: Arc::from(item.key.as_str()),
        original_json: RawJson::string(&item.key),
        exposed: Arc::from(exposed),
        canonical: Arc::from(canonical),
        definition,
        annotations: annotated.effective,
        said: annotated.said,
        claims,
        is_new,
        definition_digest: item.digest,
        headers: item.headers.clone(),
        audience: item.audience,
        app,
        views,
        reach: EntryReach::Open,
        template,
    }))
}

fn is_uri(list: ItemList) -> bool {
    matches!(list, ItemList::Resources | ItemList::Templates)
}

/// Returns the name that clients see. A URI is returned unchanged; [`tell_uris_apart`] prefixes it
/// later if it has to.
fn exposed_name(source: &MergeSource<'_>, item: &Definition, rules: NamingRules<'_>) -> Result<String, String> {
    let kind = match item.list {
        ItemList::Tools => ItemKind::Tool,
        ItemList::Prompts => ItemKind::Prompt,
        ItemList::Resources => ItemKind::Resource,
        ItemList::Templates => ItemKind::Template,
    };
    if is_uri(item.list) {
        check_uri(&item.key)?;
        return Ok(item.key.clone());
    }
    let prefix = if rules.transparent { "" } else { source.prefix };
    let local = if rules.transparent { &item.key } else { source.filters.of(item.list).local(&item.key) };
    expose(prefix, source.upstream, kind, local, rules.max_length).map_err(|why| why.to_string())
}

/// Checks that a URI can be exposed.
fn check_uri(uri: &str) -> Result<(), String> {
    if uri.is_empty() || uri.len() > 2048 {
        return Err("its URI is empty or over 2048 bytes".to_owned());
    }
    if uri.chars().any(char::is_control) {
        return Err("its URI contains control characters".to_owned());
    }
    Ok(())
}

/// Exposes each URI that two upstreams own as `<upstream>+<original>`, and with `always` every URI.
/// The URI of a view keeps its scheme.
fn tell_uris_apart(candidates: &mut [CatalogEntry], always: bool, views: &ViewNaming) {
    let mut owners: HashMap<String, Vec<usize>> = HashMap::new();
    for entry in candidates.iter() {
        let list = owners.entry(fold_view_uri(&entry.original).into_owned()).or_default();
        if !list.contains(&entry.upstream) {
            list.push(entry.upstream);
        }
    }
    for entry in candidates {
        let is_shared = always || owners.get(&*fold_view_uri(&entry.original)).is_some_and(|owners| owners.len() > 1);
        if is_view_uri(&entry.original) && (is_shared || views.renames(&entry.upstream_name, &entry.original)) {
            entry.exposed = Arc::from(view_uri(&entry.upstream_name, &entry.original));
        } else if is_shared {
            entry.exposed = Arc::clone(&entry.canonical);
        } else {
            continue;
        }
        entry.template = entry.template.as_ref().and_then(|_| UriTemplate::parse(&entry.exposed));
    }
}

/// Moves all entries whose exposed name is not unique to `dropped`.
fn withhold_collisions(candidates: &mut Vec<CatalogEntry>, dropped: &mut Vec<WithheldItem>) {
    let shared = collisions(candidates.iter().enumerate().map(|(at, entry)| (entry.exposed.as_ref(), at)));
    let mut at = 0..;
    candidates.retain(|entry| {
        let alone = at.next().is_some_and(|at| shared.binary_search(&at).is_err());
        if !alone {
            dropped.push(WithheldItem {
                upstream: entry.upstream_name.clone(),
                part: WithheldPart::Item(entry.list),
                item: entry.original.to_string(),
                exposed: Some(entry.exposed.to_string()),
                pin: None,
                why: format!("another item is exposed as `{}` too; rename one or change a prefix", entry.exposed),
            });
        }
        alone
    });
}

#[cfg(test)]
mod tests;
