//! Grants, approvals, denials and embargoes last for their time, over restarts, in every process of
//! a store, and even if the wall clock is set meanwhile.

use super::*;
use crate::base::clock::played::TestMachine;

const MINUTE: u64 = 60;

/// Steps of the wall clock in seconds, before a promise and while it lasts. None of them lets more
/// time pass.
const STEPS: [(&str, &[i64], &[i64]); 5] = [
    ("no step", &[], &[]),
    ("ahead once", &[3600, -3600], &[]),
    ("set back", &[], &[-3600]),
    ("set back again and again", &[-86_400], &[-60, -60, -60]),
    ("ahead once, then before 1970", &[3600], &[-4_000_000_000]),
];

/// Steps the wall clock; the process reads it after each step.
fn step(machine: &TestMachine, approvals: &Approvals, steps: &[i64]) {
    for seconds in steps {
        machine.step(*seconds);
        approvals.wall();
    }
}

/// Checks that a promise lasts for `seconds`, or one more, under each of the steps, with a store
/// and without one.
async fn lasts<T>(seconds: u64, make: impl AsyncFn(&Approvals) -> T, holds: impl Fn(&Approvals, &T) -> bool) {
    for (label, before, meanwhile) in STEPS {
        for is_kept in [false, true] {
            let machine = TestMachine::new();
            machine.start();
            let dir = tempfile::tempdir().unwrap();
            let approvals = if is_kept { kept(&dir) } else { Approvals::memory(&limits()) };
            step(&machine, &approvals, before);
            let made = make(&approvals).await;
            machine.pass(seconds / 2);
            step(&machine, &approvals, meanwhile);
            machine.pass(seconds - seconds / 2 - 1);
            assert!(holds(&approvals, &made), "{label}: over too early");
            machine.pass(2);
            assert!(!holds(&approvals, &made), "{label}: it goes on");
        }
    }
}

fn covers(approvals: &Approvals, item: &str) -> bool {
    approvals.grants().claim(&asked("ci", item, "{}"), approvals.wall(), None).is_some()
}

#[tokio::test]
async fn a_grant_for_a_time_lasts_for_that_time() {
    let minute = async |approvals: &Approvals| {
        let until = GrantLifetime::Until(approvals.wall() + MINUTE);
        assert_eq!(allow(approvals, &asked("ci", "fx__echo", "{}"), until).await, ApprovalEnd::Granted);
    };
    lasts(MINUTE, minute, |approvals, ()| covers(approvals, "fx__echo")).await;
}

#[tokio::test]
async fn unused_grants_end_in_time() {
    for (lifetime, seconds) in [(GrantLifetime::Once, 24 * 3600), (GrantLifetime::UntilChanged, 90 * 24 * 3600)] {
        let unused = async |approvals: &Approvals| allow(approvals, &asked("ci", "fx__echo", "{}"), lifetime).await;
        lasts(seconds, unused, |approvals, _| covers(approvals, "fx__echo")).await;
    }
}

#[tokio::test]
async fn an_approval_is_open_for_its_time() {
    let open = async |approvals: &Approvals| approvals.ask(asked("ci", "fx__echo", "{}"), shown()).unwrap();
    let life = limits().approval_life.as_secs() + 1;
    lasts(life, open, |approvals, id| {
        approvals.expire();
        approvals.approval(id).is_some()
    })
    .await;
}

#[tokio::test]
async fn a_denial_an_embargo_and_a_pause_last_for_their_time() {
    let ask = |approvals: &Approvals, item: &str| approvals.ask(asked("ci", item, "{}"), shown());
    let deny = async |approvals: &Approvals| {
        let id = ask(approvals, "fx__echo").unwrap();
        approvals.answer(&id, PersonAnswer::Deny, ApprovalEvidence::Operator, "uid:1").await.unwrap();
    };
    lasts(600, deny, |approvals, ()| ask(approvals, "fx__echo") == Err(ApprovalRefusal::Declined)).await;
    let unanswered = async |approvals: &Approvals| {
        for _ in 0..3 {
            approvals.unanswered(&ask(approvals, "fx__echo").unwrap());
        }
    };
    lasts(600, unanswered, |approvals, ()| matches!(ask(approvals, "fx__echo"), Err(ApprovalRefusal::Embargo { .. })))
        .await;
    let strikes = async |approvals: &Approvals| {
        approvals.set_limits(&ApprovalSettings { per_minute: 2, ..limits() });
        for item in ["fx__a", "fx__b"] {
            approvals.unanswered(&ask(approvals, item).unwrap());
        }
    };
    lasts(MINUTE, strikes, |approvals, ()| matches!(ask(approvals, "fx__c"), Err(ApprovalRefusal::Unanswered { .. })))
        .await;
}

#[tokio::test]
async fn a_wall_clock_that_is_ahead_ends_a_grant_for_good() {
    let machine = TestMachine::new();
    machine.start();
    let approvals = Approvals::memory(&limits());
    allow(&approvals, &asked("ci", "fx__echo", "{}"), GrantLifetime::Until(approvals.wall() + MINUTE)).await;
    step(&machine, &approvals, &[61, -61]);
    assert!(!covers(&approvals, "fx__echo"));
}

#[tokio::test]
async fn a_grant_that_another_process_gave_ends_at_its_time() {
    let (machine, dir) = (TestMachine::new(), tempfile::tempdir().unwrap());
    let other = machine.start();
    let other_approvals = kept(&dir);
    let giver = machine.start();
    let approvals = kept(&dir);
    // Only the process that gives the grant sees that the wall clock is ahead.
    step(&machine, &approvals, &[3600, -3600]);
    allow(&approvals, &asked("ci", "fx__echo", "{}"), GrantLifetime::Until(approvals.wall() + MINUTE)).await;
    other.enter();
    other_approvals.follow().await;
    machine.pass(MINUTE - 1);
    assert!(covers(&other_approvals, "fx__echo"));
    machine.pass(2);
    assert!(!covers(&other_approvals, "fx__echo"));
    giver.enter();
    assert!(!covers(&approvals, "fx__echo"));
}

#[tokio::test]
async fn time_goes_on_from_the_stores_last_time_when_the_machine_is_started_again() {
    let (machine, dir) = (TestMachine::new(), tempfile::tempdir().unwrap());
    machine.start();
    let approvals = kept(&dir);
    step(&machine, &approvals, &[3600, -3600]);
    let until = approvals.wall() + MINUTE;
    allow(&approvals, &asked("ci", "fx__echo", "{}"), GrantLifetime::Until(until)).await;
    machine.pass(MINUTE - 1);
    approvals.settle().await;
    drop(approvals);
    machine.reboot();
    machine.start();
    let approvals = kept(&dir);
    assert!(covers(&approvals, "fx__echo"));
    machine.pass(2);
    assert!(!covers(&approvals, "fx__echo"), "{} to {until}", approvals.wall());
}
