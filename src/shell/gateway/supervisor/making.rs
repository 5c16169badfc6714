//! Makes snapshots one after the other, each on a thread of its own, while the supervisor goes on.
//!
//! Reports and orders that come meanwhile are in the next snapshot. What waits for a snapshot is
//! told once one is in force that has it.

use tokio::sync::oneshot;

use super::Supervisor;
use super::made::{Made, Making};
use crate::base::aside::begin_aside;

impl Supervisor {
    /// Wants a snapshot; nothing happens if clients would see the same, unless `forced`.
    pub(super) fn publish(&mut self, forced: bool) {
        self.wanted = Some(forced || self.wanted.unwrap_or_default());
    }

    /// Begins to make the snapshot that is wanted, one at a time.
    pub(super) fn make(&mut self) {
        if self.making.is_some() {
            return;
        }
        let Some(is_forced) = self.wanted.take() else { return };
        let draft = self.draft(is_forced);
        let afterwards = std::mem::take(&mut self.afterwards);
        self.making = Some(Making { made: begin_aside(move || draft.make()), afterwards });
    }

    /// Puts the snapshot in force that was made, unless its configuration or upstreams are not
    /// those of now: then another one is made.
    pub(super) fn made(&mut self, made: Option<Made>) {
        let Some(Making { mut afterwards, .. }) = self.making.take() else { return };
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

    /// Answers an order once the snapshot that it wants is in force.
    pub(super) fn answer<T: Send + 'static>(&mut self, reply: oneshot::Sender<T>, outcome: T) {
        // The task that gave the order may be gone.
        let answer = move || drop(reply.send(outcome));
        if self.wanted.is_some() { self.afterwards.push(Box::new(answer)) } else { answer() }
    }
}
