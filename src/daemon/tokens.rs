//! Stored tokens of clients in a running daemon: follows the store, ends what was opened with a
//! token that is gone, and keeps the last uses.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;

use super::client_access::{end_access, session_limits};
use crate::base::clock;
use crate::config::{ClientAuth, Config};
use crate::gateway::service::Service;
use crate::gateway::supervisor::SupervisorOrder;
use crate::listener::address::CredentialFailures;
use crate::listener::callers::stored_tokens::StoredTokens;
use crate::operator::OperatorRefusal;
use crate::serve::sessions::ClientSessions;
use crate::store::db::{ClientToken, Db, DbError};
use crate::store::port::wait_for_change;

/// Time between two looks at the store, which another process may have changed.
const LOOK: Duration = Duration::from_secs(1);

/// The stored tokens of a running daemon. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct LiveTokens {
    db: Db,
    table: Arc<StoredTokens>,
    service: Arc<Service>,
    sessions: Arc<ClientSessions>,
    orders: mpsc::Sender<SupervisorOrder>,
    /// Failed attempts at the listeners; set once these are opened.
    failures: Arc<OnceLock<Arc<ArcSwap<CredentialFailures>>>>,
    /// Time of the last refresh in seconds since 1970; locked while one runs.
    refreshed: Arc<Mutex<u64>>,
}

impl LiveTokens {
    pub(super) fn new(
        db: Db,
        service: &Arc<Service>,
        sessions: &Arc<ClientSessions>,
        orders: mpsc::Sender<SupervisorOrder>,
    ) -> Self {
        let (service, sessions) = (Arc::clone(service), Arc::clone(sessions));
        let refreshed = Arc::new(Mutex::new(clock::since_1970().as_secs()));
        let (table, failures) = Default::default();
        Self { db, table, service, sessions, orders, failures, refreshed }
    }

    /// Sets the failed attempts that are limited from the first other caller on.
    pub(super) fn limit_failures(&self, failures: &Arc<ArcSwap<CredentialFailures>>) {
        self.failures.get_or_init(|| Arc::clone(failures));
    }

    pub(super) const fn db(&self) -> &Db {
        &self.db
    }

    /// Reports whether the configuration has a token of this name.
    pub(super) fn is_configured(&self, name: &str) -> bool {
        has_token(&self.service.snapshots.load().config, name)
    }

    pub(super) const fn table(&self) -> &Arc<StoredTokens> {
        &self.table
    }

    /// Reads the tokens of the store, accepts them, and ends everything that was opened with a
    /// token that is gone. Returns once those ends are stored. The streams of a token that has
    /// expired end by themselves; its calls go on.
    ///
    /// # Errors
    /// If the store cannot be read; nothing changes then.
    pub(crate) async fn refresh(&self) -> Result<(), OperatorRefusal> {
        let mut refreshed = self.refreshed.lock().await;
        let mut tokens = self.db.client_tokens().run().await.map_err(OperatorRefusal::unusable)?;
        let config = Arc::clone(&self.service.snapshots.load().config);
        tokens.retain(|token| is_accepted(&config, token));
        let now = clock::since_1970().as_secs();
        if !tokens.is_empty() && !config.has_many_callers() {
            self.admit_other_callers().await?;
        }
        let gone = self.table.replace(&tokens, &self.service.giving_up);
        let expired = self.table.expired(*refreshed, now);
        *refreshed = now;
        for caller in &expired {
            tracing::info!(%caller, "the caller's token has expired; its streams end, its calls in flight go on");
        }
        end_access(&self.service, &self.sessions, &gone);
        if !gone.is_empty() || !expired.is_empty() {
            // After a restart, a clock that was set back must not make an expired token valid.
            drop(self.db.see(now).run().await);
        }
        if !gone.is_empty() {
            self.sessions.settled().await;
        }
        Ok(())
    }

    /// Prepares the gateway for callers other than the local user, before the first one is let in:
    /// servers that all callers would share are replaced, and callers get limits.
    async fn admit_other_callers(&self) -> Result<(), OperatorRefusal> {
        let order = |reply| SupervisorOrder::AdmitStoredCallers { reply };
        let admitted = SupervisorOrder::ask(&self.orders, order).await;
        admitted
            .ok_or_else(|| OperatorRefusal::unusable("the gateway is shutting down"))?
            .map_err(OperatorRefusal::Refused)?;
        let config = Arc::clone(&self.service.snapshots.load().config);
        self.service.budget.set_shared(true);
        self.sessions.set_limits(session_limits(&config));
        if let Some(failures) = self.failures.get() {
            failures.store(Arc::new(CredentialFailures::new(&config.server.limits, true)));
        }
        Ok(())
    }

    /// Follows the store until `stop` fires, and writes the last uses of tokens.
    pub(super) async fn follow(self, stop: CancellationToken) {
        let mut has_failed = false;
        let mut changes = Some(self.db.health().changes());
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = wait_for_change(&mut changes) => {}
                () = stop.cancelled() => break,
            }
            self.keep_uses().await;
            let failed = self.refresh().await.err();
            if let Some(error) = failed.as_ref().filter(|_| !has_failed) {
                tracing::warn!(error = %error, "tokens that another process adds or revokes are not noticed");
            }
            has_failed = failed.is_some();
        }
        self.keep_uses().await;
    }

    /// Writes the last uses that the store does not have. A failure loses nothing: the next look
    /// tries again.
    async fn keep_uses(&self) {
        let uses = self.table.unwritten_uses();
        if !uses.is_empty()
            && let Err(error) = self.db.note_token_uses(uses).run().await
        {
            tracing::debug!(error = %error, "the last use of tokens is not in the store yet");
        }
    }
}

/// Reports whether the store has tokens, also expired ones. Blocks.
///
/// # Errors
/// If the store cannot be read.
pub(super) fn has_any(db: Option<&Db>) -> Result<bool, DbError> {
    db.map_or(Ok(false), |db| db.client_tokens().run_now().map(|tokens| !tokens.is_empty()))
}

/// Whether a stored token is accepted: clients need a token, and the configuration has none of the
/// same name.
fn is_accepted(config: &Config, token: &ClientToken) -> bool {
    matches!(&config.server.auth, ClientAuth::Token { .. }) && !has_token(config, &token.name)
}

/// Whether the configuration has a token of this name.
pub(crate) fn has_token(config: &Config, name: &str) -> bool {
    matches!(&config.server.auth, ClientAuth::Token { tokens } if tokens.iter().any(|(known, _)| known == name))
}
