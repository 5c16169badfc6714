use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

mod crash;
mod crowd;

use proptest::prelude::*;

use super::super::tests::{SECOND, TOOL, limit, nobody, spec, strings};
use super::super::{ActionKind, Decision, LimitSpec, Permit, PolicySpec, decide};
use super::*;
use crate::policy::limit::buckets::SHARDS;
use crate::policy::limit::{KeyPart, Rate, RateUnit};

#[test]
fn calls_share_a_bucket_where_the_key_says_so() {
    use KeyPart::{Caller, Tool, Upstream};
    let calls = [
        ("another caller", PolicyAction { caller: crate::policy::caller::Caller::named("ci"), ..TOOL.clone() }),
        ("another tool", PolicyAction { canonical: "a__y".into(), ..TOOL.clone() }),
        ("another upstream", PolicyAction { upstream: "b".into(), canonical: "b__x".into(), ..TOOL.clone() }),
        ("a prompt of that name", PolicyAction { kind: ActionKind::Prompt, ..TOOL.clone() }),
    ];
    let rows: [(&str, &[KeyPart], [bool; 4]); 4] = [
        ("caller", &[Caller], [false, true, true, true]),
        ("upstream", &[Upstream], [true, true, false, true]),
        ("tool", &[Tool], [true, false, false, true]),
        ("caller and tool", &[Tool, Caller], [false, false, false, true]),
    ];
    for (label, key, shared) in rows {
        let policy = limited(vec![LimitSpec { key: key.to_vec(), ..limit("l", 1) }]);
        for ((call, action), shared) in calls.iter().zip(shared) {
            let limiter = Limiter::new(&policy);
            assert_eq!(refusal(&policy, &limiter, &TOOL, SECOND), None);
            let refused = refusal(&policy, &limiter, action, SECOND).is_some();
            assert_eq!(refused, shared, "key {label}, {call}");
        }
    }
}

#[test]
fn a_call_that_is_refused_before_it_is_sent_gives_back_what_it_took_and_no_more() {
    let day = LimitSpec { rate: None, per_day: Some(3), ..limit("d", 3) };
    let policy = limited(vec![limit("r", 3), day]);
    let item = policy.item_rules(TOOL.kind, &TOOL.upstream, &TOOL.canonical);
    for is_durable in [false, true] {
        let limiter =
            if is_durable { Limiter::durable(&policy, &HashMap::new(), SECOND) } else { Limiter::new(&policy) };
        let take = |now| match decide(&policy, &item, &TOOL, &nobody, &limiter, now) {
            Decision::Allow(permit) => Some(permit),
            Decision::Deny { .. } | Decision::Scope { .. } | Decision::Ask { .. } | Decision::Limit { .. } => None,
        };
        let mut permits: Vec<Permit> = (0..3).filter_map(|_| take(SECOND)).collect();
        assert!(permits.len() == 3 && take(SECOND).is_none());
        for _ in 0..2 {
            permits[0].give_back(&limiter, &policy, &item, &TOOL);
        }
        assert!(take(SECOND).is_some() && take(SECOND).is_none(), "once");
        // Another policy has other limits, even if they read the same.
        let other = limited(vec![limit("r", 3), LimitSpec { rate: None, per_day: Some(3), ..limit("d", 3) }]);
        let (carried, others) =
            (limiter.carry_over(&other, SECOND), other.item_rules(TOOL.kind, &TOOL.upstream, &TOOL.canonical));
        if !is_durable {
            permits[1].give_back(&carried, &other, &others, &TOOL);
            assert!(take(SECOND).is_none());
        }
        // Calls that were refilled since are not given back.
        let later = SECOND + Duration::from_secs(3 * 24 * 3600);
        let fresh: Vec<Permit> = (0..3).filter_map(|_| take(later)).collect();
        assert_eq!(fresh.len(), 3);
        permits[2].give_back(&limiter, &policy, &item, &TOOL);
        assert!(take(later).is_none(), "durable: {is_durable}");
    }
}

#[test]
fn made_up_uris_get_no_buckets_of_their_own() {
    let policy = limited(vec![LimitSpec { key: vec![KeyPart::Tool], ..limit("l", 1) }]);
    let limiter = Limiter::new(&policy);
    let read =
        |canonical: &str| PolicyAction { kind: ActionKind::Resource, canonical: canonical.into(), ..TOOL.clone() };
    assert_eq!(refusal(&policy, &limiter, &read("a+x:1"), SECOND), None);
    assert!(refusal(&policy, &limiter, &read("a+x:2"), SECOND).is_some());
}

#[test]
fn limits_are_about_what_they_name() {
    let rows = [
        ("tools", LimitSpec { tools: strings(&["a__x"]), ..limit("l", 1) }, true),
        ("other tools", LimitSpec { tools: strings(&["a__y"]), ..limit("l", 1) }, false),
        ("upstream", LimitSpec { upstreams: strings(&["a"]), ..limit("l", 1) }, true),
        ("other upstream", LimitSpec { upstreams: strings(&["b"]), ..limit("l", 1) }, false),
        ("caller", LimitSpec { callers: strings(&["lo*"]), ..limit("l", 1) }, true),
        ("other caller", LimitSpec { callers: strings(&["ci"]), ..limit("l", 1) }, false),
    ];
    for (label, limit, expected) in rows {
        let policy = limited(vec![limit]);
        let limiter = Limiter::new(&policy);
        assert_eq!(refusal(&policy, &limiter, &TOOL, SECOND), None, "{label}");
        assert_eq!(refusal(&policy, &limiter, &TOOL, SECOND).is_some(), expected, "{label}");
    }
}

#[test]
fn the_longest_wait_is_named_and_nothing_is_taken() {
    let slow = Rate { count: 1, per: RateUnit::Hour };
    let only_y = |limit| LimitSpec { tools: strings(&["a__y"]), ..limit };
    let policy = limited(vec![limit("wide", 3), only_y(LimitSpec { rate: Some(slow), ..limit("slow", 1) })]);
    let limiter = Limiter::new(&policy);
    let y = PolicyAction { canonical: "a__y".into(), ..TOOL.clone() };
    assert_eq!(refusal(&policy, &limiter, &y, SECOND), None);
    for _ in 0..5 {
        assert_eq!(refusal(&policy, &limiter, &y, SECOND), Some(("slow".into(), 3600 * SECOND)));
    }
    assert_eq!(refusal(&policy, &limiter, &TOOL, SECOND), None, "second of three");
    assert_eq!(refusal(&policy, &limiter, &TOOL, SECOND), None, "third of three");
    assert_eq!(refusal(&policy, &limiter, &TOOL, SECOND), Some(("wide".into(), SECOND)));
    assert_eq!(refusal(&policy, &limiter, &y, SECOND), Some(("slow".into(), 3600 * SECOND)));
}

#[test]
fn a_reload_refills_only_limits_that_changed() {
    let key = vec![KeyPart::Caller, KeyPart::Tool];
    let base = LimitSpec { key: key.clone(), ..limit("l", 1) };
    let reversed = key.into_iter().rev().collect();
    let rows = [
        ("nothing", base.clone(), false),
        ("order of the key", LimitSpec { key: reversed, ..base.clone() }, false),
        ("patterns", LimitSpec { upstreams: strings(&["a"]), ..base.clone() }, false),
        ("id", LimitSpec { id: "m".to_owned(), ..base.clone() }, true),
        ("rate", LimitSpec { rate: Some(Rate { count: 60, per: RateUnit::Minute }), ..base.clone() }, false),
        ("key", LimitSpec { key: vec![KeyPart::Caller], ..base.clone() }, true),
    ];
    for (label, after, refilled) in rows {
        let old = limited(vec![base.clone()]);
        let old_limiter = Limiter::new(&old);
        assert_eq!(refusal(&old, &old_limiter, &TOOL, SECOND), None);
        // Another limit in front, so that the position does not decide.
        let new = limited(vec![limit("first", 100), after]);
        let new_limiter = old_limiter.carry_over(&new, SECOND);
        assert_eq!(refusal(&new, &new_limiter, &TOOL, SECOND).is_none(), refilled, "{label}");
    }
}

#[test]
fn another_rate_or_burst_begins_with_the_calls_that_were_made() {
    let rate = |count, per| Some(Rate { count, per });
    let base = LimitSpec { rate: rate(60, RateUnit::Minute), ..limit("l", 10) };
    for (label, after, left) in [
        ("more at once", LimitSpec { burst: 15, ..base.clone() }, 9),
        ("fewer at once", LimitSpec { burst: 7, ..base.clone() }, 1),
        ("as few as were made", LimitSpec { burst: 6, ..base.clone() }, 0),
        ("fewer than were made", LimitSpec { burst: 2, ..base.clone() }, 0),
        ("faster", LimitSpec { rate: rate(100, RateUnit::Second), ..base.clone() }, 4),
        ("slower", LimitSpec { rate: rate(10, RateUnit::Day), ..base.clone() }, 4),
    ] {
        let (old, new) = (limited(vec![base.clone()]), limited(vec![after]));
        let old_limiter = Limiter::new(&old);
        assert!((0..6).all(|_| refusal(&old, &old_limiter, &TOOL, SECOND).is_none()));
        let row = BucketRow {
            limit: old.limits[0].parts[0].identity.to_string(),
            bucket: r#"["user local","",""]"#.to_owned(),
        };
        let state = i64::try_from((7 * SECOND).as_nanos()).unwrap();
        let rows = HashMap::from([(row, StoredBucket { day: 0, state })]);
        for (way, limiter) in
            [("reload", old_limiter.carry_over(&new, SECOND)), ("restart", Limiter::durable(&new, &rows, SECOND))]
        {
            let admitted = (0..20).filter(|_| refusal(&new, &limiter, &TOOL, SECOND).is_none()).count();
            assert_eq!(admitted, left, "{label}, {way}");
        }
    }
}

#[test]
fn other_numbers_of_calls_a_day_or_at_once_refill_nothing() {
    let base = LimitSpec { rate: None, concurrent: Some(3), per_day: Some(3), ..limit("l", 1) };
    let old = limited(vec![base.clone()]);
    let old_limiter = Limiter::new(&old);
    let call = |policy: &Policy, limiter: &Limiter| allowed(policy, limiter, &TOOL, SECOND).map_err(|wait| wait.1);
    let running: Vec<_> = (0..3).map(|_| call(&old, &old_limiter).unwrap()).collect();
    let (once, day) = (Err(SECOND), Err(86_399 * SECOND));
    let rows = [
        ("fewer at once", LimitSpec { concurrent: Some(2), per_day: None, ..base.clone() }, once),
        ("as many at once", LimitSpec { per_day: None, ..base.clone() }, once),
        ("more at once", LimitSpec { concurrent: Some(4), per_day: None, ..base.clone() }, Ok(())),
        ("fewer a day", LimitSpec { concurrent: None, per_day: Some(1), ..base.clone() }, day),
        ("as many a day", LimitSpec { concurrent: None, ..base.clone() }, day),
        ("as many a day, with a rate", LimitSpec { rate: limit("l", 1).rate, concurrent: None, ..base.clone() }, day),
        ("more a day", LimitSpec { concurrent: None, per_day: Some(4), ..base.clone() }, Ok(())),
        ("other patterns", LimitSpec { upstreams: strings(&["a"]), per_day: None, ..base.clone() }, once),
        ("another key", LimitSpec { key: vec![KeyPart::Tool], ..base.clone() }, Ok(())),
        ("another id", LimitSpec { id: "m".to_owned(), ..base }, Ok(())),
    ];
    for (label, after, expected) in rows {
        let new = limited(vec![after]);
        let new_limiter = old_limiter.carry_over(&new, SECOND);
        assert_eq!(call(&new, &new_limiter).map(drop), expected, "{label}");
    }
    drop(running);
    let (policy, limiter) =
        (limited(vec![LimitSpec { rate: None, concurrent: Some(1), ..limit("l", 1) }]), &old_limiter);
    assert!(
        call(&policy, &limiter.carry_over(&policy, SECOND)).is_ok(),
        "calls of the old policy have given their places back"
    );
}

#[test]
fn a_day_of_utc_has_its_quota_and_no_more() {
    let policy = limited(vec![LimitSpec { rate: None, per_day: Some(2), ..limit("l", 1) }]);
    let limiter = Limiter::new(&policy);
    let day = 86_400 * SECOND;
    let call = |now| refusal(&policy, &limiter, &TOOL, now).map(|(_, wait)| wait);
    let noon = 20_000 * day + day / 2;
    assert_eq!([call(noon), call(noon)], [None, None]);
    assert_eq!(call(noon), Some(day / 2));
    assert_eq!(call(noon + day / 2 - SECOND), Some(SECOND));
    assert_eq!([call(noon + day / 2), call(noon + day / 2)], [None, None], "the time that was named");
    assert_eq!(call(noon + day / 2 - SECOND), Some(day + SECOND), "a late clock draws from the day that has begun");
}

#[test]
fn a_place_is_given_back_when_the_last_permit_of_its_call_is_gone() {
    let policy = limited(vec![LimitSpec { rate: None, concurrent: Some(2), ..limit("l", 1) }]);
    let limiter = Limiter::new(&policy);
    let call = |action: &PolicyAction| allowed(&policy, &limiter, action, SECOND);
    let (first, mut second) = (call(&TOOL).unwrap(), call(&TOOL).unwrap());
    assert_eq!(call(&TOOL).unwrap_err(), ("l".into(), SECOND));
    drop(call(&PolicyAction { caller: crate::policy::caller::Caller::named("ci"), ..TOOL.clone() }).unwrap());
    let onward = first.onward();
    drop(first);
    assert!(call(&TOOL).is_err(), "its server still has it");
    drop(onward);
    let third = call(&TOOL).unwrap();
    assert!(call(&TOOL).is_err());
    second.leave();
    drop((call(&TOOL).unwrap(), third, second));
    assert!(limiter.tables[0][0].shards.iter().all(|shard| shard.lock().buckets.is_empty()));
}

#[test]
fn a_refusal_by_one_part_takes_nothing_from_the_others() {
    let all = LimitSpec { concurrent: Some(1), per_day: Some(3), ..limit("l", 5) };
    let policy = limited(vec![all]);
    let limiter = Limiter::new(&policy);
    let call = || allowed(&policy, &limiter, &TOOL, SECOND);
    let first = call().unwrap();
    assert!((0..9).all(|_| call().unwrap_err().1 == SECOND), "no place");
    drop(first);
    drop([call().unwrap()]);
    drop(call().unwrap());
    assert_eq!(call().unwrap_err().1, 86_399 * SECOND, "three of the day, whatever was refused");
}

#[test]
fn calls_of_the_old_policy_count_after_a_reload() {
    let old = limited(vec![limit("l", 1)]);
    let new = limited(vec![limit("l", 1)]);
    let old_limiter = Limiter::new(&old);
    let new_limiter = old_limiter.carry_over(&new, SECOND);
    assert_eq!(refusal(&old, &old_limiter, &TOOL, SECOND), None);
    assert!(refusal(&new, &new_limiter, &TOOL, SECOND).is_some());
}

#[test]
fn a_full_table_refuses_new_buckets_until_old_ones_are_full_again() {
    let policy = limited(vec![limit("l", 2)]);
    let mut limiter = Limiter::new(&policy);
    let table = BucketTable::new(&policy.limits[0].parts[0], 4, false, &HashMap::new(), 0);
    limiter.tables = vec![vec![Arc::new(table)]];
    let names: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    let call = |name: &str, now| {
        refusal(
            &policy,
            &limiter,
            &PolicyAction { caller: crate::policy::caller::Caller::named(name), ..TOOL.clone() },
            now,
        )
    };

    let (known, turned_away): (Vec<_>, Vec<_>) = names.iter().partition(|name| call(name, SECOND).is_none());
    assert_eq!(known.len(), 4 * SHARDS);
    assert!(turned_away.iter().all(|name| call(name, SECOND) == Some(("l".into(), SECOND))));
    assert!(known.iter().all(|name| call(name, SECOND).is_none()), "buckets that exist go on");
    assert!(turned_away.iter().all(|name| call(name, 2 * SECOND).is_some()), "not yet full again");
    let later = turned_away.iter().filter(|name| call(name, 3 * SECOND).is_none()).count();
    assert_eq!(later, 4 * SHARDS, "the time that was named");
    let fresh = names.iter().filter(|name| call(&format!("fresh-{name}"), 9 * SECOND).is_none());
    assert_eq!(fresh.count(), 4 * SHARDS, "and once more");
}

#[test]
fn a_late_clock_finds_no_refilled_bucket_after_a_sweep() {
    let policy = limited(vec![limit("l", 1)]);
    let mut limiter = Limiter::new(&policy);
    limiter.tables = vec![vec![Arc::new(BucketTable::new(&policy.limits[0].parts[0], 2, false, &HashMap::new(), 0))]];
    let table = &limiter.tables[0][0];
    let names: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    let home = table.shard(["0", "", ""]);
    let neighbours = names.iter().skip(1).filter(|name| ptr::eq(table.shard([name, "", ""]), home));
    let neighbours: Vec<_> = neighbours.take(2).collect();
    let call = |name: &str, now| {
        refusal(
            &policy,
            &limiter,
            &PolicyAction { caller: crate::policy::caller::Caller::named(name), ..TOOL.clone() },
            now,
        )
    };

    assert_eq!(call("0", SECOND), None);
    assert_eq!(call(neighbours[0], SECOND), None);
    assert_eq!(call(neighbours[1], 2 * SECOND), None, "takes the place of both");
    let late = call("0", SECOND + SECOND / 2);
    assert_eq!(late, Some(("l".into(), SECOND / 2)), "admitted twice within a second");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn threads_together_never_exceed_a_quota(narrow in 1_u32..20, wide in 1_u32..40, threads in 2_usize..6, calls in 1_u32..30) {
        // Equal limits in opposite orders: locks must not depend on the order.
        let per_tool = LimitSpec { key: vec![KeyPart::Caller, KeyPart::Tool], ..limit("narrow", narrow) };
        let old = limited(vec![per_tool.clone(), limit("wide", wide)]);
        let new = limited(vec![limit("wide", wide), per_tool]);
        let old_limiter = Limiter::new(&old);
        let new_limiter = old_limiter.carry_over(&new, SECOND);
        let admitted = [AtomicU32::new(0), AtomicU32::new(0)];
        thread::scope(|scope| {
            for number in 0..threads {
                let (policy, limiter) = [(&old, &old_limiter), (&new, &new_limiter)][number % 2];
                let admitted = &admitted;
                scope.spawn(move || {
                    for call in 0..calls {
                        let tool = (number / 2 + call as usize) % 2;
                        let action = PolicyAction { canonical: ["a__x", "a__y"][tool].into(), ..TOOL.clone() };
                        if refusal(policy, limiter, &action, SECOND).is_none() {
                            admitted[tool].fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let [x, y] = admitted.map(AtomicU32::into_inner);
        prop_assert!(x <= narrow && y <= narrow && x + y <= wide);
        // Refusals took nothing: all that is left can still be taken, to the last call.
        let (mut x, mut y) = (x, y);
        for (canonical, count) in [("a__x", &mut x), ("a__y", &mut y)] {
            while refusal(&new, &new_limiter, &PolicyAction { canonical: canonical.into(), ..TOOL.clone() }, SECOND).is_none() {
                *count += 1;
            }
        }
        prop_assert_eq!(x + y, wide.min(2 * narrow));
    }
}

pub(super) fn limited(limits: Vec<LimitSpec>) -> Policy {
    Policy::build(&PolicySpec { limits, ..spec(vec![]) }).unwrap()
}

/// Makes a call. Returns the limit that refused it and the wait, or `None` if it was admitted.
fn refusal(policy: &Policy, limiter: &Limiter, action: &PolicyAction, now: Duration) -> Option<(String, Duration)> {
    allowed(policy, limiter, action, now).err()
}

/// Begins a call.
fn allowed(
    policy: &Policy,
    limiter: &Limiter,
    action: &PolicyAction,
    now: Duration,
) -> Result<Permit, (String, Duration)> {
    let item = policy.item_rules(action.kind, &action.upstream, &action.canonical);
    match decide(policy, &item, action, &nobody, limiter, now) {
        Decision::Allow(permit) => Ok(permit),
        Decision::Limit { limit, retry_after } => Err((limit.as_ref().to_owned(), retry_after)),
        other @ (Decision::Deny { .. } | Decision::Scope { .. } | Decision::Ask { .. }) => panic!("{other:?}"),
    }
}
