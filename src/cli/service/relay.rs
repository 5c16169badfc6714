//! `headend stdio` attached to a daemon: passes lines both ways and remembers the handshake.
//!
//! When the daemon goes away, headend answers the calls in flight with an error, looks for the
//! daemon and repeats the handshake. The host's requests wait meanwhile, for a limited time; the
//! host notices nothing but failed calls. If no daemon answers from the start, a gateway in this
//! process stands in for it until one does.
//!
//! One loop serves both sides and never waits for one side alone: a busy daemon, or a host that
//! reads nothing, blocks neither the other side nor the end of the relay.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::door::DaemonTarget;
use super::ends::EndSignals;
use crate::cli::exit::{OK, SOFTWARE};
use crate::cli::reach::daemon::DaemonConnection;
use crate::cli::words::output::CommandFailure;
use crate::daemon::gateway::{RunningGateway, StopTimes, or_never};
use crate::serve::lines;
use crate::wire::lines::LineDecoder;

mod talk;

use self::talk::RelayConversation;

/// Length limit of a line in either direction, in bytes.
const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;
/// Bytes waiting for one side from which on the other side is not read.
const HIGH_WATER: usize = 1 << 20;
/// Size of the buffer to the stand-in and of that back, in bytes.
const STAND_IN_BYTES: usize = 64 * 1024;
/// Longest wait of a request for a daemon that went away. Hosts give up a request after a minute or
/// so.
const GAP: Duration = Duration::from_secs(25);

/// A connection to the gateway that answers the relay's lines: the daemon or its stand-in.
struct RelayLink {
    read: Box<dyn AsyncRead + Send + Unpin>,
    write: Box<dyn AsyncWrite + Send + Unpin>,
    lines: LineDecoder,
}

impl RelayLink {
    fn of(read: impl AsyncRead + Send + Unpin + 'static, write: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        Self { read: Box::new(read), write: Box::new(write), lines: LineDecoder::new(MAX_LINE_BYTES) }
    }

    /// Makes a link of a daemon's connection.
    fn open(daemon: DaemonConnection) -> Result<Self, CommandFailure> {
        let failed = |error: io::Error| CommandFailure::new(SOFTWARE, format!("the admin socket: {error}"));
        daemon.stream.set_nonblocking(true).map_err(failed)?;
        let (read, write) = UnixStream::from_std(daemon.stream).map_err(failed)?.into_split();
        // A daemon that is ending says so right after its hello.
        let behind_hello = io::Cursor::new(daemon.reader.buffer().to_vec());
        Ok(Self::of(behind_hello.chain(read), write))
    }

    /// Spawns a task in which the gateway serves MCP, and returns the link to it.
    fn into_stand_in(gateway: &RunningGateway, profile: Option<&str>) -> Self {
        let (ours, theirs) = tokio::io::duplex(STAND_IN_BYTES);
        let client = gateway.line_client(gateway.own_caller(), profile.map(Into::into));
        let (read, write) = tokio::io::split(theirs);
        let stop = gateway.service.draining.clone();
        gateway.service.tasks.spawn("stand-in", lines::serve(client, read, write, stop));
        let (read, write) = tokio::io::split(ours);
        Self::of(read, write)
    }
}

/// A search for the daemon, as a future.
type DaemonSearch = Pin<Box<dyn Future<Output = Result<RelayLink, CommandFailure>> + Send>>;

/// The state while the daemon is away.
struct LostDaemon {
    /// The search for it.
    back: DaemonSearch,
    /// Time at which the waiting requests are refused; `None` once that is done.
    gap_ends: Option<Instant>,
}

/// An event of the relay's loop.
enum RelayEvent {
    FromClient(io::Result<usize>),
    ToClient(io::Result<()>),
    FromDaemon(io::Result<usize>),
    ToDaemon(io::Result<usize>),
    Back(Result<RelayLink, CommandFailure>),
    GapOver,
    End,
}

/// Relays to a daemon until all requests before the end of stdin are answered, the host closes
/// stdout, a signal comes, or the daemon stays away for longer than `patience`.
///
/// # Errors
/// 70 when the socket cannot be used, 69 when the daemon stays away.
pub(in crate::cli) async fn run(
    door: DaemonTarget,
    daemon: DaemonConnection,
    patience: Duration,
    times: StopTimes,
) -> Result<u8, CommandFailure> {
    relay(door, RelayLink::open(daemon)?, None, patience, times).await
}

/// Relays to a gateway that stands in for the daemon, and to the daemon as soon as one answers.
///
/// # Errors
/// As [`run`], once a daemon has answered.
pub(in crate::cli) async fn stand_in(
    door: DaemonTarget,
    gateway: RunningGateway,
    profile: Option<&str>,
    patience: Duration,
    times: StopTimes,
) -> Result<u8, CommandFailure> {
    let link = RelayLink::into_stand_in(&gateway, profile);
    relay(door, link, Some(gateway), patience, times).await
}

/// Relays stdin and stdout over `link`, and over the daemons that are found later.
async fn relay(
    door: DaemonTarget,
    link: RelayLink,
    stand_in: Option<RunningGateway>,
    patience: Duration,
    times: StopTimes,
) -> Result<u8, CommandFailure> {
    let mut ends = EndSignals::watch()?;
    let relay = Relay {
        stdin: tokio::io::stdin(),
        stdout: tokio::io::stdout(),
        search: |patience| search(door.clone(), patience),
        patience,
        last_answers: times.answers,
    };
    Box::pin(relay.run(link, stand_in, ends.wait())).await
}

/// Searches for the daemon for as long as `patience`; without one, for ever.
fn search(door: DaemonTarget, patience: Option<Duration>) -> DaemonSearch {
    Box::pin(async move { RelayLink::open(door.wait(patience).await?) })
}

/// The host's side of a relay.
struct Relay<R, W, S> {
    stdin: R,
    stdout: W,
    /// Starts a search for the daemon with this patience.
    search: S,
    /// Longest search for a daemon that went away.
    patience: Duration,
    /// Longest time for writing the last answers.
    last_answers: Duration,
}

impl<R, W, S> Relay<R, W, S>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    S: Fn(Option<Duration>) -> DaemonSearch,
{
    /// Relays until `end` completes, or for one of the reasons of [`run`]. With a `stand_in`,
    /// `link` leads to it.
    async fn run(
        self,
        link: RelayLink,
        stand_in: Option<RunningGateway>,
        end: impl Future<Output = ()>,
    ) -> Result<u8, CommandFailure> {
        let Self { mut stdin, mut stdout, search, patience, last_answers } = self;
        let mut stand_in = stand_in;
        let mut from_client = LineDecoder::new(MAX_LINE_BYTES);
        let mut talk =
            if stand_in.is_some() { RelayConversation::with_stand_in() } else { RelayConversation::default() };
        let (mut to_daemon, mut to_client) = (BytesMut::new(), BytesMut::new());
        // True while stdout has not taken all of `to_client`.
        let mut unwritten = false;
        let mut input_over = false;
        let mut link = Some(link);
        let mut away = stand_in.is_some().then(|| LostDaemon { back: search(None), gap_ends: None });
        tokio::pin!(end);
        let outcome = loop {
            unwritten |= !to_client.is_empty();
            if input_over && talk.is_idle() && to_daemon.is_empty() {
                break Ok(OK);
            }
            let (unsent, unread) = (to_daemon.len(), to_client.len());
            let may_hear = talk.waiting() + unsent < HIGH_WATER;
            let (reading, writing) = match &mut link {
                Some(RelayLink { read, write, lines }) => {
                    let reading = async move { read.read_buf(lines.buffer()).await };
                    (Some(reading), Some(write.write_buf(&mut to_daemon)))
                }
                None => (None, None),
            };
            let gap_ends = away.as_ref().and_then(|away| away.gap_ends);
            let event = tokio::select! {
                () = &mut end => RelayEvent::End,
                got = stdin.read_buf(from_client.buffer()), if may_hear && !input_over => RelayEvent::FromClient(got),
                done = write_out(&mut stdout, &mut to_client), if unwritten => RelayEvent::ToClient(done),
                got = or_never(reading), if unread < HIGH_WATER => RelayEvent::FromDaemon(got),
                done = or_never(writing), if unsent > 0 => RelayEvent::ToDaemon(done),
                found = or_never(away.as_mut().map(|away| away.back.as_mut())) => RelayEvent::Back(found),
                () = or_never(gap_ends.map(tokio::time::sleep_until)) => RelayEvent::GapOver,
            };
            match event {
                RelayEvent::End => break Ok(OK),
                RelayEvent::FromClient(Ok(1..)) => talk.hear_client(&mut from_client, &mut to_daemon, &mut to_client),
                RelayEvent::FromClient(Ok(_)) => {
                    // The last line may have no newline.
                    from_client.buffer().extend_from_slice(b"\n");
                    talk.hear_client(&mut from_client, &mut to_daemon, &mut to_client);
                    talk.end_input(&mut to_daemon);
                    input_over = true;
                }
                // A client that no longer reads needs no answers.
                RelayEvent::FromClient(Err(_)) | RelayEvent::ToClient(Err(_)) => return Ok(OK),
                RelayEvent::ToClient(Ok(())) => unwritten = false,
                RelayEvent::FromDaemon(Ok(1..)) => {
                    if let Some(link) = &mut link {
                        talk.hear_daemon(&mut link.lines, &mut to_client, &mut to_daemon);
                    }
                }
                RelayEvent::ToDaemon(Ok(1..)) => {}
                RelayEvent::FromDaemon(_) | RelayEvent::ToDaemon(_) => {
                    tracing::warn!("the daemon went away; looking for it");
                    link = None;
                    to_daemon.clear();
                    talk.lost(&mut to_client);
                    if let Some(gateway) = stand_in.take() {
                        end_stand_in(&gateway).await;
                    }
                    let gap_ends = Some(Instant::now() + GAP.min(patience));
                    away = Some(LostDaemon { back: search(Some(patience)), gap_ends });
                }
                RelayEvent::Back(Ok(found)) => {
                    tracing::info!("the daemon is back");
                    (link, away) = (Some(found), None);
                    if let Some(gateway) = stand_in.take() {
                        to_daemon.clear();
                        talk.leave_stand_in(&mut to_client);
                        end_stand_in(&gateway).await;
                    }
                    talk.found(&mut to_daemon);
                }
                RelayEvent::Back(Err(failure)) => break Err(failure),
                RelayEvent::GapOver => {
                    talk.give_up_waiting(&mut to_client);
                    away.iter_mut().for_each(|away| away.gap_ends = None);
                }
            }
        };
        talk.end(&mut to_client);
        // A host that reads nothing loses its last answers.
        drop(tokio::time::timeout(last_answers, write_out(&mut stdout, &mut to_client)).await);
        if let Some(gateway) = &stand_in {
            end_stand_in(gateway).await;
        }
        outcome
    }
}

/// Shuts down the stand-in without waiting, since it has started nothing.
async fn end_stand_in(gateway: &RunningGateway) {
    let hurry = CancellationToken::new();
    hurry.cancel();
    Box::pin(gateway.shut_down(&hurry)).await;
}

/// Writes all bytes and flushes. Cancel-safe: bytes that were not written stay in `bytes`.
async fn write_out(stdout: &mut (impl AsyncWrite + Unpin), bytes: &mut BytesMut) -> io::Result<()> {
    while !bytes.is_empty() {
        stdout.write_buf(bytes).await?;
    }
    stdout.flush().await
}

#[cfg(test)]
mod tests;
