//! The tools as the admin socket lists them: the catalog, what a kind of client sees of it, and what is withheld.

use std::sync::Arc;

use crate::catalog::merge::Dropped;
use crate::daemon::access::operator;
use crate::daemon::gateway::Gateway;
use crate::gateway::client::ClientContext;
use crate::gateway::snapshot::Snapshot;
use crate::listener::credentials::Caller;
use crate::mcp::input::Kinds;
use crate::mcp::method::List;
use crate::mcp::version::{Era, Revision};
use crate::mcp::weight;
use crate::policy::Policy;
use crate::wire::code;
use crate::wire::raw::{RawJson, RawObject};

/// The `pin` of a tool that something else than its pin withholds.
const WITHHELD: &str = "withheld";
/// The `pin` of a tool that is pinned and new: no operator has confirmed it.
const NEW: &str = "new";

/// The tools; for users other than the operator, those that their caller may see. `as` selects what clients of one kind see, `all`
/// adds what is withheld, `sizes` the bytes of each tool.
pub(crate) fn list(gateway: &Gateway, caller: &Caller, params: &RawObject) -> Result<RawJson, (i64, String)> {
    let Caller { name: caller, access } = caller;
    let operates = operator(caller).is_some();
    let kind = params.string("as");
    let offered = match kind.as_deref() {
        None | Some("none") => Kinds::default(),
        Some("forms") => Kinds { form: true, ..Kinds::default() },
        Some("all") => Kinds { form: true, url: true, sampling: true, sampling_tools: true, roots: true },
        Some(_) => return Err((code::INVALID_PARAMS, "`as` must be none, forms or all".to_owned())),
    };
    let (all, sizes) = (params.is_true("all"), params.is_true("sizes"));
    if all && !operates {
        return Err((1, "only root and the user that runs headend may see what is withheld".to_owned()));
    }
    let snapshot = gateway.service.snapshots.load_full();
    let view = &snapshot.whole;
    let client = ClientContext::new(Arc::clone(caller), Arc::clone(access), None, Revision::preferred(Era::Legacy));
    let viewer = ClientContext { offered, ..client.clone() };
    let is_whole = operates && kind.is_none();
    let is_shown = |at: &usize| is_whole || view.visible(&snapshot.policy, *at, viewer.viewer());
    let entries = view.catalog.entries().iter().enumerate();
    let shown = entries.filter(|(at, entry)| entry.list == List::Tools && is_shown(at));
    let tools = shown.filter_map(|(at, _)| view.item(at)).map(|(entry, rules)| {
        let effect = Policy::effect(&snapshot.policy, rules, caller, "", entry);
        let pin = if entry.is_new { NEW } else { "pinned" };
        let mut tool = RawObject::of_strings(&[
            ("name", &entry.exposed),
            ("upstream", entry.upstream_name.as_str()),
            ("original", &entry.original),
            ("canonical", &entry.canonical),
            // The catalog contains pinned items only.
            ("pin", pin),
            ("effect", effect.into_str()),
        ]);
        if sizes {
            tool.set("bytes", RawJson::number(weight::bytes(&entry.exposed, &entry.definition)));
        }
        tool.encode()
    });
    let withheld: Vec<&Dropped> = snapshot.dropped.iter().filter(|dropped| concerns_tools(dropped)).collect();
    let mut out = RawObject::default();
    let more = withheld.iter().filter(|_| all).map(|dropped| withheld_tool(dropped));
    out.set("tools", RawJson::list(tools.chain(more)));
    if is_whole {
        out.set("withheld", RawJson::number(withheld.len()));
    }
    if kind.is_none() {
        // A user of the socket who calls one of these later has been shown it.
        gateway.service.listed_tools(&snapshot, &client);
    }
    Ok(out.encode())
}

fn concerns_tools(dropped: &Dropped) -> bool {
    dropped.list.is_none_or(|list| list == List::Tools)
}

fn withheld_tool(dropped: &Dropped) -> RawJson {
    let tool = RawObject::of_strings(&[
        ("name", dropped.exposed.as_deref().unwrap_or(&dropped.item)),
        ("upstream", dropped.upstream.as_str()),
        ("original", &dropped.item),
        ("canonical", &dropped.canonical()),
        ("pin", dropped.pin.unwrap_or(WITHHELD)),
        ("withheld", &dropped.why),
    ]);
    tool.encode()
}

/// Why the operator cannot call a tool of that name, exposed or canonical, where it is withheld.
pub(crate) fn withheld(snapshot: &Snapshot, name: &str) -> Option<String> {
    if snapshot.whole.catalog.find(List::Tools, name).is_some() {
        return None;
    }
    let is_named = |dropped: &&Dropped| match dropped.list {
        Some(List::Tools) => dropped.exposed.as_deref() == Some(name) || dropped.canonical() == name,
        Some(List::Prompts | List::Resources | List::Templates) => false,
        None => {
            let spec = snapshot.config.upstreams.iter().find(|spec| spec.name == dropped.upstream);
            spec.is_some_and(|spec| !spec.prefix.is_empty() && name.starts_with(spec.prefix.as_str()))
        }
    };
    snapshot.dropped.iter().find(is_named).map(|dropped| format!("withheld: {}", dropped.told()))
}
