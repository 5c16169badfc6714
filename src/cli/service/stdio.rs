//! The command `headend stdio`: one MCP server on stdin and stdout.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio_util::sync::CancellationToken;

use super::door::{DaemonTarget, LineServer};
use super::ends::EndSignals;
use super::{bound, relay, serve};
use crate::cli::exit::{CONFIG, OK, USAGE};
use crate::cli::reach::source;
use crate::cli::reach::source::CommandConfig;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::CommandFailure;
use crate::config::{FilterSettings, Profile, ShownHints};
use crate::daemon::gateway::{RunningGateway, SettingOwner, StopTimes, new_chain_name};
use crate::serve::lines::{self, LineClient};

/// Name of the profile that `--transparent` creates.
const TRANSPARENT: &str = "transparent";

#[derive(Clone, Debug, Default, Args)]
pub(in crate::cli) struct StdioArgs {
    /// Serve this upstream without a file: a URL, or a command line. May be repeated; never
    /// attaches to a daemon.
    #[arg(long = "upstream", value_name = "NAME=TARGET")]
    upstreams: Vec<String>,
    /// Expose names and URIs of the one upstream unchanged, without a prefix.
    #[arg(long)]
    transparent: bool,
    /// Never attach to a running daemon: start every upstream in this process.
    #[arg(long)]
    no_daemon: bool,
    /// Serve this profile.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
}

pub(in crate::cli) fn run(common: &CommonOptions, args: &StdioArgs) -> Result<u8, CommandFailure> {
    serve::close_memory();
    // Not an error yet: hosts pass few variables, so a daemon may load a configuration that this
    // process cannot.
    let loaded = source::load(common, &args.upstreams);
    let config = loaded.as_ref().ok().map(|loaded| &loaded.config);
    let _guard = serve::start_logs(common, &config.map(|config| config.log.clone()).unwrap_or_default())?;
    let times = StopTimes::PIPE;
    if args.upstreams.is_empty() && !args.no_daemon {
        let patience = config.map(|config| config.stdio).unwrap_or_default().reconnect_timeout;
        let store = source::open_existing_store(common).ok().flatten();
        let is_held = || store.as_ref().is_some_and(|store| store.has_daemon());
        let door = DaemonTarget::of(common, args.profile.clone());
        match door.choose(is_held, patience)? {
            LineServer::Attach(daemon) => {
                return serve::block_on(times, relay::run(door, daemon, patience, times));
            }
            LineServer::StandIn => {
                tracing::warn!(
                    "the daemon does not answer: its tools are listed as they were last seen, and no call is made until it answers"
                );
                let mut loaded = loaded?;
                let profile = profile(args, &mut loaded)?;
                return serve::block_on(times, stand_in(door, loaded, profile, patience));
            }
            LineServer::Alone { told: Some(told) } => {
                tracing::warn!("{told}. Here the servers are started once more");
            }
            LineServer::Alone { told: None } => {}
        }
    }
    let mut loaded = loaded?;
    let profile = profile(args, &mut loaded)?;
    serve::block_on(times, alone(loaded, profile, !args.upstreams.is_empty(), times))
}

/// Returns the profile of the client; adds the transparent one to the configuration if asked for.
fn profile(args: &StdioArgs, loaded: &mut CommandConfig) -> Result<Option<String>, CommandFailure> {
    if args.transparent {
        return transparent(loaded).map(Some);
    }
    if let Some(name) = args.profile.as_ref().filter(|name| !loaded.config.profiles.iter().any(|p| p.name == **name)) {
        return Err(CommandFailure::new(CONFIG, format!("there is no profile {name:?}")));
    }
    Ok(args.profile.clone())
}

/// Serves with a gateway that starts no upstream, until the daemon answers.
async fn stand_in(
    door: DaemonTarget,
    loaded: CommandConfig,
    profile: Option<String>,
    patience: Duration,
) -> Result<u8, CommandFailure> {
    let times = StopTimes::PIPE;
    let store = source::open_store(&loaded.config)?;
    let gateway = RunningGateway::stand_in(loaded.config, loaded.source, store, times).map_err(bound::start_failure)?;
    Box::pin(relay::stand_in(door, gateway, profile.as_deref(), patience, times)).await
}

/// Adds a profile that passes all items of the only upstream under their own names. Fails with 64
/// unless there is exactly one upstream.
fn transparent(loaded: &mut CommandConfig) -> Result<String, CommandFailure> {
    let [upstream] = loaded.config.upstreams.as_slice() else {
        return Err(CommandFailure::new(USAGE, "--transparent needs exactly one upstream"));
    };
    let everything = || FilterSettings { allow: vec!["*".to_owned()], deny: Vec::new(), rename: Vec::new() };
    let profile = Profile {
        name: TRANSPARENT.to_owned(),
        upstreams: vec![upstream.name.clone()],
        callers: Vec::new(),
        groups: Vec::new(),
        audiences: Vec::new(),
        tools: everything(),
        prompts: everything(),
        resources: everything(),
        transparent: true,
        hints: ShownHints::default(),
        instructions: None,
    };
    loaded.config.profiles.retain(|p| p.name != TRANSPARENT);
    loaded.config.profiles.push(profile);
    Ok(TRANSPARENT.to_owned())
}

/// Serves with the whole gateway in this process, without ports and sockets.
async fn alone(
    loaded: CommandConfig,
    profile: Option<String>,
    inline: bool,
    times: StopTimes,
) -> Result<u8, CommandFailure> {
    let mut ends = EndSignals::watch()?;
    serve::warn(&loaded, inline);
    // Upstreams of the command line keep nothing on disk. Upstreams of a file need an audit log, so
    // without a state directory the command fails.
    let store = if inline { None } else { Some(source::open_store(&loaded.config)?) };
    let presence = store.as_ref().map(|store| store.announce()).transpose();
    let gateway = RunningGateway::build(loaded.config, loaded.source, store, &new_chain_name(), times)
        .map_err(bound::start_failure)?;
    gateway.service.approvals.keep_operator(SettingOwner::Alone);
    match presence {
        Ok(presence) => drop(presence.map(|presence| gateway.service.presence.set(presence))),
        Err(error) => tracing::debug!(error = %error, "the state directory does not show this gateway to others"),
    }
    let client = LineClient { drains: true, ..gateway.line_client(gateway.own_caller(), profile.map(Arc::from)) };
    let ended = CancellationToken::new();
    // Boxed: it is used once, and inlining it would grow this future.
    let serving = Box::pin(async {
        lines::serve(client, tokio::io::stdin(), tokio::io::stdout(), gateway.service.draining.clone()).await;
        ended.cancel();
    });
    let shutting_down = async {
        tokio::select! {
            () = ended.cancelled() => {}
            () = ends.wait() => {}
        }
        gateway.shut_down(&CancellationToken::new()).await;
    };
    // A host that reads nothing keeps its client open, but must not keep this process alive.
    tokio::select! {
        () = async { serving.await; std::future::pending().await } => {}
        () = shutting_down => {}
    }
    Ok(OK)
}
