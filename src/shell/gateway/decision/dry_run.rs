//! Decides a call without a daemon or a server, from the configuration and the lists of the last
//! run.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::base::clock;
use crate::catalog::filter::ItemFilter;
use crate::catalog::inventory::Inventory;
use crate::catalog::merge::{
    Catalog, CatalogEntry, HintJudge as _, ItemFilters, JudgedHints, MergeSource, NamingRules, merge,
};
use crate::catalog::name::{MAX_LENGTH, UpstreamName};
use crate::config::{self, Config, UriExposure};
use crate::mcp::method::ItemList;
use crate::policy::{
    ActionKind, Annotations, CallerRights, Decision, Hints, Limiter, OperatorHints, PinStatus, Policy, PolicyAction,
    RuleMatch, StatedHints, ToolFacts, decide, matching_rules,
};
use crate::store::directory::StateDir;
use crate::store::pins::PinRegistry;
use crate::wire::json::raw::{RawJson, RawObject};

/// The input of a dry run.
#[derive(Debug)]
pub struct DryRun<'a> {
    pub caller: &'a str,
    /// Scopes and groups of the caller's credential.
    pub rights: Arc<CallerRights>,
    pub profile: Option<&'a str>,
    pub list: ItemList,
    /// The exposed or canonical name of the item.
    pub name: &'a str,
    pub arguments: Option<RawJson>,
    /// Number of repetitions, to measure the time of a decision; zero for none.
    pub repeat: usize,
}

/// The result of a dry run.
#[derive(Debug)]
pub struct DryRunResult {
    pub action: PolicyAction,
    /// True if the item was listed in an earlier run.
    pub known: bool,
    pub decision: Decision,
    /// All rules about the item, caller and view, in order of precedence.
    pub rules: Vec<RuleMatch>,
    /// Median time of one decision, if it was measured.
    pub took: Option<Duration>,
}

/// Decides a call under a configuration, with unused limits. `store` has the lists that the
/// upstreams offered last.
///
/// # Errors
/// A sentence when there is no such profile or item.
pub fn decide_once(config: &Config, store: Option<&StateDir>, dry_run: &DryRun<'_>) -> Result<DryRunResult, String> {
    let policy = Policy::build(&config.policy)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    let (action, known) = find(config, store, dry_run)?;
    let rules = policy.item_rules(action.kind, &action.upstream, &action.canonical);
    let now = clock::uptime();
    let once = |limiter: &Limiter| decide(&policy, &rules, &action, &|_, _| None, limiter, now);
    let limiter = Limiter::new(&policy);
    let decision = once(&limiter);
    let took = (dry_run.repeat > 0).then(|| median_time(dry_run.repeat, &|| drop(once(&limiter))));
    let rules = matching_rules(&policy, &rules, &action);
    Ok(DryRunResult { action, known, decision, rules, took })
}

/// An item as its upstream listed it last.
#[derive(Debug)]
pub struct ListedItem {
    pub kind: ActionKind,
    pub upstream: Arc<str>,
    pub canonical: Arc<str>,
    pub facts: ToolFacts,
    /// Names of all arguments; `None` if the definition does not name all.
    pub arguments: Option<Vec<String>>,
}

/// Returns the items that the upstreams listed last, to check rules without a call.
///
/// # Errors
/// A sentence when the configuration's filters cannot be read.
pub fn list_items(config: &Config, store: Option<&StateDir>) -> Result<Vec<ListedItem>, String> {
    let (inventories, standings) = read_last_lists(config, store);
    let catalog = catalog(config, None, &inventories, &standings)?;
    let offered = |entry: &CatalogEntry| ListedItem {
        kind: ActionKind::from(entry.list),
        upstream: entry.upstream_name.shared(),
        canonical: Arc::clone(&entry.canonical),
        facts: ToolFacts::from(entry),
        arguments: arguments(entry),
    };
    Ok(catalog.entries().iter().filter(|entry| entry.list != ItemList::Templates).map(offered).collect())
}

/// Returns the names of a definition's arguments; `None` if its schema says more than a list of
/// properties.
fn arguments(entry: &CatalogEntry) -> Option<Vec<String>> {
    if entry.list == ItemList::Prompts {
        let list = entry.definition.list("arguments").unwrap_or_default();
        return list.iter().map(|one| RawObject::parse(one).ok()?.string("name")).collect();
    }
    let schema = entry.definition.object("inputSchema")?;
    let says_more = ["$ref", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas"];
    if says_more.into_iter().any(|key| schema.get(key).is_some()) {
        return None;
    }
    let properties: HashMap<String, serde::de::IgnoredAny> = schema.get("properties")?.parse().ok()?;
    Some(properties.into_keys().collect())
}

/// Reads the inventories and the pins' standings of the last run.
fn read_last_lists<'c>(
    config: &'c Config,
    store: Option<&StateDir>,
) -> (HashMap<&'c UpstreamName, Inventory>, UpstreamStandings) {
    let inventories: HashMap<&UpstreamName, Inventory> = config
        .upstreams
        .iter()
        .filter_map(|upstream| Some((&upstream.name, store?.recall(&upstream.inventory_key())?.inventory)))
        .collect();
    // Without pins no tool counts as known, so no rule about claims allows anything.
    let pins = store.filter(|store| store.has_db()).and_then(|store| PinRegistry::open(store.db().ok()?).ok());
    let known = inventories.iter().filter_map(|(name, inventory)| {
        Some((UpstreamName::clone(name), pins.as_ref()?.standings(name, inventory.items(ItemList::Tools))))
    });
    let standings: UpstreamStandings = known.collect();
    (inventories, standings)
}

/// Returns the median time of one run, measured in batches that outweigh the clock's resolution.
fn median_time(repeat: usize, run: &dyn Fn()) -> Duration {
    const BATCH: u32 = 64;
    let mut times: Vec<Duration> = (0..repeat.div_ceil(64).max(1))
        .map(|_| {
            let begun = clock::now();
            (0..BATCH).for_each(|_| run());
            clock::since(begun) / BATCH
        })
        .collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Finds the item in the lists of the last run, or assumes one by its canonical name. Returns its
/// action and whether the item was listed.
fn find(config: &Config, store: Option<&StateDir>, dry_run: &DryRun<'_>) -> Result<(PolicyAction, bool), String> {
    let profile = dry_run.profile.map(|name| {
        let profile = config.profiles.iter().find(|profile| profile.name == name);
        profile.ok_or_else(|| format!("there is no profile `{name}`"))
    });
    let profile = profile.transpose()?;
    let (inventories, standings) = read_last_lists(config, store);
    let catalog = catalog(config, profile, &inventories, &standings)?;
    let named = catalog.entries().iter().filter(|entry| entry.list == dry_run.list);
    let exact = || named.clone().find(|entry| *entry.canonical == *dry_run.name);
    let by_name = || catalog.entry(catalog.find(dry_run.list, dry_run.name)?);
    let known = |canonical: &str, entry: &CatalogEntry| {
        let action = action(dry_run, entry.upstream_name.as_str(), canonical, (entry.annotations, entry.said));
        Ok((PolicyAction { claims: entry.claims, ..action }, true))
    };
    if let Some(entry) = by_name().or_else(exact) {
        return known(&entry.canonical, entry);
    }
    if dry_run.list == ItemList::Resources
        && let Some(entry) = catalog.find_template(dry_run.name).and_then(|at| catalog.entry(at))
    {
        let prefix = format!("{}+", entry.upstream_name);
        let uri = dry_run.name.strip_prefix(&prefix).unwrap_or(dry_run.name);
        return known(&format!("{prefix}{uri}"), entry);
    }
    assume_item(config, dry_run).map(|action| (action, false))
}

fn action(
    dry_run: &DryRun<'_>,
    upstream: &str,
    canonical: &str,
    (annotations, said): (Annotations, StatedHints),
) -> PolicyAction {
    let kind = ActionKind::from(dry_run.list);
    PolicyAction {
        profile: dry_run.profile.map(Arc::from),
        rights: Arc::clone(&dry_run.rights),
        kind,
        annotations,
        said,
        arguments: dry_run.arguments.clone().filter(|_| kind != ActionKind::Resource),
        ..PolicyAction::stand_in(dry_run.caller, upstream, canonical)
    }
}

/// Makes the action for an item known by its canonical name only: its upstream has listed nothing
/// yet, or did not list it.
///
/// # Errors
/// A sentence when the name has no upstream of the configuration.
fn assume_item(config: &Config, dry_run: &DryRun<'_>) -> Result<PolicyAction, String> {
    let between = if dry_run.list == ItemList::Resources { "+" } else { "__" };
    let owner = config.upstreams.iter().find_map(|upstream| {
        let rest = dry_run.name.strip_prefix(upstream.name.as_str())?.strip_prefix(between)?;
        (!rest.is_empty()).then_some((upstream, rest))
    });
    let (upstream, original) = owner.ok_or_else(|| {
        let is_of = |name: &str| dry_run.name.strip_prefix(name).is_some_and(|rest| rest.starts_with(between));
        if let Some(disabled) = config.disabled.iter().find(|upstream| is_of(upstream.name.as_str())) {
            return format!("the upstream `{}` is disabled, so no call of it is possible", disabled.name);
        }
        let example = config.upstreams.first().map_or("files", |upstream| upstream.name.as_str());
        format!(
            "`{}` is no item that was offered last; write a canonical name such as {example}{between}x",
            dry_run.name
        )
    })?;
    let annotator = OperatorHints::build(upstream.trust, &upstream.annotations)?;
    let JudgedHints { effective, said, .. } = match dry_run.list {
        ItemList::Tools => annotator.annotate(original, &Hints::default(), false),
        ItemList::Prompts | ItemList::Resources | ItemList::Templates => JudgedHints::default(),
    };
    Ok(action(dry_run, upstream.name.as_str(), dry_run.name, (effective, said)))
}

/// The standing of each upstream's tools, from their pins.
type UpstreamStandings = HashMap<UpstreamName, HashMap<String, PinStatus>>;

/// Merges the catalog of a view from what the upstreams listed last.
fn catalog(
    config: &Config,
    profile: Option<&config::Profile>,
    inventories: &HashMap<&UpstreamName, Inventory>,
    standings: &UpstreamStandings,
) -> Result<Catalog, String> {
    let empty = Inventory::default();
    let mut parts = Vec::new();
    for upstream in &config.upstreams {
        let annotator = OperatorHints::build(upstream.trust, &upstream.annotations)?;
        parts.push((upstream, filters([&upstream.tools, &upstream.prompts, &upstream.resources])?, annotator));
    }
    let shown = |name: &UpstreamName| profile.is_none_or(|profile| profile.upstreams.contains(name));
    let sources: Vec<MergeSource<'_>> = parts
        .iter()
        .enumerate()
        .filter(|(_, (upstream, ..))| shown(&upstream.name))
        .map(|(index, (upstream, filters, annotator))| MergeSource {
            upstream: &upstream.name,
            prefix: &upstream.prefix,
            inventory: inventories.get(&upstream.name).unwrap_or(&empty),
            filters,
            annotate: annotator,
            needs_headers: false,
            standings: standings.get(&upstream.name),
            index,
            withheld: None,
            withheld_tools: None,
            withheld_views: None,
            apps: true,
        })
        .collect();
    let of_profile =
        profile.map(|profile| filters([&profile.tools, &profile.prompts, &profile.resources])).transpose()?;
    let naming = NamingRules {
        max_length: MAX_LENGTH,
        prefix_uris: config.naming.uris == UriExposure::Prefix,
        transparent: profile.is_some_and(|profile| profile.transparent),
        // Hints do not matter: no client sees this catalog.
        tightened: false,
        profile: of_profile.as_ref(),
        view_owners: None,
    };
    Ok(merge(&sources, naming).0)
}

fn filters(lists: [&config::FilterSettings; 3]) -> Result<ItemFilters, String> {
    let build = |filter: &config::FilterSettings| ItemFilter::build(&filter.allow, &filter.deny, &filter.rename);
    let [tools, prompts, resources] = lists;
    Ok(ItemFilters { tools: build(tools)?, prompts: build(prompts)?, resources: build(resources)? })
}
