//! Shuts the gateway down.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::RunningGateway;
use crate::daemon::systemd;
use crate::policy::AuditEntry;

impl RunningGateway {
    /// Shuts down in order, each step within a time limit: calls, clients, limits, upstreams, audit
    /// log. When `hurry` fires, the waits for calls and for upstreams end at once.
    pub(crate) async fn shut_down(&self, hurry: &CancellationToken) {
        let times = self.times;
        let drain_timeout = self.service.snapshots.load().config.server.drain_timeout;
        let is_given = self.handover.given.is_cancelled();
        if !is_given {
            systemd::notify_stopping(times.total(drain_timeout));
        }
        self.service.draining.cancel();
        // A duplicate would keep the address.
        self.handover.sockets.lock().clear();
        self.handover.admin.lock().take();
        tokio::select! {
            () = self.service.tasks.join() => {}
            () = tokio::time::sleep(times.drain.min(drain_timeout)) => {
                tracing::warn!("calls in flight are cancelled");
            }
            () = hurry.cancelled() => {}
        }
        if let Some(cluster) = &self.service.cluster {
            cluster.leave().await;
        }
        self.service.giving_up.cancel();
        self.service.tasks.stop();
        // Bounded: a client that does not read its answer in time loses it.
        drop(tokio::time::timeout(times.answers, self.service.tasks.join()).await);
        let limiter = Arc::clone(&self.service.snapshots.load_full().limiter);
        if tokio::time::timeout(times.records, self.service.leases.keep(&limiter)).await.is_err() {
            tracing::warn!("limits are kept with their reserved amounts, not with the used ones: the disk is too slow");
        }
        self.supervised.stop.cancel();
        tokio::select! {
            () = self.supervised.tasks.join() => {}
            () = tokio::time::sleep(times.upstreams()) => {
                tracing::error!("an upstream did not end in time; headend ends without it");
            }
            () = hurry.cancelled() => {}
        }
        let closed = async {
            self.sessions.settled().await;
            // The audit log reports its own failures.
            drop(self.service.audit.record(AuditEntry::gateway("stopped", ""), true).written().await);
            self.service.audit.flush().await;
        };
        if tokio::time::timeout(times.records, closed).await.is_err() {
            tracing::error!("the audit log did not take its last records in time");
        }
    }
}
