//! The console: server-rendered pages for the operator, on a loopback listener of their own. Pages
//! show views of `operator`, and every action of a form is one of its requests.
//!
//! # Who gets in
//! A browser signs in with the token in the file `console-token` of the state directory, or with a
//! link from `headend console`, which the daemon makes for root and its own user alone. Either
//! proves the operator, so a signed-in browser may answer approvals (evidence L2) *and* approve
//! pins and launches, which otherwise takes the command line. Tokens of MCP clients sign no browser
//! in, and the address that a client is shown (`/approvals/<id>`) carries no authority: it leads to
//! the sign-in page.
//!
//! # What a page can do
//! Reading changes nothing. Every change is a POST with the session's cookie and that session's
//! CSRF token; if the browser states the origin of the form, it must be this origin. The action
//! runs to its end even if the browser disconnects before the answer. A one-time link is used up by
//! the POST behind its button only, so programs that fetch links ahead use none up.
//!
//! # Escaping
//! Templates escape everything. Hidden characters in foreign text are spelled out as well, and
//! longer texts have a labelled block.
//!
//! # Scripts
//! Pages work without scripts. With scripts, all pages of a browser share one stream of `/events`,
//! also in the background: it announces new approvals and shows that the gateway is alive. An
//! answer by key or button names an approval and the digest of what was shown of it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

pub(crate) use self::session::{ConsoleSessions, MAX_SESSIONS};
pub(crate) use self::site::ConsoleSite;

use self::site::{ConsoleConnection, MAX_CONNECTIONS, MAX_HEAD};
use crate::listener::address::Network;
use crate::listener::connection::{self, ConnectionLinger};
use crate::listener::lobby::{Lobby, LobbyConnection, LobbyLimits};
use crate::listener::pace::{ConnectionTimes, PacedStream};

mod action;
mod approval;
mod asset;
mod calls;
mod events;
mod form;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod login;
mod login_page;
mod page;
mod reply;
mod route;
mod session;
mod site;
mod text;
mod upstream_page;

/// Bounds of connections that have not signed in.
pub(crate) const ANONYMOUS: LobbyLimits = LobbyLimits { all: 64, per_origin: 64 };
/// Most file descriptors that the console uses at once.
pub(crate) const DESCRIPTORS: usize = MAX_CONNECTIONS + ANONYMOUS.descriptors();
const PATIENCE: ConnectionTimes = ConnectionTimes {
    first_byte: Duration::from_secs(10),
    head: Duration::from_secs(10),
    idle: Duration::from_secs(60),
    write: Duration::from_secs(30),
};

/// Binds the listener and returns it with its address. If another program has the default address,
/// for example the console of another user, binds any free port and logs that. An address that the
/// operator configured (`chosen`) must be free.
///
/// # Errors
/// If no address is free.
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

/// Accepts connections of browsers until the console stops.
pub(crate) async fn serve(console: Arc<ConsoleSite>, listener: TcpListener, lobby: Arc<Lobby<Network>>) {
    let connected = |stream, _, guest| {
        let own = Arc::clone(&console);
        console.tasks.spawn("console", async move { connection(&own, stream, guest).await });
    };
    lobby.serve(listener, &console.stop, connected).await;
}

/// Serves the requests of one connection.
pub(crate) async fn connection(
    console: &Arc<ConsoleSite>,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    guest: LobbyConnection<Network>,
) {
    let phase = guest.phase().clone();
    let seat = ConsoleConnection::new(guest);
    let paced = PacedStream::new(stream, PATIENCE, phase.clone());
    let answer = |request| {
        let seat = &seat;
        async move { reply::finish(route::handle(console, request, seat).await) }
    };
    let bounds = |http: &mut Builder| {
        http.max_buf_size(MAX_HEAD);
    };
    // Errors are dropped: a browser that disconnects is not worth a log line.
    drop(connection::serve(paced, &phase, bounds, answer, &console.stop, ConnectionLinger::default).await);
}

#[cfg(test)]
mod tests;
