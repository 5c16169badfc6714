//! Reads what another daemon has changed in the store, beside which this one was built.

use std::sync::Arc;

use super::RunningGateway;
use crate::gateway::supervisor::SupervisorOrder;

impl RunningGateway {
    /// Reads ended sessions, sign-ins to the console, tokens of clients and pins again. Logs what
    /// cannot be read.
    pub(crate) async fn read_changes(&self) {
        let (sessions, console) = (Arc::clone(&self.sessions), self.console.get().cloned());
        let reading = tokio::task::spawn_blocking(move || {
            sessions.read_ends();
            console.iter().for_each(|console| console.read_sign_ins());
        });
        if reading.await.is_err() {
            tracing::warn!("sessions and sign-ins that have just ended are not known");
        }
        if let Some(live) = &self.client_tokens
            && let Err(error) = live.refresh().await
        {
            tracing::error!(error = %error, "the tokens of the daemon before cannot be read");
        }
        if let Err(error) = self.service.pins.refresh().await {
            tracing::warn!(error = %error, "the pins of the daemon before cannot be read");
        }
        // The gateway may be shutting down.
        let _reviewed = SupervisorOrder::ask(&self.supervised.orders, |reply| SupervisorOrder::Review { reply }).await;
    }
}
