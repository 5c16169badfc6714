//! The state of the gateway that a request works with, consistent for the request's whole life.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::base::access::{Access, Credential};
use crate::base::aside::{MANY_ITEMS, run_aside_if};
use crate::catalog::holder::SealHolder;
use crate::catalog::merge::{Catalog, CatalogEntry, EntryReach, WithheldItem};
use crate::catalog::page::{CursorKey, CursorScope, LIFE};
use crate::catalog::view::{RenderedList, render};
use crate::config::Config;
use crate::mcp::asking::kinds::InputKinds;
use crate::mcp::extension::{APPS, ExtensionSet, TASKS};
use crate::mcp::method::ItemList;
use crate::mcp::version::Revision;
use crate::policy::{
    ActionKind, Caller, CallerPatterns, CallerRights, Groups, ItemRules, Limiter, Policy, PolicyAction, RuleSubject,
    ToolFacts,
};
pub use crate::upstream::session::handle::UpstreamHandle;
pub use crate::upstream::session::link::LinkState;
pub use crate::upstream::state::logbook::{LineOrigin, LogLine};

/// Most rendered lists that one view caches, and their bytes; for more callers lists are rendered
/// each time.
const MAX_RENDERED: usize = 256;
const MAX_RENDERED_BYTES: usize = 256 << 20;
/// Most callers whose visible items one view caches, a byte for each item.
const MAX_CALLERS: usize = 1024;
/// Most sets of groups of one caller for which its visible items are cached.
const MAX_GROUPS: usize = 4;

/// One immutable state of the gateway. Lists by number have one element per upstream, in the order
/// of `handles`.
#[derive(Debug)]
pub struct Snapshot {
    pub generation: u64,
    pub config: Arc<Config>,
    pub handles: Vec<Arc<UpstreamHandle>>,
    /// Whether each upstream answers `completion/complete`.
    pub completes: Vec<bool>,
    /// Whether each upstream declares log messages.
    pub logs: Vec<bool>,
    /// The extensions that each upstream declared, as far as its era has them.
    pub extensions: Vec<ExtensionSet>,
    /// The instructions of each upstream, as far as they may be passed to clients.
    pub instructions: Vec<Option<Arc<str>>>,
    /// Whether each upstream has never listed anything, not even in an earlier run.
    pub unlisted: Vec<bool>,
    /// Rules about the input that each upstream may ask for.
    pub input: Vec<InputRules>,
    /// The view of clients without a profile.
    pub whole: Arc<CatalogView>,
    pub profiles: HashMap<String, Arc<CatalogView>>,
    /// Items withheld because their pins cannot be stored at present, by profile; the empty name is
    /// for clients without one.
    pub unkept: HashMap<String, Arc<CatalogView>>,
    pub policy: Arc<Policy>,
    pub limiter: Arc<Limiter>,
    /// Withheld items with the reasons.
    pub dropped: Vec<WithheldItem>,
    /// How long a modern client may cache a list, in milliseconds.
    pub ttl_ms: u32,
}

/// The rules about the input that one upstream may ask clients for in the middle of a call.
#[derive(Debug)]
pub struct InputRules {
    /// The rules of each capability, with its name.
    rules: [(&'static str, ItemRules); 2],
}

impl InputRules {
    pub fn new(policy: &Policy, upstream: &str) -> Self {
        let rules = [("elicitation", ActionKind::Elicitation), ("sampling", ActionKind::Sampling)];
        Self { rules: rules.map(|(name, kind)| (name, policy.item_rules(kind, upstream, upstream))) }
    }

    /// Returns the capabilities that calls of the action's caller are made without.
    pub fn denied<'a>(
        &'a self,
        policy: &'a Policy,
        action: &'a PolicyAction,
    ) -> impl Iterator<Item = &'static str> + 'a {
        let PolicyAction { caller, rights, .. } = action;
        let subject = RuleSubject::new(caller, rights, action.profile(), ToolFacts::default());
        let is_denied = move |rules: &ItemRules| policy.forbidding(rules, &subject).is_some();
        self.rules.iter().filter(move |(_, rules)| is_denied(rules)).map(|(name, _)| *name)
    }
}

/// Key of a rendered list: caller, its groups, kind of credential (to which its cursors are bound),
/// list, revision, and the client's input and use of Apps if items depend on them.
type RenderedListKey = (Caller, Groups, &'static str, ItemList, Revision, (InputKinds, bool));

/// The items that the rules leave a caller, by index in the catalog, for each set of groups that
/// its credentials state.
type OpenItems = Vec<(Groups, Arc<[bool]>)>;

/// A client as the viewer of a catalog.
#[derive(Clone, Copy, Debug)]
pub struct Viewer<'a> {
    pub caller: &'a Caller,
    pub rights: &'a CallerRights,
    /// The kind of the caller's credential.
    pub kind: &'static str,
    pub revision: Revision,
    /// Kinds of input that the client can give.
    pub offered: InputKinds,
    /// True if the client declared Apps.
    pub apps: bool,
}

impl Viewer<'_> {
    /// Returns the scope to which the cursors of a list are bound.
    pub fn scope<'a>(&'a self, list: ItemList, view: &'a CatalogView) -> CursorScope<'a> {
        let Self { caller, kind, revision, offered, apps, .. } = *self;
        let capabilities = u8::from(offered.form || offered.url || offered.sampling) | (u8::from(apps) << 1);
        CursorScope {
            list,
            holder: SealHolder { caller: caller.name(), kind, profile: &view.name, revision, capabilities },
        }
    }
}

/// A catalog with its rules and the cached bytes of its lists.
pub struct CatalogView {
    /// Name of the profile, or empty.
    pub name: String,
    pub catalog: Catalog,
    /// True if no item is limited to clients that can be asked for input.
    is_for_all: bool,
    /// True if an item has `_meta`, of which clients without Apps may see less.
    has_meta: bool,
    /// The rules of each item, by index in the catalog.
    rules: Vec<ItemRules>,
    /// Rendered lists, with the time since 1970 at which each was made.
    rendered: Mutex<HashMap<RenderedListKey, (Duration, Arc<RenderedList>)>>,
    /// The items that the rules leave each caller, by index in the catalog.
    open: ArcSwap<HashMap<Caller, OpenItems, RandomState>>,
    /// The callers that may use the view over HTTP; `None` admits no caller.
    admitted: Option<CallerPatterns>,
}

impl std::fmt::Debug for CatalogView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "View({:?}, {} items)", self.name, self.catalog.entries().len())
    }
}

impl CatalogView {
    pub fn new(name: &str, catalog: Catalog, policy: &Policy) -> Self {
        let rules = catalog
            .all_entries()
            .iter()
            .map(|e| policy.item_rules(e.list.into(), e.upstream_name.as_str(), &e.canonical))
            .collect();
        let is_for_all = catalog.entries().iter().all(|entry| entry.audience.is_all());
        let has_meta = catalog.entries().iter().any(|entry| entry.definition.get("_meta").is_some());
        let (rendered, open, admitted) = (Mutex::default(), ArcSwap::default(), Some(CallerPatterns::default()));
        Self { name: name.to_owned(), catalog, is_for_all, has_meta, rules, rendered, open, admitted }
    }

    /// Limits the view to these callers and groups, each by patterns.
    pub fn limited_to(self, callers: &[String], groups: &[String]) -> Self {
        Self { admitted: CallerPatterns::build("", callers, groups).ok(), ..self }
    }

    /// Whether a caller may use the view. A user of this machine may use each over a pipe.
    pub fn admits(&self, caller: &Caller, access: &Access) -> bool {
        matches!(access.credential(), Credential::User)
            || self.admitted.as_ref().is_some_and(|who| who.admit(caller, &access.rights().groups))
    }

    /// Returns an item and the rules that can match it.
    pub fn item(&self, at: usize) -> Option<(&CatalogEntry, &ItemRules)> {
        Some((self.catalog.entry(at)?, self.rules.get(at)?))
    }

    /// Whether an item exists for this viewer. Takes the same steps for a hidden item as for an
    /// index that does not exist, so that no answer's time reveals rules.
    pub fn visible(&self, policy: &Policy, at: usize, viewer: Viewer<'_>) -> bool {
        let known = self.open.load();
        let same = |(groups, _): &&(Groups, _)| *groups == viewer.rights.groups;
        let is_open = match known.get(viewer.caller).and_then(|open| open.iter().find(same)) {
            Some((_, open)) => open.get(at).copied().unwrap_or_default(),
            None => self.ask_rules(policy, at, viewer),
        };
        is_open
            && self.catalog.entry(at).is_some_and(|entry| match &entry.reach {
                EntryReach::Open => entry.audience.has(viewer.offered) && entry.is_for(viewer.apps),
                EntryReach::OfTools(tools) => tools.iter().any(|tool| self.visible(policy, *tool, viewer)),
                EntryReach::Handed(_) => false,
            })
    }

    /// Asks the rules whether an item is visible. At a caller's first request asks about all items
    /// and caches the result; about this one only if too many callers or groups are cached.
    fn ask_rules(&self, policy: &Policy, at: usize, viewer: Viewer<'_>) -> bool {
        let Viewer { caller, rights, .. } = viewer;
        let open = |(entry, rules): (&CatalogEntry, _)| {
            !policy.hidden(rules, &RuleSubject::new(caller, rights, &self.name, entry))
        };
        let known = self.open.load();
        let of_caller = known.get(caller).map_or(0, Vec::len);
        if of_caller >= MAX_GROUPS || (of_caller == 0 && known.len() >= MAX_CALLERS) {
            return self.item(at).is_some_and(open);
        }
        let entries = self.catalog.all_entries();
        let ask = || entries.iter().zip(&self.rules).map(open).collect();
        let all: Arc<[bool]> = run_aside_if(entries.len() >= MANY_ITEMS, ask);
        self.open.rcu(|known| {
            let mut known = HashMap::clone(known);
            known.entry(caller.clone()).or_default().push((rights.groups.clone(), Arc::clone(&all)));
            known
        });
        all.get(at).copied().unwrap_or_default()
    }
}

impl Snapshot {
    /// Whether any upstream answers `completion/complete` at present.
    pub fn completes(&self) -> bool {
        self.completes.contains(&true)
    }

    /// Returns the extensions of an upstream.
    pub fn extensions_of(&self, upstream: usize) -> ExtensionSet {
        self.extensions.get(upstream).copied().unwrap_or_default()
    }

    /// Returns the extensions to declare to a client that sees this view: tasks while any upstream
    /// has them, Apps if the client declared them and sees an item of an upstream that did so too,
    /// or a view.
    pub fn offered_extensions(&self, view: &CatalogView, viewer: Viewer<'_>) -> ExtensionSet {
        let has_tasks = self.extensions.iter().any(|set| set.has(&TASKS));
        let set = if has_tasks { ExtensionSet::default().with(&TASKS) } else { ExtensionSet::default() };
        let has_app = |(at, entry): (usize, &CatalogEntry)| {
            let is_of_app = entry.app.view.is_some() || self.extensions_of(entry.upstream).has(&APPS);
            is_of_app && view.visible(&self.policy, at, viewer)
        };
        let has_apps = viewer.apps && view.catalog.entries().iter().enumerate().any(has_app);
        let set = if has_apps { set.with(&APPS) } else { set };
        set.in_era(viewer.revision.era())
    }

    /// Whether clients that declared Apps may be told so, and others not.
    pub fn has_apps(&self) -> bool {
        let views = || self.whole.catalog.entries().iter().any(|entry| entry.app.view.is_some());
        self.extensions.iter().any(|set| set.has(&APPS)) || views()
    }

    /// Whether an upstream with an item in this profile declares log messages at present.
    pub fn logs(&self, profile: Option<&str>) -> bool {
        let is_logging = |entry: &CatalogEntry| self.logs.get(entry.upstream).copied().unwrap_or_default();
        self.logs.contains(&true)
            && self.view(profile).is_some_and(|view| view.catalog.entries().iter().any(is_logging))
    }

    /// Returns the view of a profile; `None` if there is no such profile.
    pub fn view(&self, profile: Option<&str>) -> Option<&Arc<CatalogView>> {
        profile.map_or(Some(&self.whole), |name| self.profiles.get(name))
    }

    /// Returns one list as this viewer sees it. Rendered at first use, and again before its cursors
    /// are too old. `now` is the time since 1970.
    pub fn list(
        &self,
        view: &CatalogView,
        list: ItemList,
        viewer: Viewer<'_>,
        key: &CursorKey,
        now: Duration,
    ) -> Arc<RenderedList> {
        let Viewer { caller, rights, kind, revision, offered, apps } = viewer;
        let offered = if view.is_for_all { InputKinds::default() } else { offered };
        let apps = apps && view.has_meta;
        let place = (caller.clone(), rights.groups.clone(), kind, list, revision, (offered, apps));
        let lock = || view.rendered.lock();
        let is_fresh = |(made, ready): &&(Duration, Arc<RenderedList>)| {
            ready.content.is_none() || now.saturating_sub(*made) < LIFE / 2
        };
        if let Some((_, ready)) = lock().get(&place).filter(is_fresh) {
            return Arc::clone(ready);
        }
        let scope = viewer.scope(list, view);
        let draw = || {
            render(
                &view.catalog,
                list,
                revision,
                apps,
                self.ttl_ms,
                |at| view.visible(&self.policy, at, viewer),
                |content, page| key.seal(scope, content, page, now),
            )
        };
        let made = Arc::new(run_aside_if(view.catalog.entries().len() >= MANY_ITEMS, draw));
        let bytes = |rendered: &RenderedList| rendered.pages.iter().map(|page| page.bytes().len()).sum::<usize>();
        let mut map = lock();
        map.remove(&place);
        let kept: usize = map.values().map(|(_, kept)| bytes(kept)).sum();
        if map.len() < MAX_RENDERED && kept + bytes(&made) <= MAX_RENDERED_BYTES {
            map.insert(place, (now, Arc::clone(&made)));
        }
        made
    }
}
