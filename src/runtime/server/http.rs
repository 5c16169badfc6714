//! The HTTP listeners: accept, connection limits and time-outs, one task for each connection.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use http::header::{AUTHORIZATION, HOST};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::io::{InspectReader, InspectWriter};
use tokio_util::sync::CancellationToken;

use crate::config::Limits;
use crate::runtime::clock;
use crate::runtime::repoll::repolled;
use crate::runtime::server::address::{self, AddressLimits, Network};
use crate::runtime::server::body::{Attended, ReplyBody};
use crate::runtime::server::endpoint;
use crate::runtime::server::guard::Guard;
use crate::runtime::server::legacy::Sessions;
use crate::runtime::server::pace::{Paced, Patience, Phase};
use crate::runtime::server::reply;
use crate::runtime::service::{LOCAL, Service};
use crate::runtime::shares::{Good, Place, Shares};
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
    pub(crate) connections: AtomicUsize,
    /// Shared by all listeners.
    pub(crate) addresses: Arc<AddressLimits>,
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
    /// An address that presented too many wrong credentials is answered alike whatever it presents next, so it learns
    /// nothing. That concerns neither the local user, whose generated token nobody guesses, nor a caller whom this
    /// connection has let in before.
    ///
    /// # Errors
    /// The response to send.
    pub(crate) fn authenticate(&self, head: &Parts, seat: &Seat) -> Result<Arc<str>, Box<Response<ReplyBody>>> {
        let now = clock::uptime();
        let outcome = self.guard.authenticate(&head.headers, head.headers.get(HOST));
        let wait = match &outcome {
            Ok(caller) if **caller == *LOCAL || seat.belongs_to(caller) => None,
            Ok(_) => self.addresses.locked_out(seat.network, now),
            Err(_) => {
                self.service.metrics.auth_failed();
                // Asking without any is how a client finds out that it needs some.
                let guess = head.headers.contains_key(AUTHORIZATION);
                guess.then(|| self.addresses.failed(seat.network, now)).flatten()
            }
        };
        let Some(wait) = wait else { return outcome };
        self.service.metrics.limit_hit("auth-failures");
        let seconds = wait.as_secs() + 1;
        Err(Box::new(reply::retry_later(StatusCode::TOO_MANY_REQUESTS, seconds, "too many wrong credentials")))
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
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => serve_connection(&front, stream, peer, &stop),
            Err(error) => {
                // Out of file descriptors, mostly: those in use are given back as calls end.
                tracing::warn!(error = %error, "connection not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn serve_connection(front: &Arc<Front>, stream: TcpStream, peer: SocketAddr, stop: &CancellationToken) {
    if front.connections.fetch_add(1, Ordering::Relaxed) >= front.limits.connections {
        front.connections.fetch_sub(1, Ordering::Relaxed);
        tracing::warn!(client.address = %peer, "connection refused: limit reached");
        return;
    }
    let network = Network::from(peer.ip());
    let Some(counted) = front.addresses.connect(network) else {
        front.connections.fetch_sub(1, Ordering::Relaxed);
        front.service.metrics.limit_hit("connections-per-ip");
        return;
    };
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(error = %error, "TCP_NODELAY not set");
    }
    let (front, tasks, stop) = (Arc::clone(front), front.service.tasks.clone(), stop.clone());
    let serve = async move {
        let place = Counted(&front.connections);
        let connected = front.service.metrics.connected("http");
        let (received, sent) = (connected.received(), connected.sent());
        let (phase, seat) = (Phase::default(), Arc::new(Seat::new(network, counted)));
        let stream = Paced::new(stream, patience(&front.limits), phase.clone());
        let counted = InspectReader::new(stream, move |bytes| received.inc_by(bytes.len() as u64));
        let counted = InspectWriter::new(counted, move |bytes| sent.inc_by(bytes.len() as u64));
        let service = service_fn(|request| {
            let (front, seat) = (&front, Arc::clone(&seat));
            let busy = phase.busy();
            async move {
                let response = finish(endpoint::handle(front, request, &seat).await);
                Ok::<_, Infallible>(response.map(|body| Attended::new(body, busy)))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            // The stream has its own, finer limits.
            .header_read_timeout(None)
            .max_buf_size(front.limits.head_bytes.max(8192))
            .max_headers(front.limits.header_fields + 1)
            .serve_connection(TokioIo::new(counted), service);
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
        drop((place, connected));
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

/// Whom a connection belongs to: its address, and the first caller that authenticated on it.
#[derive(Debug)]
pub(crate) struct Seat {
    network: Network,
    counted: Mutex<Option<address::Counted>>,
    owner: OnceLock<(Arc<str>, Option<Place>)>,
}

impl Seat {
    fn new(network: Network, counted: address::Counted) -> Self {
        Self { network, counted: Mutex::new(Some(counted)), owner: OnceLock::new() }
    }

    fn belongs_to(&self, caller: &Arc<str>) -> bool {
        self.owner.get().is_some_and(|(owner, _)| owner == caller)
    }

    /// Whether the caller may use this connection: it is within the caller's share of connections.
    pub(crate) fn allows(&self, shares: &Shares, caller: &Arc<str>) -> bool {
        let (owner, place) = self.owner.get_or_init(|| {
            if **caller == *LOCAL {
                // The local user's connections are limited by their number alone.
                drop(self.counted.lock().unwrap_or_else(PoisonError::into_inner).take());
            }
            (Arc::clone(caller), shares.take(caller, Good::Connection))
        });
        owner != caller || place.is_some()
    }
}

struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What every response carries.
fn finish(mut response: Response<ReplyBody>) -> Response<ReplyBody> {
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// The text of a path, if there is one.
pub(crate) type Pages = dyn Fn(&str) -> Option<(StatusCode, String)> + Send + Sync;

/// Serves one text document at fixed paths: metrics and health, on a listener of their own.
pub(crate) async fn serve_pages(
    listener: TcpListener,
    stop: CancellationToken,
    tasks: crate::runtime::tasks::TaskGroup,
    pages: Arc<Pages>,
    guard: Arc<Guard>,
) {
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => { tokio::time::sleep(Duration::from_millis(100)).await; continue }
            },
            () = stop.cancelled() => return,
        };
        let (pages, guard, stop) = (Arc::clone(&pages), Arc::clone(&guard), stop.clone());
        tasks.spawn("page", async move {
            let service = service_fn(|request: http::Request<hyper::body::Incoming>| {
                let response = page(&guard, &request.into_parts().0, pages.as_ref());
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(10))
                .serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                // A scraper that goes away is no news.
                ended = connection => drop(ended),
                () = stop.cancelled() => {}
            }
        });
    }
}

fn page(guard: &Guard, head: &Parts, pages: &Pages) -> Response<ReplyBody> {
    if let Err(response) = guard.admit(head) {
        return *response;
    }
    if head.method != http::Method::GET && head.method != http::Method::HEAD {
        return reply::method_not_allowed("GET, HEAD");
    }
    let (status, text) = pages(head.uri.path()).unwrap_or((StatusCode::NOT_FOUND, "not found\n".to_owned()));
    let mut response = Response::new(ReplyBody::whole(text));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}
