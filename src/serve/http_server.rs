//! The listeners of MCP over HTTP: accept, connection limits and time-outs, one task for each connection.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONNECTION, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::io::{InspectReader, InspectWriter};
use tokio_util::sync::CancellationToken;

use crate::base::clock;
use crate::base::repoll::repolled;
use crate::base::tally::Tally;
use crate::config::Limits;
use crate::gateway::quota::{Good, Place};
use crate::gateway::service::Service;
use crate::listener::address::{Failures, Network};
use crate::listener::body::{Attended, ReplyBody};
use crate::listener::coded::Coded;
use crate::listener::guard::{Guard, is_direct};
use crate::listener::lobby::{Guest, Lobby, Standing};
use crate::listener::pace::{Paced, Patience, Phase};
use crate::listener::press::Pressed;
use crate::serve::endpoint;
use crate::serve::reply;
use crate::serve::sessions::Sessions;
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
    pub(crate) settled: watch::Receiver<bool>,
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

    /// Waits, shortly after the start, until the upstreams have been heard of; later it costs one look.
    pub(crate) async fn settled(&self) {
        if !*self.settled.borrow() {
            // The sender lives as long as the gateway.
            drop(self.settled.clone().wait_for(|settled| *settled).await);
        }
    }

    /// The refusal of a caller that has used up its requests.
    pub(crate) fn over_rate(&self, caller: &str) -> Option<Response<ReplyBody>> {
        let wait = self.service.over_rate(caller)?;
        let seconds = wait.as_secs() + 1;
        Some(reply::retry_later(StatusCode::TOO_MANY_REQUESTS, seconds, "too many requests"))
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
        let held = taken.and_then(|place| Some((self.service.shares.take(caller, Good::Connection)?, place)));
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

/// Accepts connections until `stop` fires. Connections end by themselves: those with calls after their answer.
pub(crate) async fn accept(front: Arc<Front>, listener: TcpListener, stop: CancellationToken) {
    loop {
        let (stream, peer, guest) = tokio::select! {
            accepted = front.lobby.accept(&listener) => accepted,
            () = stop.cancelled() => return,
        };
        serve_connection(&front, stream, peer, guest, &stop);
    }
}

fn serve_connection(
    front: &Arc<Front>,
    stream: TcpStream,
    peer: SocketAddr,
    guest: Guest<Network>,
    stop: &CancellationToken,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(error = %error, "TCP_NODELAY not set");
    }
    let (front, tasks, stop) = (Arc::clone(front), front.service.tasks.clone(), stop.clone());
    let serve = async move {
        let connected = front.service.metrics.connected("http");
        let (received, sent) = (connected.received(), connected.sent());
        let phase = guest.phase().clone();
        let seat = Arc::new(Seat { network: Network::from(peer.ip()), standing: Standing::new(guest) });
        let stream = Pressed::new(stream, Arc::clone(&front.service.budget));
        let stream = Paced::new(stream, patience(&front.limits), phase.clone());
        let counted = InspectReader::new(stream, move |bytes| received.inc_by(bytes.len() as u64));
        let counted = InspectWriter::new(counted, move |bytes| sent.inc_by(bytes.len() as u64));
        let service = service_fn(|request| {
            let (front, seat) = (&front, Arc::clone(&seat));
            let busy = phase.busy();
            let phase = &phase;
            async move {
                let response = finish(endpoint::handle(front, request, &seat).await, phase);
                Ok::<_, Infallible>(response.map(|body| Attended::new(body, busy)))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            // The stream has its own, finer limits.
            .header_read_timeout(None)
            .max_buf_size(front.limits.head_bytes.max(8192))
            .max_headers(front.limits.header_fields + 1)
            .serve_connection(TokioIo::new(Coded::new(counted)), service);
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(client.address = %peer, error = %error, "connection ended");
        }
        drop(connected);
    };
    tasks.spawn("connection", repolled(serve));
}

fn patience(limits: &Limits) -> Patience {
    Patience {
        first_byte: limits.first_byte_timeout,
        head: limits.head_timeout,
        idle: limits.idle_timeout,
        write: limits.write_timeout,
    }
}

/// What a connection with a valid credential holds: its caller's share, and one of all places.
type Held = (Place, OwnedSemaphorePermit);

/// Where a connection comes from, and where it stands.
#[derive(Debug)]
pub(crate) struct Seat {
    network: Network,
    standing: Standing<Network, Held>,
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

/// What every response carries, and the end of a connection that has to give way.
fn finish(mut response: Response<ReplyBody>, phase: &Phase) -> Response<ReplyBody> {
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    close_if_dismissed(&mut response, phase);
    response
}

/// A peer that never stops sending would keep a connection that has to give way.
pub(crate) fn close_if_dismissed(response: &mut Response<ReplyBody>, phase: &Phase) {
    if phase.is_dismissed() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
}
