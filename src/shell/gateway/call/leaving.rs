//! Withdrawal of a call by its client, and calls that run on after their client has left.

use crate::base::clock;
use crate::engine::question::AWAY;
use crate::gateway::call::state::CallState;
use crate::gateway::call::{ClientEvent, PermittedCall};

impl PermittedCall {
    /// Cancels the call upstream because its client has withdrawn the request.
    pub fn withdraw(mut self) {
        if let CallState::Running(running) = &mut self.state {
            running.exchange.give_up();
        }
    }

    /// Lets the call run on in a task of its own: a legacy client that went away did not cancel.
    /// Open questions end after [`AWAY`].
    pub fn detach(mut self) {
        if self.is_over() || self.context.service.draining.is_cancelled() {
            return;
        }
        // Later questions would reach no client.
        self.context.input = None;
        let tasks = self.context.service.tasks.clone();
        tasks.spawn("detached call", async move {
            // The client may still answer a question that it has seen.
            let away = tokio::time::sleep(AWAY);
            tokio::pin!(away);
            loop {
                tokio::select! {
                    event = self.next() => if matches!(event, ClientEvent::Done(_)) { return },
                    () = &mut away, if self.is_asking() && !away.is_elapsed() => {}
                }
                if away.is_elapsed() {
                    self.nobody_answers();
                }
            }
        });
    }

    /// Whether questions of this call are open at a legacy client.
    pub fn is_asking(&self) -> bool {
        !self.on_stream.is_empty()
    }

    /// Closes these questions as if their time were over.
    pub fn nobody_answers(&mut self) {
        self.on_stream.hurry(clock::now());
    }
}
