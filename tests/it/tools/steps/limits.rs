//! Calls that a limit of the policy refuses.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::super::harness::{Gateway, GatewaySetup};
use super::super::mcp::{Mcp, McpAnswer};
use super::super::upstream::{Fake, InputLog};

/// Starts a daemon with one fake upstream, its log, and these limits.
pub(crate) fn limited(limits: &str) -> (Gateway, InputLog) {
    let setup = GatewaySetup::new();
    let record = InputLog::new(&setup.world.path("work"), "fx");
    let gateway = setup.fake("fx", &Fake::stdio("both").logging(&record)).toml(limits).start();
    gateway.wait_for_tools(&["fx__echo"]);
    (gateway, record)
}

pub(crate) fn refusal(answer: &McpAnswer) -> Option<&Value> {
    let error = &answer.message["error"]["data"];
    let refusal = if error.is_null() { &answer.message["result"]["_meta"]["headend/refusal"] } else { error };
    (refusal["reason"] == "limited").then_some(refusal)
}

/// Calls until one is limited; returns the number of calls before that.
pub(crate) fn use_up(client: &mut Mcp, most: usize) -> usize {
    (0..most).take_while(|_| refusal(&client.call("fx__echo", json!({"text": "x"}))).is_none()).count()
}

/// Ends the daemon by this signal and starts it again.
pub(crate) fn restarted(mut gateway: Gateway, by: Signal) -> Gateway {
    let (world, config) = (gateway.world.clone(), gateway.config.clone());
    gateway.signal(by);
    assert!(gateway.wait(Duration::from_secs(60)).is_some(), "{}", gateway.story());
    drop(gateway);
    let gateway = Gateway::start(world, Some(config), &["serve"], &[]);
    gateway.wait_for_tools(&["fx__echo"]);
    gateway
}

/// Returns the seconds left of this day in UTC.
pub(crate) fn to_midnight() -> u64 {
    86_400 - SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() % 86_400
}

/// Returns whether midnight is too close for a test about days.
pub(crate) fn is_near_midnight() -> bool {
    to_midnight() < 120
}
