//! Starts a server on trial, in a gateway of its own that has no clients and keeps nothing.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::cli::exit::{NO, OK};
use crate::cli::reach::source::CommandConfig;
use crate::cli::service::bound::start_failure;
use crate::cli::service::serve::{DaemonSignals, block_on};
use crate::cli::words::output::{CommandFailure, complain};
use crate::cli::words::screen::{Screen, shortened};
use crate::config::StartMode;
use crate::daemon::admin::build_status;
use crate::daemon::gateway::{RunningGateway, StopTimes};
use crate::operator::request::{LogsParams, ToolsParams};
use crate::operator::upstreams::UpstreamView;
use crate::operator::{logs, tool, tools};
use crate::telemetry::upstream_state::UpstreamState;

/// Time limit of the start with its handshake.
const START: Duration = Duration::from_secs(60);
/// Most polls until a start is given up, a little more than [`START`] in all.
const LOOKS: usize = 620;
const LOOK: Duration = Duration::from_millis(100);
/// Most polls for the lists of a server that is ready, ten seconds in all; one that offers nothing
/// takes all of them.
const LISTS: usize = 100;

/// Starts the upstream `name` of the configuration and no other, waits for its answer, and stops it.
/// Returns each tool with its effect and description; `None` if the server wants a login.
///
/// # Errors
/// 1 if the server does not start, does not answer or refuses, and after Ctrl-C.
pub(super) fn start(loaded: CommandConfig, name: &str) -> Result<Option<Vec<[String; 3]>>, CommandFailure> {
    let CommandConfig { mut config, source, .. } = loaded;
    config.upstreams.retain(|upstream| upstream.name.as_str() == name);
    config.disabled.clear();
    for upstream in &mut config.upstreams {
        (upstream.start, upstream.start_timeout) = (StartMode::Eager, START);
    }
    complain(&format!("starting {name}, for {} seconds at most; Ctrl-C ends it", START.as_secs()));
    let mut outcome = Err(CommandFailure::new(NO, "interrupted"));
    block_on(StopTimes::PIPE, async {
        let mut signals = DaemonSignals::watch()?;
        let gateway = RunningGateway::build(config, source, None, "", StopTimes::PIPE).map_err(start_failure)?;
        tokio::select! {
            ended = watch(&gateway, name) => outcome = ended,
            () = signals.end() => {}
        }
        show_progress("");
        gateway.shut_down(&CancellationToken::new()).await;
        Ok(OK)
    })?;
    outcome.map_err(|CommandFailure { code, text }| {
        CommandFailure::new(code, format!("{text}\nnothing was added; the configuration is as it was"))
    })
}

/// Waits until the upstream is ready, wants a login or has failed, and shows the progress.
async fn watch(gateway: &RunningGateway, name: &str) -> Result<Option<Vec<[String; 3]>>, CommandFailure> {
    let (mut why, mut ready) = ("no answer came in time".to_owned(), 0);
    for look in 0..LOOKS {
        let Some(UpstreamView { state, facts, .. }) = build_status(gateway).upstreams.pop() else { break };
        let facts = facts.unwrap_or_default();
        let items = facts.tools + facts.prompts + facts.resources + facts.resource_templates + facts.withheld;
        match state {
            UpstreamState::Ready if ready < LISTS && items == 0 && facts.unread_lists.is_empty() => ready += 1,
            UpstreamState::Ready => return list_tools(gateway).map(Some),
            UpstreamState::NeedsLogin | UpstreamState::LoginExpired => return Ok(None),
            UpstreamState::Idle | UpstreamState::Starting => {}
            UpstreamState::Refused
            | UpstreamState::Misconfigured
            | UpstreamState::Down
            | UpstreamState::Stopped
            | UpstreamState::Disabled => {
                why = format!("it is {state}: {}", facts.health.last_error.unwrap_or_default());
                break;
            }
        }
        if look % 10 == 0 {
            let last = LogsParams { name: name.to_owned(), most: Some(1), ..LogsParams::default() };
            let said = logs::read_lines(&gateway.service, &last).await.map(|log| log.lines).unwrap_or_default();
            let said = said.last().map(|line| line.text.as_str()).unwrap_or_default();
            show_progress(&format!("  {} s  {said}", look / 10));
        }
        tokio::time::sleep(LOOK).await;
    }
    Err(CommandFailure::new(NO, format!("{name}: {why}")))
}

/// Lists the tools of the only upstream, those that are withheld too.
fn list_tools(gateway: &RunningGateway) -> Result<Vec<[String; 3]>, CommandFailure> {
    let params = ToolsParams { all: true, ..ToolsParams::default() };
    let list = tools::list(&gateway.service, &gateway.own_caller(), &params)?;
    let describe = |name: &str| tool::show(&gateway.service, name, Vec::new()).map(|tool| tool.description);
    let row = |tool: tools::ToolView| {
        let description = describe(&tool.name).unwrap_or_default();
        [tool.original, tool.effect.unwrap_or(tool.pin), description]
    };
    Ok(list.tools.into_iter().map(row).collect())
}

/// Replaces the line of progress on a terminal; an empty text removes it.
fn show_progress(text: &str) {
    let mut out = std::io::stderr();
    if out.is_terminal() {
        let text = shortened(text, Screen::of_stderr().room(1));
        // If stderr is closed, there is no reader to tell.
        drop(write!(out, "\r\u{1b}[K{text}").and_then(|()| out.flush()));
    }
}
