//! Shared state of one listener's connections, and the state of one connection.

use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, HOST};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::base::clock;
use crate::base::tally::Tally;
use crate::config::Limits;
use crate::gateway::quota::{Good, Place};
use crate::gateway::service::Service;
use crate::listener::address::{Failures, Network};
use crate::listener::body::ReplyBody;
use crate::listener::guard::{Guard, is_direct};
use crate::listener::lobby::{Lobby, Standing};
use crate::listener::reply;
use crate::serve::sessions::Sessions;
use crate::telemetry::metrics::Shortage;
use crate::wire::frame::Bounds;

/// What the connections of one listener share.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) service: Arc<Service>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) guard: Guard,
    pub(crate) endpoint: String,
    /// Whether HTTP+SSE of 2024-11-05 is served too.
    pub(crate) legacy_sse: bool,
    pub(crate) bounds: Bounds,
    pub(crate) max_body_bytes: usize,
    pub(crate) body_time: Duration,
    pub(crate) keepalive: Duration,
    pub(crate) limits: Limits,
    /// Connections that have not shown a valid credential.
    pub(crate) lobby: Arc<Lobby<Network>>,
    /// Places for those that have.
    pub(crate) places: Arc<Semaphore>,
    pub(crate) full: Tally,
    /// Shared by all listeners.
    pub(crate) failures: Arc<Failures>,
}

impl Front {
    /// Whether a path is `base`, or `base` and a profile, and which.
    pub(crate) fn profile_at(&self, base: &str, path: &str) -> Option<Option<Arc<str>>> {
        let rest = path.strip_prefix(base)?;
        if rest.is_empty() {
            return Some(None);
        }
        let known = |name: &&str| self.service.snapshots.load().profiles.contains_key(*name);
        rest.strip_prefix('/').filter(known).map(|name| Some(Arc::from(name)))
    }

    /// Admits so many requests of a caller.
    ///
    /// # Errors
    /// The response to send.
    pub(crate) fn admit(&self, caller: &str, requests: usize) -> Result<(), Box<Response<ReplyBody>>> {
        self.service.admission.admit(caller, requests).map_err(|over| {
            Box::new(reply::retry_later(StatusCode::TOO_MANY_REQUESTS, over.seconds(), "too many requests"))
        })
    }

    /// Who the client is.
    ///
    /// An address that presented too many wrong credentials is told to wait with the next wrong one. A right one always passes,
    /// since every process of a machine, and every client behind a proxy, has the same address. Guessing gains nothing by that:
    /// tokens have 16 characters or more.
    ///
    /// # Errors
    /// The response to send.
    pub(crate) fn authenticate(&self, head: &Parts, seat: &Seat) -> Result<Arc<str>, Box<Response<ReplyBody>>> {
        let refused = match self.guard.authenticate(&head.headers, head.headers.get(HOST)) {
            Ok(caller) => return Ok(caller),
            Err(refused) => refused,
        };
        self.service.metrics.auth_failed();
        // Asking without any is how a client finds out that it needs some.
        let guess = head.headers.contains_key(AUTHORIZATION);
        let wait = guess.then(|| self.failures.count(seat.network, clock::uptime())).flatten();
        let Some(wait) = wait else { return Err(refused) };
        self.service.metrics.limit_hit("auth-failures");
        let seconds = wait.as_secs() + 1;
        Err(Box::new(reply::retry_later(StatusCode::TOO_MANY_REQUESTS, seconds, "too many wrong credentials")))
    }

    /// The place of a connection whose caller is known.
    fn place(&self, caller: &Arc<str>) -> Option<Held> {
        let taken = Arc::clone(&self.places).try_acquire_owned().ok();
        if taken.is_none() {
            self.service.metrics.short_of(Shortage::Places, clock::uptime());
        }
        let held = taken.and_then(|place| Some((self.service.admission.quota.take(caller, Good::Connection)?, place)));
        if held.is_none() {
            self.service.metrics.limit_hit("max-connections");
            if let Some(count) = self.full.count(clock::uptime()) {
                tracing::warn!(caller = %caller, count, "connections refused: no place is left; the caller is the latest");
            }
        }
        held
    }

    /// The document that a 401 points to: this server takes bearer tokens, and no authorization server issues them.
    pub(crate) fn resource_metadata(&self, head: &Parts) -> Response<ReplyBody> {
        let host = head.headers.get(HOST).and_then(|h| h.to_str().ok()).unwrap_or("localhost");
        let body = format!(
            r#"{{"resource":"http://{host}{}","bearer_methods_supported":["header"],"resource_name":"headend"}}"#,
            self.endpoint
        );
        reply::json(StatusCode::OK, body.into())
    }
}

/// What a connection with a valid credential holds: its caller's share, and one of all places.
type Held = (Place, OwnedSemaphorePermit);

/// Where a connection comes from, and where it stands.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(super) network: Network,
    pub(super) standing: Standing<Network, Held>,
}

impl Seat {
    /// Whether the client of this request is on this machine.
    pub(crate) fn is_here(&self, headers: &HeaderMap) -> bool {
        self.network.is_loopback() && is_direct(headers)
    }

    /// Whether the connection may be used on: the first caller with a valid credential had a place left for it.
    pub(crate) fn allows(&self, front: &Front, caller: &Arc<str>) -> bool {
        self.standing.settle(|| front.place(caller))
    }
}
