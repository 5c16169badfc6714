//! Watches the frames that an HTTP/2 client sends: how long a request head may take, and how many
//! frames may come that carry neither a request nor data.
//!
//! The HTTP library has no limit for either. A head begins with its first byte and ends with its
//! last frame, which may be the tenth CONTINUATION. Pings, settings, resets and empty frames cost
//! their sender nothing, so a client has [`PER_SECOND`] of them; what it reads of our answers earns
//! it more, since every reader has to announce its progress. Source: RFC 9113, sections 4.1, 6 and
//! 10.5.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

/// Control frames that a client may send each second.
const PER_SECOND: f64 = 1000.0;
/// Bytes of ours that earn a client another control frame.
const EARNING: f64 = 1024.0;
/// Length of the text with which a client begins.
const PREFACE: usize = 24;
/// Length of the head of a frame.
const FRAME_HEAD: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A stream of HTTP/2 whose frames are watched. A read fails with [`io::ErrorKind::TimedOut`] if a
/// head takes too long. Once there are too many control frames, nothing more is read.
#[derive(Debug)]
pub(crate) struct FrameWatch<S> {
    stream: S,
    frames: FrameCounter,
    /// Time limit for a head.
    head: Duration,
    /// Set while a head is incomplete.
    timer: Option<Pin<Box<Sleep>>>,
    /// Control frames that the client may send now.
    credit: f64,
    /// The time at which the credit was last raised.
    raised: Instant,
    /// Fires when there were too many control frames.
    overrun: CancellationToken,
}

impl<S> FrameWatch<S> {
    pub(crate) fn new(stream: S, head: Duration, overrun: CancellationToken) -> Self {
        let (frames, raised) = (FrameCounter::new(), Instant::now());
        Self { stream, frames, head, timer: None, credit: PER_SECOND, raised, overrun }
    }

    /// Counts control frames. Returns false if there were too many.
    fn pay(&mut self, control: u32) -> bool {
        let now = Instant::now();
        let earned = now.duration_since(self.raised).as_secs_f64() * PER_SECOND;
        self.raised = now;
        self.credit = (self.credit + earned).min(PER_SECOND) - f64::from(control);
        self.credit >= 0.0
    }

    /// Fails if the current head takes too long.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.frames.is_in_head() {
            self.timer = None;
            return Poll::Pending;
        }
        let time = self.head;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
        timer.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FrameWatch<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.overrun.is_cancelled() {
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        if read.is_pending() {
            return this.poll_head(cx);
        }
        let read_bytes = buf.filled().get(before..).unwrap_or_default();
        let (heads, control) = (this.frames.heads, this.frames.read(read_bytes));
        if heads != this.frames.heads {
            // Another head than the one that the timer is for.
            this.timer = None;
        }
        if !this.pay(control) {
            buf.set_filled(before);
            this.overrun.cancel();
            return Poll::Pending;
        }
        // A head of many small pieces is over in time, too.
        match this.poll_head(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => read,
        }
    }
}

impl<S: AsyncWrite + Unpin> FrameWatch<S> {
    fn wrote(&mut self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            let bytes = f64::from(u32::try_from(*bytes).unwrap_or(u32::MAX));
            self.credit = (self.credit + bytes / EARNING).min(PER_SECOND);
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FrameWatch<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(&written);
        written
    }

    passes_on!();
}

/// The position in a client's frames.
#[derive(Debug)]
struct FrameCounter {
    /// Bytes left of the preface.
    preface: usize,
    /// The frame head being read, and how many bytes of it have come.
    head: [u8; FRAME_HEAD],
    filled: usize,
    /// Bytes left of the payload of the current frame.
    payload: usize,
    /// True while the current payload is part of a request head.
    is_head: bool,
    /// True between HEADERS and the last CONTINUATION.
    is_open: bool,
    /// Request heads and other frames that were completed, so that each has its own time.
    heads: u64,
}

impl FrameCounter {
    fn new() -> Self {
        Self {
            preface: PREFACE,
            head: [0; FRAME_HEAD],
            filled: 0,
            payload: 0,
            is_head: false,
            is_open: false,
            heads: 0,
        }
    }

    /// Returns whether bytes have come of a request head, or of a frame head, that is incomplete.
    /// The payload of other frames has no such limit: a body has a limit of its own.
    fn is_in_head(&self) -> bool {
        self.is_open || self.filled > 0 || (self.payload > 0 && self.is_head)
    }

    /// Follows these bytes. Returns how many control frames have begun in them.
    fn read(&mut self, mut bytes: &[u8]) -> u32 {
        let mut control = 0;
        while !bytes.is_empty() {
            let pending = self.preface + self.payload;
            if pending > 0 {
                let taken = pending.min(bytes.len());
                bytes = bytes.get(taken..).unwrap_or_default();
                let of_preface = taken.min(self.preface);
                self.preface -= of_preface;
                self.payload -= taken - of_preface;
                if self.payload == 0 && self.preface == 0 {
                    self.end_frame();
                }
                continue;
            }
            let (Some(slot), Some((byte, rest))) = (self.head.get_mut(self.filled), bytes.split_first()) else { break };
            (*slot, bytes) = (*byte, rest);
            self.filled += 1;
            if self.filled == FRAME_HEAD {
                self.filled = 0;
                control += u32::from(self.begin_frame());
            }
        }
        control
    }

    /// Begins the frame whose head is complete. Returns whether it is a control frame.
    fn begin_frame(&mut self) -> bool {
        let [a, b, c, kind, flags, ..] = self.head;
        self.payload = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        self.is_head = kind != DATA;
        if matches!(kind, HEADERS | CONTINUATION) {
            self.is_open = flags & END_HEADERS == 0;
        }
        let is_control = match kind {
            DATA => self.payload == 0 && flags & END_STREAM == 0,
            HEADERS => false,
            _ => true,
        };
        if self.payload == 0 {
            self.end_frame();
        }
        is_control
    }

    fn end_frame(&mut self) {
        if !self.is_open {
            self.heads += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const HEAD: Duration = Duration::from_secs(10);

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&[a, b, c, kind, flags, 0, 0, 0, 1], payload].concat()
    }

    #[test]
    fn frames_are_counted_however_they_are_cut() {
        let frames = [
            vec![b'x'; PREFACE],
            frame(4, 0, b""),
            frame(HEADERS, 0, b"abc"),
            frame(CONTINUATION, 0, b""),
            frame(CONTINUATION, END_HEADERS, b"d"),
            frame(DATA, 0, b"body"),
            frame(DATA, 0, b""),
            frame(DATA, END_STREAM, b""),
            frame(6, 0, b"12345678"),
        ];
        for size in [1, 2, 7, 1000] {
            let mut counter = FrameCounter::new();
            let control: u32 = frames.concat().chunks(size).map(|piece| counter.read(piece)).sum();
            assert_eq!((control, counter.is_in_head(), counter.heads), (5, false, 7), "by {size}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_in_pieces_has_one_time() {
        for (label, pieces, in_head) in [
            ("half a frame head", vec![vec![0, 0]], true),
            ("a head without its end", vec![frame(HEADERS, 0, b"abc"), frame(CONTINUATION, 0, b"d")], true),
            ("half a ping", vec![frame(6, 0, b"12345678")[..12].to_vec()], true),
            ("half a body", vec![frame(DATA, 0, b"12345678")[..12].to_vec()], false),
            ("whole frames", vec![frame(HEADERS, END_HEADERS, b"abc")], false),
        ] {
            let (ours, mut theirs) = duplex(1024);
            let mut watch = FrameWatch::new(ours, HEAD, CancellationToken::new());
            let begun = Instant::now();
            let sends = async {
                theirs.write_all(&[b'x'; PREFACE]).await.unwrap();
                for piece in pieces {
                    theirs.write_all(&piece).await.unwrap();
                    tokio::time::sleep(Duration::from_secs(4)).await;
                }
                std::future::pending::<()>().await;
            };
            let mut text = Vec::new();
            let read = async { tokio::time::timeout(Duration::from_secs(60), watch.read_to_end(&mut text)).await };
            let read = tokio::select! { () = sends => unreachable!(), read = read => read };
            let want = if in_head { (true, 10) } else { (false, 60) };
            assert_eq!((read.is_ok(), begun.elapsed().as_secs()), want, "{label}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn control_frames_are_bounded_and_answers_earn_more() {
        for (label, each_second, written, is_over) in
            [("a few", 900, 0, false), ("too many", 1200, 0, true), ("of a reader", 1200, 400 * 1024, false)]
        {
            let (ours, mut theirs) = duplex(1 << 20);
            let overrun = CancellationToken::new();
            let mut watch = FrameWatch::new(ours, HEAD, overrun.clone());
            theirs.write_all(&[b'x'; PREFACE]).await.unwrap();
            for _ in 0..10 {
                if overrun.is_cancelled() {
                    break;
                }
                theirs.write_all(&frame(6, 0, b"12345678").repeat(each_second / 2)).await.unwrap();
                let mut buffer = vec![0; 1 << 16];
                drop(tokio::time::timeout(Duration::from_millis(1), watch.read(&mut buffer)).await);
                watch.write_all(&vec![0; written / 2]).await.unwrap();
                theirs.read_exact(&mut vec![0; written / 2]).await.unwrap();
                tokio::time::sleep(Duration::from_millis(499)).await;
            }
            assert_eq!(overrun.is_cancelled(), is_over, "{label}");
        }
    }
}
