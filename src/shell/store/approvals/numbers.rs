//! Numbers of approvals, grants and denials for the metrics.

use std::time::{Duration, Instant};

use super::closed_by::ApprovalCloser;
use super::{Approvals, ApprovalsState};
use crate::base::clock;
use crate::policy::consent::{ApprovalEnd, GrantLifetime};
use crate::telemetry::metrics::{ApprovalMetrics, ApprovalNumbers};

/// One lifetime of each kind. The time in it has no meaning.
const LIFETIMES: [GrantLifetime; 4] =
    [GrantLifetime::Once, GrantLifetime::Session, GrantLifetime::Until(0), GrantLifetime::UntilChanged];

impl Approvals {
    /// Counts each end of an approval from here on. Only the first call has an effect.
    pub fn count_in(&self, metrics: ApprovalMetrics) {
        // The gateway calls this once at its start.
        drop(self.inner.metrics.set(metrics));
    }

    /// Returns the numbers of this moment. Closes approvals whose time is over first.
    pub fn numbers(&self) -> ApprovalNumbers {
        let (inner, now) = (&self.inner, self.wall());
        let (open, oldest, denials) = {
            let mut open = inner.lock();
            inner.expire(&mut open, now);
            let oldest = open.desk.open_approvals().map(|approval| approval.opened_at).min();
            (open.desk.open_approvals().count(), oldest, open.desk.denials(now))
        };
        let grants = self.grants();
        let mut counts = LIFETIMES.map(|lifetime| (lifetime.into_str(), 0));
        for grant in grants.iter().filter(|grant| !grant.is_over(now, grants.unused())) {
            let word = grant.lifetime().into_str();
            counts.iter_mut().filter(|(lifetime, _)| *lifetime == word).for_each(|(_, count)| *count += 1);
        }
        let oldest = oldest.map_or(Duration::ZERO, |opened| Duration::from_secs(now.saturating_sub(opened)));
        ApprovalNumbers { open, oldest, denials, grants: counts }
    }
}

impl ApprovalsState {
    /// Counts the end of an approval that was opened at that time.
    pub(super) fn count_end(&self, how: ApprovalEnd, by: Option<&ApprovalCloser>, opened: Instant) {
        if let Some(metrics) = self.metrics.get() {
            metrics.ended(how, by.map(|by| by.evidence), clock::now().duration_since(opened));
        }
    }
}
