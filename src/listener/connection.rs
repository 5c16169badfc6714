//! One connection of HTTP/1 from its first byte to its end, as every listener serves it.

use std::convert::Infallible;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::body::Attended;
use super::coded::Coded;

/// Serves requests until the client has no more, or until `stop` fires and the request in progress is answered. `bounds` limits
/// the heads of requests.
///
/// # Errors
/// The client goes away, or what it sends is not HTTP.
pub(crate) async fn serve<S, A>(
    stream: S,
    bounds: impl FnOnce(&mut http1::Builder),
    service: A,
    stop: &CancellationToken,
) -> Result<(), hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
    A: Service<Request<Incoming>, Response = Response<Attended>, Error = Infallible>,
{
    let mut http = http1::Builder::new();
    // The stream has its own, finer limits.
    http.timer(TokioTimer::new()).header_read_timeout(None);
    bounds(&mut http);
    let connection = http.serve_connection(TokioIo::new(Coded::new(stream)), service);
    tokio::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }
}
