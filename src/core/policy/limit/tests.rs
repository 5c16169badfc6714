use std::time::Duration;

use proptest::prelude::*;

use super::meter::MeterAnswer;
use super::rate::RateError;
use super::*;

#[test]
fn rates_are_read_and_written_alike() {
    for text in ["1/s", "30/m", "500/h", "4294967295/d", "0/s"] {
        assert_eq!(Rate::parse(text).unwrap().to_string(), text);
    }
    let rows = [
        ("empty", "", RateError::Form),
        ("no unit", "30", RateError::Form),
        ("no number", "/m", RateError::Form),
        ("sign", "+1/s", RateError::Form),
        ("fraction", "0.5/s", RateError::Form),
        ("long unit", "1/min", RateError::Form),
        ("upper-case unit", "1/M", RateError::Form),
        ("spaces", "1 / s", RateError::Form),
        ("two units", "1/s/s", RateError::Form),
        ("too large", "4294967296/s", RateError::TooLarge),
    ];
    for (label, text, expected) in rows {
        assert_eq!(Rate::parse(text), Err(expected), "{label}");
    }
}

#[test]
fn a_bucket_gives_its_burst_and_then_its_rate() {
    let meter = Meter::rate(Rate { count: 2, per: RateUnit::Second }, 3).unwrap();
    let second = RateUnit::Second.nanos();
    let mut state = 0;
    let mut at = |half_seconds: u64| {
        let (next, admission) = meter.admit(1, state, 10 * second + half_seconds * second / 2);
        state = next;
        admission
    };
    let wait = |ms| MeterAnswer::RetryAfter(Duration::from_millis(ms));
    assert_eq!([at(0), at(0), at(0)], [MeterAnswer::Admit; 3]);
    assert_eq!([at(0), at(0)], [wait(500); 2]);
    assert_eq!(at(1), MeterAnswer::Admit);
    assert_eq!(at(1), wait(500));
    assert_eq!([at(100), at(100), at(100)], [MeterAnswer::Admit; 3], "no more than the burst is saved up");
    assert_eq!(at(100), wait(500));
}

#[test]
fn several_calls_are_admitted_all_or_none_and_owe_what_is_over_the_burst() {
    let meter = Meter::rate(Rate { count: 1, per: RateUnit::Second }, 10).unwrap();
    let (now, wait) = (RateUnit::Second.nanos() * 100, |seconds| MeterAnswer::RetryAfter(Duration::from_secs(seconds)));
    let (state, admission) = meter.admit(4, 0, now);
    assert_eq!(admission, MeterAnswer::Admit);
    assert_eq!(meter.admit(7, state, now), (state, wait(1)), "six are left");
    let (state, admission) = meter.admit(6, state, now);
    assert_eq!((admission, meter.admit(1, state, now).1), (MeterAnswer::Admit, wait(1)));
    for (label, taken, then) in
        [("full", 0, MeterAnswer::Admit), ("one taken", 1, MeterAnswer::Admit), ("two taken", 2, wait(1))]
    {
        let (state, _) = meter.admit(taken, 0, now);
        let (state, admission) = meter.admit(49, state, now);
        assert_eq!(admission, then, "{label}");
        let owed = if then == MeterAnswer::Admit { wait(40 + u64::from(taken)) } else { MeterAnswer::Admit };
        assert_eq!(meter.admit(1, state, now).1, owed, "{label}");
    }
}

#[test]
fn a_call_at_the_named_time_is_admitted() {
    let meter = Meter::rate(Rate { count: 7, per: RateUnit::Second }, 1).unwrap();
    let (state, _) = meter.admit(1, 0, 5);
    let (_, MeterAnswer::RetryAfter(wait)) = meter.admit(1, state, 6) else { panic!("over quota") };
    let wait = u64::try_from(wait.as_nanos()).unwrap();
    assert_eq!(meter.admit(1, state, 6 + wait).1, MeterAnswer::Admit);
    assert_ne!(meter.admit(1, state, 5 + wait).1, MeterAnswer::Admit);
}

#[test]
fn the_ends_of_the_number_range_do_not_overflow() {
    let fast = Meter::rate(Rate { count: u32::MAX, per: RateUnit::Second }, u32::MAX).unwrap();
    assert_eq!(fast.unit(), 1);
    let slow = Meter::rate(Rate { count: 1, per: RateUnit::Day }, 30_000).unwrap();
    for meter in [fast, slow] {
        for state in [0, 1, u64::MAX] {
            for now in [0, 1, u64::MAX] {
                let (next, _) = meter.admit(1, state, now);
                assert!(state <= next);
            }
        }
    }
}

proptest! {
    #[test]
    fn no_window_admits_more_than_the_quota(
        count in 1_u32..50, burst in 1_u32..8, steps in prop::collection::vec(prop_oneof![Just(0_u64), 0..400_000_000_u64], 1..200),
    ) {
        let meter = Meter::rate(Rate { count, per: RateUnit::Second }, burst).unwrap();
        let (mut now, mut state, mut admitted) = (1_000, 0, Vec::new());
        for step in steps {
            now += step;
            let (next, admission) = meter.admit(1, state, now);
            if admission == MeterAnswer::Admit {
                admitted.push(now);
            } else {
                prop_assert_eq!(next, state, "a refused call burns nothing");
            }
            state = next;
        }
        for (i, from) in admitted.iter().enumerate() {
            for (j, to) in admitted.iter().enumerate().skip(i) {
                // In exact arithmetic: calls <= burst + window * rate.
                let earned = u128::from(to - from) * u128::from(count) / 1_000_000_000;
                prop_assert!((j - i + 1) as u128 <= u128::from(burst) + earned);
            }
        }
    }

    #[test]
    fn an_idle_bucket_gives_its_whole_burst(count in 1_u32..1000, burst in 1_u32..100) {
        let meter = Meter::rate(Rate { count, per: RateUnit::Minute }, burst).unwrap();
        let mut state = 0;
        for _ in 0..burst {
            let (next, admission) = meter.admit(1, state, 0);
            prop_assert_eq!(admission, MeterAnswer::Admit);
            state = next;
        }
        prop_assert_ne!(meter.admit(1, state, 0).1, MeterAnswer::Admit);
    }
}
