//! The standard input of a program that runs under a lease: nothing is written once the lease has
//! run out.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

use crate::cluster::lease::ProgramLease;

/// A writer whose writes fail once the lease has run out. Without a lease it only passes on.
#[derive(Debug)]
pub(in crate::upstream) struct LeasedWriter<W> {
    writer: W,
    lease: Option<Arc<ProgramLease>>,
}

impl<W> LeasedWriter<W> {
    pub(in crate::upstream) const fn new(writer: W, lease: Option<Arc<ProgramLease>>) -> Self {
        Self { writer, lease }
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for LeasedWriter<W> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.lease.as_ref().is_some_and(|lease| lease.is_over()) {
            return Poll::Ready(Err(io::Error::other("the lease of the program has run out")));
        }
        Pin::new(&mut self.writer).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::base::clock;

    #[tokio::test(start_paused = true)]
    async fn nothing_is_written_after_the_end_of_a_lease() {
        let lease = Arc::new(ProgramLease::new("fx", [0; 16], clock::since_boot() + Duration::from_secs(13)));
        let mut written = Vec::new();
        let mut writer = LeasedWriter::new(&mut written, Some(Arc::clone(&lease)));
        tokio::time::advance(Duration::from_secs(12)).await;
        writer.write_all(b"in time").await.unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(lease.is_over());
        assert!(writer.write_all(b"late").await.is_err());
        assert_eq!(written, b"in time");
    }
}
