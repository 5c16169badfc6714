//! A listener of its own that serves fixed text pages: metrics and health.
//!
//! Connections of scrapers stay in the lobby, also those with the token of the metrics. They take
//! no slots from other connections; if there are too many, waiting ones give way to new ones.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::base::task_group::TaskGroup;
use crate::listener::address::Network;
use crate::listener::body::ReplyBody;
use crate::listener::callers::credentials::{Credentials, Unauthenticated};
use crate::listener::connection::{self, ConnectionLinger};
use crate::listener::guard::HeadGuard;
use crate::listener::lobby::{Lobby, LobbyConnection, LobbyLimits};
use crate::listener::pace::{ConnectionTimes, PacedStream};
use crate::listener::reply;
use crate::listener::routes::PAGES;
use crate::listener::tls::ServerTls;

/// A few scrapers and health checks hold one connection each.
pub const CONNECTIONS: LobbyLimits = LobbyLimits { all: 64, per_origin: 64 };

const PATIENCE: ConnectionTimes = ConnectionTimes {
    // Applies between scrapes too: opening a connection on loopback costs a scraper nothing.
    first_byte: Duration::from_secs(10),
    head: Duration::from_secs(10),
    idle: Duration::from_secs(10),
    write: Duration::from_secs(30),
};

/// A future of a page: status and text, or `None` if the path has no page.
pub type TextPage = BoxFuture<'static, Option<(StatusCode, String)>>;

/// A function from paths to pages.
pub type TextPages = dyn Fn(&str) -> TextPage + Send + Sync;

/// The pages of a listener, and the rules for request heads.
pub struct PageServer {
    pub pages: Box<TextPages>,
    /// Replaced by a reload.
    pub guard: Arc<ArcSwap<HeadGuard>>,
    /// The credentials of the pages that need one; replaced by a reload.
    pub credentials: ArcSwap<Credentials>,
    /// TLS of the listener; `None` for plain HTTP.
    pub tls: Option<ServerTls>,
}

impl fmt::Debug for PageServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").field("guard", &self.guard).finish_non_exhaustive()
    }
}

/// Accepts connections until `accepting` fires, and serves them until `stop` fires.
pub async fn serve(
    listener: TcpListener,
    lobby: Arc<Lobby<Network>>,
    served: Arc<PageServer>,
    tasks: TaskGroup,
    accepting: CancellationToken,
    stop: CancellationToken,
) {
    let connected = |stream: TcpStream, _, guest| {
        let (served, stop) = (Arc::clone(&served), stop.clone());
        tasks.spawn("page", async move {
            stop.run_until_cancelled(Box::pin(connection(&served, stream, guest, &stop))).await;
        });
    };
    lobby.serve(listener, &accepting, connected).await;
}

/// Serves one connection.
pub async fn connection(
    served: &PageServer,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    guest: LobbyConnection<Network>,
    stop: &CancellationToken,
) {
    let phase = guest.phase();
    let answer =
        |request: http::Request<hyper::body::Incoming>| async move { page(served, &request.into_parts().0).await };
    // A scraper that disconnects is no error.
    let Some(tls) = &served.tls else {
        let paced = PacedStream::new(stream, PATIENCE, phase.clone());
        return drop(connection::serve(paced, phase, |_| {}, answer, stop, ConnectionLinger::default).await);
    };
    let paced = PacedStream::below_tls(stream, PATIENCE, phase.clone());
    if let Ok(stream) = tls.accept(paced).await {
        // Boxed: TLS must not make every connection's future larger.
        drop(Box::pin(connection::serve(stream, phase, |_| {}, answer, stop, ConnectionLinger::default)).await);
    }
}

/// Answers one request with the page of its path.
async fn page(served: &PageServer, head: &Parts) -> Response<ReplyBody> {
    if let Err(response) = served.guard.load().admit(head) {
        return *response;
    }
    let Some(route) = PAGES.iter().find(|route| route.path == head.uri.path()) else {
        return text_page(StatusCode::NOT_FOUND, "not found\n".to_owned());
    };
    if !route.has(&head.method) {
        return reply::method_not_allowed(route.methods);
    }
    if route.needs_credential
        && let Err(refused) = served.credentials.load().authenticate(&head.headers, None)
    {
        // Only tokens are accepted here, so none is left to validate.
        return match refused {
            Unauthenticated::Refused(response) => *response,
            Unauthenticated::Unvalidated => served.credentials.load().unauthorized(&head.headers, None),
        };
    }
    let (status, text) =
        (served.pages)(head.uri.path()).await.unwrap_or((StatusCode::NOT_FOUND, "not found\n".to_owned()));
    text_page(status, text)
}

fn text_page(status: StatusCode, text: String) -> Response<ReplyBody> {
    let mut response = reply::with_status(status, ReplyBody::whole(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}
