//! Upstreams of the running gateway for the console, and the actions on them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;

use super::super::desk::{Steer, ToolView, UpstreamDetail, UpstreamView};
use super::logins;
use crate::catalog::name::UpstreamName;
use crate::gateway::service::Service;
use crate::gateway::snapshot::Snapshot;
use crate::gateway::snapshot::{Handle, LinkState};
use crate::gateway::supervisor::Order;
use crate::mcp::method::List;
use crate::mcp::weight;
use crate::policy::{Caller, Policy};
use crate::telemetry::upstream_state::UpstreamState;

/// Lines of an upstream's log on its page.
const MAX_LINES: usize = 60;
/// Withheld items on it.
const MAX_WITHHELD: usize = 100;
/// How long an answer waits for a start.
const PATIENCE: Duration = Duration::from_secs(5);

/// An upstream for tiles. `index` is its place in the snapshot.
pub(super) fn view(snapshot: &Snapshot, index: usize, handle: &Handle) -> UpstreamView {
    let state = handle.main.state();
    let mine = |lists: &[List]| {
        let entries = snapshot.whole.catalog.entries().iter();
        entries.filter(|entry| entry.upstream == index && lists.contains(&entry.list)).count()
    };
    UpstreamView {
        name: handle.name.as_str().to_owned(),
        state: handle.health.state(),
        revision: match &*state {
            LinkState::Ready(link) => Some(link.agreed().revision.as_str()),
            LinkState::Idle | LinkState::Starting | LinkState::Down { .. } | LinkState::Stopped => None,
        },
        tools: mine(&[List::Tools]),
        prompts: mine(&[List::Prompts]),
        resources: mine(&[List::Resources, List::Templates]),
        not_offered: handle.excess().iter().map(|excess| excess.items).sum(),
        in_flight: handle.in_flight.load(Ordering::Relaxed),
        restarts: handle.main.restarts.load(Ordering::Relaxed),
        last_error: handle.health.last_error(),
        age: handle.health.age().as_secs(),
        next_try: handle.next_start().map(|wait| wait.as_secs() + 1),
        advice: handle.advice(),
    }
}

/// One that is switched off until the next start.
pub(super) fn off(name: &UpstreamName) -> UpstreamView {
    UpstreamView { name: name.as_str().to_owned(), state: UpstreamState::Disabled, ..UpstreamView::default() }
}

/// Everything about an upstream of that name.
pub(super) fn detail(snapshot: &Snapshot, name: &str) -> Option<UpstreamDetail> {
    let Some(index) = snapshot.handles.iter().position(|handle| handle.name.as_str() == name) else {
        let view = snapshot.config.off.iter().find(|off| off.as_str() == name).map(off)?;
        let (lines, tools, withheld) = (Vec::new(), Vec::new(), Vec::new());
        return Some(UpstreamDetail { view, is_off: true, login: None, lines, tools, withheld });
    };
    let handle = snapshot.handles.get(index)?;
    let entries = snapshot.whole.catalog.entries().iter().enumerate();
    let tools = entries.filter(|(_, entry)| entry.upstream == index && entry.list == List::Tools);
    let tools = tools.filter_map(|(at, _)| snapshot.whole.item(at)).map(|(entry, rules)| ToolView {
        name: entry.exposed.to_string(),
        said: entry.said,
        is_new: entry.is_new,
        effect: Policy::effect(&snapshot.policy, rules, Caller::local(), "", entry).into_str(),
        bytes: weight::bytes(&entry.exposed, &entry.definition),
    });
    let withheld = snapshot.dropped.iter().filter(|dropped| dropped.upstream == handle.name).take(MAX_WITHHELD);
    Some(UpstreamDetail {
        view: view(snapshot, index, handle),
        is_off: false,
        login: logins::view(handle),
        lines: handle.health.log.after(0, MAX_LINES),
        tools: tools.collect(),
        withheld: withheld.map(|dropped| (dropped.canonical(), dropped.why.clone())).collect(),
    })
}

/// Acts on an upstream for the person `by`.
pub(super) async fn steer(
    service: &Service,
    orders: &mpsc::Sender<Order>,
    name: &str,
    steer: Steer,
    by: &str,
) -> Result<String, String> {
    let is_there = detail(&service.snapshots.load(), name).is_some();
    if !is_there {
        return Err(format!("there is no upstream `{name}`; it may have left the configuration."));
    }
    let gone = || "the gateway is shutting down.".to_owned();
    if steer == Steer::Disable {
        let order = |reply| Order::Disable { name: name.to_owned(), reply };
        Order::ask(orders, order).await.ok_or_else(gone)??;
        tracing::info!(upstream.name = name, by, "upstream switched off by the operator until the next start");
        return Ok("Disabled until headend starts again. Its calls in flight have 10 s to end.".to_owned());
    }
    let order = |reply| Order::Restart { name: name.to_owned(), reply };
    let handle = Order::ask(orders, order).await.ok_or_else(gone)??;
    tracing::info!(upstream.name = name, by, "upstream restarted by the operator");
    handle.main.started(PATIENCE).await;
    let state = handle.health.state();
    let did = if steer == Steer::Restart { "Restarted" } else { "Enabled" };
    Ok(format!("{did}; its state is {state} now."))
}
