//! The orders that the supervisor takes.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::config::Config;
use crate::config::plan::Plan;
use crate::upstream::session::handle::Handle;

/// Something that the supervisor is asked to do.
#[derive(Debug)]
pub enum Order {
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
    pub async fn ask<T>(orders: &mpsc::Sender<Self>, order: impl FnOnce(oneshot::Sender<T>) -> Self) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        orders.send(order(reply)).await.ok()?;
        answer.await.ok()
    }
}
