//! `headend serve --take-over`: starts in place of the running daemon, without a moment in which
//! neither serves.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::bound::{BoundDaemon, hold};
use crate::cli::exit::TEMPFAIL;
use crate::cli::reach::daemon::{self, DaemonConnection, DaemonUnavailable};
use crate::cli::reach::source::{self, CommandConfig};
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::CommandFailure;
use crate::config::Config;
use crate::daemon::doors::GatewayAddresses;
use crate::daemon::gateway::RunningGateway;
use crate::daemon::handover::TAKE_OVER;
use crate::daemon::handover::taking::Predecessor;
use crate::daemon::hello::published_socket;
use crate::operator::alone::StateDir;

/// Connects to the daemon with this state directory, after a check that both versions can write the
/// store. Returns `None` if no daemon answers, which is logged. Blocks.
///
/// # Errors
/// 75 if the daemon refuses, or the store has to be changed for this version.
pub(super) fn find(
    common: &CommonOptions,
    config: &Config,
    store: &StateDir,
) -> Result<Option<DaemonConnection>, CommandFailure> {
    let failed = |why: String| CommandFailure::new(TEMPFAIL, why);
    let published = published_socket(store.dir());
    let places = published.into_iter().chain(source::own_socket(common, &config.admin));
    for place in places {
        match daemon::connect_at(&place, TAKE_OVER) {
            Ok(daemon) if is_of(&daemon, store.dir()) => {
                store
                    .check_version()
                    .map_err(|error| failed(format!("{error}; stop the daemon, then start headend")))?;
                return Ok(Some(daemon));
            }
            Ok(_) | Err(DaemonUnavailable::Silent(_)) => {}
            Err(DaemonUnavailable::Refused(failure)) => {
                return Err(failed(format!("{}; stop the daemon, then start headend", failure.text)));
            }
        }
    }
    tracing::info!("no daemon runs on the state directory, so there is none to take over; starting");
    Ok(None)
}

/// Returns whether a daemon has the state directory `dir`.
fn is_of(daemon: &DaemonConnection, dir: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    daemon.hello.state.as_ref().map(PathBuf::from).is_some_and(|state| real(&state) == real(dir))
}

/// Takes the daemon over: returns once this process serves in its place.
///
/// # Errors
/// As `headend serve` without a daemon; 75 if the daemon refuses or goes away. The daemon then goes
/// on as before.
pub(super) async fn open(
    common: &CommonOptions,
    loaded: CommandConfig,
    store: StateDir,
    daemon: DaemonConnection,
) -> Result<(Arc<RunningGateway>, GatewayAddresses), CommandFailure> {
    let failed = |why: String| CommandFailure::new(TEMPFAIL, why);
    let mut predecessor = Predecessor::meet(daemon.stream, store.dir()).await.map_err(failed)?;
    predecessor.wait_for_log().await.map_err(failed)?;
    let (prior, mut sockets) = (predecessor.prior.clone(), std::mem::take(&mut predecessor.sockets));
    let bound = Box::pin(BoundDaemon::bind(common, loaded, store, Some(&prior), &mut sockets)).await?;
    predecessor.wait_for_go(&bound.gateway, bound.has_inherited).await.map_err(failed)?;
    let (gateway, addresses) = bound.serve_admin_socket();
    let lock = predecessor.serve(&gateway).await;
    hold(&gateway, lock);
    Ok((gateway, addresses))
}
