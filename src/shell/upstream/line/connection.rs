//! The task of one connection over lines, which is usually a child's stdin and stdout: it runs a
//! [`Peer`] over two pipes. It never waits for a client.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::BufMut as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::base::aside::{LONG_TEXT, run_aside_if};
use crate::base::budget::{Budget, COUNTED_FROM, NoRoom, Room};
use crate::base::clock;
use crate::catalog::inventory::Inventory;
use crate::engine::askers::Lesson;
use crate::engine::call::Outgoing;
use crate::engine::failure::{Executed, Failure};
use crate::engine::fault::Fault;
use crate::engine::handshake::{Agreed, EraHint};
use crate::engine::lists::Trouble;
use crate::engine::peer::{CallPort as _, Peer, PeerEvent, PeerOptions};
use crate::engine::turns::Gate;
use crate::mcp::log::LogSwitch;
use crate::mcp::method::List;
use crate::telemetry::metrics::UpstreamMetrics;
use crate::upstream::line::call::{Command, Port, Signal, StdioExchange, stdio_call};
use crate::upstream::spawner::Intake;
use crate::wire::id::WireId;
use crate::wire::lines::{Line, LineDecoder};
use crate::wire::message::Notification;
use crate::wire::quirk::Quirk;
use crate::wire::raw::RawJson;
use crate::wire::unreadable::Unreadable;

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

/// A sender of calls to a running child. Cheap to clone.
#[derive(Clone, Debug)]
pub struct StdioLink {
    pub agreed: Agreed,
    calls: mpsc::Sender<Command>,
    signals: mpsc::UnboundedSender<Signal>,
    keys: Arc<AtomicU64>,
    budget: Arc<Budget>,
    /// The log level that the server was asked for.
    pub logs: Arc<LogSwitch>,
}

impl StdioLink {
    /// Sends a call to the child's task.
    pub fn call(&self, outgoing: Outgoing) -> StdioExchange {
        let key = self.keys.fetch_add(1, Ordering::Relaxed);
        let (party, budget, signals) = (outgoing.party.clone(), Arc::clone(&self.budget), self.signals.clone());
        let (port, exchange) = stdio_call(key, party, outgoing.wants(), budget, signals);
        // The channel has room for as many calls as a connection can have. If it were full, the
        // port would be dropped, and the exchange would report that nothing was sent.
        if let Err(TrySendError::Closed(Command { outgoing, port })) = self.calls.try_send(Command { outgoing, port }) {
            port.unsent(outgoing);
        }
        exchange
    }

    /// Returns whether the child's task accepts calls.
    pub fn is_open(&self) -> bool {
        !self.calls.is_closed()
    }
}

/// News from the task, for the code that runs it.
#[derive(Debug)]
pub(crate) enum StdioNews {
    Ready(StdioLink),
    Inventory(Inventory),
    /// How the last reading of a list ended.
    List(List, Option<Trouble>),
    Fault(Fault),
    /// A message broke the protocol but could be read.
    Quirk(Quirk),
    /// A line that is no message.
    Unreadable(Unreadable),
    Gate(Gate),
    Learned(Lesson),
    Updated(String),
    Unclaimed(Notification),
}

/// The reason why the task ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub why: String,
    /// How the next start should ask for the era, if this connection has shown that.
    pub next: Option<EraHint>,
    /// True if the other end closed its pipe, in which case `why` does not explain the end.
    pub left: bool,
}

/// A request of the gateway that its carrier could not deliver.
#[derive(Debug)]
pub(crate) struct Refused {
    pub id: RawJson,
    pub failure: Failure,
}

/// The settings of a connection.
#[derive(Clone, Debug)]
pub(crate) struct StdioOptions {
    pub peer: PeerOptions,
    pub intake: Intake,
    /// Fires when the operator wants unread lists to be read again.
    pub relist: Arc<Notify>,
    /// How long it took to judge the last lists, if the lists of this connection are judged.
    pub judged: Option<watch::Receiver<Duration>>,
}

/// An event in the task's loop.
enum Event {
    /// There is room for the line being read, or the wait for room was in vain.
    Room(Result<(), NoRoom>),
    Read(std::io::Result<usize>),
    Wrote(std::io::Result<usize>),
    Call(Option<Command>),
    Signal(Signal),
    Refused(Refused),
    Relist,
    Judged(Duration),
    Timeout,
    Stop,
}

/// The state of the task.
struct Connection<'a> {
    metrics: &'a UpstreamMetrics,
    budget: Arc<Budget>,
    peer: Peer<Port>,
    decoder: LineDecoder,
    /// Room for the line that is being read.
    room: Room,
    /// True while the line is skipped for lack of room.
    no_room: bool,
    /// Room for bytes that the child has not taken yet.
    unsent: Room,
    /// Bytes written so far.
    written: u64,
    /// Calls of which no byte was written: the position of their first byte, their key, and the
    /// call.
    unwritten: VecDeque<(u64, u64, Outgoing)>,
    news: &'a mut (dyn FnMut(StdioNews) + Send),
    calls_in: mpsc::Sender<Command>,
    signals_in: mpsc::UnboundedSender<Signal>,
    /// Start of the time in which bytes wait and the child takes none.
    stalled_since: Option<Instant>,
    garbage: u32,
    garbage_since: Instant,
    ended: Option<Ended>,
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
async fn refused(refusals: &mut Option<mpsc::Receiver<Refused>>) -> Refused {
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
    mut refusals: Option<mpsc::Receiver<Refused>>,
    options: StdioOptions,
    metrics: &UpstreamMetrics,
    stop: &CancellationToken,
    news: &mut (dyn FnMut(StdioNews) + Send),
) -> Ended {
    let (calls_in, mut calls) = mpsc::channel::<Command>(WireId::MAX_SLOTS);
    #[expect(
        clippy::disallowed_methods,
        reason = "bounded by the calls in flight: each cancels once and answers what it was asked"
    )]
    let (signals_in, mut signals) = mpsc::unbounded_channel::<Signal>();
    let now = clock::now();
    let mut judged = options.judged;
    let mut connection = Connection {
        metrics,
        budget: Arc::clone(&options.intake.budget),
        peer: Peer::new(options.peer, now),
        room: Room::shared(&options.intake.budget),
        no_room: false,
        unsent: Room::new(&options.intake.budget),
        written: 0,
        unwritten: VecDeque::new(),
        decoder: LineDecoder::new(options.intake.max_message_bytes()),
        news,
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
        let Connection { peer, decoder, room, unsent, .. } = &mut connection;
        unsent.set(waiting);
        let wanted = decoder.held() + READ_CHUNK;
        // These bytes are in memory before it is known how many more will follow.
        let may_read = decoder.held() < COUNTED_FROM || room.try_grow_to(wanted).is_ok();
        let buffer = decoder.buffer();
        buffer.reserve(READ_CHUNK);
        // The buffer may have more space than room was taken for.
        let mut buffer = buffer.limit(READ_CHUNK);
        let event = tokio::select! {
            written = stdin.write_buf(peer.outgoing()), if waiting > 0 => Event::Wrote(written),
            read = stdout.read_buf(&mut buffer), if may_read => Event::Read(read),
            room = room.grow_to(wanted), if !may_read => Event::Room(room),
            call = calls.recv(), if waiting < OUT_HIGH_WATER => Event::Call(call),
            Some(signal) = signals.recv() => Event::Signal(signal),
            refused = refused(&mut refusals) => Event::Refused(refused),
            () = options.relist.notified() => Event::Relist,
            took = next_judged(&mut judged) => Event::Judged(took),
            () = clock::sleep_until(timeout) => Event::Timeout,
            () = stop.cancelled() => Event::Stop,
        };
        if let Event::Call(Some(first)) = event {
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
    let mut ended = connection.ended.take().unwrap_or(Ended { why: "ended".to_owned(), next: None, left: false });
    // Before the calls' ends are reported: a call that is retried must not find this connection.
    calls.close();
    connection.give_back();
    connection.peer.handle_closed(&ended.why);
    // An end during the handshake is informative too: many servers exit at a request before
    // `initialize`.
    while let Some(event) = connection.peer.poll_event() {
        if let PeerEvent::Failed { next, .. } = event {
            ended.next.get_or_insert(next);
        }
    }
    // A sender may have reserved its slot in the channel and not have sent its call yet. That call
    // would stay unanswered as long as any caller keeps the link.
    while let Some(Command { outgoing, port }) = calls.recv().await {
        port.unsent(outgoing);
    }
    ended
}

impl Connection<'_> {
    /// Passes a call to the peer.
    fn call(&mut self, command: Command) {
        // The call's cancellation may have arrived first, over the other channel.
        let Command { outgoing, port } = command;
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
    fn handle(&mut self, event: Event) -> ControlFlow<()> {
        match event {
            Event::Read(Ok(0)) => {
                self.name_unfinished();
                if self.decoder.finish().is_some() {
                    (self.news)(StdioNews::Fault(Fault::Garbage));
                }
                let why = "its standard output ended".to_owned();
                self.ended = Some(Ended { why, next: None, left: true });
                ControlFlow::Break(())
            }
            Event::Read(Err(error)) => self.end(&format!("its standard output failed: {error}")),
            Event::Wrote(Err(error)) => {
                let left = error.kind() == std::io::ErrorKind::BrokenPipe;
                let why = format!("its standard input failed: {error}");
                self.ended = Some(Ended { why, next: None, left });
                ControlFlow::Break(())
            }
            Event::Stop => self.end("stopped"),
            Event::Read(Ok(bytes)) => {
                self.metrics.received(bytes);
                self.lines()
            }
            Event::Wrote(Ok(bytes)) => {
                self.metrics.sent(bytes);
                self.stalled_since = None;
                self.written += bytes as u64;
                while self.unwritten.front().is_some_and(|(begin, ..)| *begin < self.written) {
                    self.unwritten.pop_front();
                }
                ControlFlow::Continue(())
            }
            Event::Call(_) | Event::Room(Ok(())) => ControlFlow::Continue(()),
            Event::Room(Err(NoRoom)) => {
                // Other calls must not wait for the client of this one.
                self.decoder.discard();
                self.no_room = true;
                self.room.set(0);
                ControlFlow::Continue(())
            }
            Event::Signal(signal) => {
                match signal {
                    Signal::Cancel(key) => self.peer.handle_cancel(key, clock::now()),
                    Signal::Parked(key, turn) => {
                        self.peer.handle_parked(key);
                        drop(turn);
                    }
                    Signal::Reply(id, answer) => self.peer.handle_reply(&id, &answer),
                }
                ControlFlow::Continue(())
            }
            Event::Refused(Refused { id, failure }) => {
                self.peer.handle_refused(&id, &failure, clock::now());
                ControlFlow::Continue(())
            }
            Event::Relist => {
                self.peer.retry_lists(clock::now());
                ControlFlow::Continue(())
            }
            Event::Judged(took) => {
                self.peer.handle_judged(took, clock::now());
                ControlFlow::Continue(())
            }
            Event::Timeout => {
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
                Line::Full(line) if self.room.try_grow_to(line.len()).is_ok() => {
                    // The line may contain a list of thousands of items.
                    let (is_long, line) = (line.len() >= LONG_TEXT, self.room.keep(line));
                    run_aside_if(is_long, || self.peer.handle_line(line, now));
                }
                // The line arrived whole, before its size was known.
                Line::Full(line) => self.peer.handle_skipped(&line, &NoRoom.failure(Executed::Unknown), now),
                Line::Oversize { prefix, .. } => {
                    let no_room = std::mem::take(&mut self.no_room);
                    let failure = if no_room { NoRoom.failure(Executed::Unknown) } else { Failure::too_large() };
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
                    };
                    (self.news)(StdioNews::Ready(link));
                }
                PeerEvent::Inventory(inventory) => (self.news)(StdioNews::Inventory(inventory)),
                PeerEvent::List(list, trouble) => (self.news)(StdioNews::List(list, trouble)),
                PeerEvent::Gate(gate) => (self.news)(StdioNews::Gate(gate)),
                PeerEvent::Learned(lesson) => (self.news)(StdioNews::Learned(lesson)),
                PeerEvent::Unclaimed(notice) => (self.news)(StdioNews::Unclaimed(notice)),
                PeerEvent::Updated(uri) => (self.news)(StdioNews::Updated(uri)),
                PeerEvent::Fault(fault) => {
                    (self.news)(StdioNews::Fault(fault));
                    if matches!(fault, Fault::Garbage | Fault::MalformedReply) && self.too_much_garbage() {
                        return self.end("it writes lines that are no messages");
                    }
                }
                PeerEvent::Quirk(quirk) => (self.news)(StdioNews::Quirk(quirk)),
                PeerEvent::Unreadable(message) => (self.news)(StdioNews::Unreadable(message)),
                PeerEvent::Failed { mut why, next } => {
                    if self.name_unfinished() {
                        why = format!("{why}; its last line is no JSON-RPC message: {UNFINISHED}");
                    }
                    self.ended = Some(Ended { why, next: Some(next), left: false });
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

    /// Reports the beginning of a line whose end has not arrived. Returns whether there is one.
    fn name_unfinished(&mut self) -> bool {
        let line = self.decoder.unfinished();
        if !line.is_empty() {
            let message = Unreadable::new(line, UNFINISHED);
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
        self.ended = Some(Ended { why: why.to_owned(), next: None, left: false });
        ControlFlow::Break(())
    }
}

#[cfg(test)]
mod tests;
