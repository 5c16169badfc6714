//! Connections of the clients: HTTP/1.1 with sized, chunked and streamed answers, read piece by
//! piece.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use bytes::{Buf as _, Bytes, BytesMut};
use memchr::memmem;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Head of an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct SoakResponseHead {
    pub(crate) status: u16,
    pub(crate) is_stream: bool,
    pub(crate) closes: bool,
    pub(crate) session: Option<String>,
}

/// The way in which the end of a body is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SoakFraming {
    Length(usize),
    Chunked,
    UntilClose,
    Done,
}

/// A client's HTTP/1.1 connection.
#[derive(Debug)]
pub(crate) struct SoakWire {
    stream: TcpStream,
    inbox: BytesMut,
    framing: SoakFraming,
    events: BytesMut,
}

impl SoakWire {
    pub(crate) async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, inbox: BytesMut::new(), framing: SoakFraming::Done, events: BytesMut::new() })
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.events.clear();
        self.stream.write_all(bytes).await
    }

    /// Reads up to the end of the header fields, interim answers aside.
    pub(crate) async fn head(&mut self) -> io::Result<SoakResponseHead> {
        loop {
            let end = loop {
                if let Some(at) = memmem::find(&self.inbox, b"\r\n\r\n") {
                    break at;
                }
                self.fill().await?;
            };
            let block = self.inbox.split_to(end + 4);
            let (head, framing) = parse(&String::from_utf8_lossy(&block))?;
            if head.status >= 200 {
                self.framing = framing;
                return Ok(head);
            }
        }
    }

    /// Reads the next piece of the body; `None` at its end.
    pub(crate) async fn piece(&mut self) -> io::Result<Option<Bytes>> {
        match self.framing {
            SoakFraming::Done | SoakFraming::Length(0) => {
                self.framing = SoakFraming::Done;
                Ok(None)
            }
            SoakFraming::Length(left) => {
                if self.inbox.is_empty() {
                    self.fill().await?;
                }
                let taken = left.min(self.inbox.len());
                self.framing = SoakFraming::Length(left - taken);
                Ok(Some(self.inbox.split_to(taken).freeze()))
            }
            SoakFraming::UntilClose => {
                if self.inbox.is_empty() && self.stream.read_buf(&mut self.inbox).await? == 0 {
                    self.framing = SoakFraming::Done;
                    return Ok(None);
                }
                Ok(Some(self.inbox.split().freeze()))
            }
            SoakFraming::Chunked => self.chunk().await,
        }
    }

    async fn chunk(&mut self) -> io::Result<Option<Bytes>> {
        let line = loop {
            if let Some(at) = memmem::find(&self.inbox, b"\r\n") {
                break self.inbox.split_to(at + 2);
            }
            self.fill().await?;
        };
        let digits = String::from_utf8_lossy(&line);
        let size = usize::from_str_radix(digits.trim(), 16);
        let size = size.map_err(|_| io::Error::other(format!("not a chunk size: {digits:?}")))?;
        while self.inbox.len() < size + 2 {
            self.fill().await?;
        }
        let piece = self.inbox.split_to(size).freeze();
        self.inbox.advance(2);
        if size == 0 {
            self.framing = SoakFraming::Done;
            return Ok(None);
        }
        Ok(Some(piece))
    }

    /// Reads the whole body.
    pub(crate) async fn body(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(piece) = self.piece().await? {
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }

    /// Reads the data of the stream's next event; `None` at its end. Events without data are
    /// skipped.
    pub(crate) async fn event(&mut self) -> io::Result<Option<String>> {
        loop {
            while let Some(at) = memmem::find(&self.events, b"\n\n") {
                let block = self.events.split_to(at + 2);
                let text = String::from_utf8_lossy(&block);
                let data: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data:")).collect();
                if data.iter().any(|line| !line.trim().is_empty()) {
                    return Ok(Some(data.join("\n").trim().to_owned()));
                }
            }
            match self.piece().await? {
                Some(piece) => self.events.extend_from_slice(&piece),
                None => return Ok(None),
            }
        }
    }

    /// Reads at most so many bytes without regard to framing, for clients that read slowly. Returns
    /// zero at the end of the connection.
    pub(crate) async fn sip(&mut self, most: usize) -> io::Result<usize> {
        self.inbox.clear();
        (&mut self.stream).take(most as u64).read_buf(&mut self.inbox).await
    }

    async fn fill(&mut self) -> io::Result<()> {
        self.inbox.reserve(16 << 10);
        if self.stream.read_buf(&mut self.inbox).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

/// Reads a message. A damaged answer may have half of a surrogate pair in a text: that is JSON by
/// its grammar and passes, while the reader here knows no such text.
pub(crate) fn message(bytes: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(bytes).or_else(|error| {
        let text = String::from_utf8_lossy(bytes).replace("\\ud800", "?");
        serde_json::from_str(&text).map_err(|_| error)
    })
}

fn parse(block: &str) -> io::Result<(SoakResponseHead, SoakFraming)> {
    let mut lines = block.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("not a status line: {first:?}")))?;
    let mut head = SoakResponseHead { status, ..SoakResponseHead::default() };
    let mut framing = if matches!(status, 204 | 304) { SoakFraming::Done } else { SoakFraming::UntilClose };
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => framing = SoakFraming::Length(value.parse().map_err(io::Error::other)?),
            "transfer-encoding" => framing = SoakFraming::Chunked,
            "content-type" => head.is_stream = value.starts_with("text/event-stream"),
            "connection" => head.closes = value.eq_ignore_ascii_case("close"),
            "mcp-session-id" => head.session = Some(value.to_owned()),
            _ => {}
        }
    }
    Ok((head, framing))
}

/// Returns the bytes of a request.
pub(crate) fn request(method: &str, path: &str, fields: &[(&str, String)], body: &str) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\n");
    for (name, value) in fields {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if method == "POST" {
        text.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    format!("{text}\r\n{body}").into_bytes()
}
