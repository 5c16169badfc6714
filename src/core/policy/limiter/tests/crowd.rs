//! Sixty-four callers at once, checked by counting every window.

use std::sync::Barrier;

use super::*;
use crate::policy::caller::Caller;

const CROWD: usize = 64;
const CALLERS: [&str; 3] = ["local", "ci", "bot"];
const TOOLS: [(&str, &str); 3] = [("a", "a__x"), ("a", "a__y"), ("b", "b__x")];

/// A call that was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    /// Time of the call, in milliseconds.
    at: u64,
    caller: usize,
    tool: usize,
}

/// The three limits that are tried together, each with its parts.
fn specs(rate: u32, burst: u32, day: u32) -> Vec<LimitSpec> {
    let rate = Some(Rate { count: rate, per: RateUnit::Second });
    vec![
        LimitSpec { rate, per_day: Some(day), ..limit("caller", burst) },
        LimitSpec { key: vec![KeyPart::Upstream], rate, ..limit("upstream", 2 * burst) },
        LimitSpec { key: vec![KeyPart::Tool, KeyPart::Caller], rate: None, per_day: Some(2), ..limit("pair", 1) },
    ]
}

/// Whether two calls draw from the same bucket of a limit.
fn same(limit: usize, one: Seen, other: Seen) -> bool {
    match limit {
        0 => one.caller == other.caller,
        1 => TOOLS[one.tool].0 == TOOLS[other.tool].0,
        _ => one.caller == other.caller && one.tool == other.tool,
    }
}

/// Counts all windows of all buckets: from each call to each later one.
fn judge(seen: &[Seen], specs: &[LimitSpec]) -> Result<(), String> {
    for (index, spec) in specs.iter().enumerate() {
        for (n, from) in seen.iter().enumerate() {
            let mine = seen[n..].iter().filter(|call| same(index, *from, **call));
            for (count, to) in mine.clone().enumerate().map(|(n, call)| (n as u64 + 1, call)) {
                let rate =
                    spec.rate.map(|rate| u64::from(spec.burst) + (to.at - from.at) * u64::from(rate.count) / 1000);
                if rate.is_some_and(|most| most < count) {
                    return Err(format!("{}: {count} calls from {from:?} to {to:?}", spec.id));
                }
            }
            let day = |at: u64| at / 86_400_000;
            let today = mine.filter(|call| day(call.at) == day(from.at)).count() as u64;
            if spec.per_day.is_some_and(|most| u64::from(most) < today) {
                return Err(format!("{}: {today} calls on the day of {from:?}", spec.id));
            }
        }
    }
    Ok(())
}

fn action(caller: usize, tool: usize) -> PolicyAction {
    PolicyAction {
        caller: Caller::named(CALLERS[caller]),
        upstream: TOOLS[tool].0.into(),
        canonical: TOOLS[tool].1.into(),
        ..TOOL.clone()
    }
}

/// A sequential model of the limits, written independently: tokens, time of the last call and calls
/// of the day for each bucket.
#[derive(Default)]
struct Model(HashMap<(usize, String), (f64, u64, u32)>);

impl Model {
    /// Whether all limits admit the call; if so, draws from them.
    fn admits(&mut self, specs: &[LimitSpec], call: Seen) -> bool {
        let keys = [
            CALLERS[call.caller].to_owned(),
            TOOLS[call.tool].0.to_owned(),
            format!("{} {}", CALLERS[call.caller], TOOLS[call.tool].1),
        ];
        let mut after = Vec::new();
        for (index, (spec, key)) in specs.iter().zip(keys).enumerate() {
            let place = (index, key);
            let burst = f64::from(spec.burst);
            let (tokens, at, today) = self.0.get(&place).copied().unwrap_or((burst, call.at, 0));
            let earned = spec.rate.map_or(1.0, |rate| f64::from(rate.count)) * (call.at - at) as f64 / 1000.0;
            let tokens = (tokens + earned).min(burst);
            let today = if call.at / 86_400_000 == at / 86_400_000 { today } else { 0 };
            let refused = spec.rate.is_some() && tokens < 1.0 - 1e-6 || spec.per_day.is_some_and(|most| most <= today);
            if refused {
                return false;
            }
            after.push((place, (tokens - 1.0, call.at, today + 1)));
        }
        self.0.extend(after);
        true
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Each thread has its own random times; all begin each round together.
    #[test]
    fn sixty_four_callers_never_exceed_a_quota_in_any_window(
        rate in prop::sample::select(vec![1_u32, 2, 4, 5, 10, 20]), burst in 1_u32..6, day in 1_u32..12,
        rounds in prop::collection::vec((0_u64..3_000, prop::collection::vec((0..3_usize, 0..3_usize, 0_u64..4), CROWD)), 1..6),
    ) {
        let specs = specs(rate, burst, day);
        let policy = limited(specs.clone());
        let limiter = Limiter::new(&policy);
        // Shortly before midnight, so that some cases cross it.
        let start = 20_000 * 86_400_000 - 4_000;
        let barrier = Barrier::new(CROWD);
        let rounds: Vec<_> = rounds.iter().scan(start, |at, (step, calls)| { *at += step; Some((*at, calls)) }).collect();
        let mut seen: Vec<Seen> = thread::scope(|scope| {
            let threads: Vec<_> = (0..CROWD).map(|number| {
                let (rounds, barrier, policy, limiter) = (&rounds, &barrier, &policy, &limiter);
                scope.spawn(move || {
                    let mut seen = Vec::new();
                    for (at, calls) in rounds {
                        barrier.wait();
                        let (caller, tool, _) = calls[number];
                        if allowed(policy, limiter, &action(caller, tool), Duration::from_millis(*at)).is_ok() {
                            seen.push(Seen { at: *at, caller, tool });
                        }
                    }
                    seen
                })
            }).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        seen.sort_unstable();
        prop_assert_eq!(judge(&seen, &specs), Ok(()));
        // Refusals took nothing and nothing was given away: from here on the model, fed with the
        // same calls, agrees.
        let mut model = Model::default();
        for call in &seen {
            prop_assert!(model.admits(&specs, *call), "{call:?}");
        }
        let end = rounds.last().map_or(start, |(at, _)| *at);
        for n in 0..400_u64 {
            let call = Seen { at: end + n / 9 * 37, caller: (n % 3) as usize, tool: (n / 3 % 3) as usize };
            let got = allowed(&policy, &limiter, &action(call.caller, call.tool), Duration::from_millis(call.at)).is_ok();
            prop_assert_eq!(got, model.admits(&specs, call), "call {} {:?}", n, call);
        }
    }

    #[test]
    fn never_more_calls_are_under_way_than_there_are_places(places in 1_u32..8, calls in 1_usize..20) {
        let shared = LimitSpec { key: vec![KeyPart::Upstream], rate: None, concurrent: Some(places), ..limit("l", 1) };
        let policy = limited(vec![shared, LimitSpec { rate: None, concurrent: Some(40), ..limit("wide", 1) }]);
        let limiter = Limiter::new(&policy);
        let (now, most, admitted) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        let barrier = Barrier::new(CROWD);
        thread::scope(|scope| {
            for number in 0..CROWD {
                let (policy, limiter, now, most, admitted, barrier) = (&policy, &limiter, &now, &most, &admitted, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for call in 0..calls {
                        let action = action((number + call) % 3, number % 2);
                        if let Ok(permit) = allowed(policy, limiter, &action, SECOND) {
                            let here = now.fetch_add(1, Ordering::SeqCst) + 1;
                            most.fetch_max(here, Ordering::SeqCst);
                            admitted.fetch_add(1, Ordering::SeqCst);
                            thread::yield_now();
                            now.fetch_sub(1, Ordering::SeqCst);
                            drop(permit);
                        }
                    }
                });
            }
        });
        prop_assert!(most.into_inner() <= places);
        prop_assert!(0 < admitted.into_inner());
        // All slots are free again, and no more than there were.
        let held: Vec<_> = (0..places).map(|_| allowed(&policy, &limiter, &TOOL, SECOND)).collect();
        prop_assert!(held.iter().all(Result::is_ok));
        prop_assert!(allowed(&policy, &limiter, &TOOL, SECOND).is_err());
    }
}
