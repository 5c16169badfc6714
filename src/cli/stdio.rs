//! `headend stdio`: one MCP server on stdin and stdout.

use std::sync::Arc;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::exit::{CONFIG, OK, SOFTWARE, USAGE};
use super::options::Common;
use super::output::Failure;
use super::source::{self, Loaded};
use super::{daemon, relay, serve};
use crate::config::{Filter, Profile};
use crate::daemon::gateway::Gateway;
use crate::policy::LOCAL;
use crate::serve::lines;
use crate::store::audit::chain_of_its_own;

/// Name of the profile that `--transparent` makes.
const TRANSPARENT: &str = "transparent";

#[derive(Clone, Debug, Default, Args)]
pub(super) struct StdioArgs {
    /// Serve this upstream without a file: a URL, or a command line. May be repeated; never attaches to a daemon.
    #[arg(long = "upstream", value_name = "NAME=TARGET")]
    upstreams: Vec<String>,
    /// Expose names and URIs of the one upstream unchanged, without a prefix.
    #[arg(long)]
    transparent: bool,
    /// Never attach to a running daemon.
    #[arg(long)]
    no_daemon: bool,
    /// Serve this profile.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
}

pub(super) fn run(common: &Common, args: &StdioArgs) -> Result<u8, Failure> {
    let mut loaded = source::load(common, &args.upstreams)?;
    let _guard = serve::start_logs(common, &loaded.config.log)?;
    let runtime = serve::runtime()?;
    if args.upstreams.is_empty()
        && !args.no_daemon
        && !loaded.embedded
        && let Some(daemon) = same_daemon(common, &loaded, args.profile.as_deref())
    {
        return runtime.block_on(relay::run(common, daemon, args.profile.as_deref()));
    }
    let profile = if args.transparent { Some(transparent(&mut loaded)?) } else { args.profile.clone() };
    runtime.block_on(alone(loaded, profile, !args.upstreams.is_empty()))
}

/// The running daemon, if it serves the same configuration file.
fn same_daemon(common: &Common, loaded: &Loaded, profile: Option<&str>) -> Option<daemon::Daemon> {
    let own = loaded.source.path.as_ref()?.display().to_string();
    let daemon = daemon::connect(common, "mcp", profile).ok()?;
    let same = daemon.hello.config.as_deref() == Some(own.as_str());
    if !same {
        tracing::info!("the running daemon has another configuration; serving alone");
    }
    same.then_some(daemon)
}

fn transparent(loaded: &mut Loaded) -> Result<String, Failure> {
    let [upstream] = loaded.config.upstreams.as_slice() else {
        return Err(Failure::new(USAGE, "--transparent needs exactly one upstream"));
    };
    let everything = || Filter { allow: vec!["*".to_owned()], deny: Vec::new(), rename: Vec::new() };
    let profile = Profile {
        name: TRANSPARENT.to_owned(),
        upstreams: vec![upstream.name.clone()],
        tools: everything(),
        prompts: everything(),
        resources: everything(),
        transparent: true,
    };
    loaded.config.profiles.retain(|p| p.name != TRANSPARENT);
    loaded.config.profiles.push(profile);
    Ok(TRANSPARENT.to_owned())
}

/// Runs the whole gateway in this process, without a port or socket.
async fn alone(loaded: Loaded, profile: Option<String>, inline: bool) -> Result<u8, Failure> {
    serve::warn(&loaded, inline);
    if let Some(name) = profile.as_ref().filter(|name| !loaded.config.profiles.iter().any(|p| p.name == **name)) {
        return Err(Failure::new(CONFIG, format!("there is no profile {name:?}")));
    }
    // Upstreams of the command line keep nothing on disk. Those of a file need an audit log, so without a state
    // directory headend serves nothing.
    let store = if inline { None } else { Some(source::store(&loaded.config)?) };
    let gateway =
        Gateway::build(loaded.config, loaded.source, store, &chain_of_its_own()).map_err(serve::start_failure)?;
    let client = gateway.line_client(Arc::from(LOCAL), profile.map(Arc::from));
    let on = |kind| signal(kind).map_err(|error| Failure::new(SOFTWARE, format!("signals: {error}")));
    let (mut terminate, mut interrupt) = (on(SignalKind::terminate())?, on(SignalKind::interrupt())?);
    let draining = gateway.service.draining.clone();
    let (stdin, stdout) = stdio()?;
    let serving = lines::serve(client, stdin, stdout, draining.clone());
    tokio::pin!(serving);
    tokio::select! {
        () = &mut serving => {}
        _ = terminate.recv() => draining.cancel(),
        _ = interrupt.recv() => draining.cancel(),
    }
    let hurry = CancellationToken::new();
    if draining.is_cancelled() {
        tokio::join!(serving, gateway.shut_down(&hurry));
    } else {
        gateway.shut_down(&hurry).await;
    }
    Ok(OK)
}

/// Stdin and stdout of this process.
pub(super) fn stdio()
-> Result<(impl tokio::io::AsyncRead + Unpin, impl tokio::io::AsyncWrite + Unpin + Send + 'static), Failure> {
    Ok((tokio::io::stdin(), tokio::io::stdout()))
}
