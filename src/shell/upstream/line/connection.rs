//! The task of one connection over lines, which is usually a child's stdin and stdout: it runs a
//! [`Peer`] over two pipes. It never waits for a client.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BufMut as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Notify, broadcast, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::base::aside::{LONG_TEXT, run_aside_if};
use crate::base::budget::{BudgetRoom, ByteBudget, COUNTED_FROM, NoRoom};
use crate::base::clock;
use crate::catalog::inventory::Inventory;
use crate::engine::askers::ConductLesson;
use crate::engine::call::OutgoingCall;
use crate::engine::connection::turns::TurnGate;
use crate::engine::failure::{CallFailure, ExecutionDoubt};
use crate::engine::fault::ProtocolFault;
use crate::engine::handshake::EraHint;
use crate::engine::lists::ListTrouble;
use crate::engine::peer::{CallPort as _, Peer, PeerEvent, PeerOptions};
use crate::mcp::method::ItemList;
use crate::telemetry::metrics::UpstreamMetrics;
use crate::upstream::line::call::{LineCall, LineCallSignal, StdioPort};
use crate::upstream::line::link::{CHANGES, ProgramChange, SharedProgram, StdioLink};
use crate::upstream::spawner::IntakeLimits;
use crate::wire::id::WireId;
use crate::wire::json::raw::RawJson;
use crate::wire::lines::{LineDecoder, StreamLine};
use crate::wire::message::Notification;
use crate::wire::quirk::Quirk;
use crate::wire::unreadable::UnreadableBytes;

/// Bytes that may wait to be written to a child before further calls wait in their channel.
const OUT_HIGH_WATER: usize = 1 << 20;
/// A child that reads nothing for this long, while bytes wait for it, counts as broken.
const WRITE_STALL: Duration = Duration::from_secs(10);
const READ_CHUNK: usize = 32 * 1024;
/// Number of lines without a message within [`GARBAGE_WINDOW`] after which the child is restarted.
const GARBAGE_LIMIT: u32 = 100;
const GARBAGE_WINDOW: Duration = Duration::from_secs(10);
/// The reason why the beginning of a line is no message.
const UNFINISHED: &str = "a line without its end (a line feed)";

/// News from the task, for the code that runs it.
#[derive(Debug)]
pub(crate) enum StdioNews {
    Ready(StdioLink),
    Inventory(Inventory),
    /// How the last reading of a list ended.
    List(ItemList, Option<ListTrouble>),
    Fault(ProtocolFault),
    /// A message broke the protocol but could be read.
    Quirk(Quirk),
    /// A line that is no message.
    Unreadable(UnreadableBytes),
    Gate(TurnGate),
    Learned(ConductLesson),
    Updated(String),
    Unclaimed(Notification),
}

/// The reason why the task ended.
#[derive(Debug)]
pub(crate) struct ConnectionEnd {
    pub why: String,
    /// How the next start should ask for the era, if this connection has shown that.
    pub next: Option<EraHint>,
    /// True if the other end closed its pipe, in which case `why` does not explain the end.
    pub left: bool,
}

/// A request of the gateway that its carrier could not deliver.
#[derive(Debug)]
pub(crate) struct RefusedRequest {
    pub id: RawJson,
    pub failure: CallFailure,
}

/// The settings of a connection.
#[derive(Clone, Debug)]
pub(crate) struct StdioOptions {
    pub peer: PeerOptions,
    pub intake: IntakeLimits,
    /// Fires when the operator wants unread lists to be read again.
    pub relist: Arc<Notify>,
    /// How long it took to judge the last lists, if the lists of this connection are judged.
    pub judged: Option<watch::Receiver<Duration>>,
    /// True if other replicas use the program too.
    pub is_shared: bool,
    /// The failure of calls in flight at the end of the connection.
    pub loss: CallFailure,
}

/// An event in the task's loop.
enum LineEvent {
    /// There is room for the line being read, or the wait for room was in vain.
    Room(Result<(), NoRoom>),
    Read(std::io::Result<usize>),
    Wrote(std::io::Result<usize>),
    Call(Option<LineCall>),
    Signal(LineCallSignal),
    Refused(RefusedRequest),
    Relist,
    Judged(Duration),
    Timeout,
    Stop,
}

/// The state of the task.
struct ChildConnection<'a> {
    metrics: &'a UpstreamMetrics,
    budget: Arc<ByteBudget>,
    peer: Peer<StdioPort>,
    decoder: LineDecoder,
    /// Room for the line that is being read.
    room: BudgetRoom,
    /// True while the line is skipped for lack of room.
    no_room: bool,
    /// Room for bytes that the child has not taken yet.
    unsent: BudgetRoom,
    /// Bytes written so far.
    written: u64,
    /// Calls of which no byte was written: the position of their first byte, their key, and the
    /// call.
    unwritten: VecDeque<(u64, u64, OutgoingCall)>,
    news: &'a mut (dyn FnMut(StdioNews) + Send),
    /// Where changes are told to other replicas; `None` if none uses the program.
    changes: Option<broadcast::Sender<ProgramChange>>,
    /// True once the lists were read.
    has_listed: bool,
    calls_in: mpsc::Sender<LineCall>,
    signals_in: mpsc::UnboundedSender<LineCallSignal>,
    /// Start of the time in which bytes wait and the child takes none.
    stalled_since: Option<Instant>,
    garbage: u32,
    garbage_since: Instant,
    ended: Option<ConnectionEnd>,
}

/// Waits until lists were judged, and returns how long that took. Never resolves if none are
/// judged.
pub(crate) async fn next_judged(judged: &mut Option<watch::Receiver<Duration>>) -> Duration {
    if let Some(judged) = judged
        && judged.changed().await.is_ok()
    {
        return *judged.borrow_and_update();
    }
    std::future::pending().await
}

/// Waits for the next refusal. Never resolves if there are none.
async fn refused(refusals: &mut Option<mpsc::Receiver<RefusedRequest>>) -> RefusedRequest {
    if let Some(refusals) = refusals
        && let Some(refused) = refusals.recv().await
    {
        return refused;
    }
    std::future::pending().await
}

/// Runs the protocol over a child's pipes until one of them ends. Returning drops the pipes, which
/// is the first step of stopping the child.
pub(crate) async fn run(
    (mut stdin, mut stdout): (impl AsyncWrite + Unpin, impl AsyncRead + Unpin),
    mut refusals: Option<mpsc::Receiver<RefusedRequest>>,
    options: StdioOptions,
    metrics: &UpstreamMetrics,
    stop: &CancellationToken,
    news: &mut (dyn FnMut(StdioNews) + Send),
) -> ConnectionEnd {
    let (calls_in, mut calls) = mpsc::channel::<LineCall>(WireId::MAX_SLOTS);
    #[expect(
        clippy::disallowed_methods,
        reason = "bounded by the calls in flight: each cancels once and answers what it was asked"
    )]
    let (signals_in, mut signals) = mpsc::unbounded_channel::<LineCallSignal>();
    let now = clock::now();
    let mut judged = options.judged;
    let mut connection = ChildConnection {
        metrics,
        budget: Arc::clone(&options.intake.budget),
        peer: Peer::new(options.peer, now),
        room: BudgetRoom::shared(&options.intake.budget),
        no_room: false,
        unsent: BudgetRoom::new(&options.intake.budget),
        written: 0,
        unwritten: VecDeque::new(),
        decoder: LineDecoder::new(options.intake.max_message_bytes()),
        news,
        changes: options.is_shared.then(|| broadcast::channel(CHANGES).0),
        has_listed: false,
        calls_in,
        signals_in,
        stalled_since: None,
        garbage: 0,
        garbage_since: now,
        ended: None,
    };
    loop {
        let waiting = connection.peer.outgoing().len();
        let timeout = connection.next_timeout();
        let ChildConnection { peer, decoder, room, unsent, .. } = &mut connection;
        unsent.set(waiting);
        let wanted = decoder.held() + READ_CHUNK;
        // These bytes are in memory before it is known how many more will follow.
        let may_read = decoder.held() < COUNTED_FROM || room.try_grow_to(wanted).is_ok();
        let buffer = decoder.buffer();
        buffer.reserve(READ_CHUNK);
        // The buffer may have more space than room was taken for.
        let mut buffer = buffer.limit(READ_CHUNK);
        let event = tokio::select! {
            written = stdin.write_buf(peer.outgoing()), if waiting > 0 => LineEvent::Wrote(written),
            read = stdout.read_buf(&mut buffer), if may_read => LineEvent::Read(read),
            room = room.grow_to(wanted), if !may_read => LineEvent::Room(room),
            call = calls.recv(), if waiting < OUT_HIGH_WATER => LineEvent::Call(call),
            Some(signal) = signals.recv() => LineEvent::Signal(signal),
            refused = refused(&mut refusals) => LineEvent::Refused(refused),
            () = options.relist.notified() => LineEvent::Relist,
            took = next_judged(&mut judged) => LineEvent::Judged(took),
            () = clock::sleep_until(timeout) => LineEvent::Timeout,
            () = stop.cancelled() => LineEvent::Stop,
        };
        if let LineEvent::Call(Some(first)) = event {
            // All other waiting calls go into the same write.
            connection.call(first);
            while connection.peer.outgoing().len() < OUT_HIGH_WATER
                && let Ok(next) = calls.try_recv()
            {
                connection.call(next);
            }
        } else if connection.handle(event).is_break() {
            break;
        }
        if connection.drain().is_break() {
            break;
        }
    }
    let mut ended =
        connection.ended.take().unwrap_or(ConnectionEnd { why: "ended".to_owned(), next: None, left: false });
    // Before the calls' ends are reported: a call that is retried must not find this connection.
    calls.close();
    connection.give_back();
    connection.peer.handle_loss(&ended.why, &options.loss);
    // An end during the handshake is informative too: many servers exit at a request before
    // `initialize`.
    while let Some(event) = connection.peer.poll_event() {
        if let PeerEvent::Failed { next, .. } = event {
            ended.next.get_or_insert(next);
        }
    }
    // A sender may have reserved its slot in the channel and not have sent its call yet. That call
    // would stay unanswered as long as any caller keeps the link.
    while let Some(LineCall { outgoing, port }) = calls.recv().await {
        port.unsent(outgoing);
    }
    ended
}

impl ChildConnection<'_> {
    /// Passes a call to the peer.
    fn call(&mut self, command: LineCall) {
        // The call's cancellation may have arrived first, over the other channel.
        let LineCall { outgoing, port } = command;
        if port.is_closed() {
            return;
        }
        let (key, begin) = (port.key(), self.written + self.peer.outgoing().len() as u64);
        self.peer.handle_call(&outgoing, port);
        self.unwritten.push_back((begin, key, outgoing));
    }

    /// Fails the calls of which nothing was written as unsent.
    fn give_back(&mut self) {
        for (_, key, outgoing) in self.unwritten.drain(..) {
            if let Some(port) = self.peer.take_call(key) {
                port.unsent(outgoing);
            }
        }
    }

    /// Handles any event but a call. Breaks when the connection has ended.
    fn handle(&mut self, event: LineEvent) -> ControlFlow<()> {
        match event {
            LineEvent::Read(Ok(0)) => {
                self.name_unfinished();
                if self.decoder.finish().is_some() {
                    (self.news)(StdioNews::Fault(ProtocolFault::Garbage));
                }
                let why = "its standard output ended".to_owned();
                self.ended = Some(ConnectionEnd { why, next: None, left: true });
                ControlFlow::Break(())
            }
            LineEvent::Read(Err(error)) => self.end(&format!("its standard output failed: {error}")),
            LineEvent::Wrote(Err(error)) => {
                let left = error.kind() == std::io::ErrorKind::BrokenPipe;
                let why = format!("its standard input failed: {error}");
                self.ended = Some(ConnectionEnd { why, next: None, left });
                ControlFlow::Break(())
            }
            LineEvent::Stop => self.end("stopped"),
            LineEvent::Read(Ok(bytes)) => {
                self.metrics.received(bytes);
                self.lines()
            }
            LineEvent::Wrote(Ok(bytes)) => {
                self.metrics.sent(bytes);
                self.stalled_since = None;
                self.written += bytes as u64;
                while self.unwritten.front().is_some_and(|(begin, ..)| *begin < self.written) {
                    self.unwritten.pop_front();
                }
                ControlFlow::Continue(())
            }
            LineEvent::Call(_) | LineEvent::Room(Ok(())) => ControlFlow::Continue(()),
            LineEvent::Room(Err(NoRoom)) => {
                // Other calls must not wait for the client of this one.
                self.decoder.discard();
                self.no_room = true;
                self.room.set(0);
                ControlFlow::Continue(())
            }
            LineEvent::Signal(signal) => {
                match signal {
                    LineCallSignal::Cancel(key) => self.peer.handle_cancel(key, clock::now()),
                    LineCallSignal::Parked(key, turn) => {
                        self.peer.handle_parked(key);
                        drop(turn);
                    }
                    LineCallSignal::Reply(id, answer) => self.peer.handle_reply(&id, &answer),
                }
                ControlFlow::Continue(())
            }
            LineEvent::Refused(RefusedRequest { id, failure }) => {
                self.peer.handle_refused(&id, &failure, clock::now());
                ControlFlow::Continue(())
            }
            LineEvent::Relist => {
                self.peer.retry_lists(clock::now());
                ControlFlow::Continue(())
            }
            LineEvent::Judged(took) => {
                self.peer.handle_judged(took, clock::now());
                ControlFlow::Continue(())
            }
            LineEvent::Timeout => {
                let now = clock::now();
                if self.stalled_since.is_some_and(|since| now.duration_since(since) >= WRITE_STALL) {
                    return self.end("it does not read its standard input");
                }
                self.peer.handle_timeout(now);
                ControlFlow::Continue(())
            }
        }
    }

    /// Passes all complete lines to the peer.
    fn lines(&mut self) -> ControlFlow<()> {
        let now = clock::now();
        // Bounded by the size of one read, after which the writer has its turn again.
        while let Some(line) = self.decoder.next_line() {
            match line {
                StreamLine::Full(line) if self.room.try_grow_to(line.len()).is_ok() => {
                    // The line may contain a list of thousands of items.
                    let (is_long, line) = (line.len() >= LONG_TEXT, self.room.keep(line));
                    run_aside_if(is_long, || self.peer.handle_line(line, now));
                }
                // The line arrived whole, before its size was known.
                StreamLine::Full(line) => {
                    self.peer.handle_skipped(&line, &NoRoom.failure(ExecutionDoubt::Unknown), now)
                }
                StreamLine::Oversize { prefix, .. } => {
                    let no_room = std::mem::take(&mut self.no_room);
                    let failure =
                        if no_room { NoRoom.failure(ExecutionDoubt::Unknown) } else { CallFailure::too_large() };
                    self.peer.handle_skipped(&prefix, &failure, now);
                }
            }
        }
        self.room.set(self.decoder.held());
        ControlFlow::Continue(())
    }

    /// Passes on the peer's events. Breaks when the connection has failed.
    fn drain(&mut self) -> ControlFlow<()> {
        self.metrics.reserved(self.peer.taken());
        while let Some(event) = self.peer.poll_event() {
            match event {
                PeerEvent::Ready(agreed) => {
                    let link = StdioLink {
                        agreed,
                        calls: self.calls_in.clone(),
                        signals: self.signals_in.clone(),
                        keys: Arc::default(),
                        budget: Arc::clone(&self.budget),
                        logs: Arc::default(),
                        shared: self.changes.clone().zip(self.peer.take_greeting()).map(SharedProgram::from),
                    };
                    (self.news)(StdioNews::Ready(link));
                }
                PeerEvent::Inventory(inventory) => {
                    if std::mem::replace(&mut self.has_listed, true) {
                        self.share(ProgramChange::Lists);
                    }
                    (self.news)(StdioNews::Inventory(inventory));
                }
                PeerEvent::List(list, trouble) => (self.news)(StdioNews::List(list, trouble)),
                PeerEvent::Gate(gate) => (self.news)(StdioNews::Gate(gate)),
                PeerEvent::Learned(lesson) => (self.news)(StdioNews::Learned(lesson)),
                PeerEvent::Unclaimed(notice) => (self.news)(StdioNews::Unclaimed(notice)),
                PeerEvent::Updated(uri) => {
                    self.share(ProgramChange::Resource(uri.clone()));
                    (self.news)(StdioNews::Updated(uri));
                }
                PeerEvent::Fault(fault) => {
                    (self.news)(StdioNews::Fault(fault));
                    if matches!(fault, ProtocolFault::Garbage | ProtocolFault::MalformedReply)
                        && self.too_much_garbage()
                    {
                        return self.end("it writes lines that are no messages");
                    }
                }
                PeerEvent::Quirk(quirk) => (self.news)(StdioNews::Quirk(quirk)),
                PeerEvent::Unreadable(message) => (self.news)(StdioNews::Unreadable(message)),
                PeerEvent::Failed { mut why, next } => {
                    if self.name_unfinished() {
                        why = format!("{why}; its last line is no JSON-RPC message: {UNFINISHED}");
                    }
                    self.ended = Some(ConnectionEnd { why, next: Some(next), left: false });
                    return ControlFlow::Break(());
                }
            }
        }
        if self.peer.outgoing().is_empty() {
            self.stalled_since = None;
        } else if self.stalled_since.is_none() {
            self.stalled_since = Some(clock::now());
        }
        ControlFlow::Continue(())
    }

    /// Tells other replicas of a change, if any uses the program.
    fn share(&self, change: ProgramChange) {
        if let Some(changes) = &self.changes {
            // Without a replica there is no one to tell.
            let _unheard = changes.send(change);
        }
    }

    /// Reports the beginning of a line whose end has not arrived. Returns whether there is one.
    fn name_unfinished(&mut self) -> bool {
        let line = self.decoder.unfinished();
        if !line.is_empty() {
            let message = UnreadableBytes::new(line, UNFINISHED);
            (self.news)(StdioNews::Unreadable(message));
            return true;
        }
        false
    }

    /// Counts a line that is no message. Returns whether there were too many.
    fn too_much_garbage(&mut self) -> bool {
        let now = clock::now();
        if now.duration_since(self.garbage_since) > GARBAGE_WINDOW {
            (self.garbage, self.garbage_since) = (0, now);
        }
        self.garbage += 1;
        self.garbage > GARBAGE_LIMIT
    }

    fn next_timeout(&self) -> Option<Instant> {
        let stall = self.stalled_since.map(|since| since + WRITE_STALL);
        [self.peer.poll_timeout(), stall].into_iter().flatten().min()
    }

    fn end(&mut self, why: &str) -> ControlFlow<()> {
        self.ended = Some(ConnectionEnd { why: why.to_owned(), next: None, left: false });
        ControlFlow::Break(())
    }
}

#[cfg(test)]
mod tests;
