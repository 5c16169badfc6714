//! Lists of an upstream that could not be read at the last attempt: for status, log and metrics,
//! and for the decision whether a lazy upstream may rest.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::base::clock;
use crate::catalog::inventory::{Inventory, ListGap};
use crate::catalog::name::UpstreamName;
use crate::engine::lists::ListTrouble;
use crate::mcp::method::ItemList;
use crate::telemetry::metrics::UpstreamMetrics;
use crate::upstream::state::health::UpstreamHealth;

/// Number of attempts, about half a minute, after which an unknown list no longer keeps a lazy
/// upstream from resting, if the upstream offers anything else.
const ENOUGH: u32 = 5;

/// The clients for which a list is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListReaders {
    Everyone,
    /// Clients that can be asked, see [`crate::upstream::actor::listing`].
    Askers,
    /// The gateway, which has no room for everything that was read.
    Gateway,
}

/// A list that could not be read.
#[derive(Clone, Debug)]
pub struct UnreadList {
    pub list: ItemList,
    readers: ListReaders,
    pub trouble: ListTrouble,
    /// Uptime at its first failure.
    since: Duration,
}

impl UnreadList {
    pub fn age(&self) -> Duration {
        clock::uptime().saturating_sub(self.since)
    }
}

/// The lists of one upstream that could not be read.
#[derive(Debug)]
pub struct UnreadLists {
    upstream: UpstreamName,
    metrics: UpstreamMetrics,
    state: Mutex<UnreadListState>,
    /// Fires when the operator wants the lists to be read now.
    pub now: Arc<Notify>,
    /// Fires like [`Self::now`], for the lists of a program that it shows to clients that can be
    /// asked for input.
    pub now_for_askers: Notify,
}

/// The lists whose last reading failed, and the lists of which no item is known.
#[derive(Debug, Default)]
struct UnreadListState {
    unread: Vec<UnreadList>,
    /// Lists of which nothing is known.
    unknown: Vec<ItemList>,
    /// True if nothing is offered at all.
    is_empty: bool,
}

impl UnreadListState {
    fn of(&self, list: ItemList) -> impl Iterator<Item = &UnreadList> {
        self.unread.iter().filter(move |unread| unread.list == list)
    }
}

impl UnreadLists {
    pub fn new(upstream: UpstreamName, metrics: UpstreamMetrics) -> Self {
        metrics.unread_lists(0);
        Self { upstream, metrics, state: Mutex::default(), now: Arc::default(), now_for_askers: Notify::new() }
    }

    /// Returns the lists that could not be read, in the order of their first failures. Each list
    /// occurs once, preferably with the failure for everyone.
    pub fn all(&self) -> Vec<UnreadList> {
        let state = self.state.lock();
        let first =
            |unread: &&UnreadList| state.of(unread.list).map(|other| other.readers).min() == Some(unread.readers);
        state.unread.iter().filter(first).cloned().collect()
    }

    /// Records how the reading of a list ended: `trouble` is its failure, `None` a success. A list
    /// counts as read once it is read for all of its readers. Updates the metric, writes the first
    /// failure to the upstream's health, and logs one line for each change, not for each attempt.
    pub fn told(&self, list: ItemList, readers: ListReaders, trouble: Option<ListTrouble>, health: &UpstreamHealth) {
        let mut state = self.state.lock();
        let is_known = state.of(list).any(|unread| unread.readers != readers);
        let unread = &mut state.unread;
        let before = unread.iter().position(|unread| (unread.list, unread.readers) == (list, readers));
        let name = list.method().as_str();
        match (before, trouble) {
            (None, None) => return,
            (Some(at), Some(trouble)) => {
                tracing::debug!(upstream.name = %self.upstream, list = name, error = %trouble.why, attempts = trouble.attempts, "list still not read");
                if let Some(unread) = unread.get_mut(at) {
                    unread.trouble = trouble;
                }
            }
            (None, Some(trouble)) => {
                let retry_ms = clock::millis(trouble.again.saturating_duration_since(clock::now()));
                if let Some(count) = health.lines.unread.count(clock::uptime()).filter(|_| !is_known) {
                    tracing::warn!(upstream.name = %self.upstream, list = name, error = %trouble.why, retry_ms, count, "list not read; its items stay as they are known");
                }
                health.failed(health.flaws.completed(format!("`{name}`: {}", trouble.why)));
                unread.push(UnreadList { list, readers, trouble, since: clock::uptime() });
            }
            (Some(at), None) => {
                unread.remove(at);
                if let Some(count) = health.lines.unread.count(clock::uptime()).filter(|_| !is_known) {
                    tracing::info!(upstream.name = %self.upstream, list = name, count, "list read again");
                }
            }
        }
        let lists = ItemList::ALL.into_iter().filter(|list| state.of(*list).next().is_some()).count();
        self.metrics.unread_lists(lists);
    }

    /// Records which lists are wholly unknown, with no item from any earlier reading, and whether
    /// anything is offered at all. [`Self::may_rest`] decides by that.
    pub fn known(&self, inventory: &Inventory) {
        let is_unread = |list: ItemList| matches!(inventory.gap(list), Some(ListGap::Awaited | ListGap::Unread));
        let is_unknown = |list: &ItemList| is_unread(*list) && inventory.items(*list).is_empty();
        let mut state = self.state.lock();
        state.unknown = ItemList::ALL.into_iter().filter(is_unknown).collect();
        state.is_empty = inventory.is_empty();
    }

    /// Returns whether enough is known of the lists for a lazy upstream to rest: an upstream that
    /// offers nothing would never be started again.
    pub fn may_rest(&self) -> bool {
        let state = self.state.lock();
        let was_tried = |list: &ItemList| {
            state.unread.iter().any(|unread| unread.list == *list && unread.trouble.attempts >= ENOUGH)
        };
        state.unknown.is_empty() || (!state.is_empty && state.unknown.iter().all(was_tried))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::definition::item::Definition;
    use crate::telemetry::metrics::Metrics;
    use crate::wire::json::raw::RawJson;

    fn trouble(attempts: u32) -> Option<ListTrouble> {
        Some(ListTrouble { why: "refused".to_owned(), attempts, again: clock::now() })
    }

    #[test]
    fn a_lazy_upstream_rests_when_something_is_known_of_every_list_or_was_tried_long_enough() {
        let name = UpstreamName::parse("crm").unwrap();
        let metrics = Metrics::new().unwrap().upstream("crm");
        let health = UpstreamHealth::new(name.clone(), metrics.clone(), true);
        let unread = UnreadLists::new(name, metrics);
        let mut inventory = Inventory::default();
        unread.known(&inventory);
        assert!(unread.may_rest(), "a server may have nothing");
        inventory.set_gap(ItemList::Prompts, Some(ListGap::Askers));
        unread.known(&inventory);
        assert!(unread.may_rest(), "the list that is for everyone was read");
        inventory.set_gap(ItemList::Prompts, Some(ListGap::Unread));
        unread.known(&inventory);
        unread.told(ItemList::Prompts, ListReaders::Everyone, trouble(ENOUGH), &health);
        assert!(!unread.may_rest(), "nothing is offered");
        let tool = Definition::read(ItemList::Tools, &RawJson::trusted(r#"{"name":"a"}"#)).unwrap();
        inventory.replace(ItemList::Tools, vec![tool]);
        unread.known(&inventory);
        for (attempts, may) in [(1, false), (ENOUGH - 1, false), (ENOUGH, true)] {
            unread.told(ItemList::Prompts, ListReaders::Everyone, trouble(attempts), &health);
            assert_eq!(unread.may_rest(), may, "{attempts}");
        }
        inventory.set_gap(ItemList::Tools, Some(ListGap::Unread));
        unread.known(&inventory);
        assert!(unread.may_rest(), "its tools are known from before");
        assert_eq!(unread.all().len(), 1);
        unread.told(ItemList::Prompts, ListReaders::Everyone, None, &health);
        assert!(unread.all().is_empty());
    }

    #[test]
    fn a_list_that_is_read_for_some_stays_unread_for_the_others() {
        let name = UpstreamName::parse("crm").unwrap();
        let metrics = Metrics::new().unwrap().upstream("crm");
        let health = UpstreamHealth::new(name.clone(), metrics.clone(), true);
        let unread = UnreadLists::new(name, metrics);
        let attempts = || unread.all().iter().map(|unread| unread.trouble.attempts).collect::<Vec<_>>();
        unread.told(ItemList::Tools, ListReaders::Askers, trouble(7), &health);
        unread.told(ItemList::Tools, ListReaders::Everyone, trouble(1), &health);
        assert_eq!(attempts(), [1], "one list");
        unread.told(ItemList::Tools, ListReaders::Askers, None, &health);
        assert_eq!(attempts(), [1], "for everyone it was not read");
        unread.told(ItemList::Tools, ListReaders::Askers, trouble(8), &health);
        unread.told(ItemList::Tools, ListReaders::Everyone, None, &health);
        assert_eq!(attempts(), [8]);
        unread.told(ItemList::Tools, ListReaders::Askers, None, &health);
        assert!(unread.all().is_empty());
    }
}
