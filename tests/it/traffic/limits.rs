//! Tests of limits: many callers at once, restarts, reloads, days, and calls under way.

use rustix::process::Signal;

use crate::tools::steps::limits::{is_near_midnight, limited, restarted, use_up};

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
