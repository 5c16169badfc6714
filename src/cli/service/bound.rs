//! Builds a daemon and binds its sockets, before it serves.

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

use crate::cli::exit::{CONFIG, SOFTWARE, TEMPFAIL, UNAVAILABLE};
use crate::cli::reach::source::{self, CommandConfig};
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::CommandFailure;
use crate::daemon::access::SocketUsers;
use crate::daemon::admin;
use crate::daemon::doors::GatewayAddresses;
use crate::daemon::gateway::{GatewayStartError, MAIN, RunningGateway, SettingOwner, StopTimes};
use crate::daemon::inherited::InheritedSockets;
use crate::daemon::succession::PriorDaemon;
use crate::operator::alone::{StateDir, StateLock};

/// Holds the lock of the state directory until the process ends. The lock must outlive the gateway,
/// since a thread may still write to the state directory.
pub(super) fn hold(gateway: &RunningGateway, lock: StateLock) {
    gateway.handover.lock.get_or_init(|| Box::leak(Box::new(lock)));
}

/// A daemon whose sockets are bound, and which does not serve the admin socket yet.
pub(super) struct BoundDaemon {
    pub(super) gateway: Arc<RunningGateway>,
    addresses: GatewayAddresses,
    /// The path of the admin socket with its users, and the socket or why it cannot be bound now.
    admin: Option<(PathBuf, SocketUsers, io::Result<UnixListener>)>,
    /// True if the admin socket is an inherited one.
    pub(super) has_inherited: bool,
}

impl BoundDaemon {
    /// Builds the gateway on a state directory, and binds its sockets, except the `inherited` ones.
    /// With a `prior` daemon nothing is served or started before that one has ended to serve.
    ///
    /// # Errors
    /// 70, 75 or 78, see [`start_failure`].
    pub(super) async fn bind(
        common: &CommonOptions,
        loaded: CommandConfig,
        store: StateDir,
        prior: Option<&PriorDaemon>,
        inherited: &mut InheritedSockets,
    ) -> Result<Self, CommandFailure> {
        let socket = source::own_socket(common, &loaded.config.admin);
        let host_command = source::host_command(common, &loaded.config.admin, loaded.source.path.as_deref());
        let access = SocketUsers::of(&loaded.config.admin).map_err(|why| CommandFailure::new(CONFIG, why))?;
        // The store is used even if upstreams of the command line keep nothing in it, since the
        // token must survive a restart.
        let (config, source) = (loaded.config, loaded.source);
        let begun = prior.map_or_else(fired, |prior| prior.begun.clone());
        let gateway = match prior {
            Some(prior) => RunningGateway::build_after(prior, config, source, store, StopTimes::DAEMON),
            None => RunningGateway::build(config, source, Some(store), MAIN, StopTimes::DAEMON),
        };
        let gateway = Arc::new(gateway.map_err(start_failure)?);
        gateway.service.host_command.get_or_init(|| host_command);
        gateway.service.approvals.keep_operator(SettingOwner::Daemon);
        let addresses = gateway.listen(inherited, &begun).await.map_err(start_failure)?;
        let Some(path) = socket else { return Ok(Self { gateway, addresses, admin: None, has_inherited: false }) };
        let taken = inherited.take_admin(&path).and_then(|taken| {
            match taken.as_ref().map(|_| access.open(&path)) {
                Some(Err(error)) if inherited.is_admin_kept => {
                    tracing::warn!(error = %error, path = %path.display(), "the admin socket has the mode of its unit");
                }
                Some(opened) => opened?,
                None => {}
            }
            Ok(taken)
        });
        let is_kept = inherited.is_admin_kept && matches!(taken, Ok(Some(_)));
        gateway.handover.is_socket_kept.store(is_kept, Ordering::Relaxed);
        let (bound, has_inherited) = match taken {
            Ok(None) => (admin::bind(&path, &access).await, false),
            Ok(Some(listener)) => (Ok(listener), true),
            Err(error) => (Err(error), false),
        };
        if let Err(error) = &bound
            && !admin::is_retryable(error)
        {
            // No system accepts an invalid path, so the configuration is wrong.
            let code = if error.kind() == ErrorKind::InvalidInput { CONFIG } else { TEMPFAIL };
            return Err(CommandFailure::new(code, format!("admin socket {}: {error}", path.display())));
        }
        Ok(Self { gateway, addresses, admin: Some((path, access, bound)), has_inherited })
    }

    /// Serves the admin socket, at once or as soon as it can be bound.
    pub(super) fn serve_admin_socket(self) -> (Arc<RunningGateway>, GatewayAddresses) {
        let Self { gateway, addresses, admin, .. } = self;
        let tasks = &gateway.service.tasks;
        match admin {
            Some((path, access, Ok(listener))) => {
                tasks.spawn("admin socket", admin::serve(Arc::clone(&gateway), listener, path, access));
            }
            Some((path, access, Err(error))) => {
                tasks.spawn("admin socket", admin::serve_later(Arc::clone(&gateway), path, access, error));
            }
            None => {}
        }
        (gateway, addresses)
    }
}

/// Returns a token that has fired.
fn fired() -> CancellationToken {
    let token = CancellationToken::new();
    token.cancel();
    token
}

/// Maps the error to an exit code: 78 for a wrong configuration, 69 for a cluster's store that
/// stays away, 75 for a directory or address that may be usable at a later start, 70 for a defect.
pub(in crate::cli) fn start_failure(error: GatewayStartError) -> CommandFailure {
    let code = match error {
        GatewayStartError::Config(_) => CONFIG,
        GatewayStartError::State(ref error) if error.is_away() => UNAVAILABLE,
        GatewayStartError::Listen { .. }
        | GatewayStartError::Token { .. }
        | GatewayStartError::Audit(_)
        | GatewayStartError::State(_) => TEMPFAIL,
        GatewayStartError::Metrics(_) => SOFTWARE,
    };
    CommandFailure::new(code, error)
}
