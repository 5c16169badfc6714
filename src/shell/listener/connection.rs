//! Serves one HTTP/1 connection from its first byte to its end, for every listener.

use std::convert::Infallible;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::body::{BusyBody, ReplyBody, close_if_dismissed};
use super::coded::CodingCheckedStream;
use super::pace::ConnectionPhase;

/// Serves requests until the client sends no more, or until `stop` fires and the request in
/// progress is answered. `bounds` sets limits for request heads. While a request is being answered,
/// the connection is marked as busy in `phase`; a dismissed connection ends with that answer.
///
/// # Errors
/// The client goes away, or sends bytes that are not HTTP.
pub async fn serve<A: Future<Output = Response<ReplyBody>>>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    phase: &ConnectionPhase,
    bounds: impl FnOnce(&mut http1::Builder),
    answer: impl Fn(Request<Incoming>) -> A,
    stop: &CancellationToken,
) -> Result<(), hyper::Error> {
    let answer = &answer;
    let service = service_fn(|request| {
        let busy = phase.busy();
        async move {
            let mut response = answer(request).await;
            close_if_dismissed(&mut response, phase);
            Ok::<_, Infallible>(response.map(|body| BusyBody::new(body, busy)))
        }
    });
    let mut http = http1::Builder::new();
    // The stream has its own, finer limits.
    http.timer(TokioTimer::new()).header_read_timeout(None);
    bounds(&mut http);
    let connection = http.serve_connection(TokioIo::new(CodingCheckedStream::new(stream)), service);
    tokio::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }
}
