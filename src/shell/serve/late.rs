//! Passes requests that arrive after a hand-over on to the process that serves in place of this
//! one.
//!
//! A client may write a request in the moment in which its idle connection is closed, and a POST is
//! not repeated. So connections stay open for a while after the hand-over ([`LINGER`]). Each
//! request that arrives on them is passed on with its body as it comes, credentials included, over
//! a connection of its own, and so is the answer. The other process judges the request as if it had
//! accepted the client's connection itself. The answer ends the connection of the client, which
//! connects to the other process then.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream;
use http::header::{CONNECTION, HeaderName, PROXY_AUTHENTICATE, TE, TRAILER, UPGRADE};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::base::task_group::TaskGroup;
use crate::listener::body::ReplyBody;
use crate::listener::connection::ConnectionLinger;
use crate::listener::pieces::MessageSlices;
use crate::listener::reply;

/// Most requests that are passed on at once.
const MAX_PASSED: usize = 256;
/// Longest wait for a place among them, and for a connection to the other process.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time for which connections stay open after a hand-over, and when a replica ends. Node.js keeps
/// an idle connection for 4 s and Python's httpx for 5 s, so their clients close it first.
pub const LINGER: ConnectionLinger = ConnectionLinger { fresh: Duration::from_secs(6), idle: Duration::from_secs(6) };
/// Time after which the stream of a GET ends, so that its client resumes it at the other process.
const STREAM_LIFE: Duration = Duration::from_secs(5);
/// Header fields that belong to one connection. Source: RFC 9110, section 7.6.1.
static OF_CONNECTION: [HeaderName; 7] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    TE,
    TRAILER,
    UPGRADE,
];

/// The client's connection of a request that is passed on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassedOrigin {
    /// Address of the listener that accepted the connection.
    pub listener: SocketAddr,
    pub peer: IpAddr,
    /// The name that the client asked for in the TLS handshake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<Box<str>>,
}

/// Connects to the other process for one request of this origin.
pub type SuccessorConnector = Box<dyn Fn(PassedOrigin) -> BoxFuture<'static, io::Result<UnixStream>> + Send + Sync>;

/// The process that serves in place of this one.
pub struct Successor {
    connect: SuccessorConnector,
    places: Arc<Semaphore>,
}

impl std::fmt::Debug for Successor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Successor({})", self.places.available_permits())
    }
}

impl Successor {
    pub fn new(connect: SuccessorConnector) -> Self {
        Self { connect, places: Arc::new(Semaphore::new(MAX_PASSED)) }
    }

    /// Passes a request on and returns the answer, whose body arrives as the other process sends
    /// it. A request that was not passed on gets 503, and one whose answer is lost 502. `tasks` run
    /// the connection to the other process until `stop` fires.
    pub async fn pass(
        &self,
        request: Request<Incoming>,
        origin: PassedOrigin,
        tasks: &TaskGroup,
        stop: &CancellationToken,
    ) -> Response<ReplyBody> {
        let is_stream = request.method() == Method::GET;
        let begun = match tokio::time::timeout(PATIENCE, self.begin(origin)).await {
            Ok(begun) => begun,
            Err(late) => Err(late.into()),
        };
        let (place, mut sender, connection) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                tracing::warn!(error = %error, "a late request is not passed on to the process that has taken over");
                let text = "headend is restarting; send the request again";
                return reply::closing(reply::retry_later(StatusCode::SERVICE_UNAVAILABLE, 1, text));
            }
        };
        let stop = stop.clone();
        tasks.spawn("passed request", async move {
            // The request gets the error.
            drop(stop.run_until_cancelled(connection).await);
            drop(place);
        });
        match sender.send_request(for_successor(request)).await {
            Ok(response) => for_client(response, is_stream),
            Err(error) => {
                tracing::warn!(error = %error, "the process that has taken over gave no answer to a late request");
                reply::closing(reply::refusal(StatusCode::BAD_GATEWAY, "the answer was lost while headend restarted"))
            }
        }
    }

    /// Takes a place, and connects to the other process.
    async fn begin(
        &self,
        origin: PassedOrigin,
    ) -> io::Result<(OwnedSemaphorePermit, RequestSender, SuccessorConnection)> {
        // The semaphore is never closed.
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(io::Error::other)?;
        let stream = (self.connect)(origin).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        Ok((place, sender, connection))
    }
}

type RequestSender = http1::SendRequest<Incoming>;
type SuccessorConnection = http1::Connection<TokioIo<UnixStream>, Incoming>;

/// Returns the request as the other process gets it: in HTTP/1.1, without the fields of the
/// client's connection.
fn for_successor(mut request: Request<Incoming>) -> Request<Incoming> {
    *request.version_mut() = Version::HTTP_11;
    remove_connection_fields(request.headers_mut());
    request
}

/// Returns the answer as the client gets it, as the last one of its connection. With `is_stream`
/// its body ends after [`STREAM_LIFE`].
fn for_client(response: Response<Incoming>, is_stream: bool) -> Response<ReplyBody> {
    let (mut head, body) = response.into_parts();
    head.version = Version::default();
    remove_connection_fields(&mut head.headers);
    let frames = stream::unfold(Box::pin(body), |mut body| async move {
        loop {
            // A body that breaks off ends here; its length or its last event is missing then.
            let frame = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await?.ok()?;
            if let Ok(data) = frame.into_data() {
                return Some((MessageSlices::from(data), body));
            }
        }
    });
    let body = if is_stream {
        let end = Box::pin(tokio::time::sleep(STREAM_LIFE));
        ReplyBody::Events(Box::pin(frames.take_until(end)), MessageSlices::default())
    } else {
        ReplyBody::Events(Box::pin(frames), MessageSlices::default())
    };
    reply::closing(Response::from_parts(head, body))
}

/// Removes the fields that belong to one connection, also those that `Connection` names.
fn remove_connection_fields(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in OF_CONNECTION.iter().chain(&named) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn fields_of_one_connection_are_not_passed_on() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "Keep-Alive, x-own"),
            ("connection", "x-other"),
            ("keep-alive", "timeout=4"),
            ("x-own", "1"),
            ("x-other", "1"),
            ("te", "trailers"),
            ("authorization", "Bearer t"),
            ("content-length", "2"),
            ("transfer-encoding", "chunked"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        remove_connection_fields(&mut headers);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["authorization", "content-length", "transfer-encoding"]);
    }
}
