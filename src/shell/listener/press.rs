//! Ends the connections of slow readers, and the request bodies of slow senders, while room for
//! messages is short.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::base::budget::{ByteBudget, COUNTED_FROM};
use crate::base::callers::CallerNumber;

/// Time within which a client must read [`LEAST`] bytes of the data waiting for it, or send as many
/// of a body.
const TIME: Duration = Duration::from_secs(5);
/// Least number of bytes in each [`TIME`]. The kernel accepts bytes for a reading client in no
/// smaller portions.
const LEAST: usize = 64 * 1024;

/// A stream whose writes fail with [`io::ErrorKind::TimedOut`] if the client is too slow while room
/// is short.
#[derive(Debug)]
pub struct PressedStream<S> {
    stream: S,
    budget: Arc<ByteBudget>,
    /// Set while bytes wait for the client.
    timer: Option<Pin<Box<Sleep>>>,
    /// Bytes that the client took since the timer was set.
    taken: usize,
}

impl<S> PressedStream<S> {
    pub fn new(stream: S, budget: Arc<ByteBudget>) -> Self {
        Self { stream, budget, timer: None, taken: 0 }
    }

    /// Counts the bytes that were written, and fails if the client took too few in time.
    fn wrote(
        &mut self,
        offered: usize,
        written: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(taken)) => {
                self.taken += taken;
                if *taken >= offered || self.taken >= LEAST {
                    self.timer = None;
                }
                return written;
            }
            Poll::Ready(Err(_)) => return written,
            Poll::Pending => {}
        }
        loop {
            let timer = self.timer.get_or_insert_with(|| {
                self.taken = 0;
                Box::pin(tokio::time::sleep(TIME))
            });
            std::task::ready!(timer.as_mut().poll(cx));
            if self.budget.is_short() {
                tracing::debug!("connection ended: its client reads too slowly while memory for messages is short");
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            timer.as_mut().reset(Instant::now() + TIME);
            self.taken = 0;
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PressedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PressedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(buf.len(), written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(bufs.iter().map(|buf| buf.len()).sum(), written, cx)
    }

    passes_on!();
}

/// The rate at which a body or a line is received.
#[derive(Debug)]
pub struct BodyPace {
    /// Deadline for the next [`LEAST`] bytes.
    until: Instant,
    /// Bytes received in the current period.
    brought: usize,
}

impl BodyPace {
    /// Starts the measurement for a body that begins now.
    pub fn new() -> Self {
        Self { until: Instant::now() + TIME, brought: 0 }
    }

    /// Counts new bytes of a body of which `received` bytes have arrived in all. While a body is
    /// too small to need room, its period starts anew.
    pub fn count(&mut self, bytes: usize, received: usize) {
        self.brought += bytes;
        if self.brought >= LEAST || received < COUNTED_FROM {
            *self = Self::new();
        }
    }

    /// Waits until the body is too slow for the room that it takes: it brings less than 64 KiB in 5
    /// s while room is short for its caller. Never resolves for a body that takes no room.
    pub async fn wait_until_too_slow(&mut self, received: usize, budget: &ByteBudget, caller: &CallerNumber) {
        if received < COUNTED_FROM {
            std::future::pending::<()>().await;
        }
        loop {
            tokio::time::sleep_until(self.until).await;
            if budget.is_short_for(caller) {
                return;
            }
            *self = Self::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    fn budget() -> (Arc<ByteBudget>, Bytes) {
        let budget = ByteBudget::new(1 << 20);
        let held = budget.count(Bytes::from(vec![0; 1 << 20]));
        (budget, held)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_waited_for_until_room_is_short() {
        let (ours, _theirs) = duplex(64);
        let budget = ByteBudget::new(1 << 20);
        let mut pressed = PressedStream::new(ours, Arc::clone(&budget));
        let start = Instant::now();
        let write = pressed.write_all(&[0; 100]);
        let fill = async {
            tokio::time::sleep(Duration::from_secs(3601)).await;
            let held = budget.count(Bytes::from(vec![0; 1 << 20]));
            std::future::pending::<()>().await;
            drop(held);
        };
        let error = tokio::select! {
            error = write => error.map_err(|error| error.kind()),
            () = fill => Ok(()),
        };
        assert_eq!((error, start.elapsed().as_secs()), (Err(io::ErrorKind::TimedOut), 3605));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_keeps_up_is_waited_for_and_one_that_trickles_is_not() {
        let (budget, _held) = budget();
        for (portion, keeps_up) in [(LEAST / 4, true), (1024, false)] {
            let (ours, mut theirs) = duplex(portion);
            let mut pressed = PressedStream::new(ours, Arc::clone(&budget));
            let reading = async {
                let mut buffer = vec![0; portion];
                loop {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    if theirs.read(&mut buffer).await.is_err() {
                        return;
                    }
                }
            };
            let bytes = vec![0; 20 * portion];
            let written = tokio::select! {
                written = pressed.write_all(&bytes) => written.is_ok(),
                () = reading => false,
            };
            assert_eq!(written, keeps_up, "{portion}");
        }
    }
}
