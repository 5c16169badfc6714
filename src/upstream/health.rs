//! The health of an upstream for operators: its state, whether it accepts the gateway's credentials, its last error, and
//! whether that will pass by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::StatusCode;
use parking_lot::Mutex;

use crate::base::clock;
use crate::catalog::name::UpstreamName;
use crate::telemetry::metrics::UpstreamMetrics;
use crate::upstream::lines::Lines;

/// Shared by everything that speaks with the upstream.
#[derive(Debug)]
pub(crate) struct Health {
    upstream: UpstreamName,
    metrics: UpstreamMetrics,
    /// The state of its main lane.
    state: Mutex<&'static str>,
    /// Since when it is shown, in milliseconds of uptime.
    since: AtomicU64,
    /// Its last answer over HTTP refused the gateway's credentials.
    needs_login: AtomicBool,
    last_error: ArcSwap<String>,
    /// The last lines of stderr of the program that failed.
    stderr: ArcSwap<Vec<String>>,
    /// The start that is under way took longer than it may.
    ran_out: AtomicBool,
    /// Another handle has the upstream's name now, and its metrics.
    is_retired: AtomicBool,
    /// Why the last start failed does not pass by itself; the way to mend it.
    remedy: Mutex<Option<&'static str>>,
    pub(crate) lines: Lines,
}

impl Health {
    pub(crate) fn new(upstream: UpstreamName, metrics: UpstreamMetrics) -> Self {
        let (state, needs_login) = (Mutex::new("idle"), AtomicBool::new(false));
        let (ran_out, is_retired, remedy) = (AtomicBool::new(false), AtomicBool::new(false), Mutex::new(None));
        let (last_error, stderr, since) = (ArcSwap::default(), ArcSwap::default(), AtomicU64::new(uptime_millis()));
        let lines = Lines::default();
        Self { upstream, metrics, state, since, needs_login, last_error, stderr, ran_out, is_retired, remedy, lines }
    }

    /// The main lane is in this state now. A new start forgets why the last one failed.
    pub(crate) fn enter(&self, state: &'static str) {
        let mut current = self.state.lock();
        if *current != state {
            self.since.store(uptime_millis(), Ordering::Relaxed);
        }
        *current = state;
        if state == "starting" {
            self.needs_login.store(false, Ordering::Relaxed);
            *self.remedy.lock() = None;
            self.ran_out.store(false, Ordering::Relaxed);
            self.stderr.store(Arc::default());
        }
        self.measure(state);
    }

    fn measure(&self, state: &'static str) {
        if !self.is_retired.load(Ordering::Relaxed) {
            self.metrics.set_state(self.shown(state));
        }
    }

    /// From now on the state of the upstream is another handle's.
    pub(crate) fn retire(&self) {
        let _not_between_look_and_write = self.state.lock();
        self.is_retired.store(true, Ordering::Relaxed);
    }

    /// The state by the name that status, console and metrics use.
    pub(crate) fn state(&self) -> &'static str {
        self.shown(*self.state.lock())
    }

    /// How long it has been in that state.
    pub(crate) fn age(&self) -> Duration {
        Duration::from_millis(uptime_millis().saturating_sub(self.since.load(Ordering::Relaxed)))
    }

    fn shown(&self, state: &'static str) -> &'static str {
        let needs_login = self.needs_login.load(Ordering::Relaxed) && matches!(state, "ready" | "down");
        match state {
            _ if needs_login => "needs-login",
            "down" if self.remedy.lock().is_some() => "misconfigured",
            other => other,
        }
    }

    /// Takes note of an answer over HTTP: `true` when it refuses the gateway's credentials.
    pub(crate) fn refuses(&self, status: StatusCode) -> bool {
        let refused = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if self.needs_login.load(Ordering::Relaxed) != refused {
            self.turn(refused, status);
        }
        refused
    }

    fn turn(&self, refused: bool, status: StatusCode) {
        let state = self.state.lock();
        if self.needs_login.swap(refused, Ordering::Relaxed) == refused {
            return;
        }
        self.since.store(uptime_millis(), Ordering::Relaxed);
        self.measure(*state);
        if refused {
            let why = format!("the server refuses the gateway's credentials with HTTP status {status}");
            tracing::warn!(upstream.name = %self.upstream, error = %why, "upstream needs login: renew its `headers`");
            self.failed(why);
        } else {
            tracing::info!(upstream.name = %self.upstream, "upstream takes the gateway's credentials again");
        }
    }

    /// The start that is under way fails for a reason that lasts until an operator has done what `remedy` says. Failures of other
    /// sessions, and those while it is ready, say nothing of the next start.
    pub(crate) fn lasts(&self, remedy: &'static str) {
        if *self.state.lock() == "starting" {
            *self.remedy.lock() = Some(remedy);
        }
    }

    /// The start that is under way has taken as long as it may.
    pub(crate) fn ran_out(&self) {
        self.ran_out.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_run_out(&self) -> bool {
        self.ran_out.load(Ordering::Relaxed)
    }

    /// Keeps the last lines of a program, in which no secret is left.
    pub(crate) fn heard(&self, stderr: Vec<String>) {
        self.stderr.store(Arc::new(stderr));
    }

    /// The last lines of stderr of the program that failed; none while one runs.
    pub(crate) fn stderr(&self) -> Arc<Vec<String>> {
        self.stderr.load_full()
    }

    /// How to mend what made the last start fail; `None` for what may pass by itself.
    pub(crate) fn remedy(&self) -> Option<&'static str> {
        let login = self.needs_login.load(Ordering::Relaxed).then_some("renew its `headers`, then `headend reload`");
        login.or(*self.remedy.lock())
    }

    /// Keeps the last words of a process, or the last error.
    pub(crate) fn failed(&self, why: String) {
        self.last_error.store(Arc::new(why));
    }

    /// `None` when nothing has gone wrong yet.
    pub(crate) fn last_error(&self) -> Option<Arc<String>> {
        Some(self.last_error.load_full()).filter(|error| !error.is_empty())
    }
}

fn uptime_millis() -> u64 {
    u64::try_from(clock::uptime().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::Metrics;

    #[test]
    fn an_upstream_needs_login_from_a_refusal_to_the_next_other_answer() {
        let metrics = Metrics::new().unwrap();
        let name = UpstreamName::parse("crm").unwrap();
        let health = Health::new(name, metrics.upstream("crm"));
        let shown = |state| metrics.render().contains(&format!(r#"state="{state}",upstream="crm"}} 1"#));
        health.enter("starting");
        assert!(health.refuses(StatusCode::UNAUTHORIZED));
        assert_eq!(health.state(), "starting", "its handshake is not over");
        health.enter("down");
        assert!(health.state() == "needs-login" && shown("needs-login"));
        assert!(health.last_error().unwrap().contains("401"));
        health.enter("starting");
        health.enter("ready");
        assert!(health.state() == "ready" && shown("ready"));
        assert!(health.refuses(StatusCode::FORBIDDEN) && shown("needs-login"), "at a call");
        assert!(!health.refuses(StatusCode::NOT_FOUND) && shown("ready"), "another answer says nothing of credentials");
        assert!(health.refuses(StatusCode::UNAUTHORIZED));
        health.enter("stopped");
        assert_eq!(health.state(), "stopped");
    }

    #[test]
    fn a_cause_that_lasts_is_a_state_of_its_own_until_the_next_start() {
        let metrics = Metrics::new().unwrap();
        let health = Health::new(UpstreamName::parse("crm").unwrap(), metrics.upstream("crm"));
        let shown = |state| metrics.render().contains(&format!(r#"state="{state}",upstream="crm"}} 1"#));
        health.enter("starting");
        health.lasts("install it");
        assert_eq!(health.state(), "starting");
        health.enter("down");
        assert!(health.state() == "misconfigured" && shown("misconfigured") && !shown("down"));
        assert_eq!(health.remedy(), Some("install it"));
        health.enter("starting");
        health.enter("down");
        assert!(health.state() == "down" && shown("down") && !shown("misconfigured"));
        assert_eq!(health.remedy(), None);
        health.lasts("too late");
        assert_eq!((health.remedy(), health.state()), (None, "down"));
        health.retire();
        health.enter("stopped");
        assert!(health.state() == "stopped" && shown("down"), "its series are another's");
    }
}
