//! Finds calls of hidden items among those answered with "unknown", and records them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::base::clock;
use crate::base::tally::LogTally;
use crate::gateway::service::Service;
use crate::gateway::turned_away::{QUEUE, UnknownCall, UnknownCallQueue};
use crate::policy::records::refusals::{EVERY, RefusalCounter, RefusalSummary};
use crate::policy::{self, AuditEvent, Decision, DecisionRecord};
use crate::wire::foreign;

/// Time for which calls are collected after the first, so that not each of them wakes the task.
const REST: Duration = Duration::from_millis(10);

/// The task that reads the queue and records calls of hidden items.
#[derive(Debug)]
pub struct HiddenCallRecorder {
    calls: mpsc::Receiver<UnknownCall>,
    missed: Arc<AtomicU64>,
    refusals: RefusalCounter,
    /// Refused bare names, for the log.
    bare: LogTally,
    /// Time at which missed calls are summed up next.
    missed_due: Option<Duration>,
}

/// Makes the queue and the task that reads it.
pub fn queue() -> (UnknownCallQueue, HiddenCallRecorder) {
    let (queue, calls) = mpsc::channel(QUEUE);
    let missed = Arc::<AtomicU64>::default();
    let watch = HiddenCallRecorder {
        calls,
        missed: Arc::clone(&missed),
        refusals: RefusalCounter::default(),
        bare: LogTally::of(8),
        missed_due: None,
    };
    (UnknownCallQueue::new(queue, missed), watch)
}

impl HiddenCallRecorder {
    /// Records calls of hidden items until `stop` fires, then sums up what was counted.
    pub async fn run(mut self, service: Arc<Service>, stop: CancellationToken) {
        let mut batch = Vec::new();
        loop {
            let wait = self.next().map(|due| due.saturating_sub(clock::uptime()));
            tokio::select! {
                _ = self.calls.recv_many(&mut batch, QUEUE) => {}
                () = clock::sleep_until(wait.map(|wait| clock::now() + wait)) => {}
                () = stop.cancelled() => break,
            }
            tokio::time::sleep(REST).await;
            self.look(&service, &mut batch, &stop).await;
            self.sum_up(&service, clock::uptime());
        }
        self.look(&service, &mut batch, &stop).await;
        self.sum_up(&service, Duration::MAX - EVERY);
    }

    /// Returns when the next summary is due.
    fn next(&self) -> Option<Duration> {
        self.refusals.next().into_iter().chain(self.missed_due).min()
    }

    /// Records queued calls of hidden items, each as soon as the audit log has room for its record,
    /// or `stop` fires. Further calls of a caller are only counted.
    async fn look(&mut self, service: &Service, batch: &mut Vec<UnknownCall>, stop: &CancellationToken) {
        while let Ok(call) = self.calls.try_recv() {
            batch.push(call);
        }
        for call in batch.drain(..) {
            if call.name.is_none() {
                self.missed.fetch_add(1, Ordering::Relaxed);
            }
            self.tell_candidates(&call);
            let Some((action, rule)) = call.kept_back() else { continue };
            let own = self.refusals.refused(&action.caller, &action.listed, clock::uptime());
            let decision = Decision::Deny { rule, hidden: true };
            if own {
                let recorded = service.write_down(&DecisionRecord::new(&action, &decision), None);
                if recorded.waits_for_place() {
                    // Waits here, since the request does not; calls that come meanwhile fill the
                    // queue and are counted.
                    tokio::select! {
                        () = recorded.placed() => {}
                        () = stop.cancelled() => {}
                    }
                }
            } else {
                service.metrics.decision(decision.into_str(), decision.rule());
            }
        }
    }

    /// Logs the tools that a refused bare name may mean, so that the operator knows why the button
    /// of an app does nothing.
    fn tell_candidates(&self, call: &UnknownCall) {
        let candidates = call.candidates();
        if candidates.is_empty() {
            return;
        }
        if let Some(count) = self.bare.count(clock::uptime()) {
            let name = foreign::quoted(call.name.as_deref().unwrap_or_default(), 128);
            tracing::warn!(
                tool = %name,
                candidates = %candidates.join(", "),
                count,
                "a bare tool name is unknown: several tools have it, or it is for no app of its server"
            );
        }
    }

    /// Writes the summaries that are due: of each caller's hidden calls, and of missed calls.
    fn sum_up(&mut self, service: &Service, now: Duration) {
        for summary in self.refusals.due(now) {
            service.wrote_refusals(summary_entry(summary));
        }
        if self.missed_due.is_some_and(|due| due > now) {
            return;
        }
        let missed = self.missed.swap(0, Ordering::Relaxed);
        // The first is written at once, later ones once a minute.
        self.missed_due = (missed > 0).then(|| now.saturating_add(EVERY));
        if missed > 0 {
            let why = "calls of unknown names, too fast or with too long names to check whether the items are hidden";
            let unseen = policy::AuditEntry {
                count: Some(missed),
                result: "unseen",
                ..policy::AuditEntry::new(AuditEvent::Refusals)
            };
            service.wrote_refusals(policy::AuditEntry { why: why.into(), ..unseen });
        }
    }
}

fn summary_entry(summary: RefusalSummary) -> policy::AuditEntry {
    let RefusalSummary { caller, calls, items, others } = summary;
    let more = if others { " and others" } else { "" };
    let why = format!("further calls of items that the caller cannot see: {}{more}", items.join(", "));
    policy::AuditEntry {
        caller,
        result: "deny",
        count: Some(calls),
        why: why.into(),
        ..policy::AuditEntry::new(AuditEvent::Refusals)
    }
}

#[cfg(test)]
mod tests;
