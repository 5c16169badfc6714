//! An admin socket whose place takes none at the start: it is tried again, and clients are served without it meanwhile.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{Access, bind, serve};
use crate::daemon::gateway::Gateway;

/// The first and the longest pause between two tries.
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(5);

/// Whether a socket that could not be made may be made later: the system refused it, not we.
pub(crate) fn passes(error: &io::Error) -> bool {
    error.raw_os_error().is_some()
}

/// Makes the socket as soon as that can be done, and serves it until the gateway drains.
pub(crate) async fn serve_later(gateway: Arc<Gateway>, path: PathBuf, access: Access, error: io::Error) {
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
