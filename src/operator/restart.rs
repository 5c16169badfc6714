//! The operator's method `restart`: starts an upstream anew, and says what came of it.

use std::time::Duration;

use crate::base::clock;
use crate::daemon::gateway::Gateway;
use crate::gateway::supervisor::Order;
use crate::operator::upstreams::add_health;
use crate::wire::code;
use crate::wire::raw::{RawJson, RawObject};

/// How long the answer waits for the start.
const PATIENCE: Duration = Duration::from_secs(30);

/// Restarts the upstream that `params` name, for the operator `by`.
pub(crate) async fn operate(gateway: &Gateway, by: &str, params: &RawObject) -> Result<RawJson, (i64, String)> {
    let name = params.string("name").ok_or((code::INVALID_PARAMS, "params lacks `name`".to_owned()))?;
    let snapshot = gateway.service.snapshots.load_full();
    let is_off = snapshot.config.off.iter().any(|off| off.as_str() == name);
    if !is_off && snapshot.config.disabled.iter().any(|spec| spec.name.as_str() == name) {
        return Err((1, format!("`{name}` is disabled; write `enabled = true` in its table, then `headend reload`")));
    }
    let gone = || (1, "the gateway is shutting down".to_owned());
    let restarted = Order::ask(&gateway.supervised.orders, |reply| Order::Restart { name, reply }).await;
    let handle = restarted.ok_or_else(gone)?.map_err(|why| (1, why))?;
    tracing::info!(upstream.name = %handle.name, by, "upstream restarted by the operator");
    let until = clock::now() + PATIENCE;
    handle.main.started(PATIENCE).await;
    // The end of a start is told a moment before the state that comes of it.
    while handle.health.state() == "starting" && clock::now() < until {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut out = RawObject::of_strings(&[("name", handle.name.as_str()), ("state", handle.health.state())]);
    add_health(&mut out, &handle);
    Ok(out.encode())
}
