//! Makes snapshots from what every upstream lists, and is the only place that puts one in force.
//!
//! Judging and merging large inventories takes long, so a snapshot is made from a [`SnapshotDraft`]
//! on a blocking thread, while the supervisor goes on.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::draft::SnapshotDraft;
use super::made::SnapshotResult;
use super::pinned::PinnedInventory;
use super::{ManagedUpstream, Supervisor, TTL_DEGRADED_MS};
use crate::base::clock;
use crate::catalog::filter::ItemFilter;
use crate::catalog::inventory::Inventory;
use crate::catalog::merge::{Catalog, ItemFilters, MergeSource, NamingRules, WithheldItem, merge};
use crate::catalog::name::{MAX_LENGTH, UpstreamName};
use crate::config::{AppsChoice, ShownHints, UpstreamSettings, UpstreamTarget, UriExposure};
use crate::gateway::snapshot::{CatalogView, InputRules, Snapshot};
use crate::mcp::extension::ExtensionSet;
use crate::mcp::method::ItemList;
use crate::mcp::version::{Era, Revision};
use crate::policy::{MAX_SINGLE_CHANGES, OperatorHints};
use crate::upstream::session::handle::UpstreamHandle;

/// How long the items of a dead upstream stay listed.
const GRACE: Duration = Duration::from_secs(600);
/// Freshness of lists told to modern clients while all is well, in milliseconds.
const TTL_MS: u32 = 60_000;

impl SnapshotDraft {
    /// Judges all inventories, stores new pins, and makes a snapshot of what clients may see.
    /// Blocks.
    pub(super) fn make(self) -> SnapshotResult {
        let (old, now) = (Arc::clone(&self.old), clock::now());
        let config = Arc::clone(&self.config);
        let managed: Vec<&ManagedUpstream> = self.managed.iter().collect();
        let is_managed = |spec: &&UpstreamSettings| managed.iter().any(|m| m.handle.name == spec.name);
        let order: Vec<&UpstreamSettings> = config.upstreams.iter().filter(is_managed).collect();
        let known: Vec<Option<&(Inventory, Revision)>> = managed
            .iter()
            .map(|m| {
                // The items of a server that waits for a login stay: calls of them tell the client
                // what to do.
                let waits = m.handle.health.standing().awaits_login();
                let gone = !waits && m.down_since.is_some_and(|since| now.duration_since(since) > GRACE);
                m.inventory.as_deref().filter(|_| !gone && m.gate.shut().is_none())
            })
            .collect();
        let mut shown = self.shown(&managed, &order, &known, &old);
        let view_owners = Arc::new(self.view_owners(&order, &shown));
        let annotator =
            |spec: &&UpstreamSettings| OperatorHints::build(spec.trust, &spec.annotations).unwrap_or_default();
        let annotators: Vec<OperatorHints> = order.iter().map(annotator).collect();
        let unknown = OperatorHints::default();
        let sources: Vec<MergeSource<'_>> = managed
            .iter()
            .enumerate()
            .zip(&order)
            .zip(known.iter().zip(&shown))
            .map(|(((index, m), spec), (known, shown))| {
                let is_http = matches!(spec.target, UpstreamTarget::Http { .. });
                MergeSource {
                    upstream: &spec.name,
                    prefix: &spec.prefix,
                    inventory: &shown.inventory,
                    filters: &m.filters,
                    annotate: annotators.get(index).unwrap_or(&unknown),
                    needs_headers: is_http && known.is_some_and(|(_, revision)| revision.era() == Era::Modern),
                    index,
                    withheld: Some(&shown.uris),
                    withheld_tools: Some(&shown.tools),
                    apps: spec.apps == AppsChoice::On,
                    withheld_views: Some(&shown.views),
                    standings: Some(&shown.standings),
                }
            })
            .collect();
        let naming = NamingRules {
            max_length: MAX_LENGTH,
            prefix_uris: self.config.naming.uris == UriExposure::Prefix,
            transparent: false,
            tightened: false,
            profile: None,
            view_owners: Some(&view_owners),
        };
        let (whole, mut dropped) = merge(&sources, naming);
        let profiles = self.profiles(&sources, naming);
        let unkept = self.unkept(&sources, &shown, naming);
        dropped.extend(shown.iter_mut().flat_map(|shown| std::mem::take(&mut shown.withheld)));
        let degraded = managed.iter().any(|m| m.down_since.is_some() || !m.heard);
        let ttl_ms = if degraded { TTL_DEGRADED_MS } else { TTL_MS };
        let completes: Vec<bool> =
            known.iter().map(|known| known.is_some_and(|(inventory, _)| inventory.completions)).collect();
        let logs: Vec<bool> = known.iter().map(|known| known.is_some_and(|(inventory, _)| inventory.logging)).collect();
        let extensions: Vec<ExtensionSet> = known
            .iter()
            .map(|known| known.map(|(inventory, revision)| inventory.extensions.in_era(revision.era())))
            .map(Option::unwrap_or_default)
            .collect();
        let instructions: Vec<_> = shown.iter_mut().map(|shown| shown.instructions.take()).collect();
        let unlisted: Vec<bool> = managed.iter().map(|m| m.inventory.is_none()).collect();
        // Compared with the old snapshot, configuration included: a forced snapshot may have been
        // lost, and a new configuration still has to come into force.
        let same = Arc::ptr_eq(&self.config, &old.config)
            && whole.same_as(&old.whole.catalog)
            && completes == old.completes
            && logs == old.logs
            && extensions == old.extensions
            && instructions == old.instructions
            && unlisted == old.unlisted
            && ttl_ms == old.ttl_ms
            && dropped == old.dropped
            && profiles
                .iter()
                .all(|(name, catalog)| old.profiles.get(name).is_some_and(|v| catalog.same_as(&v.catalog)));
        let waiting = shown.iter().map(|shown| shown.waiting).collect();
        if same && !self.is_forced {
            return SnapshotResult { snapshot: None, waiting, judged: self.judged(clock::now().duration_since(now)) };
        }
        let policy = &self.policy;
        let view = |(name, catalog): (String, Catalog)| {
            let view = CatalogView::new(&name, catalog, policy);
            let profile = self.config.profiles.iter().find(|profile| profile.name == name);
            let view = match profile {
                Some(profile) => view.limited_to(&profile.callers, &profile.groups),
                None => view,
            };
            (name, Arc::new(view))
        };
        let profiles = profiles.into_iter().map(view).collect();
        let snapshot = Snapshot {
            generation: old.generation + 1,
            config: Arc::clone(&self.config),
            handles: managed.iter().map(|m| Arc::clone(&m.handle)).collect(),
            completes,
            logs,
            extensions,
            instructions,
            unlisted,
            input: managed.iter().map(|m| InputRules::new(policy, m.handle.name.as_str())).collect(),
            whole: Arc::new(CatalogView::new("", whole, policy)),
            profiles,
            unkept,
            policy: Arc::clone(policy),
            limiter: Arc::clone(&self.limiter),
            dropped,
            ttl_ms,
        };
        SnapshotResult { snapshot: Some(snapshot), waiting, judged: self.judged(clock::now().duration_since(now)) }
    }

    /// Divides the judging time among the freshly read upstreams, by their share of all items.
    fn judged(&self, took: Duration) -> Vec<(Arc<UpstreamHandle>, Duration)> {
        let size = |managed: &ManagedUpstream| managed.inventory.as_ref().map_or(0, |known| known.0.len());
        let number = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        let all = number(self.managed.iter().map(size).sum()).max(1);
        let fresh = self.managed.iter().filter(|managed| managed.is_fresh);
        fresh.map(|managed| (Arc::clone(&managed.handle), took * number(size(managed)) / all)).collect()
    }

    /// Returns, by profile, the items that stay hidden because their pins cannot be stored; empty
    /// while the store takes writes.
    fn unkept(
        &self,
        sources: &[MergeSource<'_>],
        shown: &[PinnedInventory],
        naming: NamingRules<'_>,
    ) -> HashMap<String, Arc<CatalogView>> {
        if shown.iter().all(|shown| shown.unkept.is_empty()) {
            return HashMap::new();
        }
        let sources = sources.iter().zip(shown);
        let sources: Vec<MergeSource<'_>> = sources
            .map(|(source, shown)| MergeSource { inventory: &shown.unkept, withheld: None, ..*source })
            .collect();
        let whole = (String::new(), merge(&sources, naming).0);
        let views = self.profiles(&sources, naming).into_iter().chain([whole]);
        views.map(|(name, catalog)| (name.clone(), Arc::new(CatalogView::new(&name, catalog, &self.policy)))).collect()
    }

    /// Merges the catalog of each profile.
    fn profiles(&self, sources: &[MergeSource<'_>], naming: NamingRules<'_>) -> Vec<(String, Catalog)> {
        let mut out = Vec::new();
        for profile in &self.config.profiles {
            let compiled = [&profile.tools, &profile.prompts, &profile.resources].map(|filter| {
                ItemFilter::build(&filter.allow, &filter.deny, &[]).unwrap_or_else(|_| ItemFilter::nothing())
            });
            let [tools, prompts, resources] = compiled;
            let filters = ItemFilters { tools, prompts, resources };
            let chosen: Vec<MergeSource<'_>> =
                sources.iter().filter(|s| profile.upstreams.contains(s.upstream)).copied().collect();
            let rules = NamingRules {
                transparent: profile.transparent,
                tightened: profile.hints == ShownHints::Tightened,
                profile: Some(&filters),
                ..naming
            };
            out.push((profile.name.clone(), merge(&chosen, rules).0));
        }
        out
    }
}

impl Supervisor {
    /// Copies the supervisor's state for a snapshot, and resets the per-draft counts of upstreams.
    pub(super) fn draft(&mut self, is_forced: bool) -> SnapshotDraft {
        let mut in_order = Vec::with_capacity(self.managed.len());
        for spec in &self.config.upstreams {
            let Some(managed) = self.managed.get_mut(&spec.name) else { continue };
            in_order.push(managed.clone());
            (managed.removed, managed.is_fresh) = (0, false);
        }
        SnapshotDraft {
            config: Arc::clone(&self.config),
            policy: Arc::clone(&self.policy),
            limiter: Arc::clone(&self.limiter),
            pins: self.parts.pins.clone(),
            managed: in_order,
            old: self.snapshots.load_full(),
            is_forced,
        }
    }

    /// Whether a snapshot was made from the current configuration and upstreams.
    pub(super) fn is_current(&self, snapshot: &Snapshot) -> bool {
        let is_managed = |handle: &Arc<UpstreamHandle>| {
            self.managed.get(&handle.name).is_some_and(|managed| Arc::ptr_eq(&managed.handle, handle))
        };
        Arc::ptr_eq(&snapshot.config, &self.config)
            && snapshot.handles.len() == self.managed.len()
            && snapshot.handles.iter().all(is_managed)
    }

    /// Puts a snapshot in force, then announces its generation, so that a client that asks again
    /// sees the new lists. Also logs newly withheld items, sets the gauges, and tells each upstream
    /// its part of the judging time, from which its next reading is delayed.
    pub(super) fn put(&self, made: SnapshotResult) {
        let SnapshotResult { snapshot, waiting, judged } = made;
        if let Some(snapshot) = snapshot {
            self.warn_of_dropped(&snapshot.dropped, &self.snapshots.load().dropped);
            let mut counts: HashMap<(&UpstreamName, ItemList), usize> = HashMap::new();
            for entry in snapshot.whole.catalog.entries() {
                *counts.entry((&entry.upstream_name, entry.list)).or_default() += 1;
            }
            for (handle, waiting) in snapshot.handles.iter().zip(waiting) {
                let count = |list| counts.get(&(&handle.name, list)).copied().unwrap_or_default();
                handle.metrics.items(ItemList::ALL.map(count));
                handle.metrics.pins_waiting(waiting);
            }
            let generation = snapshot.generation;
            self.snapshots.store(Arc::new(snapshot));
            self.generation.send_replace(generation);
        }
        for (handle, took) in judged {
            handle.judged.send_replace(took);
        }
    }

    /// Logs the items that are withheld now and were not before.
    fn warn_of_dropped(&self, dropped: &[WithheldItem], before: &[WithheldItem]) {
        let before: HashSet<&WithheldItem> = before.iter().collect();
        let mut news: BTreeMap<&UpstreamName, Vec<&WithheldItem>> = BTreeMap::new();
        for item in dropped.iter().filter(|item| !before.contains(item)) {
            news.entry(&item.upstream).or_default().push(item);
        }
        for (upstream, items) in news {
            // One log line for an upstream with many newly withheld items.
            let (many, single) = items.split_at(if items.len() > MAX_SINGLE_CHANGES { items.len() } else { 0 });
            for item in single {
                if let Some(count) = self.dropped.count(clock::uptime()) {
                    tracing::warn!(upstream.name = %upstream, item = %item.item, why = %item.told(), count, "item withheld");
                }
            }
            if let Some(first) = many.first()
                && let Some(count) = self.dropped.count(clock::uptime())
            {
                tracing::warn!(
                    upstream.name = %upstream, items = many.len(), first = %first.item, why = %first.told(), count,
                    "items withheld; `headend tools --all` lists them"
                );
            }
        }
        self.parts.metrics.withheld(dropped.len());
    }
}
