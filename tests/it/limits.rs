//! Tests of limits: many callers at once, restarts, reloads, days, and calls under way.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Gateway, Setup};
use crate::mcp::{Answer, Mcp};
use crate::upstream::{Fake, Log};

/// Starts a daemon with one fake upstream, its log, and these limits.
fn limited(limits: &str) -> (Gateway, Log) {
    let setup = Setup::new();
    let record = Log::new(&setup.world.path("work"), "fx");
    let gateway = setup.fake("fx", &Fake::stdio("both").logging(&record)).toml(limits).start();
    gateway.wait_for_tools(&["fx__echo"]);
    (gateway, record)
}

fn refusal(answer: &Answer) -> Option<&Value> {
    let error = &answer.message["error"]["data"];
    let refusal = if error.is_null() { &answer.message["result"]["_meta"]["headend/refusal"] } else { error };
    (refusal["reason"] == "limited").then_some(refusal)
}

/// Calls until one is limited; returns the number of calls before that.
fn use_up(client: &mut Mcp, most: usize) -> usize {
    (0..most).take_while(|_| refusal(&client.call("fx__echo", json!({"text": "x"}))).is_none()).count()
}

/// Ends the daemon by this signal and starts it again.
fn restarted(mut gateway: Gateway, by: Signal) -> Gateway {
    let (world, config) = (gateway.world.clone(), gateway.config.clone());
    gateway.signal(by);
    assert!(gateway.wait(Duration::from_secs(60)).is_some(), "{}", gateway.story());
    drop(gateway);
    let gateway = Gateway::start(world, Some(config), &["serve"], &[]);
    gateway.wait_for_tools(&["fx__echo"]);
    gateway
}

#[test]
fn what_was_used_stays_used_over_a_stop_and_a_kill() {
    for (label, numbers) in [("rate", "rate = \"9/h\""), ("day", "per-day = 9")] {
        if label == "day" && is_near_midnight() {
            continue;
        }
        let (gateway, record) = limited(&format!("[[policy.limits]]\nid = \"few\"\n{numbers}"));
        assert_eq!(use_up(&mut gateway.modern(), 3), 3, "{label}");
        let gateway = restarted(gateway, Signal::TERM);
        assert_eq!(use_up(&mut gateway.legacy(), 3), 3, "{label}: another session, the same caller");
        let gateway = restarted(gateway, Signal::KILL);
        assert_eq!(use_up(&mut gateway.modern(), 20), 3, "{label}");
        let gateway = restarted(gateway, Signal::KILL);
        assert_eq!(use_up(&mut gateway.modern(), 20), 0, "{label}");
        let gateway = restarted(gateway, Signal::TERM);
        assert_eq!(use_up(&mut gateway.modern(), 20), 0, "{label}");
        assert_eq!(record.count("tools/call"), 9, "{label}");
    }
}

/// Returns the seconds left of this day in UTC.
fn to_midnight() -> u64 {
    86_400 - SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() % 86_400
}

/// Returns whether midnight is too close for a test about days.
fn is_near_midnight() -> bool {
    to_midnight() < 120
}
