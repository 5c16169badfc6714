//! Connections from the gateway to servers. On a thread with a stage they lead to pipes in memory.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tokio::net::TcpStream;

/// A function that connects to a port of the stage.
pub type StageConnector = fn(u16) -> io::Result<DuplexStream>;

thread_local! {
    static CONNECT: Cell<Option<StageConnector>> = const { Cell::new(None) };
}

/// Installs the function that makes all connections of this thread; `None` restores real ones.
pub fn install_connector(connect: Option<StageConnector>) {
    CONNECT.set(connect);
}

/// Connects to the stage's port that a URI names, 80 by default; `None` without a stage.
pub(crate) fn connect_uri(uri: &Uri) -> Option<io::Result<StageStream>> {
    let connect = CONNECT.get()?;
    let port = uri.port_u16().unwrap_or(80);
    Some(connect(port).map(|stream| StageStream::Memory(TokioIo::new(stream))))
}

/// Connects to a port of the stage, 80 by default, and returns the bare stream; `None` without a
/// stage.
pub(crate) fn connect_port(port: Option<u16>) -> Option<io::Result<DuplexStream>> {
    CONNECT.get().map(|connect| connect(port.unwrap_or(80)))
}

/// A connection to a server: a TCP socket, or a pipe in memory on a stage.
#[derive(Debug)]
pub(crate) enum StageStream {
    Tcp(TokioIo<TcpStream>),
    Memory(TokioIo<DuplexStream>),
}

impl Read for StageStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Memory(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl Write for StageStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Memory(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Memory(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Memory(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
