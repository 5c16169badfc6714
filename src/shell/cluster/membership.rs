//! The replicas that live, as this one sees them: its own heartbeat, the last reading of the
//! directory, and the holders of sessions whose first owner is dead.
//!
//! While the store is away, the last reading stays in force and no replica is taken for dead by its
//! age. After such a time, or a jump of the store's clock, this replica waits until the others had
//! time for a heartbeat.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::base::clock;
use crate::base::current_run::CurrentRun;
use crate::cluster::link::PeerLink;
use crate::cluster::peer_tls::PeerTls;
use crate::cluster::row::{Replica, ReplicaFacts};
use crate::engine::sealed::peer::{PassedCaller, PassedCredential, PassedRequest, PeerKey};
use crate::engine::sealed::replay_window::ReplayWindow;
use crate::engine::sealed::run_id::RunId;
use crate::engine::sealed::session_id::SessionName;
use crate::policy::Caller;
use crate::store::port::{
    DEAD_AFTER, DOUBTFUL_AFTER, DbError, KeptReplica, ReplicaOperations, SessionClaim, SessionGift,
};
use crate::wire::digest::Digest;

/// Time between two heartbeats.
const BEAT: Duration = Duration::from_secs(3);
/// Shortest time between two readings of the directory because of something unknown.
const LOOK: Duration = Duration::from_millis(500);
/// Longest wait for the store to take a heartbeat, and to remove the row at the end.
const STORE_TIME: Duration = Duration::from_secs(5);
/// Most replicas of a cluster that are read; further rows are ignored.
pub const MAX_REPLICAS: usize = 64;
/// Most claimed sessions whose holders are remembered; others are asked for in the store.
const MAX_HOLDERS: usize = 16_384;

/// A session as its id names it.
#[derive(Clone, Copy, Debug)]
pub struct NamedSession {
    pub name: SessionName,
    /// The run of the replica that opened the session.
    pub run: RunId,
    /// Expiry of the id, in seconds since 1970.
    pub until: u64,
}

/// A reason to doubt what is known of the holder of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderDoubt {
    None,
    /// This run has refused a connection.
    Refused(RunId),
    /// The replica has not taken the request.
    Denied,
}

/// The replica that holds a session.
#[derive(Debug)]
pub enum SessionHolder {
    /// This one.
    Own,
    Peer(Arc<PeerLink>),
    /// A living replica that has no address for others.
    Unreachable,
}

/// The state of a replica as a member of its cluster.
#[derive(Debug)]
pub struct Cluster {
    pub(super) store: Arc<dyn ReplicaOperations>,
    key: PeerKey,
    tls: Option<PeerTls>,
    run: Arc<CurrentRun>,
    /// The facts of this replica; its load and digests are those of the last heartbeat.
    facts: Mutex<ReplicaFacts>,
    /// True until the current run has its row.
    begins: AtomicBool,
    /// True once this replica has left the directory.
    left: AtomicBool,
    reading: watch::Sender<Arc<Reading>>,
    /// Held by the task that reads the directory.
    reader: tokio::sync::Mutex<()>,
    holders: Mutex<HolderTable>,
    /// Number of the last request that was passed on.
    passed: AtomicU64,
    /// The numbers of requests that were taken, by the run that passed them on.
    taken: Mutex<HashMap<RunId, ReplayWindow>>,
}

/// One reading of the directory.
#[derive(Debug)]
pub struct Reading {
    pub replicas: Vec<Replica>,
    /// Number of replicas that live in the same store with another key. Their rows cannot be read.
    pub unreadable: usize,
    links: HashMap<RunId, Arc<PeerLink>>,
    at: Instant,
    /// The start of the time in which every heartbeat succeeded; `None` while the store is away.
    steady_since: Option<Instant>,
}

/// Describes replicas whose rows cannot be read, and the next step.
pub fn describe_other_keys(number: usize) -> String {
    let (replicas, use_) =
        if number == 1 { ("1 replica".to_owned(), "uses") } else { (format!("{number} replicas"), "use") };
    format!(
        "{replicas} {use_} the store of the cluster with another `key` of [secrets] and cannot work with this one; give all replicas the \
         same key"
    )
}

impl Reading {
    /// Returns whether others may be taken for dead by the age of their rows.
    fn is_steady(&self, now: Instant) -> bool {
        self.steady_since.is_some_and(|since| now.saturating_duration_since(since) >= DEAD_AFTER)
    }

    /// Returns a replica that lives, as far as is known.
    fn living(&self, run: RunId) -> Option<&Replica> {
        let found = self.replicas.iter().find(|replica| replica.run == run)?;
        (found.age(self.at) < DEAD_AFTER || !self.is_steady(self.at)).then_some(found)
    }
}

/// The holders of claimed sessions, with their order of arrival.
#[derive(Debug, Default)]
struct HolderTable {
    runs: HashMap<SessionName, RunId>,
    order: VecDeque<SessionName>,
}

impl HolderTable {
    fn set(&mut self, name: SessionName, run: RunId) {
        if self.runs.insert(name, run).is_none() {
            self.order.push_back(name);
        }
        while self.order.len() > MAX_HOLDERS {
            if let Some(oldest) = self.order.pop_front() {
                self.runs.remove(&oldest);
            }
        }
    }

    /// Forgets a holder. Its place in the order stays until its turn comes.
    fn forget(&mut self, name: &SessionName) {
        self.runs.remove(name);
    }
}

impl Cluster {
    /// Creates the member; it has no run before [`Self::join`].
    pub fn new(
        store: Arc<dyn ReplicaOperations>,
        key: PeerKey,
        tls: Option<PeerTls>,
        run: Arc<CurrentRun>,
        facts: ReplicaFacts,
    ) -> Arc<Self> {
        let at = clock::now();
        let reading = Reading { replicas: Vec::new(), unreadable: 0, links: HashMap::new(), at, steady_since: None };
        Arc::new(Self {
            store,
            key,
            tls,
            run,
            facts: Mutex::new(facts),
            begins: AtomicBool::new(true),
            left: AtomicBool::new(false),
            reading: watch::Sender::new(Arc::new(reading)),
            reader: tokio::sync::Mutex::default(),
            holders: Mutex::default(),
            passed: AtomicU64::new(0),
            taken: Mutex::default(),
        })
    }

    pub const fn tls(&self) -> Option<&PeerTls> {
        self.tls.as_ref()
    }

    /// Completes a `peer-url` with port 0 by the port that the listener got, and returns the Host
    /// that other replicas send.
    pub fn bound_to(&self, port: u16) -> Option<String> {
        let mut facts = self.facts.lock();
        let url = facts.url.as_mut()?;
        if url.port() == Some(0) {
            url.set_port(Some(port)).ok()?;
        }
        Some(url.authority().to_owned())
    }

    /// Returns the name of this replica.
    pub fn name(&self) -> String {
        self.facts.lock().name.clone()
    }

    /// Returns the current run; `None` before [`Self::join`].
    pub fn run(&self) -> Option<RunId> {
        self.run.get()
    }

    /// Returns whether a run is one of this process.
    pub fn is_own(&self, run: RunId) -> bool {
        self.run.is_own(run)
    }

    /// Returns the last reading of the directory.
    pub fn reading(&self) -> Arc<Reading> {
        Arc::clone(&self.reading.borrow())
    }

    /// Enters the directory. Must be awaited before the first request is served.
    ///
    /// # Errors
    /// The store does not take the row.
    pub async fn join(&self) -> Result<(), DbError> {
        let _reader = self.reader.lock().await;
        self.begin_run();
        self.beat().await
    }

    /// Sends heartbeats until `stop` fires, then leaves the directory. `refresh` puts the facts of
    /// the moment in.
    pub async fn follow(self: Arc<Self>, refresh: impl Fn(&mut ReplicaFacts) + Send, stop: CancellationToken) {
        let mut is_away = false;
        while timeout(BEAT, stop.cancelled()).await.is_err() && !self.left.load(Ordering::Relaxed) {
            refresh(&mut self.facts.lock());
            let _reader = self.reader.lock().await;
            match self.beat().await {
                Ok(()) => is_away = false,
                Err(error) => {
                    if !std::mem::replace(&mut is_away, true) {
                        tracing::warn!(error = %error, "no heartbeat to the store; the other replicas may take over the sessions of this one");
                    }
                }
            }
        }
        self.leave().await;
    }

    /// Leaves the directory: the others take over the sessions of this replica at their next
    /// requests.
    pub async fn leave(&self) {
        if self.left.swap(true, Ordering::Relaxed) {
            return;
        }
        let _reader = self.reader.lock().await;
        if let Some(run) = self.run.get() {
            let left = timeout(STORE_TIME, self.store.leave(run).run()).await;
            if !matches!(left, Ok(Ok(()))) {
                tracing::warn!("this replica could not leave the directory; the others wait 15 s for it");
            }
        }
    }

    fn begin_run(&self) {
        // Zeros are as unlikely as any other number.
        if let Some(run) = RunId::new(clock::random()) {
            self.begins.store(true, Ordering::Relaxed);
            self.run.begin(run);
        }
    }

    /// Writes the row and reads the directory. The caller holds `reader`.
    async fn beat(&self) -> Result<(), DbError> {
        for _ in 0..2 {
            let Some(run) = self.run.get() else { break };
            let row = self.facts.lock().seal(&self.key, run, clock::random());
            let row = row.ok_or_else(|| DbError::Key("the row of this replica is too long".to_owned()))?;
            let beat = self.store.beat(row, self.begins.load(Ordering::Relaxed), clock::since_1970().as_secs());
            let outcome = timeout(STORE_TIME, beat.run()).await.unwrap_or(Err(DbError::Closed));
            match outcome {
                Ok(Some(rows)) => {
                    self.begins.store(false, Ordering::Relaxed);
                    self.read(&rows);
                    return Ok(());
                }
                Ok(None) => {
                    tracing::error!(
                        "the other replicas took this one for dead: it sent no heartbeat for 15 s, or its `peer-url` refuses connections; \
                         it goes on as a new one, and they may hold sessions that it held"
                    );
                    self.begin_run();
                }
                Err(error) => {
                    let before = self.reading();
                    let links = before.links.clone();
                    let replicas = before.replicas.clone();
                    let (unreadable, at) = (before.unreadable, before.at);
                    self.reading.send_replace(Arc::new(Reading {
                        replicas,
                        unreadable,
                        links,
                        at,
                        steady_since: None,
                    }));
                    return Err(error);
                }
            }
        }
        Err(DbError::Closed)
    }

    /// Publishes a reading of the directory.
    fn read(&self, rows: &[KeptReplica]) {
        let (now, before) = (clock::now(), self.reading());
        let (mut replicas, mut unreadable) = (Vec::new(), 0);
        for row in rows {
            match Replica::open(&self.key, row, now) {
                Some(replica) if replicas.len() < MAX_REPLICAS => replicas.push(replica),
                None if row.age < DEAD_AFTER => unreadable += 1,
                Some(_) | None => {}
            }
        }
        if unreadable > 0 && before.unreadable == 0 {
            tracing::warn!("{}", describe_other_keys(unreadable));
        }
        let link = |replica: &Replica| {
            let known = before.links.get(&replica.run).map(Arc::clone);
            let link = known.or_else(|| PeerLink::to(replica, self.tls.as_ref()).map(Arc::new))?;
            Some((replica.run, link))
        };
        let links = replicas.iter().filter(|replica| !self.is_own(replica.run)).filter_map(link).collect();
        // The row of this replica as it was before its heartbeat shows jumps of the store's clock.
        let own = rows.iter().find(|row| self.is_own(row.row.run)).map_or(Duration::ZERO, |row| row.age);
        let has_paused = now.saturating_duration_since(before.at) >= DEAD_AFTER || own >= DOUBTFUL_AFTER;
        let steady_since = before.steady_since.filter(|_| !has_paused).or(Some(now));
        self.taken.lock().retain(|run, _| replicas.iter().any(|replica| replica.run == *run));
        self.reading.send_replace(Arc::new(Reading { replicas, unreadable, links, at: now, steady_since }));
    }

    /// Reads the directory unless it was read after `asked`. Requests that wait share one reading.
    async fn look(&self, asked: Instant) {
        let _reader = self.reader.lock().await;
        let last = self.reading().at;
        if last <= asked {
            clock::sleep_until(last.checked_add(LOOK)).await;
            if !self.left.load(Ordering::Relaxed) {
                // A failure is logged by the next heartbeat.
                drop(self.beat().await);
            }
        }
    }

    /// Returns what `find` finds in the last reading, or else in a fresh one.
    async fn find<T>(&self, find: impl Fn(&Reading) -> Option<T>) -> Option<T> {
        let asked = clock::now();
        if let Some(found) = find(&self.reading()) {
            return Some(found);
        }
        self.look(asked).await;
        find(&self.reading())
    }

    /// Returns the link to a replica that lives; `None` if the run is not there, or not any more.
    pub async fn peer(&self, run: RunId) -> Option<Arc<PeerLink>> {
        self.find(|reading| reading.living(run).and_then(|_| reading.links.get(&run).map(Arc::clone))).await
    }

    /// Returns whether a key belongs to a living replica.
    pub async fn knows_key(&self, key: &Digest) -> bool {
        let hex = key.hex();
        let has_key = |replica: &&Replica| replica.facts.key.as_deref() == Some(&hex);
        self.find(|reading| {
            let found = reading.replicas.iter().find(has_key)?;
            reading.living(found.run).map(drop)
        })
        .await
        .is_some()
    }

    /// Resolves once a run lives no longer.
    pub async fn ended(&self, run: RunId) {
        let mut reading = self.reading.subscribe();
        // The sender lives as long as `self`.
        drop(reading.wait_for(|reading| reading.living(run).is_none()).await);
    }

    /// Returns the holder of a session, and claims it for this replica if its holder is dead.
    ///
    /// # Errors
    /// The store cannot be reached, and nothing else says who holds the session.
    pub async fn holder(&self, session: &NamedSession, doubt: HolderDoubt) -> Result<SessionHolder, DbError> {
        let Some(own) = self.run.get() else { return Ok(SessionHolder::Own) };
        let known = self.holders.lock().runs.get(&session.name).copied().unwrap_or(session.run);
        if doubt == HolderDoubt::None {
            if known == own {
                return Ok(SessionHolder::Own);
            }
            if let Some(holder) = self.known_holder(known) {
                return Ok(holder);
            }
        }
        let by_age = self.reading().is_steady(clock::now());
        let NamedSession { name, run: named, until } = *session;
        let refused = match doubt {
            HolderDoubt::Refused(run) => Some(run),
            HolderDoubt::None | HolderDoubt::Denied => None,
        };
        let claim = SessionClaim { name, named, by: own, refused, by_age, until };
        let run = timeout(STORE_TIME, self.store.claim_session(claim).run()).await.unwrap_or(Err(DbError::Closed))?;
        self.holders.lock().set(name, run);
        if run == own {
            tracing::info!(owner = %known, "a session of a replica that is gone goes on here");
            return Ok(SessionHolder::Own);
        }
        match self.peer(run).await {
            Some(peer) => Ok(SessionHolder::Peer(peer)),
            None => Ok(self.known_holder(run).unwrap_or(SessionHolder::Unreachable)),
        }
    }

    /// Returns the holder that the last reading has for a run.
    fn known_holder(&self, run: RunId) -> Option<SessionHolder> {
        let reading = self.reading();
        reading.living(run)?;
        Some(match reading.links.get(&run) {
            Some(peer) => SessionHolder::Peer(Arc::clone(peer)),
            None => SessionHolder::Unreachable,
        })
    }

    /// Gives a session that this replica holds to another one, which takes it over at its next
    /// request. Returns `false` if the store does not take that; then the session stays.
    pub async fn give(&self, session: &NamedSession, to: RunId) -> bool {
        let Some(from) = self.run.get() else { return false };
        // At once, so that no request finds the session here meanwhile.
        self.holders.lock().set(session.name, to);
        let NamedSession { name, run: named, until } = *session;
        let given = self.store.give_session(SessionGift { name, named, from, to, until });
        let is_given = matches!(timeout(STORE_TIME, given.run()).await, Ok(Ok(())));
        if !is_given {
            self.holders.lock().forget(&session.name);
        }
        is_given
    }

    /// Seals the caller of a request for the replica that it is passed on to; `None` if that cannot
    /// be done, which happens for callers in hundreds of groups.
    pub fn vouch(&self, request: &PassedRequest<'_>, caller: &Caller, credential: PassedCredential) -> Option<String> {
        let number = self.passed.fetch_add(1, Ordering::Relaxed) + 1;
        let passed = PassedCaller { caller: caller.clone(), credential, number };
        self.key.seal_caller(request, &passed, clock::since_1970(), clock::random())
    }

    /// Opens the caller of a request that a living replica has passed on to this run, and takes its
    /// number; `None` for any other text, and the second time.
    pub async fn take_caller(&self, request: &PassedRequest<'_>, sealed: &str) -> Option<PassedCaller> {
        let passed = self.key.open_caller(request, sealed, clock::since_1970())?;
        self.find(|reading| reading.living(request.from).map(drop)).await?;
        let mut taken = self.taken.lock();
        let has_room = taken.len() < MAX_REPLICAS || taken.contains_key(&request.from);
        (has_room && taken.entry(request.from).or_default().take(passed.number)).then_some(passed)
    }
}

#[cfg(test)]
mod tests;
