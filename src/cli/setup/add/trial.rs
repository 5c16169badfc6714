//! Starts a server on trial, in a gateway of its own that serves nobody and keeps nothing.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::cli::exit::{NO, OK};
use crate::cli::service::serve::{DaemonSignals, block_on, start_failure};
use crate::cli::words::output::{CommandFailure, complain};
use crate::cli::words::screen::shortened;
use crate::config::{Config, LoadedConfig, StartMode};
use crate::daemon::admin::build_status;
use crate::daemon::gateway::{ConfigSource, RunningGateway, StopTimes};
use crate::operator::request::ToolsParams;
use crate::operator::upstreams::UpstreamView;
use crate::operator::{tool, tools};
use crate::telemetry::upstream_state::UpstreamState;
use crate::wire::foreign;

/// Time for the start with its handshake.
const START: Duration = Duration::from_secs(60);
/// Most polls until a start is given up, a little more than [`START`] in all.
const LOOKS: u32 = 620;
const LOOK: Duration = Duration::from_millis(100);
/// Most polls for the lists of a server that is ready, ten seconds in all; one that has nothing to
/// offer takes all of them.
const LISTS: usize = 100;
/// Lines of stderr that an error quotes.
const QUOTED: usize = 5;
/// Columns of the last line of stderr beside the progress.
const SAID: usize = 50;

/// The outcome of a trial that did not fail.
#[derive(Clone, Debug)]
pub(super) enum TrialOutcome {
    /// The server answers without a login with 401.
    NeedsLogin,
    /// The tools of the server.
    Ready(Vec<TrialTool>),
}

/// A tool of a server on trial.
#[derive(Clone, Debug)]
pub(super) struct TrialTool {
    pub(super) name: String,
    /// Effect of the rules for the local caller, or the reason why the tool is withheld.
    pub(super) effect: String,
    pub(super) description: String,
}

/// Starts the upstream `name` of the configuration and no other, waits for its answer, and stops it.
///
/// # Errors
/// 1 if the server does not start, does not answer or refuses, and after Ctrl-C.
pub(super) fn start(mut config: Config, name: &str) -> Result<TrialOutcome, CommandFailure> {
    config.upstreams.retain(|upstream| upstream.name.as_str() == name);
    for upstream in &mut config.upstreams {
        (upstream.start, upstream.start_timeout) = (StartMode::Eager, START);
    }
    let none = || LoadedConfig { outcome: Err("a trial is not reloaded".to_owned()), files: Vec::new() };
    let source = ConfigSource {
        path: None,
        load: Box::new(none),
        remembers: false,
        files: Mutex::default(),
        warned: Mutex::default(),
    };
    complain(&format!("starting {name}, for {} seconds at most; Ctrl-C ends it", START.as_secs()));
    let mut outcome = Err(CommandFailure::new(NO, "interrupted"));
    block_on(StopTimes::PIPE, async {
        let mut signals = DaemonSignals::watch()?;
        let gateway = RunningGateway::build(config, source, None, "", StopTimes::PIPE).map_err(start_failure)?;
        tokio::select! {
            ended = watch(&gateway, name) => outcome = ended,
            () = signals.end() => {}
        }
        gateway.shut_down(&CancellationToken::new()).await;
        Ok(OK)
    })?;
    outcome
}

/// Waits until the upstream is ready, wants a login or has failed; shows the progress on a terminal.
async fn watch(gateway: &RunningGateway, name: &str) -> Result<TrialOutcome, CommandFailure> {
    let (mut last, mut ready) = (None, 0);
    for look in 0..LOOKS {
        let view = build_status(gateway).upstreams.into_iter().next();
        match view.as_ref().map(|view| view.state) {
            Some(UpstreamState::Ready) if ready < LISTS && !view.as_ref().is_some_and(has_lists) => ready += 1,
            Some(UpstreamState::Ready) => {
                progress("");
                return list_tools(gateway).map(TrialOutcome::Ready);
            }
            Some(UpstreamState::NeedsLogin | UpstreamState::LoginExpired) => {
                progress("");
                return Ok(TrialOutcome::NeedsLogin);
            }
            Some(UpstreamState::Idle | UpstreamState::Starting) | None => {}
            Some(_) => {
                last = view;
                break;
            }
        }
        if look % 10 == 0 {
            let said = view.as_ref().and_then(|view| view.facts.as_ref()?.health.stderr.last().cloned());
            let said = shortened(&foreign::line(&said.unwrap_or_default()), SAID);
            progress(&format!("  {} s  {said}", look / 10));
        }
        last = view;
        tokio::time::sleep(LOOK).await;
    }
    progress("");
    Err(failure(name, last.as_ref()))
}

/// Returns true if any list of the upstream was read, or was read in vain.
fn has_lists(view: &UpstreamView) -> bool {
    view.facts.as_ref().is_some_and(|facts| {
        let items = facts.tools + facts.prompts + facts.resources + facts.resource_templates + facts.withheld;
        items > 0 || !facts.unread_lists.is_empty()
    })
}

/// Builds the error of a start that failed: its state, its reason, and what the program wrote last.
fn failure(name: &str, view: Option<&UpstreamView>) -> CommandFailure {
    let Some(view) = view else { return CommandFailure::new(NO, format!("{name} is not in the configuration")) };
    let health = view.facts.as_ref().map(|facts| facts.health.clone()).unwrap_or_default();
    let state =
        if view.state.is_working() { "did not answer in time".to_owned() } else { format!("is {}", view.state) };
    let why = health.last_error.map(|why| format!(": {why}")).unwrap_or_default();
    let said = health.stderr.iter().skip(health.stderr.len().saturating_sub(QUOTED));
    let said: String = said.map(|line| format!("\n  | {}", foreign::line(line))).collect();
    CommandFailure::new(NO, format!("{name} {state}{why}{said}"))
}

/// Lists the tools of the only upstream, those that are withheld too.
fn list_tools(gateway: &RunningGateway) -> Result<Vec<TrialTool>, CommandFailure> {
    let params = ToolsParams { all: true, ..ToolsParams::default() };
    let list = tools::list(&gateway.service, &gateway.own_caller(), &params)?;
    let describe = |name: &str| tool::show(&gateway.service, name, Vec::new()).map(|tool| tool.description);
    let tool = |tool: tools::ToolView| TrialTool {
        description: describe(&tool.name).unwrap_or_default(),
        name: tool.original,
        effect: tool.effect.unwrap_or(tool.pin),
    };
    Ok(list.tools.into_iter().map(tool).collect())
}

/// Replaces the line of progress on a terminal; an empty text removes it.
fn progress(text: &str) {
    let mut out = std::io::stderr();
    if out.is_terminal() {
        // If stderr is closed, there is no reader to tell.
        drop(write!(out, "\r\u{1b}[K{text}").and_then(|()| out.flush()));
    }
}
