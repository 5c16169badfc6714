//! Serves one HTTP/1 connection from its first byte to its end, for every listener.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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
use super::reply;

/// Times for which a connection stays open after its listener has stopped, so that a request which
/// is on its way is not lost. A request that arrives meanwhile is the last one of its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionLinger {
    /// For a connection without any request so far.
    pub fresh: Duration,
    /// For a connection between two requests.
    pub idle: Duration,
}

/// Serves requests until the client sends no more, or until `stop` fires, the time of `linger` is
/// over and the request in progress is answered. `bounds` sets limits for request heads. While a
/// request is being answered, the connection is marked as busy in `phase`; a dismissed connection
/// ends with that answer.
///
/// # Errors
/// The client goes away, or sends bytes that are not HTTP.
pub async fn serve<A: Future<Output = Response<ReplyBody>>>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    phase: &ConnectionPhase,
    bounds: impl FnOnce(&mut http1::Builder),
    answer: impl Fn(Request<Incoming>) -> A,
    stop: &CancellationToken,
    linger: impl FnOnce() -> ConnectionLinger,
) -> Result<(), hyper::Error> {
    let answer = &answer;
    let (is_fresh, is_ending) = (&AtomicBool::new(true), &AtomicBool::new(false));
    let service = service_fn(|request| {
        let busy = phase.busy();
        is_fresh.store(false, Ordering::Relaxed);
        async move {
            let mut response = answer(request).await;
            close_if_dismissed(&mut response, phase);
            if is_ending.load(Ordering::Relaxed) {
                response = reply::closing(response);
            }
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
        ended = connection.as_mut() => return ended,
        () = stop.cancelled() => is_ending.store(true, Ordering::Relaxed),
    }
    let ConnectionLinger { fresh, idle } = linger();
    let rest = if is_fresh.load(Ordering::Relaxed) { fresh } else { idle };
    if !rest.is_zero()
        && let Ok(ended) = tokio::time::timeout(rest, connection.as_mut()).await
    {
        return ended;
    }
    connection.as_mut().graceful_shutdown();
    connection.await
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::time::Instant;

    use super::*;

    const LINGER: ConnectionLinger = ConnectionLinger { fresh: Duration::from_secs(1), idle: Duration::from_secs(6) };
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

    /// Serves one connection while `client` has its other end.
    async fn play<C: Future<Output = ()>>(
        linger: ConnectionLinger,
        client: impl FnOnce(DuplexStream, CancellationToken) -> C,
    ) {
        let (ours, theirs) = duplex(1 << 16);
        let (phase, stop) = (ConnectionPhase::anonymous(), CancellationToken::new());
        let answer = |_| async { reply::with_status(StatusCode::OK, ReplyBody::whole("hello")) };
        let served = serve(ours, &phase, |_| {}, answer, &stop, || linger);
        drop(tokio::join!(served, client(theirs, stop.clone())));
    }

    /// Reads one answer; returns whether it is the last of its connection.
    async fn is_last(client: &mut DuplexStream) -> bool {
        let mut text = String::new();
        while !text.ends_with("hello") {
            text.push(char::from(client.read_u8().await.unwrap()));
        }
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        text.contains("connection: close\r\n")
    }

    /// Waits for the end of the connection; returns how long that took.
    async fn wait_for_end(client: &mut DuplexStream) -> Duration {
        let begun = Instant::now();
        assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0);
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_request_of_a_connection_is_answered_although_the_listener_has_stopped() {
        play(ConnectionLinger { idle: Duration::ZERO, ..LINGER }, |mut client, stop| async move {
            stop.cancel();
            tokio::time::sleep(Duration::from_millis(900)).await;
            client.write_all(REQUEST).await.unwrap();
            assert!(is_last(&mut client).await);
            assert_eq!(wait_for_end(&mut client).await, Duration::ZERO);
        })
        .await;
        play(LINGER, |mut client, stop| async move {
            stop.cancel();
            assert_eq!(wait_for_end(&mut client).await, LINGER.fresh);
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_between_two_requests_ends_after_its_time_or_the_next_request() {
        for pause in [5, 7] {
            play(LINGER, |mut client, stop| async move {
                client.write_all(REQUEST).await.unwrap();
                assert!(!is_last(&mut client).await);
                stop.cancel();
                if pause < LINGER.idle.as_secs() {
                    tokio::time::sleep(Duration::from_secs(pause)).await;
                    client.write_all(REQUEST).await.unwrap();
                    assert!(is_last(&mut client).await);
                    assert_eq!(wait_for_end(&mut client).await, Duration::ZERO);
                } else {
                    assert_eq!(wait_for_end(&mut client).await, LINGER.idle);
                }
            })
            .await;
        }
        play(ConnectionLinger::default(), |mut client, stop| async move {
            client.write_all(REQUEST).await.unwrap();
            assert!(!is_last(&mut client).await);
            stop.cancel();
            assert_eq!(wait_for_end(&mut client).await, Duration::ZERO);
        })
        .await;
    }
}
