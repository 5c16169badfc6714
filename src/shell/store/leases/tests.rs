use super::*;
use crate::policy::{
    ActionKind, Decision, KeyPart, LimitSpec, Permit, PolicyAction, PolicySpec, Rate, RateUnit, RuleEffect, decide,
};

/// Two limits on all calls of one caller: a burst and a number a day.
fn policy(burst: u32, per_day: u32) -> Policy {
    let limit = |id: &str, rate, per_day| LimitSpec {
        id: id.to_owned(),
        tools: Vec::new(),
        upstreams: Vec::new(),
        callers: Vec::new(),
        groups: Vec::new(),
        key: vec![KeyPart::Caller],
        rate,
        burst,
        concurrent: None,
        per_day,
    };
    let limits =
        vec![limit("burst", Some(Rate { count: 1, per: RateUnit::Hour }), None), limit("daily", None, Some(per_day))];
    Policy::build(&PolicySpec { default: RuleEffect::Allow, rules: Vec::new(), scopes: Vec::new(), limits }).unwrap()
}

/// A process with a database, or without one.
struct Life {
    policy: Policy,
    limiter: Limiter,
    leases: Leases,
}

impl Life {
    fn begin(dir: Option<&std::path::Path>, burst: u32, per_day: u32) -> Self {
        let leases = Leases::new(dir.map(|dir| Db::open(dir).unwrap()), Metrics::new().unwrap());
        let policy = policy(burst, per_day);
        let limiter = leases.limiter(&policy).unwrap();
        Self { policy, limiter, leases }
    }

    fn decide(&self, now: Duration) -> Result<Permit, Decision> {
        let item = self.policy.item_rules(ActionKind::Tool, "a", "a__x");
        let action = PolicyAction::stand_in("local", "a", "a__x");
        match decide(&self.policy, &item, &action, &|_, _| None, &self.limiter, now) {
            Decision::Allow(permit) => Ok(permit),
            other
            @ (Decision::Deny { .. } | Decision::Scope { .. } | Decision::Ask { .. } | Decision::Limit { .. }) => {
                Err(other)
            }
        }
    }

    /// Makes calls until one is refused; returns the number of calls that were sent.
    async fn use_up(&self, most: u32) -> u32 {
        for sent in 0..most {
            let Ok(permit) = self.decide(clock::since_1970()) else { return sent };
            if let Some(lease) = permit.lease()
                && self.leases.settle(lease).await.is_err()
            {
                return sent;
            }
        }
        most
    }

    async fn stop(self) {
        self.leases.keep(&self.limiter).await;
    }
}

#[tokio::test]
async fn what_was_used_stays_used_after_a_crash_and_to_the_call_after_a_stop() {
    for (label, burst, per_day, most) in [("the burst decides", 100, 1_000, 100), ("the day decides", 1_000, 100, 100)]
    {
        let dir = tempfile::tempdir().unwrap();
        let life = Life::begin(Some(dir.path()), burst, per_day);
        assert_eq!(life.use_up(33).await, 33, "{label}");
        life.stop().await;
        let life = Life::begin(Some(dir.path()), burst, per_day);
        assert_eq!(life.use_up(20).await, 20, "{label}");
        // The process was killed, so it wrote nothing at its end.
        drop(life);
        let rest = Life::begin(Some(dir.path()), burst, per_day).use_up(1_000).await;
        let ahead = burst.min(per_day) / 16 - 1;
        assert!((most - 53 - ahead..=most - 53).contains(&rest), "{label}: {rest} more");
        assert_eq!(Life::begin(Some(dir.path()), burst, per_day).use_up(1_000).await, 0, "{label}");
    }
}

#[tokio::test]
async fn two_processes_share_one_quota() {
    let dir = tempfile::tempdir().unwrap();
    let lives = [Life::begin(Some(dir.path()), 30, 1_000), Life::begin(Some(dir.path()), 30, 1_000)];
    let mut sent = 0;
    for _ in 0..40 {
        for life in &lives {
            sent += life.use_up(1).await;
        }
    }
    assert_eq!(sent, 30);
}

#[tokio::test]
async fn calls_that_come_together_are_all_written() {
    let dir = tempfile::tempdir().unwrap();
    let life = Life::begin(Some(dir.path()), 64, 1_000);
    let permits: Vec<Permit> = (0..64).map(|_| life.decide(clock::since_1970()).unwrap()).collect();
    let waiting = permits.iter().filter_map(Permit::lease).map(|lease| life.leases.settle(lease));
    assert!(futures_util::future::join_all(waiting).await.iter().all(Result::is_ok));
    drop((permits, life));
    assert_eq!(Life::begin(Some(dir.path()), 64, 1_000).use_up(1_000).await, 0);
}

#[tokio::test]
async fn a_store_that_fails_refuses_the_call_and_burns_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let life = Life::begin(Some(dir.path()), 2, 1_000);
    let db = life.leases.db.clone().unwrap();
    db.damage("ALTER TABLE limits RENAME TO elsewhere");
    for _ in 0..5 {
        let permit = life.decide(clock::since_1970()).unwrap();
        let refusal = life.leases.settle(permit.lease().unwrap()).await.unwrap_err();
        assert_eq!((refusal.reason, refusal.executed), (FailureReason::Unrecorded, ExecutionDoubt::No));
        assert!(life.leases.settle(permit.lease().unwrap()).await.is_err(), "asked again");
    }
    db.damage("ALTER TABLE elsewhere RENAME TO limits");
    assert_eq!(life.use_up(10).await, 2);
}

#[tokio::test]
async fn a_clock_that_was_set_back_gives_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let life = Life::begin(Some(dir.path()), 5, 5);
    assert_eq!(life.use_up(9).await, 5);
    drop(life);
    let db = Db::open(dir.path()).unwrap();
    let kept = db.latest_time().run_now().unwrap();
    assert!(Duration::from_secs(kept.as_secs()) <= clock::since_1970() && !kept.is_zero());
    clock::advance_clock(kept);
    assert!(kept <= clock::since_1970());
}

#[tokio::test]
async fn rows_of_full_buckets_and_of_past_days_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let life = Life::begin(Some(dir.path()), 5, 5);
    assert_eq!(life.use_up(1).await, 1);
    let db = life.leases.db.clone().unwrap();
    let now = clock::since_1970();
    let left = |now: Duration| db.limits(now).unwrap().len();
    assert_eq!(left(now), 2, "both are in use");
    assert_eq!(left(now + Duration::from_secs(2 * 86_400)), 0);
}

#[tokio::test]
async fn without_a_database_no_call_waits() {
    let life = Life::begin(None, 3, 1_000);
    assert!(life.decide(clock::since_1970()).unwrap().lease().is_none());
    assert_eq!(life.use_up(9).await, 2);
    life.stop().await;
}
