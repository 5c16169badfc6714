//! A minimal HTTP/1.1 client: one keep-alive connection, one request in flight, answers sized or
//! chunked.
//!
//! Hand-written because a general client costs more per request than the servers under test.

use std::ops::Range;

use anyhow::{Context, bail, ensure};
use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Bytes to read from the socket when the length of the answer is unknown.
const READ_BYTES: usize = 16 << 10;

/// One connection and the bytes read from it.
#[derive(Debug)]
pub(crate) struct BenchConnection {
    stream: TcpStream,
    inbox: Vec<u8>,
    unchunked: Vec<u8>,
}

/// One whole answer.
#[derive(Debug)]
pub(crate) struct WholeResponse<'c> {
    pub(crate) status: u16,
    /// Whether the body is an event stream.
    pub(crate) events: bool,
    /// The value of `Mcp-Session-Id`.
    pub(crate) session: Option<String>,
    pub(crate) body: &'c [u8],
}

#[derive(Debug, Default)]
struct BenchResponseHead {
    status: u16,
    events: bool,
    session: Option<String>,
    length: Option<usize>,
    chunked: bool,
}

impl BenchConnection {
    /// # Errors
    /// When `authority` (`host:port`) cannot be reached.
    pub(crate) async fn open(authority: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(authority).await.with_context(|| format!("connect to {authority}"))?;
        stream.set_nodelay(true).context("set TCP_NODELAY")?;
        Ok(Self { stream, inbox: Vec::new(), unchunked: Vec::new() })
    }

    /// Sends one request and reads its whole answer.
    ///
    /// # Errors
    /// When the connection breaks or the answer is not HTTP/1.1 as this client understands it.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> anyhow::Result<WholeResponse<'_>> {
        let (head, start) = self.start(request).await?;
        let body = if head.chunked {
            self.read_chunks(start).await?;
            self.unchunked.as_slice()
        } else {
            let end = start + head.length.unwrap_or_default();
            ensure!(head.length.is_some() || head.status == 204, "an answer without a length");
            self.fill(end).await?;
            ensure!(self.inbox.len() == end, "bytes after the answer");
            slice(&self.inbox, start..end)?
        };
        Ok(WholeResponse { status: head.status, events: head.events, session: head.session, body })
    }

    /// Sends one request and reads the head of its answer, which must be an event stream; the
    /// connection is that stream then.
    ///
    /// # Errors
    /// When the connection breaks or the answer is anything else.
    pub(crate) async fn subscribe(mut self, request: &[u8]) -> anyhow::Result<Self> {
        let (head, _) = self.start(request).await?;
        ensure!(head.status == 200 && head.events, "status {} and no event stream", head.status);
        Ok(self)
    }

    /// Sends a request and reads the answer's head. Returns it with the offset of the body.
    async fn start(&mut self, request: &[u8]) -> anyhow::Result<(BenchResponseHead, usize)> {
        self.inbox.clear();
        self.stream.write_all(request).await.context("send the request")?;
        let mut searched = 0;
        loop {
            self.read(READ_BYTES).await?;
            let unseen = self.inbox.get(searched..).unwrap_or_default();
            if let Some(at) = memmem::find(unseen, b"\r\n\r\n") {
                let end = searched + at;
                return Ok((parse_head(slice(&self.inbox, 0..end)?)?, end + 4));
            }
            searched = self.inbox.len().saturating_sub(3);
        }
    }

    /// Reads chunks from offset `at` of the inbox to the last one, into `unchunked`.
    async fn read_chunks(&mut self, mut at: usize) -> anyhow::Result<()> {
        self.unchunked.clear();
        loop {
            let line = loop {
                let unseen = self.inbox.get(at..).unwrap_or_default();
                match memmem::find(unseen, b"\r\n") {
                    Some(length) => break at..at + length,
                    None => self.read(READ_BYTES).await?,
                }
            };
            let data = line.end + 2;
            let size = chunk_size(slice(&self.inbox, line)?)?;
            let end = data + size;
            self.fill(end + 2).await?;
            ensure!(
                slice(&self.inbox, end..end + 2)? == b"\r\n",
                "a chunk that does not end where it says, or trailers"
            );
            self.unchunked.extend_from_slice(slice(&self.inbox, data..end)?);
            at = end + 2;
            if size == 0 {
                ensure!(self.inbox.len() == at, "bytes after the answer");
                return Ok(());
            }
        }
    }

    /// Reads until the inbox holds `length` bytes.
    async fn fill(&mut self, length: usize) -> anyhow::Result<()> {
        while self.inbox.len() < length {
            self.read((length - self.inbox.len()).max(READ_BYTES)).await?;
        }
        Ok(())
    }

    async fn read(&mut self, room: usize) -> anyhow::Result<()> {
        self.inbox.reserve(room);
        let read = self.stream.read_buf(&mut self.inbox).await.context("read the answer")?;
        ensure!(read > 0, "the connection was closed before the answer ended");
        Ok(())
    }
}

fn slice(bytes: &[u8], range: Range<usize>) -> anyhow::Result<&[u8]> {
    bytes.get(range).context("an answer that ends early")
}

fn chunk_size(line: &[u8]) -> anyhow::Result<usize> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let digits = std::str::from_utf8(digits).context("read a chunk size")?;
    usize::from_str_radix(digits.trim(), 16).with_context(|| format!("read the chunk size `{digits}`"))
}

fn parse_head(head: &[u8]) -> anyhow::Result<BenchResponseHead> {
    let head = std::str::from_utf8(head).context("read the head of an answer")?;
    let mut lines = head.split("\r\n");
    let Some(status) = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")) else {
        bail!("not an HTTP/1.1 answer: {head:.60}");
    };
    let status = status.get(..3).and_then(|code| code.parse().ok()).context("read the status of an answer")?;
    let mut parsed = BenchResponseHead { status, ..BenchResponseHead::default() };
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            parsed.length = Some(value.parse().with_context(|| format!("read the length `{value}`"))?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            parsed.chunked = value.eq_ignore_ascii_case("chunked");
        } else if name.eq_ignore_ascii_case("content-type") {
            parsed.events = value.starts_with("text/event-stream");
        } else if name.eq_ignore_ascii_case("mcp-session-id") {
            parsed.session = Some(value.to_owned());
        }
    }
    Ok(parsed)
}
