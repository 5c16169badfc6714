//! Finds the item that a request names, in the client's view of a snapshot.

use std::sync::Arc;
use std::time::Duration;

use crate::base::clock;
use crate::catalog::apps::BareName;
use crate::catalog::merge::{CatalogEntry, EntryReach};
use crate::catalog::name::UpstreamName;
use crate::engine::failure::{CallFailure, ExecutionDoubt};
use crate::engine::route::{RouteError, RoutedRequest, route, route_handed, shorten};
use crate::gateway::answer::{RequestAnswer, refusal_answer, unknown_item_answer};
use crate::gateway::client::handed_uris::HandedTo;
use crate::gateway::client::{ClientContext, view_of};
use crate::gateway::service::Service;
use crate::gateway::snapshot::{CatalogView, Snapshot};
use crate::mcp::meta::Meta;
use crate::mcp::method::{ItemList, Method};
use crate::policy::{ActionKind, ItemRules, PolicyAction};
use crate::upstream::session::handle::UpstreamHandle;
use crate::wire::code;
use crate::wire::json::raw::{RawJson, RawObject};

/// When a call may come back that was refused since the store kept nothing.
pub(crate) const STORE_WAIT: Duration = Duration::from_secs(5);

/// An item found for a request, with its rules, its upstream and its snapshot.
pub struct FoundItem<'s> {
    pub snapshot: &'s Snapshot,
    pub view: &'s Arc<CatalogView>,
    /// Index in the view's catalog.
    pub at: usize,
    pub entry: &'s CatalogEntry,
    /// The rules about calls of the item.
    pub rules: &'s ItemRules,
    pub handle: &'s Arc<UpstreamHandle>,
    /// True if the request named a tool by its bare name.
    pub is_bare: bool,
}

impl<'s> FoundItem<'s> {
    /// Looks up an item by its index in a view; `None` if the index or its upstream does not exist.
    pub fn new(snapshot: &'s Snapshot, view: &'s Arc<CatalogView>, at: usize) -> Option<Self> {
        let (entry, rules) = view.item(at)?;
        let handle = snapshot.handles.get(entry.upstream)?;
        Some(Self { snapshot, view, at, entry, rules, handle, is_bare: false })
    }

    /// Makes the policy's action for a request about the item. `uri` is the canonical name of an
    /// unlisted resource, if the item is a template.
    pub fn action(&self, client: &ClientContext, kind: ActionKind, uri: Option<String>) -> PolicyAction {
        let mut action = client.action(self.entry, kind, self.handle.launch());
        action.is_bare = self.is_bare;
        if let Some(uri) = uri {
            action.canonical = Arc::from(uri);
            if matches!(self.entry.reach, EntryReach::Handed(_)) {
                action.listed = Arc::clone(&action.canonical);
            }
        }
        action
    }

    /// Returns the error for a client that must not learn of the item: the same as for an unknown
    /// name.
    pub fn unknown(&self, params: &RawObject) -> RouteError {
        let exposed = || self.entry.exposed.to_string();
        match self.entry.list {
            ItemList::Tools if self.is_bare => RouteError::UnknownTool(self.entry.original.to_string()),
            ItemList::Tools => RouteError::UnknownTool(exposed()),
            ItemList::Prompts => RouteError::UnknownPrompt(exposed()),
            ItemList::Resources | ItemList::Templates => {
                // A completion names its item inside `ref`.
                let uri = params.string("uri").filter(|_| params.get("ref").is_none());
                let uri = uri.unwrap_or_else(exposed);
                RouteError::UnknownResource(shorten(&uri))
            }
        }
    }

    /// Returns the rules about an action if they are not those of the item's calls: actions such as
    /// completions have their own, and so has a URI that a template covers.
    pub fn own_rules(&self, action: &PolicyAction) -> Option<ItemRules> {
        let is_call = action.kind == ActionKind::from(self.entry.list);
        let is_listed = Arc::ptr_eq(&action.canonical, &self.entry.canonical);
        (!is_call || !is_listed)
            .then(|| self.snapshot.policy.item_rules(action.kind, &action.upstream, &action.canonical))
    }
}

/// Returns the parameters of a call under the tool's exposed name, if a client that declared Apps
/// calls the tool by its bare name and only this tool can be meant. An exposed name comes first.
pub(crate) fn rename_bare(
    snapshot: &Snapshot,
    view: &CatalogView,
    client: &ClientContext,
    method: Method,
    params: &RawObject,
) -> Option<RawObject> {
    if client.apps.is_none() || method != Method::ToolsCall {
        return None;
    }
    let name = params.said("name")?;
    let visible = |at| view.visible(&snapshot.policy, at, client.viewer());
    if view.catalog.find(ItemList::Tools, &name).is_some_and(visible) {
        return None;
    }
    let BareName::Tool(at) = view.catalog.find_bare(&name, visible) else { return None };
    let mut renamed = params.clone();
    renamed.set("name", RawJson::string(&view.catalog.entry(at)?.exposed));
    Some(renamed)
}

impl Service {
    /// Finds the item that a request names and writes the upstream's request. If the client cannot
    /// see such an item, passes the call on to be recorded.
    ///
    /// # Errors
    /// The answer to the client.
    pub fn find<'s>(
        &self,
        snapshot: &'s Arc<Snapshot>,
        client: &ClientContext,
        method: Method,
        params: &RawObject,
        meta: Meta,
    ) -> Result<(FoundItem<'s>, RoutedRequest), RequestAnswer> {
        let Some(view) = view_of(snapshot, client) else {
            return Err(RequestAnswer::error(code::INVALID_PARAMS, "this profile no longer exists", None));
        };
        let visible = |at| view.visible(&snapshot.policy, at, client.viewer());
        let renamed = rename_bare(snapshot, view, client, method, params);
        let (asked, params) = (params, renamed.as_ref().unwrap_or(params));
        let unkept =
            snapshot.unkept.get(client.profile.as_deref().unwrap_or_default()).map(|view| (view, meta.clone()));
        let handed = self.handed_uri(view, client, method, params, visible).map(|uri| (uri, meta.clone()));
        let routed = route(&view.catalog, method, params, meta, visible).or_else(|error| {
            let handed = handed.filter(|_| error.is_unknown());
            let routed =
                handed.and_then(|((upstream, uri), meta)| route_handed(&view.catalog, (&upstream, &uri), params, meta));
            routed.ok_or(error)
        });
        let routed = routed.map_err(|error| {
            if error.is_unknown() {
                if let Some((view, meta)) = unkept
                    && let Some(answer) = self.unkept(snapshot, view, client, method, params, meta)
                {
                    return answer;
                }
                if let Some(answer) = self.starting(snapshot, client, method, asked) {
                    return answer;
                }
                self.turned_away.tell(snapshot, client, method, asked);
            }
            unknown_item_answer(&error, asked, client.revision)
        })?;
        let found = FoundItem::new(snapshot, view, routed.entry);
        let found = found.map(|found| FoundItem { is_bare: renamed.is_some(), ..found });
        let found = found.ok_or_else(|| RequestAnswer::error(code::INTERNAL, "the catalog is inconsistent", None))?;
        Ok((found, routed))
    }

    /// Returns the upstream and the original of a URI that a tool handed to the client, if the
    /// request reads it and the client still sees the tool.
    fn handed_uri(
        &self,
        view: &CatalogView,
        client: &ClientContext,
        method: Method,
        params: &RawObject,
        visible: impl Fn(usize) -> bool,
    ) -> Option<(UpstreamName, Arc<str>)> {
        let uri = (method == Method::ResourcesRead).then(|| params.said("uri")).flatten()?;
        let to = HandedTo { caller: &client.caller, profile: client.profile.as_ref() };
        let handed = self.handed.find(to, &uri, clock::uptime())?;
        let is_tool = |entry: &CatalogEntry| entry.list == ItemList::Tools && entry.canonical == handed.tool;
        view.catalog.entries().iter().position(is_tool).filter(|at| visible(*at))?;
        Some((handed.upstream?, handed.original))
    }

    /// Refuses a call of an item that the client would see if the store could keep its pin.
    fn unkept(
        &self,
        snapshot: &Snapshot,
        view: &CatalogView,
        client: &ClientContext,
        method: Method,
        params: &RawObject,
        meta: Meta,
    ) -> Option<RequestAnswer> {
        let visible = |at| view.visible(&snapshot.policy, at, client.viewer());
        route(&view.catalog, method, params, meta, visible).ok()?;
        let text = "The definition of this item is new and cannot be recorded at the moment, so the call was not made.";
        let failure =
            CallFailure::new(self.approvals.store_failure(), ExecutionDoubt::No, text).retry_after(STORE_WAIT);
        Some(refusal_answer(&failure, &self.labels(method, clock::now()), client.revision))
    }
}
