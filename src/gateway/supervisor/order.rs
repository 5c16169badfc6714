//! The orders that the supervisor takes.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::Supervisor;
use crate::base::clock;
use crate::config::Config;
use crate::config::plan::Plan;
use crate::upstream::handle::Handle;

/// Something that the supervisor is asked to do.
#[derive(Debug)]
pub(crate) enum Order {
    /// Put a checked configuration in force.
    Apply { config: Box<Config>, reply: oneshot::Sender<Result<Plan, String>> },
    /// Start an upstream anew, whatever its state; one that was switched off is on again. Answered with its new handle, or why there is
    /// none.
    Restart { name: String, reply: oneshot::Sender<Result<Arc<Handle>, String>> },
    /// Switch an upstream off for as long as the process runs. The configuration does not change.
    Disable { name: String, reply: oneshot::Sender<Result<(), String>> },
    /// Start an upstream anew after its login has changed. `lists_anew`: its account may be another one, so nothing that was listed for
    /// the one before is shown.
    Login { name: String, lists_anew: bool, reply: oneshot::Sender<Result<Arc<Handle>, String>> },
    /// The operator has decided about pins: show what may be shown now.
    Review { reply: oneshot::Sender<()> },
}

impl Order {
    /// Gives an order and waits for its answer; `None` when the gateway shuts down.
    pub(crate) async fn ask<T>(
        orders: &mpsc::Sender<Self>,
        order: impl FnOnce(oneshot::Sender<T>) -> Self,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        orders.send(order(reply)).await.ok()?;
        answer.await.ok()
    }
}

impl Supervisor {
    /// Carries out an order, and answers it once clients see what came of it.
    pub(super) fn order(&mut self, order: Order) {
        // An order that changes nothing waits for no snapshot that others want.
        let earlier = self.wanted.take();
        self.carry_out(order);
        earlier.into_iter().for_each(|is_forced| self.publish(is_forced));
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Apply { config, reply } => {
                // An upstream that is switched off stays so while the configuration has it.
                let off = self.config.off.clone();
                let outcome = self.enforce(*config, &off);
                self.parts.metrics.reloaded(outcome.is_ok(), clock::unix_seconds());
                self.answer(reply, outcome);
            }
            Order::Review { reply } => {
                self.review();
                self.answer(reply, ());
            }
            Order::Restart { name, reply } => {
                let outcome = self.restart(&name);
                self.answer(reply, outcome);
            }
            Order::Login { name, lists_anew, reply } => {
                let outcome = self.logged_in(&name, lists_anew);
                self.answer(reply, outcome);
            }
            Order::Disable { name, reply } => {
                let outcome = self.switch(&name, false);
                self.answer(reply, outcome);
            }
        }
    }
}
