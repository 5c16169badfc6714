//! Answers request heads with unsupported transfer codings with 501, even if the HTTP library
//! refuses them itself.
//!
//! `hyper` accepts a list of codings that ends with `chunked`, and the guard refuses that with 501.
//! Any other list `hyper` answers with 400 before a service sees the request, and it has no hook
//! for that answer. This stream therefore remembers the head that is being read, and replaces the
//! library's 400 by the 501 of all other codings. The rest of the answer stays as it is.

use std::io;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};

use memchr::memmem::Finder;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::wire::coding;

/// Bytes of a head that are remembered; a longer head gets the library's answer.
const MAX_HEAD: usize = 16 * 1024;
/// Capacity in bytes of the head buffer that an idle connection may keep.
const IDLE: usize = 1024;
/// The library's status line, and one of equal length that replaces it: clients ignore the reason
/// phrase.
const BAD_REQUEST: &[u8] = b"HTTP/1.1 400 Bad Request\r\n";
const UNSUPPORTED: &[u8] = b"HTTP/1.1 501 Unsupported\r\n";

/// Prepared once, because preparing a search costs more than searching a head.
static END: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\r\n\r\n"));

/// A client's connection that remembers the request head being read.
#[derive(Debug)]
pub(crate) struct CodingCheckedStream<S> {
    stream: S,
    /// Bytes read since the last answer began, up to the end of the head.
    head: Vec<u8>,
    /// True once the head is complete or has [`MAX_HEAD`] bytes.
    whole: bool,
}

impl<S> CodingCheckedStream<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, head: Vec::new(), whole: false }
    }

    /// Remembers bytes of the head.
    fn read(&mut self, bytes: &[u8]) {
        if self.whole {
            return;
        }
        let room = MAX_HEAD.saturating_sub(self.head.len()).min(bytes.len());
        let bytes = bytes.get(..room).unwrap_or_default();
        // Nearly every head arrives in one piece, and bytes after it are not kept.
        if self.head.is_empty()
            && let Some(end) = END.find(bytes)
        {
            self.head.extend_from_slice(bytes.get(..end).unwrap_or_default());
            self.whole = true;
            return;
        }
        // The blank line may have arrived in two reads.
        let from = self.head.len().saturating_sub(3);
        self.head.extend_from_slice(bytes);
        let end = self.head.get(from..).and_then(|fresh| END.find(fresh));
        if let Some(end) = end {
            self.head.truncate(from + end);
        }
        self.whole = end.is_some() || self.head.len() == MAX_HEAD;
    }

    /// Returns the answer's first bytes with our status line; `None` if the library's answer
    /// stands.
    fn instead(&self, answer: &[u8]) -> Option<Vec<u8>> {
        let rest = answer.strip_prefix(BAD_REQUEST)?;
        is_coded(&self.head).then(|| [UNSUPPORTED, rest].concat())
    }

    /// Forgets the head once an answer was written.
    fn answered<T>(&mut self, written: Poll<T>) -> Poll<T> {
        if written.is_ready() {
            self.head.clear();
            self.head.shrink_to(IDLE);
            self.whole = false;
        }
        written
    }
}

/// Returns whether a head has a transfer coding besides `chunked`.
fn is_coded(head: &[u8]) -> bool {
    let lines = head.split(|byte| *byte == b'\n').filter_map(|line| {
        let (name, value) = line.split_at_checked("transfer-encoding".len())?;
        if name.eq_ignore_ascii_case(b"transfer-encoding") { value.strip_prefix(b":") } else { None }
    });
    !coding::is_plain_transfer(lines)
}

impl<S: AsyncRead + Unpin> AsyncRead for CodingCheckedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.read(buf.filled().get(before..).unwrap_or_default());
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CodingCheckedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let instead = self.instead(buf);
        let written = Pin::new(&mut self.stream).poll_write(cx, instead.as_deref().unwrap_or(buf));
        self.answered(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let instead = bufs.first().and_then(|first| self.instead(first));
        let written = match &instead {
            Some(first) => Pin::new(&mut self.stream).poll_write(cx, first),
            None => Pin::new(&mut self.stream).poll_write_vectored(cx, bufs),
        };
        self.answered(written)
    }

    passes_on!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_librarys_answer_changes_for_coded_heads_alone() {
        assert_eq!(BAD_REQUEST.len(), UNSUPPORTED.len());
        let bad = [BAD_REQUEST, b"content-length: 0\r\n\r\n"].concat();
        for (head, coded) in [
            ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", true),
            ("POST / HTTP/1.1\r\ntransfer-encoding:chunked\r\nTRANSFER-ENCODING:identity\r\n\r\n", true),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: x\r\n\r\n", false),
            ("POST / HTTP/1.1\r\nTransfer-Encoding : gzip\r\n\r\n", false),
            ("POST / HTTP/1.1\r\nX-Transfer-Encoding: gzip\r\n\r\n", false),
            ("POST / HTTP/1.1\r\nHost: a\r\n\r\nTransfer-Encoding: gzip\r\n\r\n", false),
        ] {
            // In one piece, and byte by byte.
            for size in [head.len(), 1] {
                let mut stream = CodingCheckedStream::new(());
                head.as_bytes().chunks(size).for_each(|piece| stream.read(piece));
                let want = coded.then(|| [UNSUPPORTED, b"content-length: 0\r\n\r\n"].concat());
                assert_eq!(stream.instead(&bad), want, "{head} by {size}");
                assert_eq!(stream.instead(b"HTTP/1.1 200 OK\r\n\r\n"), None, "{head} by {size}");
            }
        }
        let mut stream = CodingCheckedStream::new(());
        stream.read(&vec![b'a'; 10 * MAX_HEAD]);
        stream.read(b"Transfer-Encoding: gzip\r\n\r\n");
        assert!(stream.head.len() <= MAX_HEAD && stream.instead(&bad).is_none());
        let _ready: Poll<()> = stream.answered(Poll::Ready(()));
        assert!(stream.head.capacity() <= IDLE && !stream.whole);
    }
}
