//! Hands over calls that were answered as if their item did not exist, so that calls of hidden
//! items get a record.
//!
//! Whether it exists must not show in the time of the answer either. So a request does the same for
//! a hidden name and for one that nothing has: it hands what was asked for to a queue that never
//! makes it wait ([`UnknownCallQueue::tell`]). One task looks later which of them exist, records
//! those and throws the others away ([`crate::gateway::hidden_calls`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

use crate::catalog::apps::BareName;
use crate::catalog::merge::{Catalog, CatalogEntry};
use crate::gateway::client::{ClientContext, view_of};
use crate::gateway::snapshot::Snapshot;
use crate::mcp::method::{ItemList, Method};
use crate::policy::{ActionKind, Digest, PolicyAction};
use crate::wire::json::raw::RawObject;

/// Most calls in the queue; further calls are only counted.
pub(super) const QUEUE: usize = 1024;
/// Longest name or URI that is looked at, in bytes. Names are shorter, and so are the URIs that a
/// server lists.
pub(super) const MAX_NAME: usize = 4096;
/// Recorded instead of a rule's id if a profile leaves the item out.
const PROFILE: &str = "profile";

/// A call that was answered as if its item did not exist.
#[derive(Debug)]
pub(super) struct UnknownCall {
    snapshot: Arc<Snapshot>,
    client: ClientContext,
    method: Method,
    list: ItemList,
    /// `None` for one that is too long.
    pub(super) name: Option<String>,
}

/// The queue into which requests put such calls.
#[derive(Debug)]
pub struct UnknownCallQueue {
    queue: mpsc::Sender<UnknownCall>,
    /// Number of calls that found the queue full or had too long a name.
    missed: Arc<AtomicU64>,
}

impl UnknownCallQueue {
    pub(super) fn new(queue: mpsc::Sender<UnknownCall>, missed: Arc<AtomicU64>) -> Self {
        Self { queue, missed }
    }

    /// Queues a call that was answered with "unknown". Never waits, and does not look whether the
    /// item exists.
    pub fn tell(&self, snapshot: &Arc<Snapshot>, client: &ClientContext, method: Method, params: &RawObject) {
        let Some((list, name)) = requested_item(method, params) else { return };
        let name = Some(name).filter(|name| name.len() <= MAX_NAME);
        let call = UnknownCall { snapshot: Arc::clone(snapshot), client: client.clone(), method, list, name };
        if self.queue.try_send(call).is_err() {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Returns the list and the name of the item that a request names; `ItemList::Templates` for a URI
/// in a completion.
#[expect(clippy::wildcard_enum_match_arm, reason = "no other method names an item")]
fn requested_item(method: Method, params: &RawObject) -> Option<(ItemList, String)> {
    match method {
        Method::ToolsCall => Some((ItemList::Tools, params.string("name")?)),
        Method::PromptsGet => Some((ItemList::Prompts, params.string("name")?)),
        Method::ResourcesRead | Method::ResourcesSubscribe => Some((ItemList::Resources, params.string("uri")?)),
        Method::Complete => {
            let reference = params.object("ref")?;
            match reference.string("type")?.as_str() {
                "ref/prompt" => Some((ItemList::Prompts, reference.string("name")?)),
                _ => Some((ItemList::Templates, reference.string("uri")?)),
            }
        }
        _ => None,
    }
}

impl UnknownCall {
    /// Finds the item in a catalog.
    fn find(&self, catalog: &Catalog) -> Option<usize> {
        let name = self.name.as_deref()?;
        match self.list {
            ItemList::Tools => catalog.find(self.list, name).or_else(|| self.find_bare(catalog, name)),
            ItemList::Prompts => catalog.find(self.list, name),
            ItemList::Resources => catalog.find(ItemList::Resources, name).or_else(|| catalog.find_template(name)),
            ItemList::Templates => {
                catalog.find(ItemList::Templates, name).or_else(|| catalog.find(ItemList::Resources, name))
            }
        }
    }

    /// Finds a tool that a client with Apps called by its bare name.
    fn find_bare(&self, catalog: &Catalog, name: &str) -> Option<usize> {
        catalog.bare_owner(name).filter(|_| self.client.apps.is_some())
    }

    /// Returns the canonical names of the visible tools that a refused bare name may mean; empty
    /// for any other call.
    pub(super) fn candidates(&self) -> Vec<Arc<str>> {
        let Self { snapshot, client, .. } = self;
        let is_app = self.list == ItemList::Tools && client.apps.is_some();
        let Some((name, view)) = self.name.as_deref().zip(view_of(snapshot, client)).filter(|_| is_app) else {
            return Vec::new();
        };
        match view.catalog.find_bare(name, |at| view.visible(&snapshot.policy, at, client.viewer())) {
            BareName::Refused(all) => {
                all.into_iter().filter_map(|at| Some(Arc::clone(&view.catalog.entry(at)?.canonical))).collect()
            }
            BareName::Unknown | BareName::Tool(_) => Vec::new(),
        }
    }

    /// Returns the refused action, if the item exists, and the rule that hides it from the caller.
    pub(super) fn kept_back(&self) -> Option<(PolicyAction, Arc<str>)> {
        let Self { snapshot, client, .. } = self;
        let view = view_of(snapshot, client)?;
        if let Some(at) = self.find(&view.catalog) {
            let (entry, rules) = view.item(at)?;
            let action = self.action(entry);
            // No rule: the item is visible, only not to clients that cannot be asked for input,
            // which the protocol decides.
            let rule = Arc::clone(snapshot.policy.hiding(rules, &action)?);
            return Some((action, rule));
        }
        let entry = snapshot.whole.catalog.entry(self.find(&snapshot.whole.catalog)?)?;
        Some((self.action(entry), Arc::from(PROFILE)))
    }

    fn action(&self, entry: &CatalogEntry) -> PolicyAction {
        let handle = self.snapshot.handles.get(entry.upstream);
        let launch = handle.map_or_else(|| Digest::of(b""), |handle| handle.launch());
        self.client.action(entry, ActionKind::of(self.method), launch)
    }
}
