//! Listeners for MCP over HTTP: accept connections, apply limits and time-outs, and serve each
//! connection in a task of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderValue;
use http::header::X_CONTENT_TYPE_OPTIONS;
use hyper::server::conn::http1::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::io::{InspectReader, InspectWriter};
use tokio_util::sync::CancellationToken;

use crate::base::repoll::repolled;
use crate::config::{Limits, MAX_HEAD};
use crate::listener::address::Network;
use crate::listener::connection;
use crate::listener::lobby::{ConnectionAdmission, LobbyConnection};
use crate::listener::pace::{ConnectionTimes, PacedStream};
use crate::listener::press::PressedStream;
use crate::serve::endpoint;
use crate::serve::front::{HttpConnection, ListenerState};

/// Accepts connections until `stop` fires. Open connections end by themselves, after the answers of
/// their calls.
pub async fn accept(front: Arc<ListenerState>, listener: TcpListener, stop: CancellationToken) {
    let lobby = Arc::clone(&front.lobby);
    let connected = |stream: TcpStream, peer, guest| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(error = %error, "TCP_NODELAY not set");
        }
        serve_connection(&front, stream, peer, guest, &stop);
    };
    lobby.serve(listener, &stop, connected).await;
}

/// Spawns a task that serves one connection.
pub fn serve_connection(
    front: &Arc<ListenerState>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    guest: LobbyConnection<Network>,
    stop: &CancellationToken,
) {
    let (front, tasks, stop) = (Arc::clone(front), front.service.tasks.clone(), stop.clone());
    let serve = async move {
        let terms = front.terms.load_full();
        let connected = front.service.metrics.connected("http");
        let (received, sent) = (connected.received(), connected.sent());
        let phase = guest.phase().clone();
        let seat = Arc::new(HttpConnection::new(Network::from(peer.ip()), ConnectionAdmission::new(guest)));
        let stream = PressedStream::new(stream, Arc::clone(&front.service.budget));
        let stream = PacedStream::new(stream, patience(&terms.limits), phase.clone());
        let counted = InspectReader::new(stream, move |bytes| received.inc_by(bytes.len() as u64));
        let counted = InspectWriter::new(counted, move |bytes| sent.inc_by(bytes.len() as u64));
        let answer = |request| {
            let (front, seat) = (&front, Arc::clone(&seat));
            async move {
                let mut response = endpoint::handle(front, request, &seat).await;
                response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
                response
            }
        };
        let bounds = |http: &mut Builder| {
            http.max_buf_size(MAX_HEAD);
        };
        let ended = connection::serve(counted, &phase, bounds, answer, &stop).await;
        if let Err(error) = ended {
            tracing::debug!(client.address = %peer, error = %error, "connection ended");
        }
        drop(connected);
    };
    tasks.spawn("connection", repolled(serve));
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
