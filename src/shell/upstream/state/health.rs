//! The health of an upstream for operators: its state, whether it accepts the gateway's credentials, its last error, and
//! whether that will pass by itself.
//!
//! The state is that of the main lane, corrected by what calls over HTTP see. Without a connection
//! the upstream is `down` at once. A broken connection, a call without an answer in time, and
//! several answers in a row that the server fails are a doubt: the main lane then asks the server
//! for a sign of life, and ends if there is none. A server behind a URL that was down, and a
//! program whose start failed, stay so until they are ready, whatever their next starts do. The log
//! has one line for each change.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::base::clock;
use crate::base::tally::Tally;
use crate::catalog::name::UpstreamName;
use crate::telemetry::metrics::UpstreamMetrics;
use crate::telemetry::upstream_state::UpstreamState;
use crate::upstream::state::http_error::HttpError;
use crate::upstream::state::logbook::{Logbook, Origin};
use crate::upstream::state::message_flaws::MessageFlaws;
use crate::upstream::state::signs::Signs;
use crate::upstream::state::standing::{SharedStanding, Standing};

/// Shared by everything that speaks with the upstream.
#[derive(Debug)]
pub struct Health {
    upstream: UpstreamName,
    metrics: UpstreamMetrics,
    /// Whether it is behind a URL, so that calls can see more than its connection.
    is_remote: bool,
    state: Mutex<State>,
    /// Since when it is shown, in milliseconds of uptime.
    since: AtomicU64,
    signs: Signs,
    standing: SharedStanding,
    last_error: Arc<ArcSwap<String>>,
    /// The last lines of stderr of the program that failed.
    stderr: ArcSwap<Vec<String>>,
    /// The start that is under way took longer than it may.
    ran_out: AtomicBool,
    /// How often the main session was opened: anew, or for the first time.
    renewals: AtomicU64,
    /// Another handle has the upstream's name now, and its metrics.
    is_retired: AtomicBool,
    pub lines: Lines,
    pub log: Arc<Logbook>,
    /// Its messages that break the protocol.
    pub flaws: Arc<MessageFlaws>,
}

/// The state of the main lane.
#[derive(Debug, Default)]
struct State {
    lane: UpstreamState,
    /// The state that is shown.
    shown: UpstreamState,
    /// Shown during the next starts.
    held: Option<UpstreamState>,
    /// A call has found it down first, and the log says so.
    told: bool,
    /// True from the moment when it is ready until the start after it was down.
    served: bool,
    /// When the start that is under way began.
    begun: Option<Instant>,
    /// How to mend the cause of the failed start, if it does not pass by itself.
    remedy: Option<&'static str>,
}

impl Health {
    pub fn new(upstream: UpstreamName, metrics: UpstreamMetrics, is_remote: bool) -> Self {
        let (log, last_error) = (Arc::<Logbook>::default(), Arc::<ArcSwap<String>>::default());
        let flaws = Arc::new(MessageFlaws::new(Arc::clone(&log), Arc::clone(&last_error)));
        Self {
            upstream,
            metrics,
            is_remote,
            state: Mutex::default(),
            since: AtomicU64::new(clock::millis(clock::uptime())),
            signs: Signs::default(),
            standing: SharedStanding::default(),
            last_error,
            stderr: ArcSwap::default(),
            ran_out: AtomicBool::new(false),
            renewals: AtomicU64::new(0),
            is_retired: AtomicBool::new(false),
            lines: Lines::default(),
            log,
            flaws,
        }
    }

    pub fn upstream(&self) -> &UpstreamName {
        &self.upstream
    }

    /// The main lane is in this state now. A new start forgets why the last one failed.
    pub fn enter(&self, lane: UpstreamState) {
        let mut state = self.state.lock();
        if lane == UpstreamState::Starting {
            let failed_to_start = state.lane == UpstreamState::Down && !std::mem::take(&mut state.served);
            let is_held = self.is_remote || failed_to_start;
            state.held = Some(self.shown(&state)).filter(|shown| is_held && shown.has_failed());
            state.begun = Some(clock::now());
            self.forgive(&mut state);
            self.ran_out.store(false, Ordering::Relaxed);
            self.flaws.begin();
            self.stderr.store(Arc::default());
        } else if lane == UpstreamState::Ready {
            (state.held, state.told, state.served) = (None, false, true);
            if let Some(begun) = state.begun.take() {
                self.metrics.started(clock::now().duration_since(begun));
            }
            self.forgive(&mut state);
            self.signs.answered();
            self.signs.settle();
        }
        state.lane = lane;
        self.measure(&mut state);
    }

    fn forgive(&self, state: &mut State) {
        self.standing.swap(Standing::Admitted);
        state.remedy = None;
    }

    fn measure(&self, state: &mut State) {
        let shown = self.shown(state);
        if std::mem::replace(&mut state.shown, shown) != shown {
            self.since.store(clock::millis(clock::uptime()), Ordering::Relaxed);
            self.log.add(Origin::Headend, shown.into_str());
        }
        if !self.is_retired.load(Ordering::Relaxed) {
            self.metrics.set_state(shown);
        }
    }

    /// From now on the state of the upstream is another handle's.
    pub fn retire(&self) {
        let _not_between_look_and_write = self.state.lock();
        self.is_retired.store(true, Ordering::Relaxed);
    }

    pub const fn metrics(&self) -> &UpstreamMetrics {
        &self.metrics
    }

    /// The state that is shown.
    pub fn state(&self) -> UpstreamState {
        self.shown(&self.state.lock())
    }

    /// Whether the main lane is in that state.
    fn is_in(&self, lane: UpstreamState) -> bool {
        self.state.lock().lane == lane
    }

    /// How long it has been in that state.
    pub fn age(&self) -> Duration {
        Duration::from_millis(clock::millis(clock::uptime()).saturating_sub(self.since.load(Ordering::Relaxed)))
    }

    fn shown(&self, state: &State) -> UpstreamState {
        use UpstreamState::{Down, Misconfigured, Ready, Starting};
        let lane = state.lane;
        if lane == Starting {
            return state.held.unwrap_or(Starting);
        }
        if lane != Ready && lane != Down {
            return lane;
        }
        self.standing.get().state().unwrap_or(match state.remedy {
            _ if lane == Ready && !self.signs.is_unreachable() => Ready,
            Some(_) => Misconfigured,
            None => Down,
        })
    }

    /// How the server takes the gateway's credentials.
    pub fn standing(&self) -> Standing {
        self.standing.get()
    }

    /// Waits for the next change of [`Self::standing`], from this call on.
    pub fn standing_changed(&self) -> impl Future<Output = ()> {
        self.standing.changed()
    }

    /// Takes note of how an answer over HTTP takes the gateway's credentials; `why` is for operators.
    pub fn stands(&self, standing: Standing, why: impl FnOnce() -> String) {
        if self.standing.get() != standing {
            self.turn(standing, why);
        }
    }

    fn turn(&self, standing: Standing, why: impl FnOnce() -> String) {
        let mut state = self.state.lock();
        if self.standing.swap(standing) == standing {
            return;
        }
        self.measure(&mut state);
        let is_news = state.held.is_none() || state.held != standing.state();
        drop(state);
        let line = || self.lines.states.count(clock::uptime());
        let Some(next) = self.way_in() else {
            if let Some(count) = line() {
                tracing::info!(upstream.name = %self.upstream, count, "upstream takes the gateway's credentials again");
            }
            return;
        };
        let why = why();
        if let Some(count) = is_news.then(line).flatten() {
            let state = standing.state().map_or("", |state| state.into_str());
            tracing::warn!(upstream.name = %self.upstream, state, error = %why, next = %next, count, "upstream does not admit the gateway");
        }
        self.failed(why);
    }

    /// What makes the server admit the gateway; `None` where it does.
    fn way_in(&self) -> Option<Cow<'static, str>> {
        match self.standing.get() {
            Standing::Admitted => None,
            Standing::NeedsLogin => Some(format!("log in: `headend login {}`", self.upstream).into()),
            Standing::LoginExpired => Some(format!("log in again: `headend login {}`", self.upstream).into()),
            Standing::Refused => Some("renew its credentials in the configuration, then `headend reload`".into()),
        }
    }

    /// There was no connection to the server.
    pub fn unreached(&self, why: &str) {
        let mut state = self.state.lock();
        if state.lane != UpstreamState::Ready {
            return;
        }
        let is_news = self.signs.unreached() && !std::mem::replace(&mut state.told, true);
        self.measure(&mut state);
        drop(state);
        if let Some(count) = is_news.then(|| self.lines.states.count(clock::uptime())).flatten() {
            tracing::warn!(upstream.name = %self.upstream, error = why, count, "upstream down");
        }
        self.doubt(why);
    }

    /// Whether a call has found it down and the log says so. Asked once, when the main lane has ended.
    pub fn take_told(&self) -> bool {
        std::mem::take(&mut self.state.lock().told)
    }

    /// A call has seen what may be the end of the server, or not: the main lane looks.
    pub fn doubt(&self, why: &str) {
        if self.is_remote && self.is_in(UpstreamState::Ready) {
            self.failed(why.to_owned());
            self.signs.doubt();
        }
    }

    /// A client's session was forgotten by the server: the main lane looks after its own.
    pub fn look(&self) {
        if self.is_in(UpstreamState::Ready) {
            self.signs.doubt();
        }
    }

    /// The main session is another one now: sessions of clients may be lost too.
    pub fn main_renewed(&self) {
        self.renewals.fetch_add(1, Ordering::Relaxed);
    }

    pub fn renewals(&self) -> u64 {
        self.renewals.load(Ordering::Relaxed)
    }

    /// Waits until there is a doubt, and then until that time. Cancel-safe.
    pub async fn doubted(&self, not_before: Instant) {
        self.signs.doubted(not_before).await;
    }

    /// The server is asked for a sign of life: what calls see from here on is another doubt. Whether it could not be reached.
    pub fn begin_look(&self) -> bool {
        self.signs.settle();
        self.signs.is_unreachable()
    }

    /// The server has answered.
    pub fn answered(&self) {
        if !self.signs.answered() {
            return;
        }
        let mut state = self.state.lock();
        state.remedy = None;
        self.measure(&mut state);
        let told = std::mem::take(&mut state.told);
        drop(state);
        if let Some(count) = told.then(|| self.lines.states.count(clock::uptime())).flatten() {
            tracing::info!(upstream.name = %self.upstream, count, "upstream answers again");
        }
    }

    /// Takes note of a call that failed on its way.
    pub fn unanswered(&self, error: &HttpError) {
        match error {
            HttpError::Connect(_) | HttpError::Broken(_) => self.doubt(&error.to_string()),
            HttpError::Status(status) if status.is_server_error() => {
                let why = format!("calls are answered with HTTP status {status}");
                if self.signs.fails() { self.doubt(&why) } else { self.failed(why) }
            }
            HttpError::Status(_)
            | HttpError::Unadmitted(..)
            | HttpError::MoreScopes(_)
            | HttpError::Elsewhere(_)
            | HttpError::Protocol(_) => self.answered(),
            HttpError::NoDescriptor(_) | HttpError::NoToken(_) | HttpError::NoRoom(_) => {}
        }
    }

    /// The start that is under way fails for a reason that lasts until an operator has done what `remedy` says. Failures of other
    /// sessions, and those while it is ready, say nothing of the next start.
    pub fn lasts(&self, remedy: &'static str) {
        let mut state = self.state.lock();
        if state.lane == UpstreamState::Starting {
            state.remedy = Some(remedy);
        }
    }

    /// The start that is under way has taken as long as it may.
    pub fn ran_out(&self) {
        self.ran_out.store(true, Ordering::Relaxed);
    }

    pub fn has_run_out(&self) -> bool {
        self.ran_out.load(Ordering::Relaxed)
    }

    /// Keeps the last lines of a program, in which no secret is left.
    pub fn heard(&self, stderr: Vec<String>) {
        self.stderr.store(Arc::new(stderr));
    }

    /// The last lines of stderr of the program that failed; none while one runs.
    pub fn stderr(&self) -> Arc<Vec<String>> {
        self.stderr.load_full()
    }

    /// How to mend what made the last start fail; `None` for what may pass by itself.
    pub fn remedy(&self) -> Option<Cow<'static, str>> {
        self.way_in().or_else(|| self.state.lock().remedy.map(Cow::Borrowed))
    }

    /// There was no descriptor left for a connection to it, or for its process.
    pub fn no_descriptor(&self) {
        self.metrics.no_descriptor(clock::uptime());
    }

    /// Keeps the last words of a process, or the last error.
    pub fn failed(&self, why: String) {
        self.log.add(Origin::Headend, &why);
        self.last_error.store(Arc::new(why));
    }

    /// `None` when nothing has gone wrong yet.
    pub fn last_error(&self) -> Option<Arc<String>> {
        Some(self.last_error.load_full()).filter(|error| !error.is_empty())
    }
}

/// Counts of the log lines about an upstream that it or its clients can cause without a bound.
#[derive(Debug)]
pub struct Lines {
    /// Changes of its state that answers and their absence make.
    pub states: Tally,
    /// Sessions that it forgot and that were opened anew.
    pub renewed: Tally,
    /// Clients' own sessions that ended.
    pub sessions: Tally,
    /// Resource subscriptions that it lost.
    pub subscriptions: Tally,
    /// Questions that were declined.
    pub declined: Tally,
    /// Parts of its lists that are not offered.
    pub lists: Tally,
    /// Inventories that are not on disk.
    pub unkept: Tally,
    /// Lists that could not be read, and that can be again.
    pub unread: Tally,
}

impl Default for Lines {
    fn default() -> Self {
        Self {
            states: Tally::of(20),
            renewed: Tally::of(5),
            sessions: Tally::of(5),
            subscriptions: Tally::of(5),
            declined: Tally::of(20),
            lists: Tally::of(50),
            unkept: Tally::of(1),
            unread: Tally::of(20),
        }
    }
}

#[cfg(test)]
mod tests;
