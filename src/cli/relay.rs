//! `headend stdio` attached to a daemon: passes lines both ways and remembers the handshake.
//!
//! When the daemon goes away, headend answers the calls in flight with an error, looks for the daemon and repeats the
//! handshake. Until then the host's requests wait, though not for long; the host notices nothing but failed calls.
//!
//! One loop, which never waits for one side alone: a daemon that is busy, or a host that reads nothing, keeps it neither
//! from the other side nor from its end.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Stdout};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::Instant;

use super::daemon::{self, Daemon};
use super::ends::Ends;
use super::exit::{OK, SOFTWARE, UNAVAILABLE};
use super::options::Common;
use super::output::Failure;
use crate::daemon::gateway::{StopTimes, or_never};
use crate::wire::lines::LineDecoder;

mod talk;

use self::talk::Talk;

/// Longest line in either direction, in bytes.
const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;
/// Bytes that wait for one side before the other is read no further.
const HIGH_WATER: usize = 1 << 20;
/// How often to look for a daemon that went away.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// How long a request waits for it. Hosts give a request up after a minute or so.
const GAP: Duration = Duration::from_secs(25);

/// Where the daemon is, and which one it has to be.
#[derive(Clone, Debug)]
pub(super) struct Door {
    pub(super) common: Common,
    pub(super) profile: Option<String>,
    /// The configuration file that it must serve.
    pub(super) config: PathBuf,
}

/// Why no daemon is attached to.
#[derive(Debug)]
pub(super) enum Closed {
    Away(Failure),
    /// It has another configuration file.
    Other,
}

impl Door {
    /// Connects to the daemon. Blocks.
    ///
    /// # Errors
    /// [`Closed`].
    pub(super) fn knock(&self) -> Result<Daemon, Closed> {
        let daemon = daemon::connect(&self.common, "mcp", self.profile.as_deref()).map_err(Closed::Away)?;
        // Two paths may lead to one file.
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let same = daemon.hello.config.as_ref().is_some_and(|named| real(Path::new(named)) == real(&self.config));
        if same { Ok(daemon) } else { Err(Closed::Other) }
    }

    /// Knocks until the daemon is back.
    async fn wait(self, until: Instant) -> Result<Link, Failure> {
        loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            let door = self.clone();
            let knocked = tokio::task::spawn_blocking(move || door.knock()).await;
            let failure = match knocked {
                Ok(Ok(daemon)) => return Link::open(daemon),
                Ok(Err(Closed::Away(failure))) => failure,
                Ok(Err(Closed::Other)) => {
                    let text = "the daemon that answers now serves another configuration file";
                    Failure::new(UNAVAILABLE, text)
                }
                Err(error) => Failure::new(SOFTWARE, format!("look for the daemon: {error}")),
            };
            if Instant::now() >= until {
                let text = format!("the daemon went away and did not come back in time: {}", failure.text);
                return Err(Failure::new(failure.code, text));
            }
        }
    }
}

/// A connection to the daemon.
struct Link {
    read: OwnedReadHalf,
    write: OwnedWriteHalf,
    lines: LineDecoder,
}

impl Link {
    fn open(daemon: Daemon) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::new(SOFTWARE, format!("the admin socket: {error}"));
        daemon.stream.set_nonblocking(true).map_err(failed)?;
        let (read, write) = UnixStream::from_std(daemon.stream).map_err(failed)?.into_split();
        Ok(Self { read, write, lines: LineDecoder::new(MAX_LINE_BYTES) })
    }
}

/// The daemon is away.
struct Away {
    back: Pin<Box<dyn Future<Output = Result<Link, Failure>> + Send>>,
    /// When the requests that wait are answered; `None` once that is done.
    gap_ends: Option<Instant>,
}

enum Event {
    FromClient(io::Result<usize>),
    ToClient(io::Result<()>),
    FromDaemon(io::Result<usize>),
    ToDaemon(io::Result<usize>),
    Back(Result<Link, Failure>),
    GapOver,
    End,
}

/// Relays until stdin ends, the host closes stdout, a signal comes, or the daemon stays away for longer than `patience`.
///
/// # Errors
/// 70 when the socket cannot be used, 69 when the daemon stays away.
pub(super) async fn run(door: Door, daemon: Daemon, patience: Duration, times: StopTimes) -> Result<u8, Failure> {
    let mut ends = Ends::watch()?;
    let (mut stdin, mut stdout) = (tokio::io::stdin(), tokio::io::stdout());
    let mut from_client = LineDecoder::new(MAX_LINE_BYTES);
    let mut talk = Talk::default();
    let (mut to_daemon, mut to_client) = (BytesMut::new(), BytesMut::new());
    // Until everything in `to_client` has gone, and stdout says so.
    let mut unwritten = false;
    let mut link = Some(Link::open(daemon)?);
    let mut away: Option<Away> = None;
    let outcome = loop {
        unwritten |= !to_client.is_empty();
        let (unsent, unread) = (to_daemon.len(), to_client.len());
        let may_hear = talk.waiting() + unsent < HIGH_WATER;
        let (reading, writing) = match &mut link {
            Some(Link { read, write, lines }) => {
                let reading = async move { read.read_buf(lines.buffer()).await };
                (Some(reading), Some(write.write_buf(&mut to_daemon)))
            }
            None => (None, None),
        };
        let gap_ends = away.as_ref().and_then(|away| away.gap_ends);
        let event = tokio::select! {
            () = ends.wait() => Event::End,
            got = stdin.read_buf(from_client.buffer()), if may_hear => Event::FromClient(got),
            done = write_out(&mut stdout, &mut to_client), if unwritten => Event::ToClient(done),
            got = or_never(reading), if unread < HIGH_WATER => Event::FromDaemon(got),
            done = or_never(writing), if unsent > 0 => Event::ToDaemon(done),
            found = or_never(away.as_mut().map(|away| away.back.as_mut())) => Event::Back(found),
            () = or_never(gap_ends.map(tokio::time::sleep_until)) => Event::GapOver,
        };
        match event {
            Event::End => break Ok(OK),
            Event::FromClient(Ok(1..)) => talk.hear_client(&mut from_client, &mut to_daemon, &mut to_client),
            // A client that ends its input, or reads no more, has no use for answers.
            Event::FromClient(_) | Event::ToClient(Err(_)) => return Ok(OK),
            Event::ToClient(Ok(())) => unwritten = false,
            Event::FromDaemon(Ok(1..)) => {
                if let Some(link) = &mut link {
                    talk.hear_daemon(&mut link.lines, &mut to_client);
                }
            }
            Event::ToDaemon(Ok(1..)) => {}
            Event::FromDaemon(_) | Event::ToDaemon(_) => {
                tracing::warn!("the daemon went away; looking for it");
                link = None;
                to_daemon.clear();
                talk.lost(&mut to_client);
                let now = Instant::now();
                let back = Box::pin(door.clone().wait(now + patience));
                away = Some(Away { back, gap_ends: Some(now + GAP.min(patience)) });
            }
            Event::Back(Ok(found)) => {
                tracing::info!("the daemon is back");
                (link, away) = (Some(found), None);
                talk.found(&mut to_daemon);
            }
            Event::Back(Err(failure)) => break Err(failure),
            Event::GapOver => {
                talk.give_up_waiting(&mut to_client);
                away.iter_mut().for_each(|away| away.gap_ends = None);
            }
        }
    };
    talk.end(&mut to_client);
    // A host that reads nothing loses its last answers.
    drop(tokio::time::timeout(times.answers, write_out(&mut stdout, &mut to_client)).await);
    outcome
}

/// Writes all of it. Cancel-safe: bytes that were not written stay.
async fn write_out(stdout: &mut Stdout, bytes: &mut BytesMut) -> io::Result<()> {
    while !bytes.is_empty() {
        stdout.write_buf(bytes).await?;
    }
    stdout.flush().await
}
