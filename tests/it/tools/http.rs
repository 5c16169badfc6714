//! A small blocking HTTP/1.1 client for tests, which sends and receives exact bytes.
//!
//! Real client libraries correct requests and refuse odd answers, which these tests must not do.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::ground::{Stream, connect, now};

/// Time limit for a read, unless the test sets another.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// Status line and header fields of an answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResponseHead {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    /// Status codes of earlier interim (1xx) answers.
    pub(crate) interim: Vec<u16>,
}

impl ResponseHead {
    /// Returns the first field of this name, in any case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Returns whether the answer is an event stream.
    pub(crate) fn is_stream(&self) -> bool {
        self.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"))
    }
}

/// A whole answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct TestResponse {
    pub(crate) head: ResponseHead,
    pub(crate) body: Vec<u8>,
}

impl TestResponse {
    /// Returns the body as text, for messages and for comparing bytes.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The way in which the end of the body is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientFraming {
    Length(usize),
    Chunked,
    UntilClose,
    Done,
}

/// A connection to the server.
#[derive(Debug)]
pub(crate) struct TestConnection {
    stream: Stream,
    buffer: Vec<u8>,
    framing: ClientFraming,
    deadline: Instant,
}

impl TestConnection {
    /// Connects. Every later read fails `PATIENCE` after the last [`TestConnection::patience`] or
    /// [`TestConnection::send`].
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = connect(address, PATIENCE)?;
        Ok(Self { stream, buffer: Vec::new(), framing: ClientFraming::Done, deadline: now() + PATIENCE })
    }

    /// Sets the time within which all further bytes must arrive.
    pub(crate) fn patience(&mut self, patience: Duration) {
        self.deadline = now() + patience;
    }

    /// Returns another handle for writing a body while the answer is being read.
    pub(crate) fn writer(&self) -> io::Result<Stream> {
        self.stream.try_clone()
    }

    /// Writes all bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.patience(PATIENCE);
        self.stream.write_all(bytes)
    }

    /// Reads once into the buffer; `false` at the end of the stream.
    fn fill(&mut self) -> io::Result<bool> {
        let left = self.deadline.saturating_duration_since(now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut chunk = [0_u8; 64 * 1024];
        let read = match self.stream.read(&mut chunk) {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        };
        self.buffer.extend_from_slice(&chunk[..read]);
        Ok(read > 0)
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if !self.fill()? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Reads to the end of the header fields, and remembers interim answers.
    pub(crate) fn head(&mut self) -> io::Result<ResponseHead> {
        let mut interim = Vec::new();
        loop {
            let line = self.line()?;
            let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
            let status: u16 = status.ok_or_else(|| io::Error::other(format!("not a status line: {line:?}")))?;
            let mut headers = Vec::new();
            loop {
                let line = self.line()?;
                if line.is_empty() {
                    break;
                }
                let (name, value) = line.split_once(':').unwrap_or((line.as_str(), ""));
                headers.push((name.to_owned(), value.trim().to_owned()));
            }
            if (100..200).contains(&status) {
                interim.push(status);
                continue;
            }
            let head = ResponseHead { status, headers, interim };
            self.framing = framing(&head);
            return Ok(head);
        }
    }

    /// Reads the next piece of the body; `None` at its end.
    pub(crate) fn piece(&mut self) -> io::Result<Option<Vec<u8>>> {
        match self.framing {
            ClientFraming::Done => Ok(None),
            ClientFraming::Length(0) => {
                self.framing = ClientFraming::Done;
                Ok(None)
            }
            ClientFraming::Length(left) => {
                if self.buffer.is_empty() && !self.fill()? {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                let take = left.min(self.buffer.len());
                self.framing = ClientFraming::Length(left - take);
                Ok(Some(self.buffer.drain(..take).collect()))
            }
            ClientFraming::Chunked => self.chunk(),
            ClientFraming::UntilClose => {
                if self.buffer.is_empty() && !self.fill()? {
                    self.framing = ClientFraming::Done;
                    return Ok(None);
                }
                Ok(Some(std::mem::take(&mut self.buffer)))
            }
        }
    }

    fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let line = self.line()?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let size =
            usize::from_str_radix(digits, 16).map_err(|_| io::Error::other(format!("not a chunk size: {line:?}")))?;
        if size == 0 {
            while !self.line()?.is_empty() {}
            self.framing = ClientFraming::Done;
            return Ok(None);
        }
        while self.buffer.len() < size + 2 {
            if !self.fill()? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        let piece = self.buffer.drain(..size).collect();
        self.buffer.drain(..2);
        Ok(Some(piece))
    }

    /// Reads head and whole body.
    pub(crate) fn response(&mut self) -> io::Result<TestResponse> {
        let head = self.head()?;
        let mut body = Vec::new();
        while let Some(piece) = self.piece()? {
            body.extend_from_slice(&piece);
        }
        Ok(TestResponse { head, body })
    }

    /// Returns whether the other side closes the connection within this time. A reset counts as
    /// closed, further bytes do not.
    pub(crate) fn closes_within(&mut self, patience: Duration) -> bool {
        self.patience(patience);
        loop {
            match self.fill() {
                Ok(true) => {}
                Ok(false) => return true,
                Err(error) => return error.kind() != ErrorKind::TimedOut,
            }
        }
    }
}

fn framing(head: &ResponseHead) -> ClientFraming {
    if matches!(head.status, 204 | 304) {
        return ClientFraming::Done;
    }
    if head.header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
        return ClientFraming::Chunked;
    }
    match head.header("content-length").and_then(|value| value.parse().ok()) {
        Some(length) => ClientFraming::Length(length),
        None => ClientFraming::UntilClose,
    }
}

/// A reader of the events in a stream whose head was read already.
#[derive(Debug, Default)]
pub(crate) struct EventReader {
    text: Vec<u8>,
}

/// An event of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StreamEvent {
    pub(crate) name: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) retry: Option<String>,
    pub(crate) data: String,
}

impl EventReader {
    /// Reads the next event with data; `None` at the end of the stream. Comments and priming events
    /// are skipped.
    pub(crate) fn next(&mut self, conn: &mut TestConnection) -> io::Result<Option<StreamEvent>> {
        loop {
            match self.next_of_any_kind(conn)? {
                Some(event) if event.data.is_empty() => {}
                event => return Ok(event),
            }
        }
    }

    /// Reads the next event, with data or without.
    pub(crate) fn next_of_any_kind(&mut self, conn: &mut TestConnection) -> io::Result<Option<StreamEvent>> {
        loop {
            while let Some(end) = find(&self.text, b"\n\n") {
                let block: Vec<u8> = self.text.drain(..end + 2).collect();
                let event = parse_event(&String::from_utf8_lossy(&block));
                if event != StreamEvent::default() {
                    return Ok(Some(event));
                }
            }
            match conn.piece()? {
                Some(piece) => self.text.extend(piece.into_iter().filter(|byte| *byte != b'\r')),
                None => return Ok(None),
            }
        }
    }
}

fn parse_event(block: &str) -> StreamEvent {
    let mut event = StreamEvent::default();
    for line in block.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" if event.data.is_empty() => value.clone_into(&mut event.data),
            "data" => {
                event.data.push('\n');
                event.data.push_str(value);
            }
            "retry" => event.retry = Some(value.to_owned()),
            "id" => event.id = Some(value.to_owned()),
            "event" => event.name = Some(value.to_owned()),
            _ => {}
        }
    }
    event
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// Encodes a request. A length is added if the fields name neither a length nor an encoding.
pub(crate) fn request(method: &str, path: &str, headers: &[(String, String)], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{method} {path} HTTP/1.1\r\n").into_bytes();
    let mut framed = matches!(method, "GET" | "DELETE" | "OPTIONS") && body.is_empty();
    for (name, value) in headers {
        framed |= name.eq_ignore_ascii_case("content-length") || name.eq_ignore_ascii_case("transfer-encoding");
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    if !framed {
        bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

/// Sends one GET on a connection of its own.
pub(crate) fn get(address: SocketAddr, path: &str) -> io::Result<TestResponse> {
    let mut conn = TestConnection::open(address)?;
    let headers = [("Host".to_owned(), address.to_string()), ("Connection".to_owned(), "close".to_owned())];
    conn.send(&request("GET", path, &headers, b""))?;
    conn.response()
}
