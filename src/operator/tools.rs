//! Lists the tools of a running gateway: the whole catalog or one kind of client's view of it, and
//! withheld tools.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::OperatorRefusal;
use super::request::ToolsParams;
use crate::catalog::merge::{CatalogEntry, WithheldItem, WithheldPart};
use crate::gateway::client::ClientContext;
use crate::gateway::service::Service;
use crate::gateway::snapshot::Snapshot;
use crate::listener::callers::credentials::CallerAccess;
use crate::mcp::asking::kinds::InputKinds;
use crate::mcp::definition::weight;
use crate::mcp::extension::APPS;
use crate::mcp::method::ItemList;
use crate::mcp::version::{Era, Revision};
use crate::policy::{Caller, Policy, RuleSubject, StatedHints};

/// Value of `pin` for a tool that is withheld for a reason other than its pin.
const WITHHELD: &str = "withheld";

/// A list of tools.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ToolsView {
    pub(crate) tools: Vec<ToolView>,
    /// Number of withheld tools, told to the operator alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) withheld: Option<usize>,
}

/// A tool in a list.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ToolView {
    pub(crate) name: String,
    pub(crate) upstream: String,
    pub(crate) original: String,
    pub(crate) canonical: String,
    /// `pinned` or `new`; for a withheld tool `changed`, `quarantined`, `rejected` or `withheld`.
    pub(crate) pin: String,
    /// Effect of the rules that do not look at arguments: `allow`, `ask`, `deny` or `limit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) effect: Option<String>,
    /// Bytes of the name and definition that hosts pass to a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<usize>,
    /// Reason why the tool is withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) withheld: Option<String>,
    #[serde(skip)]
    pub(crate) said: StatedHints,
    #[serde(skip)]
    pub(crate) is_new: bool,
}

impl ToolView {
    fn new(entry: &CatalogEntry, effect: &str) -> Self {
        Self {
            name: entry.exposed.to_string(),
            upstream: entry.upstream_name.as_str().to_owned(),
            original: entry.original.to_string(),
            canonical: entry.canonical.to_string(),
            // The catalog contains pinned items only.
            pin: pin(entry).to_owned(),
            effect: Some(effect.to_owned()),
            said: entry.said,
            is_new: entry.is_new,
            ..Self::default()
        }
    }

    fn with_size(self, entry: &CatalogEntry) -> Self {
        Self { bytes: Some(weight::bytes(&entry.exposed, &entry.definition)), ..self }
    }
}

impl From<&WithheldItem> for ToolView {
    fn from(dropped: &WithheldItem) -> Self {
        Self {
            name: dropped.exposed.clone().unwrap_or_else(|| dropped.item.clone()),
            upstream: dropped.upstream.as_str().to_owned(),
            original: dropped.item.clone(),
            canonical: dropped.canonical(),
            pin: dropped.pin.unwrap_or(WITHHELD).to_owned(),
            withheld: Some(dropped.why.clone()),
            ..Self::default()
        }
    }
}

/// Returns the word for the pin of a tool in the catalog: `new` until an operator confirms it.
pub(super) const fn pin(entry: &CatalogEntry) -> &'static str {
    if entry.is_new { "new" } else { "pinned" }
}

/// Lists the tools that a user may see: the operator sees the whole catalog, another user the tools
/// of its caller. `as` limits the list to the view of one kind of client, `all` adds withheld
/// tools, `sizes` adds the bytes of each tool.
pub(crate) fn list(
    service: &Service,
    CallerAccess { caller, access }: &CallerAccess,
    params: &ToolsParams,
) -> Result<ToolsView, OperatorRefusal> {
    let operates = caller.is_operator();
    let offered = match params.kind.as_deref() {
        None | Some("none") => InputKinds::default(),
        Some("forms") => InputKinds { form: true, ..InputKinds::default() },
        Some("all") => InputKinds { form: true, url: true, sampling: true, sampling_tools: true, roots: true },
        Some(_) => return Err(OperatorRefusal::Params("`as` must be none, forms or all".to_owned())),
    };
    if params.all && !operates {
        return Err(OperatorRefusal::refused("only root and the user that runs headend may see what is withheld"));
    }
    let snapshot = service.snapshots.load_full();
    let view = &snapshot.whole;
    let client = ClientContext::new(caller.clone(), Arc::clone(access), None, Revision::preferred(Era::Legacy));
    let apps = (params.kind.as_deref() == Some("all")).then(|| APPS.own_settings());
    let viewer = ClientContext { offered, apps, ..client.clone() };
    let is_whole = operates && params.kind.is_none();
    let is_shown = |at: &usize| is_whole || view.visible(&snapshot.policy, *at, viewer.viewer());
    let entries = view.catalog.entries().iter().enumerate();
    let shown = entries.filter(|(at, entry)| entry.list == ItemList::Tools && is_shown(at));
    let tools = shown.filter_map(|(at, _)| view.item(at)).map(|(entry, rules)| {
        let subject = RuleSubject::new(caller, access.rights(), "", entry);
        let effect = Policy::effect(&snapshot.policy, rules, &subject);
        let tool = ToolView::new(entry, effect.into_str());
        if params.sizes { tool.with_size(entry) } else { tool }
    });
    let withheld: Vec<&WithheldItem> = snapshot.dropped.iter().filter(|dropped| concerns_tools(dropped)).collect();
    let more = withheld.iter().filter(|_| params.all).map(|dropped| ToolView::from(*dropped));
    let tools = tools.chain(more).collect();
    Ok(ToolsView { tools, withheld: is_whole.then_some(withheld.len()) })
}

/// Lists the tools of one upstream with their sizes, as the rules treat the caller `local`. `index`
/// is the upstream's index in the snapshot.
pub(super) fn of_upstream(snapshot: &Snapshot, index: usize) -> Vec<ToolView> {
    let entries = snapshot.whole.catalog.entries().iter().enumerate();
    let tools = entries.filter(|(_, entry)| entry.upstream == index && entry.list == ItemList::Tools);
    let view = |(entry, rules): (&CatalogEntry, _)| {
        let subject = RuleSubject::ungrouped(Caller::local(), "", entry);
        let effect = Policy::effect(&snapshot.policy, rules, &subject);
        ToolView::new(entry, effect.into_str()).with_size(entry)
    };
    tools.filter_map(|(at, _)| snapshot.whole.item(at)).map(view).collect()
}

fn concerns_tools(dropped: &WithheldItem) -> bool {
    matches!(dropped.part, WithheldPart::Item(ItemList::Tools) | WithheldPart::All)
}

/// Returns why a tool with that exposed or canonical name is withheld; `None` if it is listed or
/// unknown.
pub(crate) fn why_withheld(snapshot: &Snapshot, name: &str) -> Option<String> {
    if snapshot.whole.catalog.find(ItemList::Tools, name).is_some() {
        return None;
    }
    let is_named = |dropped: &&WithheldItem| match dropped.part {
        WithheldPart::Item(ItemList::Tools) => dropped.exposed.as_deref() == Some(name) || dropped.canonical() == name,
        WithheldPart::Item(_) | WithheldPart::App | WithheldPart::Instructions => false,
        WithheldPart::All => {
            let spec = snapshot.config.upstreams.iter().find(|spec| spec.name == dropped.upstream);
            spec.is_some_and(|spec| !spec.prefix.is_empty() && name.starts_with(spec.prefix.as_str()))
        }
    };
    snapshot.dropped.iter().find(is_named).map(|dropped| format!("withheld: {}", dropped.told()))
}
