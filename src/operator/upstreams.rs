//! Shows the upstreams of a running gateway, and restarts, disables or enables them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::request::SwitchParams;
use super::tools::{self, ToolView};
use super::{OperatorRefusal, Person};
use crate::base::clock;
use crate::catalog::merge::{CatalogEntry, WithheldItem, WithheldPart};
use crate::config::{UpstreamSettings, UpstreamTarget};
use crate::gateway::service::Service;
use crate::gateway::snapshot::Snapshot;
use crate::gateway::supervisor::SupervisorOrder;
use crate::mcp::definition::weight;
use crate::mcp::instructions::InstructionFit;
use crate::mcp::method::ItemList;
use crate::mcp::version::Era;
use crate::policy::ApprovalEvidence;
use crate::store::pins::{PinKind, searched_folders};
use crate::telemetry::upstream_state::UpstreamState;
use crate::upstream::session::handle::UpstreamHandle;
use crate::upstream::session::link::LinkState;
use crate::upstream::state::logbook::LogLine;
use crate::wire::foreign;

pub(crate) use crate::store::pins::program_of;

/// Most withheld items, and most new tools, that a status names; all of them are counted.
const NAMED: usize = 20;
/// Most log lines on an upstream's page.
const MAX_LINES: usize = 60;
/// Most withheld items on an upstream's page.
const MAX_WITHHELD: usize = 100;

/// An upstream in a status. A disabled upstream has no facts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct UpstreamView {
    pub(crate) name: String,
    pub(crate) state: UpstreamState,
    #[serde(flatten)]
    pub(crate) facts: Option<Box<UpstreamFacts>>,
    /// Next step for the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) advice: Option<String>,
}

/// Facts about an upstream that is not disabled.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct UpstreamFacts {
    pub(crate) start: String,
    /// Name of the replica that runs the program, if one of several does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replica: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) revision: Option<String>,
    pub(crate) incarnation: u64,
    /// Number of sessions that belong to single callers, besides the shared one.
    pub(crate) sessions: u64,
    /// Items whose calls run one at a time, because the server asks the client during them and
    /// several calls share a connection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) one_at_a_time: Vec<String>,
    pub(crate) restarts: u64,
    pub(crate) in_flight: usize,
    pub(crate) tools: usize,
    pub(crate) prompts: usize,
    pub(crate) resources: usize,
    pub(crate) resource_templates: usize,
    /// Reason why the server is told that no client can be asked anything; set if several callers
    /// may share its process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) input: Option<String>,
    /// Instructions that clients get if they see an item of the upstream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) instructions: Option<InstructionsView>,
    /// Items beyond `max-inventory`, by list.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) not_offered: BTreeMap<String, ExcessView>,
    /// How messages of the server break the protocol.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) message_flaws: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) repairs: Option<usize>,
    /// Definitions that were repaired, or that are withheld because they are invalid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) invalid_definitions: Vec<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) invalid_definitions_not_shown: usize,
    /// Lists that could not be read the last time. Clients still see their previous content.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) unread_lists: BTreeMap<String, UnreadView>,
    pub(crate) withheld: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) withheld_list: Vec<WithheldItemView>,
    /// Number of tools that appeared after the first inventory of the launch and that no operator
    /// has confirmed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) new_tools: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) new_tools_list: Vec<String>,
    #[serde(flatten)]
    pub(crate) health: HealthView,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) login: Option<LoginInUse>,
    /// Path of the program that is started; left out for a disabled or HTTP upstream, or if the
    /// name is a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) program: Option<String>,
    /// Folders that the program was looked for in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) path: Vec<String>,
}

/// The instructions of an upstream as clients without a profile get them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct InstructionsView {
    /// Estimated tokens of the whole text.
    pub(crate) tokens: usize,
    /// `whole`, `cut` or `left-out`.
    pub(crate) passed: String,
    #[serde(skip)]
    pub(crate) text: String,
}

impl From<(&str, InstructionFit)> for InstructionsView {
    fn from((text, fit): (&str, InstructionFit)) -> Self {
        let passed = match fit {
            InstructionFit::Whole => "whole",
            InstructionFit::Cut => "cut",
            InstructionFit::LeftOut => "left-out",
        };
        Self { tokens: weight::tokens(text.len()), passed: passed.to_owned(), text: text.to_owned() }
    }
}

impl InstructionsView {
    /// Describes the size and how much of the text clients get.
    pub(crate) fn describe(&self) -> String {
        let how = match self.passed.as_str() {
            "cut" => ", cut to `max-instructions`",
            "left-out" => ", left out: no room within `max-instructions-together`",
            _ => "",
        };
        format!("about {} tokens{how}", self.tokens)
    }
}

/// Time that an upstream has been in its state, the last error and stderr lines, and the time until
/// the next try.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct HealthView {
    pub(crate) since_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_try_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_error: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) stderr: Vec<String>,
}

/// Number of items of a list beyond `max-inventory`; at least that number if `or_more`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct ExcessView {
    pub(crate) items: usize,
    pub(crate) or_more: bool,
}

/// A list that could not be read, with the number of attempts and the time of the next one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct UnreadView {
    pub(crate) why: String,
    pub(crate) attempts: u64,
    pub(crate) since_seconds: u64,
    pub(crate) next_try_seconds: u64,
}

/// An item or launch that is withheld from clients.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WithheldItemView {
    pub(crate) name: String,
    pub(crate) kind: PinKind,
    pub(crate) why: String,
}

/// The login that an upstream uses.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct LoginInUse {
    pub(crate) issuer: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) account: Option<String>,
    /// Seconds until the access token expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token_seconds: Option<u64>,
    pub(crate) refreshing: bool,
}

/// State of an upstream after a restart.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct RestartedUpstream {
    pub(crate) name: String,
    pub(crate) state: UpstreamState,
    #[serde(flatten)]
    pub(crate) health: HealthView,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) advice: Option<String>,
}

/// An upstream with everything that its page shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpstreamDetail {
    pub(crate) view: UpstreamView,
    /// True if the operator switched the upstream off until this daemon ends.
    pub(crate) is_off: bool,
    /// True if a person can log in at this upstream.
    pub(crate) takes_login: bool,
    /// True if the upstream waits for a login.
    pub(crate) wants_login: bool,
    /// Last lines of the upstream's log, oldest first.
    pub(crate) lines: Vec<LogLine>,
    pub(crate) tools: Vec<ToolView>,
    pub(crate) withheld: Vec<WithheldItemView>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
pub(super) const fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Returns the handle of an enabled upstream by name, whatever its state; a refusal if no enabled
/// upstream has that name.
pub(super) fn find(service: &Service, name: &str) -> Result<Arc<UpstreamHandle>, OperatorRefusal> {
    let snapshot = service.snapshots.load_full();
    let found = snapshot.handles.iter().find(|handle| handle.name.as_str() == name).cloned();
    let unknown = || format!("there is no upstream `{}`; `headend status` lists them", foreign::line(name));
    found.ok_or_else(|| OperatorRefusal::Refused(unknown()))
}

/// Returns all upstreams in the order of the configuration, then the disabled ones.
pub(crate) fn all(snapshot: &Snapshot) -> Vec<UpstreamView> {
    let running = snapshot.handles.iter().enumerate().map(|(index, handle)| view(snapshot, index, handle));
    running.chain(snapshot.config.disabled.iter().map(|spec| disabled(snapshot, spec))).collect()
}

/// Returns everything about the upstream `name`, enabled or switched off; `None` if there is no
/// such upstream or the configuration file disables it.
pub(super) fn detail(snapshot: &Snapshot, name: &str) -> Option<UpstreamDetail> {
    let Some(index) = snapshot.handles.iter().position(|handle| handle.name.as_str() == name) else {
        let is_it = |spec: &&UpstreamSettings| spec.name.as_str() == name && snapshot.config.off.contains(&spec.name);
        let view = disabled(snapshot, snapshot.config.disabled.iter().find(is_it)?);
        return Some(UpstreamDetail { view, is_off: true, ..UpstreamDetail::default() });
    };
    let handle = snapshot.handles.get(index)?;
    let withheld = snapshot.dropped.iter().filter(|dropped| dropped.upstream == handle.name);
    let takes_login = handle.keeper.as_ref().is_some_and(|keeper| keeper.takes_person());
    Some(UpstreamDetail {
        view: view(snapshot, index, handle),
        is_off: false,
        takes_login,
        wants_login: takes_login && handle.health.standing().awaits_login(),
        lines: handle.health.log.after(0, MAX_LINES),
        tools: tools::of_upstream(snapshot, index),
        withheld: withheld.take(MAX_WITHHELD).map(withheld_item).collect(),
    })
}

/// Describes an upstream that is disabled in the configuration file or switched off.
fn disabled(snapshot: &Snapshot, spec: &UpstreamSettings) -> UpstreamView {
    let name = spec.name.as_str();
    let is_off = snapshot.config.off.contains(&spec.name);
    UpstreamView {
        name: name.to_owned(),
        state: UpstreamState::Disabled,
        facts: None,
        advice: is_off.then(|| format!("off until headend starts again; `headend restart {name}` starts it now")),
    }
}

/// Reads the state and facts of an upstream; `index` is its index in the snapshot.
fn view(snapshot: &Snapshot, index: usize, handle: &UpstreamHandle) -> UpstreamView {
    let entries = || snapshot.whole.catalog.entries().iter().filter(|entry| entry.upstream == index);
    let items = |list: ItemList| entries().filter(|entry| entry.list == list).count();
    let withheld: Vec<&WithheldItem> =
        snapshot.dropped.iter().filter(|dropped| dropped.upstream == handle.name).collect();
    let new: Vec<&CatalogEntry> = entries().filter(|entry| entry.is_new).collect();
    let (flaws, spec) = (handle.flaws(), handle.spec.load());
    // Read before the error: a state that has an error is set after it.
    let state = handle.health.state();
    let facts = UpstreamFacts {
        start: spec.start.into_str().to_owned(),
        replica: handle.runs_at.load().as_deref().cloned(),
        revision: match &*handle.main.state() {
            LinkState::Ready(link) => Some(link.agreed().revision.as_str().to_owned()),
            LinkState::Idle | LinkState::Starting | LinkState::Down { .. } | LinkState::Stopped => None,
        },
        incarnation: handle.incarnation.load(Ordering::Relaxed),
        sessions: handle.lanes.len() as u64,
        one_at_a_time: handle.main.news.turns.askers().names().iter().map(ToString::to_string).collect(),
        restarts: handle.main.restarts.load(Ordering::Relaxed),
        in_flight: handle.in_flight.load(Ordering::Relaxed),
        tools: items(ItemList::Tools),
        prompts: items(ItemList::Prompts),
        resources: items(ItemList::Resources),
        resource_templates: items(ItemList::Templates),
        input: input(snapshot, handle),
        instructions: snapshot.passed_instructions(index).map(InstructionsView::from),
        not_offered: not_offered(handle),
        message_flaws: handle.health.flaws.lines(),
        repairs: (!flaws.lines.is_empty()).then_some(flaws.repairs),
        invalid_definitions: flaws.lines.clone(),
        invalid_definitions_not_shown: flaws.more,
        unread_lists: unread(handle),
        withheld: withheld.len(),
        withheld_list: withheld.into_iter().take(NAMED).map(withheld_item).collect(),
        new_tools: new.len(),
        new_tools_list: new.iter().take(NAMED).map(|entry| entry.canonical.to_string()).collect(),
        health: health(handle),
        login: login(handle),
        program: program(&spec),
        path: searched_folders(&spec),
    };
    UpstreamView { name: handle.name.as_str().to_owned(), state, facts: Some(Box::new(facts)), advice: handle.advice() }
}

fn withheld_item(dropped: &WithheldItem) -> WithheldItemView {
    let kind = match dropped.part {
        WithheldPart::Item(list) => PinKind::of(list),
        WithheldPart::App => PinKind::App,
        WithheldPart::Instructions => PinKind::Instructions,
        WithheldPart::All => PinKind::Launch,
    };
    WithheldItemView { name: dropped.canonical(), kind, why: dropped.why.clone() }
}

fn health(handle: &UpstreamHandle) -> HealthView {
    HealthView {
        since_seconds: handle.health.age().as_secs(),
        next_try_seconds: handle.next_start().map(seconds),
        last_error: handle.health.last_error().map(|error| error.to_string()),
        stderr: handle.health.stderr().iter().map(ToString::to_string).collect(),
    }
}

fn login(handle: &UpstreamHandle) -> Option<LoginInUse> {
    let view = handle.keeper.as_ref()?.view()?;
    Some(LoginInUse {
        issuer: view.issuer,
        account: view.account,
        token_seconds: view.left.map(|left| left.as_secs()),
        refreshing: view.is_refreshing,
    })
}

/// Returns the path of the program that is started, unless its name is a secret.
fn program(spec: &UpstreamSettings) -> Option<String> {
    let is_open = match &spec.target {
        UpstreamTarget::Stdio { command, .. } => command.first().is_some_and(|word| !spec.target.hides_program(word)),
        UpstreamTarget::Http { .. } => false,
    };
    program_of(spec).filter(|_| is_open).map(|program| program.display().to_string())
}

/// Returns why the server can ask no client anything: it is a legacy server whose process several
/// callers may share. `None` if it can ask.
fn input(snapshot: &Snapshot, handle: &UpstreamHandle) -> Option<String> {
    let link = handle.main.open_link();
    let is_legacy = link.is_some_and(|link| link.agreed().revision.era() == Era::Legacy);
    let is_mute = is_legacy && handle.spec.load().is_shared_process() && snapshot.config.has_many_callers();
    is_mute.then(|| {
        "the server can ask no client anything, and may hide tools for that: several callers share its process; \
         `instance = \"per-caller\"` gives each caller a process of its own"
            .to_owned()
    })
}

/// Returns the number of items beyond `max-inventory`, for each list that has some.
fn not_offered(handle: &UpstreamHandle) -> BTreeMap<String, ExcessView> {
    let excess = ItemList::ALL.into_iter().zip(handle.excess()).filter(|(_, excess)| !excess.is_none());
    let view =
        |excess: crate::catalog::inventory::ListExcess| ExcessView { items: excess.items, or_more: excess.or_more };
    excess.map(|(list, excess)| (name(list), view(excess))).collect()
}

/// Returns the lists that could not be read the last time, each with the reason and the next try.
fn unread(handle: &UpstreamHandle) -> BTreeMap<String, UnreadView> {
    let all = handle.unread.all();
    let views = all.iter().map(|unread| {
        let view = UnreadView {
            why: unread.trouble.why.clone(),
            attempts: u64::from(unread.trouble.attempts),
            since_seconds: unread.age().as_secs(),
            next_try_seconds: seconds(unread.trouble.again.saturating_duration_since(clock::now())),
        };
        (name(unread.list), view)
    });
    views.collect()
}

/// Returns the name of a list in the JSON of a status.
fn name(list: ItemList) -> String {
    if list == ItemList::Templates { "resource-templates" } else { list.member() }.to_owned()
}

/// Returns a wait in whole seconds, rounded up.
const fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + if wait.subsec_nanos() > 0 { 1 } else { 0 }
}

/// Restarts an upstream, or starts one that was switched off, and waits for the result: 5 s for a
/// browser, 30 s for a command. Refused if the configuration file disables the upstream.
pub(super) async fn restart(
    service: &Service,
    orders: &mpsc::Sender<SupervisorOrder>,
    name: &str,
    by: &Person,
) -> Result<RestartedUpstream, OperatorRefusal> {
    let snapshot = service.snapshots.load_full();
    let is_off = snapshot.config.off.iter().any(|off| off.as_str() == name);
    if !is_off && snapshot.config.disabled.iter().any(|spec| spec.name.as_str() == name) {
        let text = format!("`{name}` is disabled; write `enabled = true` in its table, then `headend reload`");
        return Err(OperatorRefusal::Refused(text));
    }
    let order = |reply| SupervisorOrder::Restart { name: name.to_owned(), reply };
    let restarted = SupervisorOrder::ask(orders, order).await.ok_or_else(shutting_down)?;
    let handle = restarted.map_err(OperatorRefusal::Refused)?;
    tracing::info!(upstream.name = %handle.name, by = by.name, "upstream restarted by the operator");
    // A browser waits less patiently for a page than a command for its answer.
    let patience = Duration::from_secs(if by.evidence == ApprovalEvidence::Page { 5 } else { 30 });
    let until = clock::now() + patience;
    handle.main.started(patience).await;
    // The start signals its end a moment before it sets the state.
    while handle.health.state() == UpstreamState::Starting && clock::now() < until {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(RestartedUpstream {
        name: handle.name.as_str().to_owned(),
        state: handle.health.state(),
        health: health(&handle),
        advice: handle.advice(),
    })
}

/// Switches an upstream off until the daemon ends, or on again by [`restart`], whose result it
/// returns. Returns `None` after switching off.
pub(super) async fn switch(
    service: &Service,
    orders: &mpsc::Sender<SupervisorOrder>,
    params: &SwitchParams,
    by: &Person,
) -> Result<Option<RestartedUpstream>, OperatorRefusal> {
    let SwitchParams { name, on } = params;
    if *on {
        return restart(service, orders, name, by).await.map(Some);
    }
    let order = |reply| SupervisorOrder::Disable { name: name.clone(), reply };
    SupervisorOrder::ask(orders, order).await.ok_or_else(shutting_down)?.map_err(OperatorRefusal::Refused)?;
    tracing::info!(upstream.name = name, by = by.name, "upstream switched off by the operator until the next start");
    Ok(None)
}

/// Returns the refusal of an order that the supervisor no longer takes, because the gateway is
/// shutting down.
fn shutting_down() -> OperatorRefusal {
    OperatorRefusal::refused("the gateway is shutting down")
}
