//! Limits: what is granted to all processes together is within the limit.

use std::time::Duration;

use super::*;
use crate::policy::{
    ActionKind, Decision, KeyPart, LimitSpec, Limiter, Policy, PolicyAction, PolicySpec, Rate, RateUnit, RuleEffect,
    decide,
};

const BURST: u32 = 20;

fn policy() -> Policy {
    let limit = LimitSpec {
        id: "burst".to_owned(),
        tools: Vec::new(),
        upstreams: Vec::new(),
        callers: Vec::new(),
        groups: Vec::new(),
        key: vec![KeyPart::Caller],
        rate: Some(Rate { count: 1, per: RateUnit::Hour }),
        burst: BURST,
        concurrent: None,
        per_day: None,
    };
    Policy::build(&PolicySpec {
        default: RuleEffect::Allow,
        rules: Vec::new(),
        scopes: Vec::new(),
        limits: vec![limit],
    })
    .unwrap()
}

/// Draws for a call and settles its lease; whether the call may be sent.
fn draw(db: &Db, policy: &Policy, limiter: &Limiter, now: Duration) -> bool {
    let item = policy.item_rules(ActionKind::Tool, "a", "a__x");
    let action = PolicyAction::stand_in("ci", "a", "a__x");
    let Decision::Allow(permit) = decide(policy, &item, &action, &|_, _| None, limiter, now) else { return false };
    let lease = permit.lease().unwrap().clone();
    if !lease.is_settled() {
        match db.extend_lease(lease.clone(), now, false).run_now().unwrap() {
            Ok(granted) => lease.settle(&granted),
            Err(_) => lease.give_back(),
        }
    }
    !lease.is_given_back()
}

#[test]
fn no_number_of_processes_and_restarts_sends_more_than_the_limit() {
    play((0..2_usize, 0..30_u8), |dbs, events| {
        let (policy, now) = (policy(), Duration::from_secs(1_000_000));
        let begin = |db: &Db| Limiter::durable(&policy, &db.limits(now).unwrap(), now);
        let mut limiters = [begin(&dbs[0]), begin(&dbs[1])];
        let mut sent = 0;
        for (process, what) in events {
            let (db, limiter) = (&dbs[*process], &mut limiters[*process]);
            match what {
                // A crash, and an end in order.
                0 => *limiter = begin(db),
                1 => {
                    db.keep_used(limiter.used(), now).run_now().unwrap();
                    *limiter = begin(db);
                }
                _ => sent += u32::from(draw(db, &policy, limiter, now)),
            }
        }
        assert!(sent <= BURST, "{sent}");
    });
}
