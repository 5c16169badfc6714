//! Orders to the supervisor, each with a channel for its reply.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::config::Config;
use crate::config::plan::ReloadPlan;
use crate::upstream::session::handle::UpstreamHandle;

/// An order to the supervisor.
#[derive(Debug)]
pub enum SupervisorOrder {
    /// Put a checked configuration in force.
    Apply { config: Box<Config>, reply: oneshot::Sender<Result<ReloadPlan, String>> },
    /// Count the callers of stored tokens from now on, as if the configuration named one.
    AdmitStoredCallers { reply: oneshot::Sender<Result<ReloadPlan, String>> },
    /// Start an upstream again in any state, and switch it on if it is off. The reply is its new
    /// handle, or why there is none.
    Restart { name: String, reply: oneshot::Sender<Result<Arc<UpstreamHandle>, String>> },
    /// Switch an upstream off until it is restarted or the process ends. The configuration file
    /// does not change.
    Disable { name: String, reply: oneshot::Sender<Result<(), String>> },
    /// Start an upstream again after its login has changed. `lists_anew`: the account may be
    /// another one, so items listed for the old account are dropped.
    Login { name: String, lists_anew: bool, reply: oneshot::Sender<Result<Arc<UpstreamHandle>, String>> },
    /// Apply the operator's decisions about pins.
    Review { reply: oneshot::Sender<()> },
}

impl SupervisorOrder {
    /// Sends an order and waits for its reply; `None` when the gateway shuts down.
    pub async fn ask<T>(orders: &mpsc::Sender<Self>, order: impl FnOnce(oneshot::Sender<T>) -> Self) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        orders.send(order(reply)).await.ok()?;
        answer.await.ok()
    }
}
