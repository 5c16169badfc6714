//! Starts a server on trial, in a gateway of its own that has no clients and keeps nothing.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::cli::exit::NO;
use crate::cli::reach::source::CommandConfig;
use crate::cli::service::bound::start_failure;
use crate::cli::service::serve::{DaemonSignals, block_on};
use crate::cli::words::output::{CommandFailure, complain};
use crate::cli::words::screen::{Screen, shortened};
use crate::config::StartMode;
use crate::daemon::admin::build_status;
use crate::daemon::gateway::{RunningGateway, StopTimes, now};
use crate::operator::request::{LogsParams, ToolsParams};
use crate::operator::upstreams::UpstreamView;
use crate::operator::{logs, tool, tools};
use crate::telemetry::upstream_state::UpstreamState;

/// Time limit of the start with its handshake.
const START: Duration = Duration::from_secs(60);
/// Further time in which the start's own limit takes effect.
const GRACE: Duration = Duration::from_secs(5);
/// Time limit for the lists of a server that is ready.
const LISTS: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(100);

/// A server that has answered.
#[derive(Debug)]
pub(super) enum TriedServer {
    /// The server wants a login, or has answered 401.
    Closed,
    /// The server did not list its tools in time.
    Unlisted,
    /// Each tool with its effect and description.
    Listed(Vec<[String; 3]>),
}

/// Starts the upstream `name` of the configuration and no other, waits for its answer, and stops
/// it.
///
/// # Errors
/// 1 if the server does not start, does not answer or refuses, and after Ctrl-C.
pub(super) fn start(loaded: CommandConfig, name: &str) -> Result<TriedServer, CommandFailure> {
    let CommandConfig { mut config, source, .. } = loaded;
    config.upstreams.retain(|upstream| upstream.name.as_str() == name);
    config.disabled.clear();
    for upstream in &mut config.upstreams {
        (upstream.start, upstream.start_timeout) = (StartMode::Eager, START);
    }
    let has_credential = config.upstreams.iter().any(|upstream| upstream.target.has_credential());
    complain(&format!("starting {name}, for {} seconds at most; Ctrl-C ends it", START.as_secs()));
    let tried = block_on(StopTimes::PIPE, async {
        let mut signals = DaemonSignals::watch()?;
        let gateway = RunningGateway::build(config, source, None, "", StopTimes::PIPE).map_err(start_failure)?;
        let interrupted = || Err(CommandFailure::new(NO, "interrupted"));
        let outcome = tokio::select! {
            ended = watch(&gateway, name, has_credential) => ended,
            () = signals.any() => interrupted(),
        };
        show_progress("");
        gateway.shut_down(&CancellationToken::new()).await;
        // A signal during the end of the server counts too.
        tokio::select! {
            biased;
            () = signals.any() => interrupted(),
            () = std::future::ready(()) => outcome,
        }
    });
    tried.map_err(|CommandFailure { code, text }| {
        CommandFailure::new(code, format!("{text}\nnothing was added; the configuration is as it was"))
    })
}

/// Waits until the upstream has listed its tools, wants a login or has failed, and shows the
/// progress.
async fn watch(gateway: &RunningGateway, name: &str, has_credential: bool) -> Result<TriedServer, CommandFailure> {
    let (begun, mut why, mut ready, mut told) = (now(), "no answer came in time".to_owned(), None, None);
    while now().duration_since(begun) < START + GRACE || ready.is_some() {
        let Some(UpstreamView { state, facts, .. }) = build_status(gateway).upstreams.pop() else { break };
        let last_error = facts.unwrap_or_default().health.last_error.unwrap_or_default();
        match state {
            UpstreamState::Ready if gateway.service.snapshots.load().unlisted.contains(&false) => {
                return list_tools(gateway).map(TriedServer::Listed);
            }
            UpstreamState::Ready if now().duration_since(*ready.get_or_insert_with(now)) > LISTS => {
                return Ok(TriedServer::Unlisted);
            }
            UpstreamState::NeedsLogin | UpstreamState::LoginExpired => return Ok(TriedServer::Closed),
            // Some servers say 401 and not how to log in.
            UpstreamState::Refused if !has_credential && last_error.contains("401 Unauthorized") => {
                return Ok(TriedServer::Closed);
            }
            UpstreamState::Ready | UpstreamState::Idle | UpstreamState::Starting => {}
            UpstreamState::Refused
            | UpstreamState::Misconfigured
            | UpstreamState::Down
            | UpstreamState::Stopped
            | UpstreamState::Disabled => {
                why = format!("it is {state}: {last_error}");
                break;
            }
        }
        let seconds = now().duration_since(begun).as_secs();
        if told.replace(seconds) != Some(seconds) {
            let last = LogsParams { name: name.to_owned(), most: Some(1), ..LogsParams::default() };
            let said = logs::read_lines(&gateway.service, &last).await.map(|log| log.lines).unwrap_or_default();
            let said = said.last().map(|line| line.text.as_str()).unwrap_or_default();
            show_progress(&format!("  {seconds} s  {said}"));
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
