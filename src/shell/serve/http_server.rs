//! Listeners for MCP over HTTP: accept connections, apply limits and time-outs, and serve each
//! connection in a task of its own.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use http::header::X_CONTENT_TYPE_OPTIONS;
use hyper::server::conn::http1::Builder;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::io::{InspectReader, InspectWriter};
use tokio_util::sync::CancellationToken;

use crate::base::repoll::repolled;
use crate::cluster::peer_tls::key_digest;
use crate::config::{Limits, MAX_HEAD};
use crate::listener::address::Network;
use crate::listener::connection::{self, ConnectionLinger};
use crate::listener::h2;
use crate::listener::lobby::{ConnectionAdmission, LobbyConnection};
use crate::listener::pace::{ConnectionPhase, ConnectionTimes, PacedStream};
use crate::listener::press::PressedStream;
use crate::listener::tls::H2;
use crate::serve::endpoint;
use crate::serve::front::{HttpConnection, ListenerState};
use crate::serve::late::{self, PassedOrigin};

/// Time that a new connection has for its first request when the daemon ends.
const AT_STOP: ConnectionLinger = ConnectionLinger { fresh: Duration::from_secs(1), idle: Duration::ZERO };

/// Accepts connections until `stop` fires. Open connections end by themselves, after the answers of
/// their calls. A peer that may not connect in plain text is disconnected at once.
pub async fn accept(front: Arc<ListenerState>, listener: TcpListener, stop: CancellationToken) {
    let lobby = Arc::clone(&front.lobby);
    let connected = |stream: TcpStream, peer, guest| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(error = %error, "TCP_NODELAY not set");
        }
        serve_connection(&front, stream, peer, guest, &stop);
    };
    let admits = |peer: &SocketAddr| front.admits(*peer);
    let listener = lobby.serve_admitted(listener, admits, &stop, &connected).await;
    if front.service.cluster.is_some() {
        lobby.accept_last(listener, admits, &connected);
    }
}

/// Spawns a task that serves one connection.
pub fn serve_connection(
    front: &Arc<ListenerState>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    guest: LobbyConnection<Network>,
    stop: &CancellationToken,
) {
    let (front, tasks, stop) = (Arc::clone(front), front.tasks.clone(), stop.clone());
    let serve = async move {
        let times = patience(&front.terms.load().limits);
        let stream = PressedStream::new(stream, Arc::clone(&front.service.budget));
        let phase = guest.phase().clone();
        let Some(tls) = front.tls.clone() else {
            let stream = PacedStream::new(stream, times, phase.clone());
            let opened = OpenedConnection { front, stop, peer: peer.ip(), server_name: None, times, phase };
            return told(peer, opened.serve(stream, guest, false).await);
        };
        let stream = PacedStream::below_tls(stream, times, phase.clone());
        // The guest stays in the lobby meanwhile, which may dismiss it.
        let stopped = async {
            stop.cancelled().await;
            tokio::time::sleep(linger(&front).fresh).await;
        };
        let shaken = tokio::select! {
            biased;
            shaken = tls.accept(stream) => Some(shaken),
            () = stopped => None,
        };
        match shaken {
            Some(Ok(stream)) => {
                let session = stream.get_ref().1;
                if front.is_for_peers && !is_peer(&front, session.peer_certificates()).await {
                    tracing::warn!(client.address = %peer, "connection refused: no living replica has its key");
                    return;
                }
                let is_h2 = session.alpn_protocol() == Some(H2);
                let server_name = session.server_name().map(Box::from);
                let opened = OpenedConnection { front, stop, peer: peer.ip(), server_name, times, phase };
                told(peer, Box::pin(opened.serve(stream, guest, is_h2)).await);
            }
            Some(Err(error)) => tracing::debug!(client.address = %peer, error = %error, "TLS handshake failed"),
            None => {}
        }
    };
    tasks.spawn("connection", repolled(serve));
}

/// Returns whether the key that a peer proved is that of a living replica.
async fn is_peer(front: &ListenerState, certificates: Option<&[CertificateDer<'_>]>) -> bool {
    match (key_digest(certificates), &front.service.cluster) {
        (Some(key), Some(cluster)) => cluster.knows_key(&key).await,
        _ => false,
    }
}

/// Serves one request that another process has passed on, as if this process had accepted the
/// connection of its client. Serves none once `stop` has fired.
pub async fn serve_passed(
    front: &Arc<ListenerState>,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    origin: PassedOrigin,
    stop: CancellationToken,
) {
    let PassedOrigin { peer, server_name, .. } = origin;
    let guest = front.lobby.let_in(Network::from(peer)).await;
    let (times, phase) = (patience(&front.terms.load().limits), guest.phase().clone());
    let stream = PressedStream::new(stream, Arc::clone(&front.service.budget));
    let stream = PacedStream::new(stream, times, phase.clone());
    let opened = OpenedConnection { front: Arc::clone(front), stop, peer, server_name, times, phase };
    told(SocketAddr::new(peer, 0), Box::pin(opened.serve(stream, guest, false)).await);
}

/// Returns how long connections stay open after their listener has stopped. The connections of a
/// replica stay open for longer: its balancer would answer a request that it writes on a connection
/// just closed with an error, although other replicas can serve it.
fn linger(front: &ListenerState) -> ConnectionLinger {
    let has_others = front.successor.get().is_some() || front.service.cluster.is_some();
    if has_others { late::LINGER } else { AT_STOP }
}

/// Logs how a connection ended.
fn told(peer: SocketAddr, ended: Result<(), hyper::Error>) {
    if let Err(error) = ended {
        tracing::debug!(client.address = %peer, error = %error, "connection ended");
    }
}

/// A connection whose handshake is complete.
struct OpenedConnection {
    front: Arc<ListenerState>,
    stop: CancellationToken,
    peer: IpAddr,
    server_name: Option<Box<str>>,
    times: ConnectionTimes,
    phase: ConnectionPhase,
}

impl OpenedConnection {
    /// Serves the requests of the connection.
    async fn serve(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        guest: LobbyConnection<Network>,
        is_h2: bool,
    ) -> Result<(), hyper::Error> {
        let Self { front, stop, peer, server_name, times, phase } = self;
        let connected = front.service.metrics.connected("http");
        let (received, sent) = (connected.received(), connected.sent());
        let seat = Arc::new(HttpConnection::new(peer, server_name, ConnectionAdmission::new(guest)));
        let counted = InspectReader::new(stream, move |bytes| received.inc_by(bytes.len() as u64));
        let counted = InspectWriter::new(counted, move |bytes| sent.inc_by(bytes.len() as u64));
        let tasks = front.tasks.clone();
        let last = Arc::clone(&front);
        let linger = || linger(&last);
        let answer = move |request| {
            let (front, seat) = (Arc::clone(&front), Arc::clone(&seat));
            async move {
                let mut response = match front.successor.get() {
                    Some(successor) => {
                        let (origin, service) = (seat.origin(front.local), &front.service);
                        Box::pin(successor.pass(request, origin, &service.tasks, &service.giving_up)).await
                    }
                    None if front.is_for_peers => endpoint::cluster::handle_passed(&front, request, &seat).await,
                    None => endpoint::handle(&front, request, &seat).await,
                };
                response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
                response
            }
        };
        let ended = if is_h2 {
            h2::serve(counted, &phase, times, answer, &tasks, &stop, linger).await
        } else {
            let bounds = |http: &mut Builder| {
                http.max_buf_size(MAX_HEAD);
            };
            connection::serve(counted, &phase, bounds, answer, &stop, linger).await
        };
        drop(connected);
        ended
    }
}

/// Returns the configured time limits of a connection.
fn patience(limits: &Limits) -> ConnectionTimes {
    ConnectionTimes {
        first_byte: limits.first_byte_timeout,
        head: limits.head_timeout,
        idle: limits.idle_timeout,
        write: limits.write_timeout,
    }
}
