//! Makes snapshots one at a time, each on a blocking thread, while the supervisor goes on.
//!
//! Reports and orders that arrive meanwhile go into the next snapshot. A reply that depends on a
//! snapshot is sent once one that includes its change is in force.

use tokio::sync::oneshot;

use super::Supervisor;
use super::made::{PendingSnapshot, SnapshotResult};
use crate::base::aside::begin_aside;

impl Supervisor {
    /// Requests a snapshot. It is dropped if clients would see no change, unless `forced`.
    pub(super) fn publish(&mut self, forced: bool) {
        self.wanted = Some(forced || self.wanted.unwrap_or_default());
    }

    /// Begins to make the requested snapshot, unless one is being made.
    pub(super) fn make(&mut self) {
        if self.making.is_some() {
            return;
        }
        let Some(is_forced) = self.wanted.take() else { return };
        let draft = self.draft(is_forced);
        let afterwards = std::mem::take(&mut self.afterwards);
        self.making = Some(PendingSnapshot { made: begin_aside(move || draft.make()), afterwards });
    }

    /// Puts the finished snapshot in force and sends the replies that waited for it. If the
    /// configuration or the upstreams have changed meanwhile, requests another one instead.
    pub(super) fn made(&mut self, made: Option<SnapshotResult>) {
        let Some(PendingSnapshot { mut afterwards, .. }) = self.making.take() else { return };
        let Some(made) = made else {
            tracing::error!("a snapshot could not be made; clients see the one before");
            afterwards.append(&mut self.afterwards);
            self.afterwards = afterwards;
            return;
        };
        if made.snapshot.as_ref().is_some_and(|snapshot| !self.is_current(snapshot)) {
            afterwards.append(&mut self.afterwards);
            self.afterwards = afterwards;
            return self.publish(true);
        }
        self.put(made);
        if self.wanted.is_none() {
            self.settle(false);
        }
        afterwards.into_iter().for_each(|tell| tell());
    }

    /// Replies to an order, once the snapshot that it requested is in force.
    pub(super) fn answer<T: Send + 'static>(&mut self, reply: oneshot::Sender<T>, outcome: T) {
        // The task that waits for the reply may be gone.
        let answer = move || drop(reply.send(outcome));
        if self.wanted.is_some() { self.afterwards.push(Box::new(answer)) } else { answer() }
    }
}
