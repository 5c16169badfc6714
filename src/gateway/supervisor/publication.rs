//! The only write of the snapshot: what every upstream lists, merged, with rules and handles beside it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::pinned::Shown;
use super::{Managed, Supervisor, TTL_DEGRADED_MS};
use crate::base::clock;
use crate::catalog::filter::Filter;
use crate::catalog::inventory::Inventory;
use crate::catalog::merge::{Catalog, Dropped, Filters, NamingRules, Source, merge};
use crate::config::{ShownHints, Target, Upstream, Uris};
use crate::gateway::snapshot::{InputRules, Snapshot, View};
use crate::mcp::method::List;
use crate::mcp::version::{Era, Revision};
use crate::policy::Annotator;

/// How long a dead upstream's items stay listed.
const GRACE: Duration = Duration::from_secs(600);
/// Freshness told to modern clients while all is well, in milliseconds.
const TTL_MS: u32 = 60_000;

impl Supervisor {
    /// Builds and stores a snapshot, then tells listeners, so that whoever asks again sees the new lists. Nothing happens
    /// when clients would see the same, unless `forced`.
    pub(super) fn publish(&mut self, forced: bool) {
        let old = self.snapshots.load_full();
        let now = clock::now();
        let order: Vec<&Upstream> = self.config.upstreams.iter().collect();
        let managed: Vec<&Managed> = order.iter().filter_map(|spec| self.managed.get(&spec.name)).collect();
        let known: Vec<Option<&(Inventory, Revision)>> = managed
            .iter()
            .map(|m| {
                // A server that waits for a login is there, and its calls say what to do.
                let waits = m.handle.health.standing().awaits_login();
                let gone = !waits && m.down_since.is_some_and(|since| now.duration_since(since) > GRACE);
                m.inventory.as_ref().filter(|_| !gone && m.gate.shut().is_none())
            })
            .collect();
        let mut shown = self.shown(&managed, &order, &known, &old);
        let annotator = |spec: &&Upstream| Annotator::build(spec.trust, &spec.annotations).unwrap_or_default();
        let annotators: Vec<Annotator> = order.iter().map(annotator).collect();
        let unknown = Annotator::default();
        let sources: Vec<Source<'_>> = managed
            .iter()
            .enumerate()
            .zip(&order)
            .zip(known.iter().zip(&shown))
            .map(|(((index, m), spec), (known, shown))| {
                let is_http = matches!(spec.target, Target::Http { .. });
                Source {
                    upstream: &spec.name,
                    prefix: &spec.prefix,
                    inventory: &shown.inventory,
                    filters: &m.filters,
                    annotate: annotators.get(index).unwrap_or(&unknown),
                    needs_headers: is_http && known.is_some_and(|(_, revision)| revision.era() == Era::Modern),
                    index,
                    withheld: Some(&shown.uris),
                    standings: Some(&shown.standings),
                }
            })
            .collect();
        let naming = NamingRules {
            max_length: self.config.naming.max_length,
            prefix_uris: self.config.naming.uris == Uris::Prefix,
            transparent: false,
            tightened: false,
            profile: None,
        };
        let (whole, mut dropped) = merge(&sources, naming);
        let profiles = self.profiles(&sources, naming);
        let unkept = self.unkept(&sources, &shown, naming);
        dropped.extend(shown.iter_mut().flat_map(|shown| std::mem::take(&mut shown.withheld)));
        let degraded = managed.iter().any(|m| m.down_since.is_some() || !m.heard);
        let ttl_ms = if degraded { TTL_DEGRADED_MS } else { TTL_MS };
        let completes: Vec<bool> =
            known.iter().map(|known| known.is_some_and(|(inventory, _)| inventory.completions)).collect();
        let has_tasks =
            |(inventory, revision): &(Inventory, Revision)| inventory.tasks && revision.era() == Era::Modern;
        let tasks: Vec<bool> = known.iter().map(|known| known.is_some_and(has_tasks)).collect();
        let unlisted: Vec<bool> = managed.iter().map(|m| m.inventory.is_none()).collect();
        let same = whole.same_as(&old.whole.catalog)
            && completes == old.completes
            && tasks == old.tasks
            && unlisted == old.unlisted
            && ttl_ms == old.ttl_ms
            && dropped == old.dropped
            && profiles
                .iter()
                .all(|(name, catalog)| old.profiles.get(name).is_some_and(|v| catalog.same_as(&v.catalog)));
        if same && !forced {
            return;
        }
        self.warn_of_dropped(&dropped, &old.dropped);
        for m in &managed {
            let count =
                |list| whole.entries().iter().filter(|e| e.list == list && e.upstream_name == m.handle.name).count();
            m.handle.metrics.items(List::ALL.map(count));
        }
        for (m, shown) in managed.iter().zip(&shown) {
            m.handle.metrics.pins_waiting(shown.waiting);
        }
        let generation = old.generation + 1;
        let policy = &self.policy;
        let profiles = profiles.into_iter().map(|(n, c)| (n.clone(), Arc::new(View::new(&n, c, policy)))).collect();
        self.snapshots.store(Arc::new(Snapshot {
            generation,
            config: Arc::clone(&self.config),
            handles: managed.iter().map(|m| Arc::clone(&m.handle)).collect(),
            completes,
            tasks,
            unlisted,
            input: managed.iter().map(|m| InputRules::new(policy, m.handle.name.as_str())).collect(),
            whole: Arc::new(View::new("", whole, policy)),
            profiles,
            unkept,
            policy: Arc::clone(policy),
            limiter: Arc::clone(&self.limiter),
            dropped,
            ttl_ms,
        }));
        self.generation.send_replace(generation);
    }

    /// By profile, what cannot be shown since its pin cannot be stored. Nothing, while the store takes writes.
    fn unkept(&self, sources: &[Source<'_>], shown: &[Shown], naming: NamingRules<'_>) -> HashMap<String, Arc<View>> {
        if shown.iter().all(|shown| shown.unkept.is_empty()) {
            return HashMap::new();
        }
        let sources = sources.iter().zip(shown);
        let sources: Vec<Source<'_>> =
            sources.map(|(source, shown)| Source { inventory: &shown.unkept, withheld: None, ..*source }).collect();
        let whole = (String::new(), merge(&sources, naming).0);
        let views = self.profiles(&sources, naming).into_iter().chain([whole]);
        views.map(|(name, catalog)| (name.clone(), Arc::new(View::new(&name, catalog, &self.policy)))).collect()
    }

    fn profiles(&self, sources: &[Source<'_>], naming: NamingRules<'_>) -> Vec<(String, Catalog)> {
        let mut out = Vec::new();
        for profile in &self.config.profiles {
            let compiled = [&profile.tools, &profile.prompts, &profile.resources]
                .map(|filter| Filter::build(&filter.allow, &filter.deny, &[]).unwrap_or_else(|_| Filter::nothing()));
            let [tools, prompts, resources] = compiled;
            let filters = Filters { tools, prompts, resources };
            let chosen: Vec<Source<'_>> =
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

    fn warn_of_dropped(&self, dropped: &[Dropped], before: &[Dropped]) {
        let before: HashSet<&Dropped> = before.iter().collect();
        for item in dropped.iter().filter(|item| !before.contains(item)) {
            if let Some(count) = self.dropped.count(clock::uptime()) {
                tracing::warn!(upstream.name = %item.upstream, item = %item.item, why = %item.told(), count, "item withheld");
            }
        }
        self.parts.metrics.withheld(dropped.len());
    }
}
