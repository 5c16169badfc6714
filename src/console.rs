//! The console: server-rendered pages for the operator, on a loopback listener of their own.
//!
//! # Who gets in
//! The file `console-token` in the state directory, or a link from `headend console`, which the daemon makes for the local
//! user and root alone. Either shows the operator, so whoever is signed in may answer approvals (evidence L2) *and* approve
//! pins and launches, which otherwise are the command line's. The token of MCP clients opens nothing here, and an address that
//! a client is shown (`/approvals/<id>`) carries no authority: it leads to the door.
//!
//! # What a page can do
//! Reading changes nothing. Every change is a POST with the session's cookie, the CSRF token of that session, and, where the
//! browser says it, from a page of this very origin. A one-time link is used up by the POST behind its button, not by looking
//! at it, so programs that fetch links burn nothing.
//!
//! # What is shown
//! Everything is escaped by the templates; of text that is not ours hidden characters are spelled out besides, and longer
//! texts stand in a labelled block. Pages work without scripts; with scripts `console.js` follows `/events`.
//!
//! `desk` is the seam to the gateway, `live_desk` the gateway behind it.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};

pub(crate) use self::site::Console;

use self::site::{MAX_CONNECTIONS, MAX_HEAD, Seat};
use crate::base::task_group::TaskGroup;
use crate::listener::address::Network;
use crate::listener::body::Attended;
use crate::listener::body::close_if_dismissed;
use crate::listener::coded::Coded;
use crate::listener::lobby::{Guest, Lobby, LobbyLimits};
use crate::listener::pace::{Paced, Patience};

pub(crate) mod desk;
mod events;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub(crate) mod live_desk;
mod page;
mod reply;
mod route;
mod session;
mod site;
mod text;

/// Connections that are not signed in.
pub(crate) const ANONYMOUS: LobbyLimits = LobbyLimits { all: 64, per_origin: 64 };
/// File descriptors that the console takes at most.
pub(crate) const DESCRIPTORS: usize = MAX_CONNECTIONS + ANONYMOUS.descriptors();
const PATIENCE: Patience = Patience {
    first_byte: Duration::from_secs(10),
    head: Duration::from_secs(10),
    idle: Duration::from_secs(60),
    write: Duration::from_secs(30),
};

/// Binds the listener. Where the default address is taken, for one by the console of another user, any free port will do; an
/// address that the operator chose (`chosen`) must be had.
///
/// # Errors
/// When there is no address to be had.
pub(crate) async fn bind(address: SocketAddr, chosen: bool) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = match TcpListener::bind(address).await {
        Err(error) if !chosen && error.kind() == io::ErrorKind::AddrInUse => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            let other = listener.local_addr()?;
            tracing::info!(address = %address, instead = %other, "the console's address is taken, another port is used");
            listener
        }
        bound => bound?,
    };
    let local = listener.local_addr()?;
    Ok((listener, local))
}

/// Accepts browsers until the console stops.
pub(crate) async fn serve(console: Arc<Console>, listener: TcpListener, lobby: Arc<Lobby<Network>>, tasks: TaskGroup) {
    loop {
        let (stream, _, guest) = tokio::select! {
            accepted = lobby.accept(&listener) => accepted,
            () = console.stop.cancelled() => return,
        };
        let console = Arc::clone(&console);
        tasks.spawn("console", async move { connection(&console, stream, guest).await });
    }
}

async fn connection(console: &Arc<Console>, stream: TcpStream, guest: Guest<Network>) {
    let phase = guest.phase().clone();
    let seat = Seat::new(guest);
    let paced = Paced::new(stream, PATIENCE, phase.clone());
    let service = service_fn(|request| {
        let busy = phase.busy();
        let (phase, seat) = (&phase, &seat);
        async move {
            let mut response = reply::finish(route::handle(console, request, seat).await);
            close_if_dismissed(&mut response, phase);
            Ok::<_, Infallible>(response.map(|body| Attended::new(body, busy)))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // The stream has its own, finer limits.
        .header_read_timeout(None)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(Coded::new(paced)), service);
    tokio::pin!(connection);
    // A browser that goes away is no news.
    tokio::select! {
        ended = connection.as_mut() => drop(ended),
        () = console.stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            drop(connection.await);
        }
    }
}

#[cfg(test)]
mod tests;
