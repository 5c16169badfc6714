//! Histories of processes that share a disk and are killed at any moment.

use super::*;
use crate::policy::limit::{LeaseBound, LimitLease, OverdrawnLimit};

type Disk = HashMap<BucketRow, StoredBucket>;

/// A process. Its disk is shared with others and survives it.
struct Life {
    limiter: Limiter,
    /// Calls that were decided and wait for their leases, each with the time of its decision.
    waiting: Vec<(Permit, u64)>,
}

fn specs(burst: u32, day: u32) -> Vec<LimitSpec> {
    vec![
        LimitSpec { rate: Some(Rate { count: 5, per: RateUnit::Second }), ..limit("rate", burst) },
        LimitSpec { rate: None, per_day: Some(day), ..limit("day", 1) },
    ]
}

impl Life {
    fn begin(policy: &Policy, disk: &Disk) -> Self {
        Self { limiter: Limiter::durable(policy, disk, SECOND), waiting: Vec::new() }
    }

    /// Runs one transaction with all waiting leases; returns the calls that are sent then. With
    /// `fails`, the disk does not take the transaction.
    fn settle(&mut self, disk: &mut Disk, fails: bool) -> Vec<u64> {
        let mut sent = Vec::new();
        let mut page = disk.clone();
        let mut done = Vec::new();
        for (permit, at) in self.waiting.drain(..) {
            let Some(lease) = permit.lease().cloned() else {
                sent.push(at);
                continue;
            };
            let extended = extend(&lease, &mut page);
            done.push((lease, extended, at));
        }
        if fails {
            done.iter().for_each(|(lease, ..)| lease.fail());
            return sent;
        }
        *disk = page;
        for (lease, granted, at) in done {
            let Ok(granted) = granted else {
                lease.give_back();
                continue;
            };
            lease.settle(&granted);
            assert!(lease.is_settled() && !lease.is_given_back());
            sent.push(at);
        }
        sent
    }

    fn stop(self, disk: &mut Disk) {
        for used in self.limiter.used() {
            if disk.get(&used.row) == Some(&used.written) {
                disk.insert(used.row, used.exactly);
            }
        }
    }
}

fn extend(lease: &LimitLease, page: &mut Disk) -> Result<Vec<LeaseBound>, OverdrawnLimit> {
    let mut all = Vec::new();
    for claim in lease.claims() {
        let granted = claim.extend(page.get(&claim.row()).copied())?;
        if let Some(stored) = granted.write {
            page.insert(claim.row(), stored);
        }
        all.push(granted);
    }
    Ok(all)
}

/// Checks the calls in the window from each call to each later one, and of each day. `extra` is the
/// number of calls by which other processes may be ahead.
fn judge(sent: &[u64], burst: u64, day: u64, extra: u64) -> Result<(), String> {
    for (n, from) in sent.iter().enumerate() {
        for (count, to) in sent[n..].iter().enumerate() {
            let most = burst + (to - from) * 5 / 1000 + extra;
            if most <= count as u64 {
                return Err(format!("{} calls from {from} to {to}, not {most}", count + 1));
            }
        }
        let of_day = sent.iter().filter(|at| **at / 86_400_000 == from / 86_400_000).count() as u64;
        if day < of_day {
            return Err(format!("{of_day} calls on the day of {from}, not {day}"));
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Call,
    Wait(u64),
    Settle,
    DiskFails,
    Kill,
    Stop,
    Reload,
    Sweep,
}

fn steps(kill: bool) -> impl Strategy<Value = Vec<(bool, Step)>> {
    let step = prop_oneof![
        12 => Just(Step::Call),
        4 => (0_u64..1_500).prop_map(Step::Wait),
        6 => Just(Step::Settle),
        1 => Just(Step::DiskFails),
        1 => Just(if kill { Step::Kill } else { Step::Stop }),
        1 => Just(Step::Stop),
        1 => Just(Step::Reload),
        1 => Just(Step::Sweep),
    ];
    prop::collection::vec((any::<bool>(), step), 1..250)
}

/// Plays a history of one process, or of two that share the disk. Returns the times of sent calls,
/// the disk and the end.
fn play(steps: &[(bool, Step)], burst: u32, day: u32, two: bool) -> (Vec<u64>, Disk, u64) {
    let mut policy = limited(specs(burst, day));
    let mut disk = Disk::new();
    let mut lives = [Life::begin(&policy, &disk), Life::begin(&policy, &disk)];
    let mut now = 20_000 * 86_400_000 - 6_000;
    let mut sent = Vec::new();
    for (other, step) in steps {
        let which = usize::from(*other && two);
        if let Step::Wait(time) = step {
            // A call that waits until its bucket is full again counts when it is sent, not when it
            // was decided.
            if two {
                sent.extend(lives.iter_mut().flat_map(|life| life.settle(&mut disk, false)));
            }
            now += time;
        }
        let life = &mut lives[which];
        match step {
            Step::Wait(_) => {}
            Step::Call => {
                if let Ok(permit) = allowed(&policy, &life.limiter, &TOOL, Duration::from_millis(now)) {
                    // A waiting call is sent with the time of its decision, so it must not wait for
                    // long.
                    life.waiting.push((permit, now));
                }
            }
            Step::Settle => sent.extend(life.settle(&mut disk, false)),
            Step::DiskFails => sent.extend(life.settle(&mut disk, true)),
            Step::Kill => *life = Life::begin(&policy, &disk),
            Step::Stop => {
                sent.extend(life.settle(&mut disk, false));
                std::mem::replace(life, Life::begin(&policy, &Disk::new())).stop(&mut disk);
                *life = Life::begin(&policy, &disk);
            }
            Step::Reload => {
                policy = limited(specs(burst, day));
                for life in &mut lives {
                    life.limiter = life.limiter.carry_over(&policy, SECOND);
                }
            }
            // Deletes the rows that the store deletes.
            Step::Sweep => {
                let (today, nanos) = ((now / 86_400_000) as i64, (now * 1_000_000) as i64);
                disk.retain(|_, row| if row.day == 0 { nanos < row.state } else { today <= row.day });
            }
        }
    }
    for life in &mut lives {
        sent.extend(life.settle(&mut disk, false));
    }
    sent.sort_unstable();
    (sent, disk, now)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_quota_is_exceeded_over_lives_that_end_at_any_moment(
        steps in steps(true), burst in prop::sample::select(vec![1_u32, 3, 10, 40, 200]), day in prop::sample::select(vec![1_u32, 7, 50, 300]),
    ) {
        let (sent, _, _) = play(&steps, burst, day, false);
        prop_assert_eq!(judge(&sent, u64::from(burst), u64::from(day), 0), Ok(()));
    }

    #[test]
    fn processes_on_one_disk_share_each_quota_up_to_a_lease(
        steps in steps(false), burst in prop::sample::select(vec![1_u32, 3, 10, 40, 200]), day in prop::sample::select(vec![1_u32, 7, 50, 300]),
    ) {
        let (sent, _, _) = play(&steps, burst, day, true);
        // A call within an old lease may fall into the same window as calls of others that were
        // counted after it.
        let ahead = u64::from(burst / 16).clamp(1, 64);
        prop_assert_eq!(judge(&sent, u64::from(burst), u64::from(day), 2 * ahead), Ok(()));
    }

    /// Without kills nothing is lost: restarts make no difference.
    #[test]
    fn a_clean_restart_takes_nothing_and_gives_nothing(
        steps in steps(false), burst in prop::sample::select(vec![1_u32, 3, 10, 40]), day in prop::sample::select(vec![7_u32, 50]),
    ) {
        let settled: Vec<_> = steps.iter().flat_map(|step| [(false, step.1), (false, Step::Settle)]).collect();
        let settled: Vec<_> = settled.into_iter().filter(|(_, step)| !matches!(step, Step::DiskFails)).collect();
        let (with, ..) = play(&settled, burst, day, false);
        let calls: Vec<_> = settled.into_iter().filter(|(_, step)| !matches!(step, Step::Stop | Step::Sweep)).collect();
        let (without, ..) = play(&calls, burst, day, false);
        prop_assert_eq!(with, without);
    }

    #[test]
    fn a_crash_costs_no_more_than_a_lease(calls in 0_u32..60, burst in 1_u32..60) {
        let policy = limited(specs(burst, 1_000));
        let mut disk = Disk::new();
        let now = Duration::from_secs(2_000_000_000);
        let count = |disk: &mut Disk, most: u32| {
            let mut life = Life::begin(&policy, disk);
            let mut sent = 0;
            for _ in 0..most {
                let Ok(permit) = allowed(&policy, &life.limiter, &TOOL, now) else { break };
                life.waiting.push((permit, 0));
                sent += u32::try_from(life.settle(disk, false).len()).unwrap();
            }
            sent
        };
        let before = count(&mut disk, calls);
        let after = count(&mut disk, 1_000);
        let ahead = (burst / 16).clamp(1, 64);
        prop_assert!(before + after <= burst, "{} and {}", before, after);
        prop_assert!(burst < before + after + ahead, "{} and {}", before, after);
    }
}

#[test]
fn a_store_that_fails_burns_nothing() {
    let policy = limited(specs(2, 2));
    let (mut life, mut disk) = (Life::begin(&policy, &Disk::new()), Disk::new());
    for _ in 0..5 {
        life.waiting.push((allowed(&policy, &life.limiter, &TOOL, SECOND).unwrap(), 1));
        assert!(life.settle(&mut disk, true).is_empty());
    }
    for _ in 0..2 {
        life.waiting.push((allowed(&policy, &life.limiter, &TOOL, SECOND).unwrap(), 1));
        assert_eq!(life.settle(&mut disk, false), [1]);
    }
    assert!(allowed(&policy, &life.limiter, &TOOL, SECOND).is_err());
}

#[test]
fn what_is_given_back_late_does_not_fill_a_bucket_twice() {
    let policy = limited(vec![limit("l", 2)]);
    let limiter = Limiter::durable(&policy, &Disk::new(), SECOND);
    let call = |now| allowed(&policy, &limiter, &TOOL, now);
    let early = call(SECOND).unwrap();
    // Full again by time alone, and drawn from once more.
    drop(call(10 * SECOND).unwrap());
    early.lease().unwrap().give_back();
    early.lease().unwrap().give_back();
    drop(call(10 * SECOND).unwrap());
    assert!(call(10 * SECOND).is_err());
}

#[test]
fn a_limit_that_comes_back_by_a_reload_finds_what_was_used() {
    let (full, none) = (limited(vec![limit("l", 3)]), limited(vec![]));
    let mut disk = Disk::new();
    let mut life = Life::begin(&full, &disk);
    for _ in 0..2 {
        life.waiting.push((allowed(&full, &life.limiter, &TOOL, SECOND).unwrap(), 1));
        assert_eq!(life.settle(&mut disk, false).len(), 1);
    }
    life.limiter = life.limiter.carry_over(&none, SECOND);
    life.limiter = life.limiter.carry_over(&full, SECOND);
    let mut sent = 0;
    for _ in 0..5 {
        if let Ok(permit) = allowed(&full, &life.limiter, &TOOL, SECOND) {
            life.waiting.push((permit, 1));
            sent += life.settle(&mut disk, false).len();
        }
    }
    assert_eq!(sent, 1);
}

#[test]
fn rows_that_make_no_sense_count_as_used_up() {
    let policy = limited(vec![limit("l", 3)]);
    let row = BucketRow {
        limit: policy.limits[0].parts[0].identity.to_string(),
        bucket: r#"["user local","",""]"#.to_owned(),
    };
    let rows = [
        ("a time", StoredBucket { day: 0, state: 5 }, true),
        ("negative", StoredBucket { day: 0, state: -1 }, false),
        ("a negative day", StoredBucket { day: -7, state: 0 }, false),
        ("a day too far", StoredBucket { day: i64::MAX, state: 0 }, false),
    ];
    for (label, stored, expected) in rows {
        let limiter = Limiter::durable(&policy, &Disk::from([(row.clone(), stored)]), SECOND);
        assert_eq!(allowed(&policy, &limiter, &TOOL, SECOND).is_ok(), expected, "{label}");
    }
}
