//! Sessions with upstreams (*lanes*): one process of an upstream, or one session with it, and the
//! clients that may use it.
//!
//! Every upstream has a main lane, which reads the lists. Legacy servers read their client's
//! capabilities once. So each legacy HTTP server gets a lane for each legacy client, and one for
//! each caller of stateless clients, with exactly that client's capabilities; `instance` does the
//! same for processes. The first call opens a lane. It closes when its client is gone, or after 15
//! idle minutes (of a lazy upstream after its `idle-stop`, if that is shorter). A process that all
//! clients share is offered forms and sampling if there can be only one caller, and nothing if
//! there can be several.
//!
//! The lock guards the table of these lanes, one operation at a time.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, mpsc};

use crate::base::clock;
use crate::catalog::inventory::Inventory;
use crate::catalog::name::UpstreamName;
use crate::config::{StartMode, UpstreamSettings};
use crate::engine::askers::{AskerRegistry, DefinedItem};
use crate::engine::connection::ask::DeclaredCapabilities;
use crate::engine::connection::turns::{TurnGate, TurnKind};
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::upstream::session::link::{LinkState, UpstreamLink};
use crate::upstream::session_news::SessionNews;
use crate::upstream::state::health::UpstreamHealth;
use crate::upstream::state::standing::{CredentialStanding, needs_login};
use crate::upstream::turns::SharedCallTurn;

mod owner;
mod table;

pub(crate) use self::owner::LaneRequest;
pub(in crate::upstream) use self::owner::are_owned;
use self::owner::{LaneOwner, LaneOwnership, key_of};
pub(crate) use self::table::{LaneChoice, Lanes};

/// Lanes of one upstream besides the main one: sessions cost little, processes much.
const MAX_SESSIONS: usize = 4096;
const MAX_PROCESSES: usize = 32;
/// Time for which an unused session is kept.
const IDLE: Duration = Duration::from_secs(900);
/// Longest time between two checks whether a session is still needed.
const LOOK: Duration = Duration::from_secs(2);

/// Sender of the lists that a lane has read, or of the reason why the lane ended.
pub(crate) type ListReceiver = mpsc::Sender<Result<Inventory, String>>;

/// One process of an upstream, or one session with it.
#[derive(Debug)]
pub struct Lane {
    pub news: SessionNews,
    /// The client capabilities that the server learns.
    pub declared: DeclaredCapabilities,
    /// Owner of the session; `None` for the main lane.
    owner: Option<LaneOwnership>,
    /// Health of the upstream, which takes its state from the main lane.
    health: Arc<UpstreamHealth>,
    /// Sender of the lists, for a lane other than the main one that reads them.
    lists_to: Option<ListReceiver>,
    state: ArcSwap<LinkState>,
    changed: Notify,
    /// Notified when a call or the operator wants an upstream that is not running to start.
    pub wanted: Notify,
    /// True if the operator wants a lazy upstream started, until [`Self::is_wanted`] has said so.
    ordered: AtomicBool,
    /// True once the lists have been read since the last start.
    pub listed: AtomicBool,
    pub restarts: AtomicU64,
    /// Number of starts that have begun, see [`Self::begin`].
    starts: AtomicU64,
    /// Beginning of the last start, in milliseconds of uptime.
    began: AtomicU64,
    /// Duration of the last successful start, in milliseconds; zero before the first.
    took: AtomicU64,
    /// Number of calls in flight or waiting for the link, parked calls and watched resources.
    users: AtomicUsize,
    /// Time of the last use, in milliseconds of uptime; in the future if a task may run until then.
    last_used: AtomicU64,
}

/// A session in use, which keeps it open.
#[derive(Debug)]
pub struct LaneUse(Arc<Lane>);

impl LaneUse {
    fn new(lane: &Arc<Lane>) -> Self {
        lane.users.fetch_add(1, Ordering::Relaxed);
        // See `Lane::rest`.
        fence(Ordering::SeqCst);
        Self(Arc::clone(lane))
    }
}

impl Clone for LaneUse {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Deref for LaneUse {
    type Target = Lane;

    fn deref(&self) -> &Lane {
        &self.0
    }
}

impl Drop for LaneUse {
    fn drop(&mut self) {
        self.0.touch();
        self.0.users.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lane {
    pub fn main(
        upstream: UpstreamName,
        declared: DeclaredCapabilities,
        askers: Arc<AskerRegistry>,
        health: Arc<UpstreamHealth>,
    ) -> Self {
        Self::new(upstream, declared, askers, None, health)
    }

    fn new(
        upstream: UpstreamName,
        declared: DeclaredCapabilities,
        askers: Arc<AskerRegistry>,
        owner: Option<LaneOwnership>,
        health: Arc<UpstreamHealth>,
    ) -> Self {
        let client = owner.as_ref().and_then(|owner| owner.client.clone());
        Self {
            news: SessionNews::new(upstream, askers, client),
            declared,
            owner,
            health,
            lists_to: None,
            state: ArcSwap::from_pointee(LinkState::Idle),
            changed: Notify::new(),
            wanted: Notify::new(),
            ordered: AtomicBool::new(false),
            listed: AtomicBool::new(false),
            restarts: AtomicU64::new(0),
            starts: AtomicU64::new(0),
            began: AtomicU64::new(0),
            took: AtomicU64::new(0),
            users: AtomicUsize::new(0),
            last_used: AtomicU64::new(clock::millis(clock::uptime())),
        }
    }

    /// Creates a lane of the gateway's own, already starting, that sends the lists to `to` and
    /// carries no call.
    pub(crate) fn listing(
        upstream: UpstreamName,
        declared: DeclaredCapabilities,
        health: Arc<UpstreamHealth>,
        to: ListReceiver,
    ) -> Arc<Self> {
        let owner = LaneOwnership { key: key_of(LaneOwner::Gateway, &declared), client: None };
        let lane = Self { lists_to: Some(to), ..Self::new(upstream, declared, Arc::default(), Some(owner), health) };
        lane.set_state(LinkState::Starting);
        Arc::new(lane)
    }

    pub(crate) fn lists_to(&self) -> Option<&ListReceiver> {
        self.lists_to.as_ref()
    }

    /// Keeps the lane open until the returned value and its clones are dropped.
    pub fn take(self: &Arc<Self>) -> LaneUse {
        LaneUse::new(self)
    }

    /// Returns true for the main lane, whose lists are published to all clients.
    pub fn is_main(&self) -> bool {
        self.owner.is_none()
    }

    pub fn state(&self) -> Arc<LinkState> {
        self.state.load_full()
    }

    /// Returns the number of starts that have begun, and a state no older than the last of them.
    pub fn starts_and_state(&self) -> (u64, Arc<LinkState>) {
        let starts = self.starts.load(Ordering::Acquire);
        (starts, self.state())
    }

    /// Resolves at the next change of state from now on.
    pub fn state_changed(&self) -> impl Future<Output = ()> {
        self.changed.notified()
    }

    /// Sets the state, and wakes all that wait for a change. Lifts the hold on calls for a
    /// question; the main lane also reports the state to the upstream's health.
    pub fn set_state(&self, state: LinkState) {
        if self.is_main() {
            self.health.enter((&state).into());
        }
        let now = clock::millis(clock::uptime());
        match (&**self.state.load(), &state) {
            (LinkState::Starting, LinkState::Ready(_)) => {
                self.took.store(now.saturating_sub(self.began.load(Ordering::Relaxed)), Ordering::Relaxed);
            }
            (_, LinkState::Starting) => self.began.store(now, Ordering::Relaxed),
            (_, LinkState::Idle | LinkState::Ready(_) | LinkState::Down { .. } | LinkState::Stopped) => {}
        }
        self.state.store(Arc::new(state));
        // Nothing that the server asked before is open any more.
        self.news.turns.set(TurnGate::default());
        self.changed.notify_waiters();
    }

    /// Begins a start: sets the state, then counts the start. A reader that loads the number first
    /// and the state second ([`Self::starts_and_state`]) never takes the state before a start for
    /// its outcome.
    pub fn begin(&self) {
        self.set_state(LinkState::Starting);
        self.starts.fetch_add(1, Ordering::Release);
    }

    /// Takes the link away so that the upstream can be stopped: from now on calls find it at rest
    /// and want it started. Returns false if the lane has no link, or has a user, for which the
    /// link is put back.
    ///
    /// A user is counted before it looks for the link, and users are counted here after the link is
    /// gone, so that at least one of the two notices the other.
    pub fn rest(&self) -> bool {
        let Some(link) = self.open_link() else { return false };
        self.set_state(LinkState::Idle);
        fence(Ordering::SeqCst);
        let unused = !self.is_used();
        if !unused {
            self.set_state(LinkState::Ready(link));
        }
        unused
    }

    /// Makes a lazy upstream at rest start for the operator, although no call needs it.
    pub fn order(&self) {
        self.ordered.store(true, Ordering::Relaxed);
        self.wanted.notify_one();
    }

    /// Returns true if a call or the operator wants the upstream started. An order of the operator
    /// counts once: without a call, asking takes it away.
    pub fn is_wanted(&self) -> bool {
        self.is_used() || self.ordered.swap(false, Ordering::Relaxed)
    }

    /// Returns true if a call or watched resource uses the lane, or waits for its link.
    pub fn is_used(&self) -> bool {
        self.users.load(Ordering::Relaxed) > 0
    }

    /// Returns for how long the lane has been unused; `None` while it is used.
    pub fn unused_for(&self) -> Option<Duration> {
        let last = Duration::from_millis(self.last_used.load(Ordering::Relaxed));
        // The last user leaves its time before it goes.
        (!self.is_used()).then(|| clock::uptime().saturating_sub(last))
    }

    /// Makes the lane count as used for `time` from now on, although it has no user.
    pub fn keep_for(&self, time: Duration) {
        self.last_used.fetch_max(clock::millis(clock::uptime() + time), Ordering::Relaxed);
    }

    /// Moves the time of the last use up to that of `other`, a lane of the same upstream.
    pub fn used_like(&self, other: &Self) {
        self.last_used.fetch_max(other.last_used.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Returns the link if it is open now. Neither waits nor starts the upstream.
    pub fn open_link(&self) -> Option<UpstreamLink> {
        match &**self.state.load() {
            LinkState::Ready(link) if link.is_open() => Some(link.clone()),
            LinkState::Ready(_)
            | LinkState::Idle
            | LinkState::Starting
            | LinkState::Down { .. }
            | LinkState::Stopped => None,
        }
    }

    /// Waits for an open link, for `start-wait` at most. Makes an upstream at rest start, and one
    /// that failed start again at once; fails if a start that began during the wait has failed.
    ///
    /// # Errors
    /// [`FailureReason::UpstreamDown`], or [`FailureReason::NeedsLogin`]: nothing was sent.
    pub async fn link(&self, spec: &UpstreamSettings) -> Result<UpstreamLink, CallFailure> {
        let until = clock::now() + spec.start_wait;
        let (before, _) = self.starts_and_state();
        loop {
            let changed = self.changed.notified();
            let (starts, state) = self.starts_and_state();
            if let Some(failure) = self.unadmitted(&state) {
                return Err(failure);
            }
            match &*state {
                LinkState::Ready(link) if link.is_open() => return Ok(link.clone()),
                LinkState::Down { until: retry, .. } if starts > before => {
                    return Err(self.down(retry.saturating_duration_since(clock::now())));
                }
                LinkState::Stopped => return Err(self.down(Duration::from_secs(1))),
                LinkState::Idle | LinkState::Down { .. } => self.wanted.notify_one(),
                LinkState::Starting | LinkState::Ready(_) => {}
            }
            if tokio::time::timeout_at(until.into(), changed).await.is_err() {
                return Err(self.late(spec));
            }
        }
    }

    /// Returns the refusal of a call that waits for the link if the last start failed because the
    /// server does not admit the gateway: another start would fail too.
    fn unadmitted(&self, state: &LinkState) -> Option<CallFailure> {
        // A client's own session that its server refused has stopped.
        if !matches!(state, LinkState::Down { .. } | LinkState::Stopped) {
            return None;
        }
        match self.health.standing() {
            CredentialStanding::Admitted => None,
            CredentialStanding::NeedsLogin | CredentialStanding::LoginExpired => {
                Some(needs_login(self.health.upstream()))
            }
            CredentialStanding::Refused => {
                let text =
                    "The server behind this item refused the gateway's credentials; the operator has to renew them.";
                Some(CallFailure::new(FailureReason::UpstreamDown, ExecutionDoubt::No, text))
            }
        }
    }

    /// Waits until a start has succeeded or failed, for `patience` at most. Returns at once if the
    /// lane has the outcome of one.
    pub async fn started(&self, patience: Duration) {
        let until = clock::now() + patience;
        loop {
            let changed = self.changed.notified();
            let (starts, state) = self.starts_and_state();
            match *state {
                LinkState::Ready(_) | LinkState::Down { .. } | LinkState::Stopped => return,
                // A lazy one may be at rest again.
                LinkState::Idle if starts > 0 => return,
                LinkState::Idle | LinkState::Starting => {}
            }
            if tokio::time::timeout_at(until.into(), changed).await.is_err() {
                return;
            }
        }
    }

    /// Builds the refusal of a call while the upstream starts, and while one that has never listed
    /// its tools does so within the time of a start; `None` in any other state.
    pub fn starting(&self, spec: &UpstreamSettings) -> Option<CallFailure> {
        let began = Duration::from_millis(self.began.load(Ordering::Relaxed));
        match *self.state() {
            LinkState::Starting => Some(self.late(spec)),
            LinkState::Ready(_) if clock::uptime().saturating_sub(began) < spec.start_timeout => {
                let detail = format!("The server `{}` has started and lists its tools.", self.news.upstream);
                let failure = CallFailure::new(FailureReason::UpstreamDown, ExecutionDoubt::No, detail);
                Some(failure.retry_after(Duration::from_secs(1)))
            }
            LinkState::Ready(_) | LinkState::Idle | LinkState::Down { .. } | LinkState::Stopped => None,
        }
    }

    /// Builds the refusal of a call that got no link in time. If the upstream still starts, the
    /// client may retry once the start has taken as long as the last one, or its `start-timeout`.
    fn late(&self, spec: &UpstreamSettings) -> CallFailure {
        let LinkState::Starting = *self.state() else { return self.down(Duration::from_secs(5)) };
        let millis = |time: &AtomicU64| Duration::from_millis(time.load(Ordering::Relaxed));
        let (took, so_far) = (millis(&self.took), clock::uptime().saturating_sub(millis(&self.began)));
        let (words, whole) =
            if took.is_zero() { ("a start may take", spec.start_timeout) } else { ("the last start took", took) };
        let (name, so_far, shown) = (&self.news.upstream, so_far.as_secs(), whole.as_secs().max(1));
        let detail = format!("The server `{name}` has been starting for {so_far} s; {words} {shown} s.");
        let left = whole.saturating_sub(Duration::from_secs(so_far)).min(Duration::from_secs(30));
        CallFailure::new(FailureReason::UpstreamDown, ExecutionDoubt::No, detail)
            .retry_after(left.max(Duration::from_secs(1)))
    }

    /// Builds the refusal of a call while the upstream is down; `retry` is the time until its next
    /// start. The client may retry sooner, unless an operator has to remedy the failure, because a
    /// call makes the start due at once.
    fn down(&self, retry: Duration) -> CallFailure {
        let lasts = self.health.remedy().is_some();
        let retry = if lasts { retry } else { retry.min(Duration::from_secs(5)) };
        let detail = format!("The server `{}` is not running.", self.news.upstream);
        CallFailure::new(FailureReason::UpstreamDown, ExecutionDoubt::No, detail)
            .retry_after(retry.max(Duration::from_secs(1)))
    }

    /// Waits for the turn of a call, for what is left of `queue-timeout` after `waited`, the time
    /// it has waited for a slot.
    ///
    /// # Errors
    /// [`FailureReason::Busy`]: nothing was sent.
    pub async fn turn(
        &self,
        passer: TurnKind,
        item: Option<DefinedItem>,
        spec: Arc<UpstreamSettings>,
        waited: Duration,
    ) -> Result<SharedCallTurn, CallFailure> {
        let patience = spec.queue_timeout.saturating_sub(waited);
        Arc::clone(&self.news.turns).take(passer, item, patience).await.map_err(|()| {
            let why = match passer {
                TurnKind::Plain => "waits until it is clear whom it asks",
                TurnKind::Asker | TurnKind::Returning => "takes calls of items that ask one at a time",
            };
            let detail = format!("The server `{}` {why} and is busy.", self.news.upstream);
            CallFailure::new(FailureReason::Busy, ExecutionDoubt::No, detail)
                .retry_after(spec.queue_timeout.max(Duration::from_secs(1)))
        })
    }

    fn touch(&self) {
        self.keep_for(Duration::ZERO);
    }

    /// Returns true if nothing uses the session, and its client is gone or it was unused for longer
    /// than `idle`.
    fn is_over(&self, idle: Duration) -> bool {
        let Some(unused) = self.unused_for() else { return false };
        let client = self.owner.as_ref().and_then(|owner| owner.client.as_ref());
        let gone = client.is_some_and(|client| client.strong_count() == 0);
        gone || unused > idle
    }

    /// Waits until nothing uses the session, and its client is gone or it was unused for 15 minutes
    /// (of a lazy upstream for its `idle-stop`, if that is shorter). Checks at least every 2
    /// seconds.
    pub async fn over(&self, spec: &ArcSwap<UpstreamSettings>) {
        loop {
            let spec = spec.load_full();
            let idle = if spec.start == StartMode::Lazy { IDLE.min(spec.idle_stop) } else { IDLE };
            if self.is_over(idle) {
                return;
            }
            tokio::time::sleep(LOOK.min(idle)).await;
        }
    }
}

#[cfg(test)]
mod tests;
