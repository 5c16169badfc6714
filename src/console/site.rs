//! One console: data for its pages, its sessions, and bounds on its connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::reply;
use super::session::{self, Doors};
use crate::base::clock;
use crate::base::task_group::TaskGroup;
use crate::listener::address::Network;
use crate::listener::body::ReplyBody;
use crate::listener::guard::Guard;
use crate::listener::lobby::Standing;
use crate::operator::{Desk, Operator};
use crate::policy::OperatorAction;
use crate::store::audit::action::WrongAttempts;

/// Connections of signed-in browsers at once; a browser opens six.
pub(super) const MAX_CONNECTIONS: usize = 128;
/// Most actions at once, those whose browser has gone away among them.
pub(super) const MAX_ACTIONS: usize = 64;
/// Longest head in bytes. Browsers send the cookies of all ports of an address, and keep up to 180 of 4 KiB each: a
/// program on another port must not be able to lock the operator out with cookies.
pub(super) const MAX_HEAD: usize = 768 * 1024;
/// Most pages that follow `/events`.
pub(super) const MAX_STREAMS: usize = 48;

/// A console that can be served.
pub(crate) struct Console {
    pub(super) operator: Operator,
    pub(super) doors: Doors,
    /// Wrong tokens and links.
    pub(super) wrong_sign_ins: WrongAttempts,
    pub(super) guard: Guard,
    base: Arc<str>,
    pub(super) places: Arc<Semaphore>,
    pub(super) streams: Arc<Semaphore>,
    pub(super) actions: Arc<Semaphore>,
    pub(super) tasks: TaskGroup,
    pub(super) stop: CancellationToken,
}

impl std::fmt::Debug for Console {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Console({})", self.base)
    }
}

impl Console {
    /// `doors` know the operator's token; streams end when `stop` fires.
    pub(crate) fn new(
        operator: Operator,
        doors: Doors,
        local: SocketAddr,
        tasks: TaskGroup,
        stop: CancellationToken,
    ) -> Self {
        let (wrong, log) = (OperatorAction::WrongSignIn, operator.audit().clone());
        Self {
            operator,
            doors,
            wrong_sign_ins: WrongAttempts::new(wrong, log, tasks.clone(), stop.clone()),
            // Only its own host and origin, whatever the configuration allows other listeners.
            guard: Guard::new(local, &[], &[], MAX_HEAD),
            base: format!("http://{local}").into(),
            places: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            actions: Arc::new(Semaphore::new(MAX_ACTIONS)),
            tasks,
            stop,
        }
    }

    /// The data of the pages.
    pub(super) fn desk(&self) -> &dyn Desk {
        self.operator.desk()
    }

    /// The console's address, without a slash at the end.
    pub(crate) fn base(&self) -> &Arc<str> {
        &self.base
    }

    /// Runs an action of a browser to its end, even if the browser goes away: no login and no decision stays half done. Without a place
    /// the answer is 503.
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

    /// The operator's token was read again; another one ends every sign-in.
    pub(crate) fn renew(&self, token: &str) {
        self.doors.renew(token);
    }

    /// A link that signs in once, and how long it is valid.
    pub(crate) fn link(&self) -> (String, Duration) {
        (format!("{}/open/{}", self.base, self.doors.make_link(clock::uptime())), session::LINK_LIFE)
    }
}

/// State of a browser's connection: anonymous until a request has the cookie of a session.
pub(super) type Seat = Standing<Network, OwnedSemaphorePermit>;
