//! Connections that have not presented a valid credential yet. Every listener counts and limits
//! them separately from all others.
//!
//! A new connection always gets in. If the lobby is full, the oldest connection without a request
//! in progress is dismissed, or the oldest of all if each has one. So a stranger who opens
//! connections mostly displaces their own. A client with a valid credential needs the lobby only
//! until its first head is checked: a connection whose request has arrived is served before it is
//! closed. A dismissed connection gets 503 unless another answer is being written.
//!
//! Without a free file descriptor nothing can be accepted. Each listener keeps a spare descriptor,
//! with which it accepts one more connection: listeners for operators (metrics, admin socket) serve
//! it, others answer 503.
//!
//! With its first valid credential a connection leaves the lobby and takes a slot of its caller;
//! without a free slot it gets 503 and is closed.
//!
//! Each listener has its own kind of valid credential, limits in the lobby, and limits afterwards:
//!
//! - MCP and HTTP+SSE: a bearer token (with mode "none" any admitted request). In the lobby
//!   `anonymous-connections`, of which one address has `connections-per-ip`; afterwards
//!   `max-connections`, of which our own user leaves a quarter to other callers, and
//!   `connections-per-caller`.
//! - Console: the cookie of a session. 64 connections in the lobby, 128 afterwards.
//! - Metrics: no credential. 64 connections in the lobby.
//! - Admin socket: the user, whom the kernel names. 64 connections before the hello, 32 of one
//!   user; afterwards `connections-per-caller`, with no limit for our own user.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::hash::Hash;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::base::clock;
use crate::base::descriptors::lacks_descriptors;
use crate::base::slots::{PoolSlot, SlotPool};
use crate::base::tally::LogTally;
use crate::listener::address::Network;
use crate::listener::pace::ConnectionPhase;
use crate::telemetry::metrics::{Metrics, Shortage};

/// Most dismissed connections that have not ended yet; at this number the listener accepts no more
/// until some have.
pub const LEAVING: usize = 16;

/// Time limit for accepting a connection with the spare descriptor, and for writing its refusal.
const LAST_TIME: Duration = Duration::from_millis(100);
/// Most connections that are accepted from the queue of a listener that is about to be closed.
const MAX_WAITING: usize = 1024;
const NO_DESCRIPTOR: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    retry-after: 1\r\nconnection: close\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 72\r\n\r\n\
    headend has no file descriptor left for this connection; try again soon\n";

/// Limits of a lobby. A limit of zero counts as one.
#[derive(Clone, Copy, Debug)]
pub struct LobbyLimits {
    /// Most connections in the lobby.
    pub all: usize,
    /// Most connections of one origin.
    pub per_origin: usize,
}

impl LobbyLimits {
    /// Returns the most file descriptors that the lobby uses.
    pub const fn descriptors(self) -> usize {
        self.all.saturating_add(LEAVING)
    }
}

/// The connections of one listener without a valid credential, by origin: a network address or a
/// user.
#[derive(Debug)]
pub struct Lobby<K> {
    listener: &'static str,
    room: SlotPool,
    inner: Mutex<LobbyTable<K>>,
    metrics: Option<Metrics>,
    displaced: LogTally,
    failed: LogTally,
    /// A file that is open only so that its descriptor can be used when none is left.
    spare: Mutex<Option<File>>,
    /// True if the connection that takes the spare descriptor is served, false if it gets 503.
    is_for_operators: bool,
}

/// A connection that a listener has accepted.
#[derive(Debug)]
pub struct AcceptedConnection<S> {
    pub stream: S,
    pub room: PoolSlot,
    /// True if the connection uses the spare descriptor.
    pub is_last: bool,
}

/// The connections in a lobby.
#[derive(Debug)]
struct LobbyTable<K> {
    limits: LobbyLimits,
    /// The number of the next connection.
    next: u64,
    guests: BTreeMap<u64, (K, ConnectionPhase)>,
    by_origin: HashMap<K, BTreeSet<u64>>,
}

/// A connection that has not presented a valid credential yet. Dropping the value removes it from
/// the lobby.
#[derive(Debug)]
pub struct LobbyConnection<K: Copy + Eq + Hash> {
    lobby: Arc<Lobby<K>>,
    number: u64,
    phase: ConnectionPhase,
    _room: PoolSlot,
}

impl<K: Copy + Eq + Hash> Lobby<K> {
    /// Creates the lobby of a listener; `listener` is its name in the log. `metrics` counts the
    /// dismissed connections.
    pub fn new(listener: &'static str, limits: LobbyLimits, metrics: Option<Metrics>) -> Arc<Self> {
        Self::make(listener, limits, metrics, false)
    }

    /// Creates the lobby of a listener for operators, who look when something is wrong.
    pub fn for_operators(listener: &'static str, limits: LobbyLimits, metrics: Metrics) -> Arc<Self> {
        Self::make(listener, limits, Some(metrics), true)
    }

    fn make(
        listener: &'static str,
        limits: LobbyLimits,
        metrics: Option<Metrics>,
        is_for_operators: bool,
    ) -> Arc<Self> {
        let inner = LobbyTable { limits, next: 0, guests: BTreeMap::new(), by_origin: HashMap::new() };
        Arc::new(Self {
            listener,
            room: SlotPool::new(limits.descriptors().max(1)),
            inner: Mutex::new(inner),
            metrics,
            displaced: LogTally::default(),
            failed: LogTally::default(),
            spare: Mutex::default(),
            is_for_operators,
        })
    }

    /// Closes the spare file, which frees a descriptor for one connection. Returns whether there
    /// was one.
    fn give_up_spare(&self) -> bool {
        self.spare.lock().take().is_some()
    }

    /// Opens the spare file if it is closed.
    fn keep_spare(&self) {
        let mut spare = self.spare.lock();
        if spare.is_none() {
            *spare = File::open("/dev/null").ok();
        }
    }

    /// Changes the limits. Connections beyond smaller limits are dismissed when the next one
    /// enters.
    pub fn set_limits(&self, limits: LobbyLimits) {
        self.inner.lock().limits = limits;
        self.room.set_number(limits.descriptors().max(1));
    }

    /// Admits a connection that no listener has accepted, once there is room.
    pub async fn let_in(self: &Arc<Self>, origin: K) -> LobbyConnection<K> {
        let room = self.room.take().await;
        self.enter(origin, room)
    }

    /// Adds a new connection, and dismisses older ones if there are too many, which is counted and
    /// logged.
    pub fn enter(self: &Arc<Self>, origin: K, room: PoolSlot) -> LobbyConnection<K> {
        let phase = ConnectionPhase::anonymous();
        let mut inner = self.inner.lock();
        let number = inner.next;
        inner.next += 1;
        inner.guests.insert(number, (origin, phase.clone()));
        inner.by_origin.entry(origin).or_default().insert(number);
        while let Some((victim, limit)) = inner.victim(origin, number) {
            if let Some(phase) = inner.remove(victim) {
                phase.dismiss();
                self.displaced(limit);
            }
        }
        drop(inner);
        LobbyConnection { lobby: Arc::clone(self), number, phase, _room: room }
    }

    /// Counts and logs a dismissed connection.
    fn displaced(&self, limit: &'static str) {
        if let Some(metrics) = &self.metrics {
            metrics.limit_hit(limit);
        }
        if let Some(count) = self.displaced.count(clock::uptime()) {
            let listener = self.listener;
            tracing::warn!(
                listener,
                limit,
                count,
                "too many connections without a valid credential: the oldest gave way"
            );
        }
    }

    /// Logs a failed `accept`, about once a minute.
    fn not_accepted(&self, error: &io::Error) {
        if let Some(count) = self.failed.count(clock::uptime()) {
            tracing::warn!(listener = self.listener, error = %error, count, "connection not accepted");
        }
    }
}

impl<K: Copy + Eq + Hash> Lobby<K> {
    /// Waits for the next connection from `accept`. Logs failures and tries again, with the spare
    /// descriptor if none is left.
    pub async fn next<S, A>(&self, accept: impl Fn() -> A) -> AcceptedConnection<S>
    where
        A: Future<Output = io::Result<S>>,
    {
        loop {
            let room = self.room.take().await;
            self.keep_spare();
            let error = match accept().await {
                Ok(stream) => return AcceptedConnection { stream, room, is_last: false },
                Err(error) => error,
            };
            self.not_accepted(&error);
            if lacks_descriptors(&error) {
                if let Some(metrics) = &self.metrics {
                    metrics.short_of(Shortage::Descriptors, clock::uptime());
                }
                let had_one = self.give_up_spare();
                if had_one && let Ok(Ok(stream)) = tokio::time::timeout(LAST_TIME, accept()).await {
                    return AcceptedConnection { stream, room, is_last: true };
                }
            }
            // Resources are scarce; some connections may end meanwhile.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Lobby<Network> {
    /// Accepts the connections of a listener until `stop` fires, and passes them to `connected`.
    /// They end by themselves.
    pub async fn serve(
        self: &Arc<Self>,
        listener: TcpListener,
        stop: &CancellationToken,
        connected: impl FnMut(TcpStream, SocketAddr, LobbyConnection<Network>),
    ) {
        drop(self.serve_admitted(listener, |_| true, stop, connected).await);
    }

    /// Does what [`Self::serve`] does, and closes at once each connection of a peer that `admits`
    /// refuses. Returns the listener, which is still open.
    pub async fn serve_admitted(
        self: &Arc<Self>,
        listener: TcpListener,
        admits: impl Fn(&SocketAddr) -> bool,
        stop: &CancellationToken,
        mut connected: impl FnMut(TcpStream, SocketAddr, LobbyConnection<Network>),
    ) -> TcpListener {
        let accept = async || loop {
            let accepted = listener.accept().await?;
            if admits(&accepted.1) {
                return Ok::<_, io::Error>(accepted);
            }
        };
        while let Some(accepted) = stop.run_until_cancelled(self.next(&accept)).await {
            let AcceptedConnection { stream: (stream, peer), room, is_last } = accepted;
            if is_last && !self.is_for_operators {
                turn_away(stream).await;
            } else {
                connected(stream, peer, self.enter(Network::from(peer.ip()), room));
            }
        }
        listener
    }

    /// Accepts the connections that wait in the queue of a listener, and closes it. The kernel
    /// would reset them, although their clients may have written a request.
    pub fn accept_last(
        self: &Arc<Self>,
        listener: TcpListener,
        admits: impl Fn(&SocketAddr) -> bool,
        mut connected: impl FnMut(TcpStream, SocketAddr, LobbyConnection<Network>),
    ) {
        let Ok(listener) = listener.into_std() else { return };
        for _ in 0..MAX_WAITING {
            let Some(room) = self.room.take().now_or_never() else { return };
            let Ok((stream, peer)) = listener.accept() else { return };
            let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
            if let (true, Ok(stream)) = (admits(&peer), stream) {
                connected(stream, peer, self.enter(Network::from(peer.ip()), room));
            }
        }
    }
}

/// Answers that there is no descriptor for this connection, and closes it.
async fn turn_away(mut stream: TcpStream) {
    let talk = async {
        stream.write_all(NO_DESCRIPTOR).await?;
        stream.shutdown().await?;
        // Bytes left unread would make the kernel discard the answer.
        let mut rest = [0; 512];
        while stream.read(&mut rest).await? > 0 {}
        Ok::<_, io::Error>(())
    };
    // A client that does not read its refusal gets none.
    drop(tokio::time::timeout(LAST_TIME, talk).await);
}

impl<K: Copy + Eq + Hash> LobbyTable<K> {
    /// Returns the connection to dismiss if a limit is exceeded, and the configuration key of that
    /// limit. The newest connection is never chosen.
    fn victim(&self, origin: K, newest: u64) -> Option<(u64, &'static str)> {
        let limits = self.limits;
        let own = self.by_origin.get(&origin)?;
        if own.len() > limits.per_origin.max(1) {
            return Some((self.oldest(own.iter().copied(), newest)?, "connections-per-ip"));
        }
        let is_full = self.guests.len() > limits.all.max(1);
        let oldest = is_full.then(|| self.oldest(self.guests.keys().copied(), newest)).flatten()?;
        Some((oldest, "anonymous-connections"))
    }

    /// Returns the first of these connections without a request in progress, else the first of all;
    /// never `newest`, and `None` if there is no other.
    fn oldest(&self, numbers: impl Iterator<Item = u64> + Clone, newest: u64) -> Option<u64> {
        let mut others = numbers.filter(|number| *number != newest);
        let is_idle = |number: &u64| self.guests.get(number).is_some_and(|(_, phase)| !phase.is_busy());
        others.clone().find(is_idle).or_else(|| others.next())
    }

    /// Removes a connection that is still in the lobby.
    fn remove(&mut self, number: u64) -> Option<ConnectionPhase> {
        let (origin, phase) = self.guests.remove(&number)?;
        if let Some(own) = self.by_origin.get_mut(&origin) {
            own.remove(&number);
            if own.is_empty() {
                self.by_origin.remove(&origin);
            }
        }
        Some(phase)
    }
}

impl<K: Copy + Eq + Hash> LobbyConnection<K> {
    pub fn phase(&self) -> &ConnectionPhase {
        &self.phase
    }
}

impl<K: Copy + Eq + Hash> Drop for LobbyConnection<K> {
    fn drop(&mut self) {
        drop(self.lobby.inner.lock().remove(self.number));
    }
}

/// The state of a connection: in the lobby, or with a slot `P` after a valid credential.
#[derive(Debug)]
pub struct ConnectionAdmission<K: Copy + Eq + Hash, P> {
    guest: Mutex<Option<LobbyConnection<K>>>,
    place: OnceLock<Option<P>>,
}

impl<K: Copy + Eq + Hash, P> ConnectionAdmission<K, P> {
    pub fn new(guest: LobbyConnection<K>) -> Self {
        Self { guest: Mutex::new(Some(guest)), place: OnceLock::new() }
    }

    /// Takes the slot that the connection keeps from its first valid credential on, and leaves the
    /// lobby. Returns `false` if no slot is free; then the connection has to be closed.
    pub fn settle(&self, take: impl FnOnce() -> Option<P>) -> bool {
        let place = self.place.get_or_init(|| {
            let place = take()?;
            if let Some(guest) = self.guest.lock().take() {
                guest.phase.known();
            }
            Some(place)
        });
        place.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: LobbyLimits = LobbyLimits { all: 4, per_origin: 3 };

    async fn enter(lobby: &Arc<Lobby<u8>>, origin: u8) -> LobbyConnection<u8> {
        lobby.let_in(origin).await
    }

    fn dismissed(guests: &[LobbyConnection<u8>]) -> Vec<usize> {
        (0..guests.len()).filter(|n| guests[*n].phase.is_dismissed()).collect()
    }

    #[tokio::test]
    async fn the_oldest_of_the_same_origin_gives_way_then_the_oldest_of_all() {
        let lobby = Lobby::new("test", LIMITS, None);
        let mut guests = Vec::new();
        for (origin, gave_way) in [(1, vec![]), (2, vec![]), (1, vec![]), (1, vec![]), (1, vec![0]), (3, vec![0, 1])] {
            guests.push(enter(&lobby, origin).await);
            assert_eq!(dismissed(&guests), gave_way, "after {} connections", guests.len());
        }
        drop(guests);
        let inner = lobby.inner.lock();
        assert!(inner.guests.is_empty() && inner.by_origin.is_empty(), "nothing is left behind");
    }

    #[tokio::test]
    async fn smaller_bounds_hold_from_the_next_connection_on() {
        let lobby = Lobby::new("test", LIMITS, None);
        let mut guests = vec![enter(&lobby, 1).await, enter(&lobby, 2).await, enter(&lobby, 3).await];
        lobby.set_limits(LobbyLimits { all: 2, per_origin: 2 });
        assert!(dismissed(&guests).is_empty());
        guests.push(enter(&lobby, 4).await);
        assert_eq!(dismissed(&guests), [0, 1]);
    }

    #[tokio::test]
    async fn requests_in_progress_give_way_last() {
        let lobby = Lobby::new("test", LobbyLimits { all: 2, per_origin: 2 }, None);
        let mut guests = vec![enter(&lobby, 1).await];
        let busy = guests[0].phase.busy();
        guests.push(enter(&lobby, 1).await);
        guests.push(enter(&lobby, 1).await);
        assert_eq!(dismissed(&guests), [1]);
        let also_busy = guests[2].phase.busy();
        guests.push(enter(&lobby, 1).await);
        assert_eq!(dismissed(&guests), [0, 1], "all others are busy: the oldest");
        drop((busy, also_busy));
    }

    #[tokio::test]
    async fn a_connection_that_was_let_in_is_out_of_the_lobby_and_stays() {
        let lobby = Lobby::new("test", LobbyLimits { all: 1, per_origin: 1 }, None);
        let guest = enter(&lobby, 1).await;
        let phase = guest.phase().clone();
        let standing = ConnectionAdmission::new(guest);
        // The connection was dismissed while its request was being read.
        let _next = enter(&lobby, 1).await;
        assert!(phase.is_dismissed());
        assert!(standing.settle(|| Some(())) && !phase.is_dismissed());
        let _third = enter(&lobby, 1).await;
        assert!(!phase.is_dismissed() && standing.settle(|| None), "it keeps its place");
    }

    #[tokio::test]
    async fn a_connection_without_a_place_stays_in_the_lobby() {
        let lobby = Lobby::new("test", LIMITS, None);
        let standing = ConnectionAdmission::<u8, ()>::new(enter(&lobby, 1).await);
        assert!(!standing.settle(|| None));
        assert_eq!(lobby.inner.lock().guests.len(), 1);
    }

    #[tokio::test]
    async fn no_more_are_accepted_than_may_be_open() {
        let lobby = Lobby::new("test", LobbyLimits { all: 1, per_origin: 1 }, None);
        let mut guests = Vec::new();
        for _ in 0..=LEAVING {
            guests.push(enter(&lobby, 1).await);
        }
        assert_eq!(lobby.room.free(), 0);
        guests.remove(0);
        assert_eq!(lobby.room.free(), 1);
    }

    #[tokio::test]
    async fn a_connection_in_the_queue_of_a_listener_is_accepted_before_that_is_closed() {
        let lobby = Lobby::new("test", LIMITS, None);
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let waiting = [(); 2].map(|()| std::net::TcpStream::connect(address).unwrap());
        let admitted = waiting[1].local_addr().unwrap();
        let mut accepted = Vec::new();
        lobby.accept_last(listener, |peer| *peer == admitted, |_, peer, guest| accepted.push((peer, guest)));
        assert_eq!(accepted.iter().map(|(peer, _)| *peer).collect::<Vec<_>>(), [admitted]);
        assert!(std::net::TcpStream::connect(address).is_err(), "the listener is closed");
    }
}
