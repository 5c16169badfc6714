//! `headend stdio` attached to a daemon: passes lines both ways and remembers the handshake.
//!
//! When the daemon goes away, headend answers the calls in flight with an error, connects again and repeats the
//! handshake. The host notices nothing but failed calls.

use std::collections::HashMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Stdout};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::daemon;
use super::exit::{OK, SOFTWARE};
use super::options::Common;
use super::output::Failure;
use crate::wire::code;
use crate::wire::frame::Frame;
use crate::wire::id::{ClientId, IdKey};
use crate::wire::lines::{Line, LineDecoder};
use crate::wire::message::{self, Message};

/// Longest line in either direction, in bytes.
const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;
/// How long to look for a daemon that went away, and how often.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// Unanswered requests to remember; requests beyond that get no answer when the daemon goes away.
const MAX_OPEN: usize = 4096;

struct Relay<'a> {
    common: &'a Common,
    profile: Option<&'a str>,
    stdout: Stdout,
    /// The client's `initialize` and `initialized`, to be repeated to a new daemon.
    initialize: Option<Bytes>,
    initialized: Option<Bytes>,
    open: HashMap<IdKey, ClientId>,
    /// Id of a repeated `initialize`, whose answer the client must not see.
    swallow: Option<IdKey>,
}

/// Relays until stdin ends.
///
/// # Errors
/// 70 when the socket cannot be used, 69 when the daemon stays away.
pub(super) async fn run(common: &Common, daemon: daemon::Daemon, profile: Option<&str>) -> Result<u8, Failure> {
    let mut relay = Relay {
        common,
        profile,
        stdout: tokio::io::stdout(),
        initialize: None,
        initialized: None,
        open: HashMap::new(),
        swallow: None,
    };
    let mut stdin = tokio::io::stdin();
    let mut from_client = LineDecoder::new(MAX_LINE_BYTES);
    let (mut read, mut write) = halves(daemon.stream)?;
    let mut from_daemon = LineDecoder::new(MAX_LINE_BYTES);
    loop {
        let alive = tokio::select! {
            got = stdin.read_buf(from_client.buffer()) => {
                if !matches!(got, Ok(n) if n > 0) {
                    return Ok(OK);
                }
                relay.upstream(&mut from_client, &mut write).await
            }
            got = read.read_buf(from_daemon.buffer()) => {
                matches!(got, Ok(n) if n > 0) && relay.downstream(&mut from_daemon).await
            }
        };
        if !alive {
            relay.fail_open().await;
            (read, write) = relay.reconnect().await?;
            from_daemon = LineDecoder::new(MAX_LINE_BYTES);
        }
    }
}

fn halves(stream: std::os::unix::net::UnixStream) -> Result<(OwnedReadHalf, OwnedWriteHalf), Failure> {
    let failed = |error: std::io::Error| Failure::new(SOFTWARE, format!("the admin socket: {error}"));
    stream.set_nonblocking(true).map_err(failed)?;
    Ok(UnixStream::from_std(stream).map_err(failed)?.into_split())
}

impl Relay<'_> {
    /// Passes the client's lines on. `false` when the daemon went away.
    async fn upstream(&mut self, lines: &mut LineDecoder, write: &mut OwnedWriteHalf) -> bool {
        let mut out = BytesMut::new();
        while let Some(line) = lines.next_line() {
            let Line::Full(line) = line else { continue };
            self.remember(&line);
            out.extend_from_slice(&line);
            out.extend_from_slice(b"\n");
        }
        write.write_all(&out).await.is_ok()
    }

    fn remember(&mut self, line: &Bytes) {
        let Ok(frame) = Frame::from_upstream(line.clone()) else { return };
        match Message::parse(&frame) {
            Ok(Message::Request(request)) => {
                if request.method == "initialize" {
                    self.initialize = Some(line.clone());
                }
                if self.open.len() < MAX_OPEN {
                    self.open.insert(request.id.key(), request.id);
                }
            }
            Ok(Message::Notification(notice)) if notice.method == "notifications/initialized" => {
                self.initialized = Some(line.clone());
            }
            Ok(Message::Notification(_) | Message::Response(_)) | Err(_) => {}
        }
    }

    /// Passes the daemon's lines on. `false` when the client closed stdout.
    async fn downstream(&mut self, lines: &mut LineDecoder) -> bool {
        let mut out = BytesMut::new();
        while let Some(line) = lines.next_line() {
            let Line::Full(line) = line else { continue };
            let answered = Frame::from_upstream(line.clone()).ok().and_then(|frame| match Message::parse(&frame) {
                Ok(Message::Response(response)) => ClientId::from_raw(response.id?).map(|id| id.key()),
                Ok(Message::Request(_) | Message::Notification(_)) | Err(_) => None,
            });
            if let Some(key) = answered {
                self.open.remove(&key);
                if self.swallow.as_ref() == Some(&key) {
                    self.swallow = None;
                    continue;
                }
            }
            out.extend_from_slice(&line);
            out.extend_from_slice(b"\n");
        }
        self.stdout.write_all(&out).await.is_ok() && self.stdout.flush().await.is_ok()
    }

    /// Answers every open request with an error; the daemon may have executed it.
    async fn fail_open(&mut self) {
        let data =
            crate::wire::raw::RawJson::trusted(r#"{"reason":"shutting_down","executed":"unknown","retryable":false}"#);
        let text =
            "The gateway went away during the call. The call may have been executed; check before you repeat it.";
        let error = message::error_object(code::INTERNAL, text, Some(&data));
        for (_, id) in std::mem::take(&mut self.open) {
            let mut line = message::encode_error(Some(id.raw()), &error).to_vec();
            line.push(b'\n');
            // A client that no longer reads closes stdin, which ends the loop.
            drop(self.stdout.write_all(&line).await);
        }
        drop(self.stdout.flush().await);
    }

    async fn reconnect(&mut self) -> Result<(OwnedReadHalf, OwnedWriteHalf), Failure> {
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            match daemon::connect(self.common, "mcp", self.profile) {
                Ok(daemon) => {
                    let (read, mut write) = halves(daemon.stream)?;
                    let mut out = BytesMut::new();
                    for line in [&self.initialize, &self.initialized].into_iter().flatten() {
                        out.extend_from_slice(line);
                        out.extend_from_slice(b"\n");
                    }
                    self.swallow = self.initialize.as_ref().and_then(initialize_key);
                    if write.write_all(&out).await.is_ok() {
                        return Ok((read, write));
                    }
                }
                Err(failure) if tokio::time::Instant::now() > until => return Err(failure),
                Err(_) => {}
            }
        }
    }
}

fn initialize_key(line: &Bytes) -> Option<IdKey> {
    match Message::parse(&Frame::from_upstream(line.clone()).ok()?) {
        Ok(Message::Request(request)) => Some(request.id.key()),
        Ok(Message::Notification(_) | Message::Response(_)) | Err(_) => None,
    }
}
