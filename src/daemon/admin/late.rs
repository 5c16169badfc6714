//! Retries to bind the admin socket if the system refused it at the start. Meanwhile the gateway
//! serves clients without it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{SocketUsers, bind, serve};
use crate::daemon::gateway::RunningGateway;

/// First pause between two attempts; each pause is twice as long as the one before, up to
/// [`LONGEST`].
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(5);

/// Returns true if the operating system refused the socket, so that a later attempt may succeed;
/// false for our own refusals, such as another daemon at the path.
pub(crate) fn is_retryable(error: &io::Error) -> bool {
    error.raw_os_error().is_some()
}

/// Logs the failed bind, retries until the socket is bound, then serves it until the gateway
/// drains.
pub(crate) async fn serve_later(gateway: Arc<RunningGateway>, path: PathBuf, access: SocketUsers, error: io::Error) {
    tracing::error!(
        error = %error,
        path = %path.display(),
        "there is no admin socket: commands such as `headend status` find no daemon until its directory can be written"
    );
    let draining = gateway.service.draining.clone();
    let mut pause = FIRST;
    while draining.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
        match bind(&path, &access).await {
            Ok(listener) => {
                tracing::info!(path = %path.display(), "the admin socket is there");
                return serve(gateway, listener, path, access).await;
            }
            Err(error) => tracing::debug!(error = %error, "there is still no admin socket"),
        }
        pause = (pause * 2).min(LONGEST);
    }
}
