//! Time limits of a client's connection: for its first byte, for a request head, between requests,
//! and for reading our answer.
//!
//! The HTTP library has a single limit for all of these. A pooled connection needs minutes; a slow
//! head deserves seconds.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// The time limits. `first_byte` also applies between requests, until a valid credential was
/// presented.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionTimes {
    pub first_byte: Duration,
    pub head: Duration,
    pub idle: Duration,
    pub write: Duration,
}

/// Connected, no byte received yet.
const FRESH: u8 = 0;
/// Between two requests.
const IDLE: u8 = 1;
/// A head has begun to arrive.
const HEAD: u8 = 2;
/// A request is being served; its body has a time limit of its own.
const BUSY: u8 = 3;

/// A valid credential was presented, or none is required.
const KNOWN: u8 = 0;
const ANONYMOUS: u8 = 1;
/// Anonymous, and dismissed.
const DISMISSED: u8 = 2;

/// The answer to a connection that is dismissed before its head is complete (RFC 9110, section
/// 15.6.4).
const GIVE_WAY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
    content-type: text/plain\r\ncontent-length: 21\r\n\r\ntoo many connections\n";
/// The answer to a head that arrived too slowly (RFC 9110, section 15.5.9).
const TOO_SLOW: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// The state of a connection, and whether a valid credential was presented on it. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ConnectionPhase(Arc<PhaseState>);

/// The state that clones of a [`ConnectionPhase`] share.
#[derive(Debug, Default)]
struct PhaseState {
    /// [`FRESH`], [`IDLE`] or [`HEAD`]: the phase while no request is in progress.
    doing: AtomicU8,
    /// Requests in progress; HTTP/1 has one at most.
    requests: AtomicU32,
    /// Requests that have begun.
    begun: AtomicU32,
    /// True for HTTP/2, whose heads are found frame by frame and not by the first byte.
    is_framed: AtomicBool,
    /// [`KNOWN`], [`ANONYMOUS`] or [`DISMISSED`].
    standing: AtomicU8,
    /// The connection's task, while the connection is anonymous and waits.
    task: AtomicWaker,
}

impl ConnectionPhase {
    /// Creates the state of a connection without a credential so far.
    pub fn anonymous() -> Self {
        let phase = Self::default();
        phase.0.standing.store(ANONYMOUS, Ordering::Relaxed);
        phase
    }

    /// Marks the connection as busy with a request, until the value is dropped.
    pub fn busy(&self) -> BusyConnection {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        self.0.begun.fetch_add(1, Ordering::Relaxed);
        self.0.doing.store(IDLE, Ordering::Relaxed);
        BusyConnection(self.clone())
    }

    pub fn is_busy(&self) -> bool {
        self.0.requests.load(Ordering::Relaxed) > 0
    }

    /// Marks the connection as HTTP/2: bytes from its client begin no head any more, see
    /// [`super::frames`].
    pub fn framed(&self) {
        self.0.is_framed.store(true, Ordering::Relaxed);
        self.0.doing.store(IDLE, Ordering::Relaxed);
    }

    /// Returns the phase: [`FRESH`], [`IDLE`], [`HEAD`] or [`BUSY`].
    fn current(&self) -> u8 {
        if self.is_busy() { BUSY } else { self.0.doing.load(Ordering::Relaxed) }
    }

    /// Marks the connection as authenticated. This cancels a dismissal that the connection has not
    /// noticed yet.
    pub fn known(&self) {
        self.0.standing.store(KNOWN, Ordering::Release);
    }

    /// Dismisses an anonymous connection: it ends at once if it waits for its peer, else after its
    /// next answer.
    pub fn dismiss(&self) {
        let anonymous = self.0.standing.compare_exchange(ANONYMOUS, DISMISSED, Ordering::AcqRel, Ordering::Relaxed);
        if anonymous.is_ok() {
            self.0.task.wake();
        }
    }

    pub fn is_dismissed(&self) -> bool {
        self.0.standing.load(Ordering::Acquire) == DISMISSED
    }

    /// Is ready once the connection is dismissed. An authenticated connection is never woken for
    /// it.
    pub fn poll_dismissed(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self.0.standing.load(Ordering::Acquire) {
            KNOWN => return Poll::Pending,
            ANONYMOUS => self.0.task.register(cx.waker()),
            _ => return Poll::Ready(()),
        }
        if self.is_dismissed() { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// A request in progress; dropping it marks the connection as idle.
#[derive(Debug)]
pub struct BusyConnection(ConnectionPhase);

impl Drop for BusyConnection {
    fn drop(&mut self) {
        self.0.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream whose reads and writes fail with [`io::ErrorKind::TimedOut`] when a time limit passes.
#[derive(Debug)]
pub struct PacedStream<S> {
    stream: S,
    patience: ConnectionTimes,
    phase: ConnectionPhase,
    reading: PhaseTimer,
    writing: PhaseTimer,
    /// False if the bytes of this stream are not HTTP itself but TLS.
    is_plain: bool,
}

/// A timer that remembers the phase it was set for.
#[derive(Debug, Default)]
struct PhaseTimer {
    sleep: Option<Pin<Box<Sleep>>>,
    armed_for: Option<TimerPurpose>,
}

/// A phase, and the number of requests that had begun.
type TimerPurpose = (u8, u32);

impl PhaseTimer {
    /// Starts the timer unless it already runs for this purpose. Ready when the time is over.
    fn poll(&mut self, purpose: TimerPurpose, time: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let until = || Instant::now() + time;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until())));
        if self.armed_for != Some(purpose) {
            self.armed_for = Some(purpose);
            sleep.as_mut().reset(until());
        }
        sleep.as_mut().poll(cx)
    }

    /// Makes sure that the task wakes within that time, so that the stream then sets the timer for
    /// the phase it is in.
    ///
    /// hyper polls for bytes while it serves a request, and not again afterwards: without this
    /// wake-up an idle connection would have no limit. A running timer is left as it is, which
    /// saves setting one with each request.
    fn watch(&mut self, time: Duration, cx: &mut Context<'_>) {
        self.armed_for = None;
        if self.sleep.as_ref().is_none_or(|sleep| sleep.is_elapsed()) {
            // A timer that was just set cannot have elapsed.
            let _: Poll<()> = self.poll((BUSY, 0), time, cx);
        }
    }
}

impl<S> PacedStream<S> {
    pub fn new(stream: S, patience: ConnectionTimes, phase: ConnectionPhase) -> Self {
        let (reading, writing) = (PhaseTimer::default(), PhaseTimer::default());
        Self { stream, patience, phase, reading, writing, is_plain: true }
    }

    /// Creates a stream below TLS, which ends without an answer in plain text.
    pub fn below_tls(stream: S, patience: ConnectionTimes, phase: ConnectionPhase) -> Self {
        Self { is_plain: false, ..Self::new(stream, patience, phase) }
    }

    fn idle_time(&self) -> Duration {
        let is_known = self.phase.0.standing.load(Ordering::Relaxed) == KNOWN;
        if is_known { self.patience.idle } else { self.patience.first_byte }
    }

    /// Applies the limit for writing, and fails if the connection was dismissed.
    fn wrote<T>(&mut self, written: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.writing.armed_for = None;
            return written;
        }
        if self.phase.poll_dismissed(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        self.writing.poll((BUSY, 0), self.patience.write, cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> PacedStream<S> {
    /// Ends the connection. Before a complete head it first writes an answer, as far as that fits
    /// without waiting, unless an earlier answer is still being written.
    fn end(&mut self, answer: &[u8], why: io::ErrorKind, cx: &mut Context<'_>) -> io::Error {
        let before_head = matches!(self.phase.current(), FRESH | HEAD);
        if self.is_plain && before_head && self.writing.armed_for.is_none() {
            // The answer is short and the socket's buffer empty. A peer that does not read it gets
            // none.
            drop(Pin::new(&mut self.stream).poll_write(cx, answer));
        }
        why.into()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for PacedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        let phase = this.phase.current();
        if read.is_ready() {
            let begins_head = matches!(phase, FRESH | IDLE) && !this.phase.0.is_framed.load(Ordering::Relaxed);
            if buf.filled().len() > before && begins_head {
                this.phase.0.doing.store(HEAD, Ordering::Relaxed);
                this.reading.armed_for = None;
            }
            return read;
        }
        if this.phase.poll_dismissed(cx).is_ready() {
            return Poll::Ready(Err(this.end(GIVE_WAY, io::ErrorKind::ConnectionAborted, cx)));
        }
        let time = match phase {
            FRESH => this.patience.first_byte,
            IDLE => this.idle_time(),
            HEAD => this.patience.head,
            _ => {
                this.reading.watch(this.idle_time(), cx);
                return Poll::Pending;
            }
        };
        let begun = this.phase.0.begun.load(Ordering::Relaxed);
        ready!(this.reading.poll((phase, begun), time, cx));
        Poll::Ready(Err(this.end(TOO_SLOW, io::ErrorKind::TimedOut, cx)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PacedStream<S> {
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

    passes_on!();
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;
    use futures_util::stream::FuturesUnordered;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    const PATIENCE: ConnectionTimes = ConnectionTimes {
        first_byte: Duration::from_secs(10),
        head: Duration::from_secs(5),
        idle: Duration::from_secs(120),
        write: Duration::from_secs(60),
    };

    fn connection() -> (PacedStream<DuplexStream>, DuplexStream, ConnectionPhase) {
        let (ours, theirs) = duplex(64);
        let phase = ConnectionPhase::default();
        (PacedStream::new(ours, PATIENCE, phase.clone()), theirs, phase)
    }

    /// Returns the seconds until a read fails.
    async fn patience_of(paced: &mut PacedStream<DuplexStream>) -> u64 {
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
    async fn a_connection_without_a_credential_may_not_idle_for_long() {
        for (is_known, patience) in [(false, 10), (true, 120)] {
            let (ours, _theirs) = duplex(64);
            let phase = ConnectionPhase::anonymous();
            let mut paced = PacedStream::new(ours, PATIENCE, phase.clone());
            drop(phase.busy());
            if is_known {
                phase.known();
            }
            assert_eq!(patience_of(&mut paced).await, patience);
        }
    }

    /// Returns the text that a peer gets when its connection is dismissed after these bytes, and
    /// the error of its next read.
    async fn farewell(phase: ConnectionPhase, bytes: &[u8], busy: bool) -> (String, io::ErrorKind) {
        let (ours, mut theirs) = duplex(512);
        let mut paced = PacedStream::new(ours, PATIENCE, phase.clone());
        theirs.write_all(bytes).await.unwrap();
        for _ in bytes {
            paced.read_u8().await.unwrap();
        }
        let _busy = busy.then(|| phase.busy());
        let mut next = Box::pin(paced.read_u8());
        tokio::select! {
            biased;
            read = &mut next => panic!("{read:?}"),
            () = std::future::ready(()) => phase.dismiss(),
        }
        let error = next.await.unwrap_err().kind();
        drop(paced);
        let mut told = String::new();
        theirs.read_to_string(&mut told).await.unwrap();
        (told, error)
    }

    #[tokio::test(start_paused = true)]
    async fn a_dismissed_connection_is_told_so_where_no_answer_is_under_way() {
        for (label, bytes, busy, told) in [
            ("fresh", &b""[..], false, true),
            ("in a head", b"POST", false, true),
            ("with a request", b"POST", true, false),
        ] {
            let (text, error) = farewell(ConnectionPhase::anonymous(), bytes, busy).await;
            assert_eq!((text.as_bytes() == GIVE_WAY, text.is_empty()), (told, !told), "{label}: {text}");
            assert_eq!(error, io::ErrorKind::ConnectionAborted, "{label}");
        }
        let (text, error) = farewell(ConnectionPhase::default(), b"POST", false).await;
        assert_eq!((text.as_bytes(), error), (TOO_SLOW, io::ErrorKind::TimedOut), "one that is known is not dismissed");
        for answer in [GIVE_WAY, TOO_SLOW] {
            let (head, body) = std::str::from_utf8(answer).unwrap().split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
        }
    }

    #[tokio::test]
    async fn what_has_come_is_read_before_a_connection_gives_way() {
        let (ours, mut theirs) = duplex(64);
        let phase = ConnectionPhase::anonymous();
        let mut paced = PacedStream::new(ours, PATIENCE, phase.clone());
        theirs.write_all(b"P").await.unwrap();
        phase.dismiss();
        assert_eq!(paced.read_u8().await.unwrap(), b'P');
        phase.known();
        let read = tokio::time::timeout(Duration::from_millis(1), paced.read_u8()).await;
        assert!(read.is_err(), "it was let in meanwhile and stays");
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
    async fn a_connection_whose_request_ends_without_another_read_is_idle_all_the_same() {
        let (mut paced, mut theirs, phase) = connection();
        for _ in 0..2 {
            theirs.write_all(b"P").await.unwrap();
            paced.read_u8().await.unwrap();
            let busy = phase.busy();
            let start = Instant::now();
            // Polls the read only when it is woken.
            let mut read: FuturesUnordered<_> = [paced.read_u8()].into_iter().collect();
            tokio::select! {
                biased;
                read = read.next() => panic!("{read:?}"),
                () = std::future::ready(()) => drop(busy),
            }
            let error = read.next().await.unwrap().map_err(|error| error.kind());
            // The timer starts twice: for the request, and for the wait after it.
            assert_eq!((error, start.elapsed().as_secs()), (Err(io::ErrorKind::TimedOut), 240));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_given_up() {
        let (mut paced, _theirs, _) = connection();
        let start = Instant::now();
        let error = paced.write_all(&[0; 100]).await.map_err(|error| error.kind());
        assert_eq!((error, start.elapsed().as_secs()), (Err(io::ErrorKind::TimedOut), 60));
    }
}
