//! Renders the metrics page, and updates the metrics that are computed on demand before each
//! scrape.
//!
//! Files and processes are read on a blocking thread, by one scrape at a time. If the system does
//! not answer in time, the page shows the numbers of an earlier scrape, and the thread continues in
//! the background.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Mutex;

use crate::base::callers::CallerNumber;
use crate::config::ClientAuth;
use crate::gateway::condition::{GatewayFault, conditions};
use crate::gateway::service::Service;
use crate::policy::Caller;
use crate::serve::sessions::ClientSessions;
use crate::store::directory::StateDir;
use crate::telemetry::logs;
use crate::upstream::process::usage;

/// Longest wait of a scrape for the one before it, and again for reading files and processes. After
/// that the page shows their numbers of an earlier scrape.
const PATIENCE: Duration = Duration::from_secs(2);

/// Sources of the metrics page.
#[derive(Debug)]
pub(super) struct MetricsPage {
    pub(super) service: Arc<Service>,
    pub(super) sessions: Arc<ClientSessions>,
    pub(super) store: Option<StateDir>,
    /// Lock that is held while files and processes are read.
    pub(super) reading: Arc<Mutex<()>>,
}

impl MetricsPage {
    /// Updates the metrics and renders the page in the Prometheus text format.
    pub(super) async fn render(&self) -> String {
        self.observe();
        self.read().await;
        self.service.metrics.render()
    }

    /// Updates the metrics that are computed from memory.
    fn observe(&self) {
        let service = &self.service;
        let buffered = (service.budget.used(), service.budget.limit());
        let waiting = (service.admission.waiting(), service.held.count());
        service.metrics.observe(self.sessions.len(), waiting, buffered);
        for handle in &service.snapshots.load_full().handles {
            handle.metrics.sessions(handle.lanes.len());
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            service.metrics.tasks(runtime.metrics().num_alive_tasks());
        }
        let now = conditions(service);
        let is_on = |reason: &'static str| (reason, now.iter().any(|condition| condition.reason == reason));
        service.metrics.degraded(GatewayFault::REASONS.into_iter().map(is_on));
        service.metrics.observe_store(service.approvals.store_health().is_none_or(|store| store.is_writable()));
        service.metrics.approvals().observe(&service.approvals.numbers());
        service.metrics.observe_log(logs::dropped_lines());
        self.observe_callers();
    }

    /// Updates the number of calls of each caller. All callers of an issuer are counted together,
    /// and so are callers without a name in the configuration.
    fn observe_callers(&self) {
        let config = Arc::clone(&self.service.snapshots.load().config);
        let tokens = match &config.server.auth {
            ClientAuth::Token { tokens } => tokens.as_slice(),
            ClientAuth::None => &[],
        };
        let issuers = config.server.jwt.iter().flat_map(|jwt| &jwt.issuers);
        let issuers = issuers.map(|issuer| Caller::all_of_issuer(&issuer.terms.name));
        let named = tokens.iter().filter_map(|(name, _)| Caller::token(name)).chain([Caller::local().clone()]);
        let callers = named.chain(issuers);
        // Creates a missing counter, so that each name has a series before its first call.
        let count_of = |caller: Caller| {
            let number = CallerNumber::of(&caller);
            self.service.calls_of.of(&number);
            (number.get(), caller)
        };
        let callers: HashMap<usize, Caller> = callers.map(count_of).collect();
        let counts = self.service.calls_of.numbered();
        let named = counts
            .map(|(number, count)| (number, callers.get(&number).map(Caller::label), count.load(Ordering::Relaxed)));
        self.service.metrics.callers().observe(named);
    }

    /// Reads files and processes, and updates their metrics unless that takes longer than
    /// [`PATIENCE`].
    async fn read(&self) {
        let Ok(turn) = tokio::time::timeout(PATIENCE, Arc::clone(&self.reading).lock_owned()).await else { return };
        let metrics = &self.service.metrics;
        let (guards, audit, store) = (metrics.usage().guards(), self.service.audit.clone(), self.store.clone());
        let reading = tokio::task::spawn_blocking(move || {
            let _until_it_is_done = turn;
            (usage::below(&guards), audit.disk_use(), store.map(|store| store.disk_use()).unwrap_or_default())
        });
        if let Ok(Ok((used, audit, store))) = tokio::time::timeout(PATIENCE, reading).await {
            metrics.usage().observe(&used);
            metrics.observe_files(audit, store);
        }
    }
}
