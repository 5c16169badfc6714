//! Time limits of a client's connection: to its first byte, for a head, between requests, and for taking what is written.
//!
//! The HTTP library has one limit for all of these; a pooled connection needs minutes where a slow head deserves seconds.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// The limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) first_byte: Duration,
    pub(crate) head: Duration,
    pub(crate) idle: Duration,
    pub(crate) write: Duration,
}

/// Connected; nothing has come yet.
const FRESH: u8 = 0;
/// Between two requests.
const IDLE: u8 = 1;
/// A head has begun.
const HEAD: u8 = 2;
/// A request is being served; its body has a limit of its own.
const BUSY: u8 = 3;

/// What a connection is doing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phase(Arc<AtomicU8>);

impl Phase {
    /// A request has begun; the connection is idle again when the value is dropped.
    pub(crate) fn busy(&self) -> Busy {
        self.0.store(BUSY, Ordering::Relaxed);
        Busy(self.clone())
    }
}

/// One request that is being served.
#[derive(Debug)]
pub(crate) struct Busy(Phase);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.0.store(IDLE, Ordering::Relaxed);
    }
}

/// A stream that fails with [`io::ErrorKind::TimedOut`] when a limit passes.
#[derive(Debug)]
pub(crate) struct Paced<S> {
    stream: S,
    patience: Patience,
    phase: Phase,
    reading: Timer,
    writing: Timer,
}

/// A timer that knows what it was set for.
#[derive(Debug, Default)]
struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
    armed_for: Option<u8>,
}

impl Timer {
    /// Sets the timer unless it runs for this purpose already; ready when the time is over.
    fn poll(&mut self, purpose: u8, time: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let until = || Instant::now() + time;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until())));
        if self.armed_for != Some(purpose) {
            self.armed_for = Some(purpose);
            sleep.as_mut().reset(until());
        }
        sleep.as_mut().poll(cx)
    }
}

impl<S> Paced<S> {
    pub(crate) fn new(stream: S, patience: Patience, phase: Phase) -> Self {
        Self { stream, patience, phase, reading: Timer::default(), writing: Timer::default() }
    }

    fn wrote<T>(&mut self, written: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.writing.armed_for = None;
            return written;
        }
        self.writing.poll(BUSY, self.patience.write, cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        let phase = this.phase.0.load(Ordering::Relaxed);
        if read.is_ready() {
            if buf.filled().len() > before && matches!(phase, FRESH | IDLE) {
                this.phase.0.store(HEAD, Ordering::Relaxed);
            }
            return read;
        }
        let time = match phase {
            FRESH => this.patience.first_byte,
            IDLE => this.patience.idle,
            HEAD => this.patience.head,
            _ => {
                this.reading.armed_for = None;
                return Poll::Pending;
            }
        };
        this.reading.poll(phase, time, cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    const PATIENCE: Patience = Patience {
        first_byte: Duration::from_secs(10),
        head: Duration::from_secs(5),
        idle: Duration::from_secs(120),
        write: Duration::from_secs(60),
    };

    fn connection() -> (Paced<DuplexStream>, DuplexStream, Phase) {
        let (ours, theirs) = duplex(64);
        let phase = Phase::default();
        (Paced::new(ours, PATIENCE, phase.clone()), theirs, phase)
    }

    /// How long a read takes until it fails.
    async fn patience_of(paced: &mut Paced<DuplexStream>) -> u64 {
        let start = Instant::now();
        let error = paced.read_u8().await.map_err(|error| error.kind());
        assert_eq!(error, Err(io::ErrorKind::TimedOut));
        start.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn each_phase_has_its_own_limit() {
        let (mut paced, mut theirs, phase) = connection();
        assert_eq!(patience_of(&mut paced).await, 10, "before the first byte");
        theirs.write_all(b"P").await.unwrap();
        paced.read_u8().await.unwrap();
        assert_eq!(patience_of(&mut paced).await, 5, "in a head");
        drop(phase.busy());
        assert_eq!(patience_of(&mut paced).await, 120, "between requests");
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_that_trickle_do_not_extend_the_time_of_a_head() {
        let (mut paced, mut theirs, _) = connection();
        let start = Instant::now();
        let trickle = async {
            while theirs.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let reading = async { while paced.read_u8().await.is_ok() {} };
        tokio::select! {
            () = trickle => {}
            () = reading => {}
        }
        assert_eq!(start.elapsed().as_secs(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_in_progress_may_take_its_time() {
        let (mut paced, _theirs, phase) = connection();
        let _busy = phase.busy();
        let read = tokio::time::timeout(Duration::from_secs(3600), paced.read_u8()).await;
        assert!(read.is_err(), "{read:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_given_up() {
        let (mut paced, _theirs, _) = connection();
        let start = Instant::now();
        let error = paced.write_all(&[0; 100]).await.map_err(|error| error.kind());
        assert_eq!((error, start.elapsed().as_secs()), (Err(io::ErrorKind::TimedOut), 60));
    }
}
