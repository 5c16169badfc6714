//! The health of an upstream for operators: its state, whether it accepts the gateway's
//! credentials, its last error, and whether that error will pass by itself.
//!
//! The state is that of the main lane, corrected by the results of calls over HTTP. Without a
//! connection the upstream is `down` at once. A broken connection, a call that times out, and
//! several server errors in a row raise a doubt: the main lane then asks the server for a sign of
//! life, and ends if there is none. A server behind a URL that was down, and a program whose start
//! failed, keep that state until they are ready, through all later starts. The log has one line for
//! each change.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::base::clock;
use crate::base::tally::LogTally;
use crate::catalog::name::UpstreamName;
use crate::telemetry::metrics::UpstreamMetrics;
use crate::telemetry::upstream_state::UpstreamState;
use crate::upstream::state::http_error::HttpError;
use crate::upstream::state::logbook::{LineOrigin, UpstreamLog};
use crate::upstream::state::message_flaws::MessageFlaws;
use crate::upstream::state::signs::LifeSigns;
use crate::upstream::state::standing::{CredentialStanding, SharedCredentialStanding};

/// The health of an upstream, shared by all code that talks to it.
#[derive(Debug)]
pub struct UpstreamHealth {
    upstream: UpstreamName,
    metrics: UpstreamMetrics,
    /// True if the upstream is behind a URL, so that calls can notice more than the main lane does.
    is_remote: bool,
    state: Mutex<LaneHealth>,
    /// Start of the shown state, in milliseconds of uptime.
    since: AtomicU64,
    signs: LifeSigns,
    standing: SharedCredentialStanding,
    last_error: Arc<ArcSwap<String>>,
    /// Last lines of stderr of the program that failed.
    stderr: ArcSwap<Vec<String>>,
    /// True if the current start took longer than it may.
    ran_out: AtomicBool,
    /// Number of times that the main session was opened, the first one included.
    renewals: AtomicU64,
    /// True once another handle has the upstream's name, and its metrics.
    is_retired: AtomicBool,
    pub lines: LogLineTallies,
    pub log: Arc<UpstreamLog>,
    /// Messages of the upstream that break the protocol.
    pub flaws: Arc<MessageFlaws>,
}

/// The state of the main lane, and the state that is shown for it.
#[derive(Debug, Default)]
struct LaneHealth {
    lane: UpstreamState,
    /// The state that is shown.
    shown: UpstreamState,
    /// The state to show during the next starts.
    held: Option<UpstreamState>,
    /// True if a call noticed first that the upstream is down, and that was logged.
    told: bool,
    /// True from the moment when the upstream is ready until the start after it was down.
    served: bool,
    /// Start time of the current start.
    begun: Option<Instant>,
    /// How to fix the cause of a failed start, if it does not pass by itself.
    remedy: Option<&'static str>,
}

impl UpstreamHealth {
    pub fn new(upstream: UpstreamName, metrics: UpstreamMetrics, is_remote: bool) -> Self {
        let (log, last_error) = (Arc::<UpstreamLog>::default(), Arc::<ArcSwap<String>>::default());
        let flaws = Arc::new(MessageFlaws::new(Arc::clone(&log), Arc::clone(&last_error)));
        Self {
            upstream,
            metrics,
            is_remote,
            state: Mutex::default(),
            since: AtomicU64::new(clock::millis(clock::uptime())),
            signs: LifeSigns::default(),
            standing: SharedCredentialStanding::default(),
            last_error,
            stderr: ArcSwap::default(),
            ran_out: AtomicBool::new(false),
            renewals: AtomicU64::new(0),
            is_retired: AtomicBool::new(false),
            lines: LogLineTallies::default(),
            log,
            flaws,
        }
    }

    pub fn upstream(&self) -> &UpstreamName {
        &self.upstream
    }

    /// Sets the state of the main lane. A new start forgets why the last one failed.
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

    /// Forgets that the server rejected the credentials, and what the operator has to fix.
    fn forgive(&self, state: &mut LaneHealth) {
        self.standing.swap(CredentialStanding::Admitted);
        state.remedy = None;
    }

    /// Determines the shown state, and records its change.
    fn measure(&self, state: &mut LaneHealth) {
        let shown = self.shown(state);
        if std::mem::replace(&mut state.shown, shown) != shown {
            self.since.store(clock::millis(clock::uptime()), Ordering::Relaxed);
            self.log.add(LineOrigin::Headend, shown.into_str());
        }
        if !self.is_retired.load(Ordering::Relaxed) {
            self.metrics.set_state(shown);
        }
    }

    /// Stops writing metrics, because another handle has taken over the upstream's name.
    pub fn retire(&self) {
        let _not_between_look_and_write = self.state.lock();
        self.is_retired.store(true, Ordering::Relaxed);
    }

    pub const fn metrics(&self) -> &UpstreamMetrics {
        &self.metrics
    }

    /// Returns the state that is shown.
    pub fn state(&self) -> UpstreamState {
        self.shown(&self.state.lock())
    }

    /// Returns whether the main lane is in this state.
    fn is_in(&self, lane: UpstreamState) -> bool {
        self.state.lock().lane == lane
    }

    /// Returns how long the shown state has lasted.
    pub fn age(&self) -> Duration {
        Duration::from_millis(clock::millis(clock::uptime()).saturating_sub(self.since.load(Ordering::Relaxed)))
    }

    /// Determines the state to show.
    fn shown(&self, state: &LaneHealth) -> UpstreamState {
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

    /// Returns whether the server accepts the gateway's credentials.
    pub fn standing(&self) -> CredentialStanding {
        self.standing.get()
    }

    /// Waits for the next change of [`Self::standing`], from this call on.
    pub fn standing_changed(&self) -> impl Future<Output = ()> {
        self.standing.changed()
    }

    /// Records whether an answer over HTTP accepts the gateway's credentials; logs a change. `why`
    /// is for operators.
    pub fn stands(&self, standing: CredentialStanding, why: impl FnOnce() -> String) {
        if self.standing.get() != standing {
            self.turn(standing, why);
        }
    }

    /// Changes the standing and logs that.
    fn turn(&self, standing: CredentialStanding, why: impl FnOnce() -> String) {
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

    /// Returns how to make the server accept the gateway; `None` if it does.
    fn way_in(&self) -> Option<Cow<'static, str>> {
        match self.standing.get() {
            CredentialStanding::Admitted => None,
            CredentialStanding::NeedsLogin => Some(format!("log in: `headend login {}`", self.upstream).into()),
            CredentialStanding::LoginExpired => Some(format!("log in again: `headend login {}`", self.upstream).into()),
            CredentialStanding::Refused => {
                Some("renew its credentials in the configuration, then `headend reload`".into())
            }
        }
    }

    /// Records that no connection to the server could be made, and raises a doubt.
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

    /// Returns whether a call has noticed first that the upstream is down, so that this was logged;
    /// clears that. Called once, when the main lane has ended.
    pub fn take_told(&self) -> bool {
        std::mem::take(&mut self.state.lock().told)
    }

    /// Records an error that may mean the end of the server, and makes the main lane ask for a sign
    /// of life.
    pub fn doubt(&self, why: &str) {
        if self.is_remote && self.is_in(UpstreamState::Ready) {
            self.failed(why.to_owned());
            self.signs.doubt();
        }
    }

    /// Makes the main lane check its own session, because the server forgot that of a client.
    pub fn look(&self) {
        if self.is_in(UpstreamState::Ready) {
            self.signs.doubt();
        }
    }

    /// Records that the main session was opened anew: sessions of clients may be lost too.
    pub fn main_renewed(&self) {
        self.renewals.fetch_add(1, Ordering::Relaxed);
    }

    pub fn renewals(&self) -> u64 {
        self.renewals.load(Ordering::Relaxed)
    }

    /// Waits until there is a doubt, and then until `not_before`. Cancel-safe.
    pub async fn doubted(&self, not_before: Instant) {
        self.signs.doubted(not_before).await;
    }

    /// Clears the doubt before the server is asked for a sign of life, so that later errors raise a
    /// new one. Returns whether the server was unreachable.
    pub fn begin_look(&self) -> bool {
        self.signs.settle();
        self.signs.is_unreachable()
    }

    /// Records that the server has answered, and logs if it could not be reached before.
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

    /// Records the result of a call that failed in transport.
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

    /// Records that the current start fails for a reason that lasts until an operator has followed
    /// `remedy`. Failures of other sessions, and failures while the upstream is ready, do not
    /// affect the next start.
    pub fn lasts(&self, remedy: &'static str) {
        let mut state = self.state.lock();
        if state.lane == UpstreamState::Starting {
            state.remedy = Some(remedy);
        }
    }

    /// Records that the current start has taken as long as it may.
    pub fn ran_out(&self) {
        self.ran_out.store(true, Ordering::Relaxed);
    }

    pub fn has_run_out(&self) -> bool {
        self.ran_out.load(Ordering::Relaxed)
    }

    /// Keeps the last lines of a program; the caller has removed secrets from them.
    pub fn heard(&self, stderr: Vec<String>) {
        self.stderr.store(Arc::new(stderr));
    }

    /// Returns the last lines of stderr of the program that failed; none while a program runs.
    pub fn stderr(&self) -> Arc<Vec<String>> {
        self.stderr.load_full()
    }

    /// Returns how to fix the cause of the last failed start; `None` if it may pass by itself.
    pub fn remedy(&self) -> Option<Cow<'static, str>> {
        self.way_in().or_else(|| self.state.lock().remedy.map(Cow::Borrowed))
    }

    /// Counts that no file descriptor was left for a connection or process of the upstream.
    pub fn no_descriptor(&self) {
        self.metrics.no_descriptor(clock::uptime());
    }

    /// Logs an error and keeps it as the last one.
    pub fn failed(&self, why: String) {
        self.log.add(LineOrigin::Headend, &why);
        self.last_error.store(Arc::new(why));
    }

    /// Returns the last error; `None` if nothing has gone wrong yet.
    pub fn last_error(&self) -> Option<Arc<String>> {
        Some(self.last_error.load_full()).filter(|error| !error.is_empty())
    }
}

/// Counts of the log lines about an upstream that it or its clients can cause without a bound.
#[derive(Debug)]
pub struct LogLineTallies {
    /// Changes of its state that answers and their absence make.
    pub states: LogTally,
    /// Sessions that it forgot and that were opened anew.
    pub renewed: LogTally,
    /// Clients' own sessions that ended.
    pub sessions: LogTally,
    /// Resource subscriptions that it lost.
    pub subscriptions: LogTally,
    /// Questions that were declined.
    pub declined: LogTally,
    /// Parts of its lists that are not offered.
    pub lists: LogTally,
    /// Inventories that are not on disk.
    pub unkept: LogTally,
    /// Lists that could not be read, and that can be again.
    pub unread: LogTally,
}

impl Default for LogLineTallies {
    fn default() -> Self {
        Self {
            states: LogTally::of(20),
            renewed: LogTally::of(5),
            sessions: LogTally::of(5),
            subscriptions: LogTally::of(5),
            declined: LogTally::of(20),
            lists: LogTally::of(50),
            unkept: LogTally::of(1),
            unread: LogTally::of(20),
        }
    }
}

#[cfg(test)]
mod tests;
