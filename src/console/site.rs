//! The state of the running console: the operator's service, its sessions, and limits on its
//! connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::reply;
use super::session::{self, ConsoleSessions};
use crate::base::clock;
use crate::base::task_group::TaskGroup;
use crate::listener::address::Network;
use crate::listener::body::ReplyBody;
use crate::listener::guard::HeadGuard;
use crate::listener::lobby::ConnectionAdmission;
use crate::operator::{OperatorBackend, OperatorService};
use crate::policy::OperatorAction;
use crate::store::audit::action::WrongAttempts;

/// Most connections of signed-in browsers at once. A browser opens six.
pub(super) const MAX_CONNECTIONS: usize = 128;
/// Most actions at once, including those whose browser has disconnected.
pub(super) const MAX_ACTIONS: usize = 64;
/// Longest request head in bytes. Browsers send the cookies of all ports of an address, up to 180
/// of 4 KiB each, and a program on another port must not be able to lock the operator out with
/// cookies.
pub(super) const MAX_HEAD: usize = 768 * 1024;
/// Most event streams at once.
pub(super) const MAX_STREAMS: usize = 48;

/// The running console, shared by all its connections.
pub(crate) struct ConsoleSite {
    pub(super) operator: OperatorService,
    pub(super) doors: ConsoleSessions,
    /// Counter of wrong tokens and links, for the audit log.
    pub(super) wrong_sign_ins: WrongAttempts,
    pub(super) guard: HeadGuard,
    /// Address of the console, without a slash at the end.
    base: Arc<str>,
    /// Slots for connections of signed-in browsers.
    pub(super) places: Arc<Semaphore>,
    /// Slots for event streams.
    pub(super) streams: Arc<Semaphore>,
    /// Slots for actions.
    pub(super) actions: Arc<Semaphore>,
    pub(super) tasks: TaskGroup,
    pub(super) stop: CancellationToken,
}

impl std::fmt::Debug for ConsoleSite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Console({})", self.base)
    }
}

impl ConsoleSite {
    /// Reads the sign-ins that the daemon before has kept. Blocks.
    pub(crate) fn read_sign_ins(&self) {
        self.doors.read_again(clock::uptime());
    }

    /// Makes the console for the listener's address `local`, behind a proxy with these hosts. Its
    /// streams end when `stop` fires.
    pub(crate) fn new(
        operator: OperatorService,
        doors: ConsoleSessions,
        local: SocketAddr,
        allowed_hosts: &[String],
        tasks: TaskGroup,
        stop: CancellationToken,
    ) -> Self {
        let (wrong, log) = (OperatorAction::WrongSignIn, operator.audit().clone());
        Self {
            operator,
            doors,
            wrong_sign_ins: WrongAttempts::new(wrong, log, tasks.clone(), stop.clone()),
            // The console admits its own hosts and their pages alone, even if the configuration
            // admits others on other listeners.
            guard: HeadGuard::new(local, allowed_hosts, &[], MAX_HEAD).behind_tls_proxy(),
            base: format!("http://{local}").into(),
            places: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            actions: Arc::new(Semaphore::new(MAX_ACTIONS)),
            tasks,
            stop,
        }
    }

    /// Returns the data that pages show.
    pub(super) fn desk(&self) -> &dyn OperatorBackend {
        self.operator.desk()
    }

    /// Returns the console's address, without a slash at the end.
    pub(crate) fn base(&self) -> &Arc<str> {
        &self.base
    }

    /// Runs a browser's action to its end, even if the browser disconnects, so that no login or
    /// decision stays half done. Responds with status 503 if too many actions are running.
    pub(super) async fn act(
        &self,
        action: impl Future<Output = Response<ReplyBody>> + Send + 'static,
    ) -> Response<ReplyBody> {
        let Ok(place) = Arc::clone(&self.actions).try_acquire_owned() else {
            return reply::busy("Too many changes are under way. Try again in a moment.");
        };
        let done = self.tasks.carry_out("console action", async move {
            let _place = place;
            action.await
        });
        done.await.unwrap_or_else(|| {
            let text = "Something went wrong; headend's log says what.";
            reply::wrong(StatusCode::INTERNAL_SERVER_ERROR, "Not done", text)
        })
    }

    /// Takes the operator's token after it was read again. A different token ends every sign-in.
    pub(crate) fn renew(&self, token: &str) {
        self.doors.renew(token);
    }

    /// Makes a link that signs in once, and returns it with its lifetime.
    pub(crate) fn link(&self) -> (String, Duration) {
        (format!("{}/open/{}", self.base, self.doors.make_link(clock::uptime())), session::LINK_LIFE)
    }
}

/// The state of a browser's connection: anonymous until a request has the cookie of a session.
pub(super) type ConsoleConnection = ConnectionAdmission<Network, OwnedSemaphorePermit>;
