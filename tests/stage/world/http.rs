//! HTTP/1.1 in memory, as little of it as the clients and servers of a world need.

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use memchr::memmem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

/// Bytes that are read at once.
const READ: usize = 4096;

/// A connection, and its bytes that are read and not used yet.
#[derive(Debug)]
pub(super) struct WorldConnection {
    stream: DuplexStream,
    buffer: BytesMut,
}

/// The head of a request or an answer.
#[derive(Debug)]
pub(super) struct WorldHead(String);

impl WorldHead {
    /// Returns the words of the first line.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        self.0.lines().next().unwrap_or_default().split(' ')
    }

    /// Returns the value of a header field.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let fields = self.0.lines().skip(1).filter_map(|line| line.split_once(':'));
        fields.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// Returns the length of the body; `None` if it comes in chunks.
    pub(super) fn length(&self) -> Option<usize> {
        match self.field("transfer-encoding") {
            Some(_) => None,
            None => Some(self.field("content-length").map_or(0, |length| length.parse().unwrap())),
        }
    }
}

impl WorldConnection {
    pub(super) fn new(stream: DuplexStream) -> Self {
        Self { stream, buffer: BytesMut::new() }
    }

    /// Returns the connection unless the other side has closed it.
    pub(super) fn if_open(mut self) -> Option<Self> {
        self.fill().now_or_never().is_none().then_some(self)
    }

    /// Writes; returns `false` if the other side is gone.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// Reads once; returns `false` at the end. Cancel-safe.
    pub(super) async fn fill(&mut self) -> bool {
        self.buffer.reserve(READ);
        matches!(self.stream.read_buf(&mut self.buffer).await, Ok(1..))
    }

    async fn until(&mut self, mark: &[u8]) -> Option<Bytes> {
        loop {
            if let Some(at) = memmem::find(&self.buffer, mark) {
                return Some(self.buffer.split_to(at + mark.len()).freeze());
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    /// Reads up to the end of the header fields; `None` if the connection ends before.
    pub(super) async fn head(&mut self) -> Option<WorldHead> {
        let bytes = self.until(b"\r\n\r\n").await?;
        Some(WorldHead(String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Reads so many bytes.
    pub(super) async fn body(&mut self, length: usize) -> Option<Bytes> {
        while self.buffer.len() < length {
            if !self.fill().await {
                return None;
            }
        }
        Some(self.buffer.split_to(length).freeze())
    }

    /// Reads a chunk of a body; the last one is empty.
    pub(super) async fn chunk(&mut self) -> Option<Bytes> {
        let line = self.until(b"\r\n").await?;
        let size = std::str::from_utf8(&line).unwrap().trim();
        let size = usize::from_str_radix(size.split(';').next().unwrap_or_default(), 16).unwrap();
        Some(self.body(size + 2).await?.slice(..size))
    }
}

/// Returns a whole answer with that body.
pub(super) fn whole(status: u16, session: Option<u64>, body: &str) -> String {
    let (session, length) = (session.map(|session| format!("Mcp-Session-Id: s{session}\r\n")), body.len());
    let session = session.unwrap_or_default();
    format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{session}Content-Length: {length}\r\n\r\n{body}")
}

/// Returns the head of an answer that is an event stream.
pub(super) fn stream_head() -> String {
    "HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned()
}

/// Returns an event as a chunk.
pub(super) fn event(id: &str, data: &str) -> String {
    let event = format!("id: {id}\ndata: {data}\n\n");
    format!("{:x}\r\n{event}\r\n", event.len())
}

/// The end of a body in chunks.
pub(super) const END: &str = "0\r\n\r\n";

/// Events of a stream: their ids and data.
#[derive(Debug, Default)]
pub(super) struct WorldEvents(BytesMut);

impl WorldEvents {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Returns the next whole event: its id, and its data, which may be empty.
    pub(super) fn pop(&mut self) -> Option<(Option<String>, String)> {
        let at = memmem::find(&self.0, b"\n\n")?;
        let event = self.0.split_to(at + 2);
        let text = String::from_utf8_lossy(&event);
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        Some((field("id:").map(str::to_owned), field("data:").unwrap_or_default().to_owned()))
    }
}
