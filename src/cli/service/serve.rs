//! The command `headend serve`: runs the daemon.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::cli::exit::{CONFIG, OK, SOFTWARE, TEMPFAIL, USAGE};
use crate::cli::reach::source;
use crate::cli::reach::source::CommandConfig;
use crate::cli::service::bound::{BoundDaemon, hold};
use crate::cli::service::take_over;
use crate::cli::words::options::{CommonOptions, LogFormatOption};
use crate::cli::words::output::{CommandFailure, print};
use crate::config;
use crate::config::ClientAuth;
use crate::config::source::guard;
use crate::daemon::activation::ActivatedSockets;
use crate::daemon::doors::GatewayAddresses;
use crate::daemon::file_watch::FileWatch;
use crate::daemon::gateway::{RunningGateway, StopTimes, now, or_never};
use crate::daemon::inherited::InheritedSockets;
use crate::daemon::listen::addresses_of;
use crate::daemon::systemd;
use crate::operator::alone::StateDir;
use crate::telemetry::logs;

#[derive(Clone, Debug, Default, Args)]
pub(in crate::cli) struct ServeArgs {
    /// Add an upstream without a file: a URL, or a command line. May be repeated.
    #[arg(long = "upstream", value_name = "NAME=TARGET")]
    upstreams: Vec<String>,
    /// Take over from the running daemon, which keeps serving until this one does
    #[arg(long)]
    take_over: bool,
}

/// Keeps this process's memory, which contains tokens, out of core files and away from other
/// programs of the same user. Debug builds stay open to debuggers.
pub(in crate::cli) fn close_memory() {
    #[cfg(target_os = "linux")]
    if !cfg!(debug_assertions) {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        // If the kernel refuses, `LimitCORE=` of the units and the mode of core files still apply.
        set_dumpable_behavior(DumpableBehavior::NotDumpable).ok();
    }
}

pub(in crate::cli) fn run(common: &CommonOptions, args: &ServeArgs) -> Result<u8, CommandFailure> {
    let begun = now();
    // First: no thread may run while the environment changes.
    let activated = ActivatedSockets::take();
    close_memory();
    let loaded = source::load(common, &args.upstreams)?;
    let _guard = start_logs(common, &loaded.config.log)?;
    block_on(StopTimes::DAEMON, serve(common, loaded, args, activated, begun))
}

/// Starts logging. The command line and the environment take precedence over the configuration.
///
/// # Errors
/// 64 for an invalid filter.
pub(in crate::cli) fn start_logs(
    common: &CommonOptions,
    configured: &config::LoggingSettings,
) -> Result<logs::LogGuard, CommandFailure> {
    let format = match (common.log_format, configured.format) {
        (Some(LogFormatOption::Auto), _) | (None, config::LogFormatSetting::Auto) => logs::LogFormat::Auto,
        (Some(LogFormatOption::Text), _) | (None, config::LogFormatSetting::Text) => logs::LogFormat::Text,
        (Some(LogFormatOption::Json), _) | (None, config::LogFormatSetting::Json) => logs::LogFormat::Json,
    };
    let filter = common.log.clone().unwrap_or_else(|| configured.filter.clone());
    logs::init(&logs::LogOptions { format, filter, fixed: common.log.is_some() })
        .map_err(|why| CommandFailure::new(USAGE, why))
}

/// Runs a command to its end on a new runtime.
///
/// # Errors
/// As the command; 70 if the system refuses threads.
pub(in crate::cli) fn block_on<T>(
    times: StopTimes,
    command: impl Future<Output = Result<T, CommandFailure>>,
) -> Result<T, CommandFailure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CommandFailure::new(SOFTWARE, format!("start the runtime: {error}")))?;
    let outcome = runtime.block_on(command);
    // A thread that reads stdin or resolves a host name may never return.
    runtime.shutdown_timeout(times.threads);
    outcome
}

/// Logs the warnings of the configuration, and the effect of a missing policy.
pub(in crate::cli) fn warn(loaded: &CommandConfig, inline: bool) {
    for warning in &loaded.warnings {
        tracing::warn!(warning = %warning, "configuration");
    }
    if inline && loaded.source.path.is_none() {
        tracing::info!("upstreams of the command line are served with policy default \"allow\"");
    } else if !loaded.config.policy_stated {
        tracing::warn!(
            "the configuration has no [policy]: every call needs an approval; write default = \"allow\" to allow what no rule denies"
        );
    }
}

/// Runs the daemon: takes the lock of the state directory, opens the gateway, announces it, and
/// serves until a signal ends it.
async fn serve(
    common: &CommonOptions,
    loaded: CommandConfig,
    args: &ServeArgs,
    activated: ActivatedSockets,
    begun: Instant,
) -> Result<u8, CommandFailure> {
    // First: until now a signal, SIGHUP too, ends the process without a shutdown.
    let mut signals = DaemonSignals::watch()?;
    warn(&loaded, !args.upstreams.is_empty());
    let embedded = loaded.embedded;
    let server = &loaded.config.server;
    let wants_token =
        matches!(server.auth, ClientAuth::Token { .. }) && server.jwt.as_ref().is_none_or(|jwt| jwt.with_tokens);
    if args.take_over && loaded.config.cluster.is_some() {
        return Err(CommandFailure::new(
            CONFIG,
            "--take-over is not for replicas of a [cluster]; restart one replica after the other without it",
        ));
    }
    let store = source::open_store(&loaded.config)?;
    let predecessor = if args.take_over { take_over::find(common, &loaded.config, &store)? } else { None };
    let (gateway, addresses) = if let Some(daemon) = predecessor {
        tokio::select! {
            opened = take_over::open(common, loaded, store, daemon) => opened?,
            // Nothing has been started yet, and the daemon goes on.
            () = signals.end() => return Ok(OK),
        }
    } else {
        let lock = tokio::select! {
            lock = store.lock() => lock.map_err(|error| CommandFailure::new(TEMPFAIL, error))?,
            () = signals.end() => return Ok(OK),
        };
        let admin = source::own_socket(common, &loaded.config.admin);
        let mut sockets = activated.assign(&addresses_of(&loaded.config), admin.as_deref());
        let (gateway, addresses) = Box::pin(open(common, loaded, store, &mut sockets)).await?;
        hold(&gateway, lock);
        (gateway, addresses)
    };
    let endpoints = addresses.endpoints.clone();
    // If stdout is a pipe without a reader, the write blocks; the daemon must still be able to end.
    let announced = tokio::task::spawn_blocking(move || announce(&addresses, embedded, wants_token));
    tokio::select! {
        announced = announced => {
            announced.map_err(|error| CommandFailure::new(SOFTWARE, format!("stdout: {error}")))??;
            if args.take_over {
                systemd::notify_own_process();
            }
            systemd::notify_ready();
            gateway.service.metrics.started(now().duration_since(begun));
            tracing::info!(?endpoints, "serving");
            until_stopped(&gateway, &mut signals).await;
        }
        () = signals.end() => {}
    }
    shut_down(&gateway, &mut signals).await;
    Ok(OK)
}

/// Builds the gateway on a state directory whose lock is held, and opens its listeners and the
/// admin socket, except the `inherited` ones.
///
/// # Errors
/// As [`BoundDaemon::bind`].
async fn open(
    common: &CommonOptions,
    loaded: CommandConfig,
    store: StateDir,
    inherited: &mut InheritedSockets,
) -> Result<(Arc<RunningGateway>, GatewayAddresses), CommandFailure> {
    let daemon = Box::pin(BoundDaemon::bind(common, loaded, store, None, inherited)).await?;
    daemon.gateway.service.approvals.end_approvals_of_earlier_daemons();
    Ok(daemon.serve_admin_socket())
}

/// Opens a daemon as `serve` does, on the stage of a test, with the configuration file `file`.
///
/// # Errors
/// The exit code and the text of the failure.
#[cfg(test)]
pub(crate) async fn open_on_stage(
    file: &std::path::Path,
) -> Result<(Arc<RunningGateway>, GatewayAddresses), (u8, String)> {
    let common = CommonOptions { config: Some(file.to_owned()), ..CommonOptions::default() };
    let told = |failure: CommandFailure| (failure.code, failure.text);
    let loaded = source::load(&common, &[]).map_err(told)?;
    warn(&loaded, false);
    let mut store = source::open_store(&loaded.config).map_err(told)?;
    if crate::stage::replicas::installed().is_some() {
        // The replicas of a stage share the directory of replicas alone.
        store = store.in_cluster(None);
    }
    Box::pin(open(&common, loaded, store, &mut InheritedSockets::default())).await.map_err(told)
}

/// The signals that the daemon handles.
pub(in crate::cli) struct DaemonSignals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl DaemonSignals {
    /// Starts to watch the signals. From then on they do not end the process, and a signal that
    /// arrives before the first wait is kept.
    pub(in crate::cli) fn watch() -> Result<Self, CommandFailure> {
        let on = |kind| signal(kind).map_err(|error| CommandFailure::new(SOFTWARE, format!("signals: {error}")));
        Ok(Self {
            hangup: on(SignalKind::hangup())?,
            terminate: on(SignalKind::terminate())?,
            interrupt: on(SignalKind::interrupt())?,
        })
    }

    /// Waits for SIGTERM or SIGINT.
    pub(in crate::cli) async fn end(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Waits for any of the signals. At a command, SIGHUP is the end of its terminal.
    pub(in crate::cli) async fn any(&mut self) {
        tokio::select! {
            _ = self.hangup.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Prints the gateway's addresses for people and scripts. The token is printed only on a terminal.
fn announce(addresses: &GatewayAddresses, embedded: bool, wants_token: bool) -> Result<(), CommandFailure> {
    let mut text = String::new();
    let metrics = addresses.metrics_page().map(|page| format!(" metrics {page}")).unwrap_or_default();
    let console = addresses.console.as_ref().map(|base| format!(" console {base}/")).unwrap_or_default();
    for endpoint in &addresses.endpoints {
        text.push_str(&format!("listening {endpoint}{metrics}{console}\n"));
    }
    if embedded {
        text.push_str("no configuration found: serving the built-in demo servers time, notes and lab\n");
    }
    let terminal = io::stdout().is_terminal();
    let token_file = addresses.token_file.as_ref().filter(|_| wants_token);
    if let (Some(path), true) = (token_file, terminal)
        && let Ok(token) = guard::read_regular(path, guard::MAX_KEY)
    {
        text.push_str(&format!("token {} (kept in {})\n", token.trim(), path.display()));
    }
    if addresses.console.is_some() && terminal {
        text.push_str("`headend console` prints a link that signs in to the console\n");
    }
    if let Some(endpoint) = addresses.endpoints.first().filter(|_| embedded || terminal) {
        let authorization = token_file
            .map(|path| format!(" -H \"Authorization: Bearer $(cat '{}')\"", path.display()))
            .unwrap_or_default();
        text.push_str("try it:\n");
        text.push_str(&curl(endpoint, &authorization, "tools/list", None, ""));
        if embedded {
            let call = r#""name":"time__now","arguments":{},"#;
            text.push_str(&curl(endpoint, &authorization, "tools/call", Some("time__now"), call));
        }
    }
    print(&text).map(|_| ())
}

fn curl(endpoint: &str, authorization: &str, method: &str, name: Option<&str>, params: &str) -> String {
    let name = name.map(|name| format!(" -H 'Mcp-Name: {name}'")).unwrap_or_default();
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    format!(
        "  curl -s {endpoint}{authorization} -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \
         -H 'MCP-Protocol-Version: 2026-07-28' -H 'Mcp-Method: {method}'{name} \
         -d '{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{method}\",\"params\":{{{params}{meta}}}}}'\n"
    )
}

/// Handles SIGHUP and file changes by a reload, until SIGTERM or SIGINT arrives, or another process
/// has taken over.
async fn until_stopped(gateway: &Arc<RunningGateway>, signals: &mut DaemonSignals) {
    let mut watch = gateway.source.path.is_some().then(FileWatch::default);
    loop {
        if let Some(watch) = &mut watch {
            watch.follow(&gateway.source.files.lock());
        }
        let changed = or_never(watch.as_ref().map(|watch| watch.changed(|| gateway.source.look())));
        tokio::select! {
            // `reload` logs the outcome itself.
            _ = signals.hangup.recv() => drop(gateway.reload("sighup", None).await),
            look = changed => {
                // The files have changed again since `look`, so the watch looks once more.
                if !gateway.reload_changed(look.as_deref()).await && let Some(watch) = &watch {
                    watch.again();
                }
            }
            _ = signals.terminate.recv() => return,
            _ = signals.interrupt.recv() => return,
            () = gateway.handover.given.cancelled() => return,
        }
    }
}

/// Shuts the gateway down; a second signal skips the waiting.
async fn shut_down(gateway: &Arc<RunningGateway>, signals: &mut DaemonSignals) {
    tracing::info!("shutting down");
    let hurry = CancellationToken::new();
    let finish = gateway.shut_down(&hurry);
    tokio::pin!(finish);
    tokio::select! {
        () = &mut finish => {}
        () = signals.end() => {
            hurry.cancel();
            // Remaining tasks get a second to kill their child processes.
            drop(tokio::time::timeout(Duration::from_secs(1), &mut finish).await);
        }
    }
}
