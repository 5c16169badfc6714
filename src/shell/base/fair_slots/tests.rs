use futures_util::FutureExt as _;

use super::*;
use crate::policy::Caller;

const A: CallerNumber = CallerNumber::LOCAL;
const QUEUE_TIME: Duration = Duration::from_secs(5);
const CALL_TIME: Duration = Duration::from_secs(60);

fn callers() -> [CallerNumber; 3] {
    [A, CallerNumber::of(&Caller::named("fair-b")), CallerNumber::of(&Caller::named("fair-c"))]
}

fn queue(slots: &FairSlots, caller: &CallerNumber) -> QueuedCall {
    slots.queue(caller, true).unwrap()
}

/// Returns the slot that a queued call has been assigned by now.
fn given(call: &mut QueuedCall) -> Option<FairSlot> {
    call.wait(QUEUE_TIME, CALL_TIME).now_or_never().flatten()
}

#[tokio::test]
async fn the_next_slot_goes_to_the_caller_that_holds_the_fewest() {
    let [a, b, c] = callers();
    let slots = FairSlots::new(4, 128);
    let mut held: Vec<FairSlot> = (0..4).map(|_| slots.try_take(&a).unwrap()).collect();
    assert!(slots.try_take(&b).is_none());
    let mut waiting: Vec<QueuedCall> = [&a, &a, &b, &b, &c].map(|caller| queue(&slots, caller)).into();
    let mut order = Vec::new();
    while let Some(slot) = held.pop() {
        drop(slot);
        if waiting.is_empty() {
            break;
        }
        assert!(slots.try_take(&a).is_none(), "a new call passes no call that waits");
        let at = waiting.iter_mut().position(|call| {
            let slot = given(call);
            let is_given = slot.is_some();
            held.extend(slot);
            is_given
        });
        let Some(at) = at else { break };
        order.push(waiting.remove(at).caller.clone());
        // Release the slots of the first caller first.
        held.sort_by_key(|slot| slot.caller == a);
    }
    let expected = [&b, &c, &a, &b, &a].map(CallerNumber::clone);
    assert_eq!(order, expected, "the others have one each before a, which has one left, has its turn");
    held.clear();
    assert_eq!((slots.free(), slots.waiting()), (4, 0));
    assert!(callers().iter().all(|caller| slots.held(caller) == 0));
}

#[tokio::test]
async fn equal_callers_take_turns_and_calls_of_one_caller_keep_their_order() {
    let [a, b, _] = callers();
    let slots = FairSlots::new(1, 128);
    let mut held = slots.try_take(&a);
    let mut waiting: Vec<(usize, QueuedCall)> =
        [&a, &a, &a, &b, &b].map(|caller| queue(&slots, caller)).into_iter().enumerate().collect();
    let mut order = Vec::new();
    while held.is_some() {
        drop(held.take());
        for (number, call) in &mut waiting {
            if let Some(slot) = given(call) {
                order.push(*number);
                held = Some(slot);
                break;
            }
        }
        waiting.retain(|(number, _)| !order.contains(number));
    }
    assert_eq!(order, [0, 3, 1, 4, 2]);
}

#[tokio::test]
async fn a_call_that_goes_away_gives_its_turn_and_an_assigned_slot_on() {
    let [a, b, _] = callers();
    let slots = FairSlots::new(1, 128);
    let held = slots.try_take(&a);
    let [gone, assigned, mut last] = [&b, &b, &a].map(|caller| queue(&slots, caller));
    drop(gone);
    assert_eq!(slots.waiting(), 2);
    drop(held);
    assert_eq!((slots.held(&b), slots.waiting()), (1, 1), "assigned, and not taken yet");
    assert!(given(&mut last).is_none());
    drop(assigned);
    let slot = given(&mut last);
    assert!(slot.is_some() && slots.held(&b) == 0 && slots.held(&a) == 1);
    drop((slot, last));
    assert_eq!((slots.free(), slots.held(&a)), (1, 0));
}

#[tokio::test]
async fn a_smaller_number_holds_once_slots_are_given_back_and_a_larger_one_at_once() {
    let [a, b, _] = callers();
    let slots = FairSlots::new(3, 128);
    let mut held: Vec<FairSlot> = (0..3).filter_map(|_| slots.try_take(&a)).collect();
    let mut waiting = queue(&slots, &b);
    slots.set_number(1);
    held.truncate(1);
    assert!(given(&mut waiting).is_none(), "one is held, and one is all there is");
    slots.set_number(2);
    let slot = given(&mut waiting);
    assert!(slot.is_some() && slots.try_take(&a).is_none());
    held.clear();
    assert_eq!(slots.free(), 1);
    slots.set_number(0);
    assert!(slots.try_take(&a).is_none());
    slots.set_number(usize::MAX);
    drop(slot);
    assert!(slots.try_take(&a).is_some());
}

#[test]
fn one_caller_has_the_whole_queue_and_several_leave_room_for_others() {
    let [a, b, c] = callers();
    let fill = |slots: &FairSlots, caller: &CallerNumber, is_shared| -> Vec<QueuedCall> {
        std::iter::from_fn(|| slots.queue(caller, is_shared)).take(1000).collect()
    };
    let slots = FairSlots::new(0, 128);
    let alone = fill(&slots, &a, false);
    assert!(alone.len() == 128 && slots.is_full(&a, false));
    drop(alone);
    let first = fill(&slots, &a, true);
    assert!(slots.is_full(&a, true) && !slots.is_full(&b, true), "a caller that waits with no call has room");
    let [second, third] = [&b, &c].map(|caller| fill(&slots, caller, true));
    assert_eq!([&first, &second, &third].map(Vec::len), [64, 32, 16]);
    drop((first, second, third));
    assert_eq!(slots.waiting(), 0);
    slots.set_queue_limit(1);
    let both = [&a, &b].map(|caller| fill(&slots, caller, true).len());
    assert_eq!(both, [1, 1], "a queue of one call");
    slots.set_queue_limit(0);
    assert!(slots.queue(&c, true).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_the_time_of_the_queue_and_longer_only_behind_another_caller() {
    let [a, b, _] = callers();
    let slots = FairSlots::new(2, 128);
    let _held = [slots.try_take(&a), slots.try_take(&a)];
    let begun = Instant::now();
    let mut own = queue(&slots, &a);
    // A wait that is interrupted and resumed does not become longer.
    assert!(tokio::time::timeout(QUEUE_TIME / 2, own.wait(QUEUE_TIME, CALL_TIME)).await.is_err());
    assert!(own.wait(QUEUE_TIME, CALL_TIME).await.is_none());
    assert_eq!(begun.elapsed(), QUEUE_TIME);
    drop(own);
    let begun = Instant::now();
    assert!(queue(&slots, &b).wait(QUEUE_TIME, CALL_TIME).await.is_none());
    assert_eq!(begun.elapsed(), CALL_TIME, "no call takes longer");
    assert!(queue(&slots, &b).wait(Duration::ZERO, CALL_TIME).now_or_never().flatten().is_none(), "no wait at all");
    assert_eq!(slots.waiting(), 0);
}

/// Plays a caller that makes one call after another, each of which takes `time`, and counts the
/// calls that had a slot.
async fn calls(slots: FairSlots, caller: &CallerNumber, time: Duration, made: &AtomicUsize, slowest: &Mutex<Duration>) {
    loop {
        let begun = Instant::now();
        let slot = match slots.try_take(caller) {
            Some(slot) => Some(slot),
            None => queue(&slots, caller).wait(QUEUE_TIME, CALL_TIME).await,
        };
        if let Some(slot) = slot {
            tokio::time::sleep(time).await;
            made.fetch_add(1, Ordering::Relaxed);
            let mut slowest = slowest.lock();
            *slowest = slowest.max(begun.elapsed());
            drop(slot);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn beside_a_caller_at_its_limits_calls_of_others_end_within_twice_the_time_of_one() {
    let [a, b, c] = callers();
    // Longer than a call waits in the queue behind its own caller's.
    for time in [Duration::from_secs(1), Duration::from_secs(30)] {
        let slots = FairSlots::new(16, 128);
        let [of_a, of_b, of_c] = [const { AtomicUsize::new(0) }; 3];
        let [slow_a, slow_b, slow_c] = [const { Mutex::new(Duration::ZERO) }; 3];
        let crowd = futures_util::future::join_all((0..32).map(|_| calls(slots.clone(), &a, time, &of_a, &slow_a)));
        let others = async {
            tokio::time::sleep(time / 3).await;
            let of_both = [(&b, &of_b, &slow_b), (&b, &of_b, &slow_b), (&c, &of_c, &slow_c)];
            let calls = of_both.map(|(caller, made, slowest)| calls(slots.clone(), caller, time, made, slowest));
            futures_util::future::join_all(calls).await;
        };
        let all = async { tokio::join!(crowd, others) };
        assert!(tokio::time::timeout(time * 20, all).await.is_err());
        let made = [&of_a, &of_b, &of_c].map(|made| made.load(Ordering::Relaxed));
        assert!(made[0] > 100 && made[1] >= 16 && made[2] >= 8, "{time:?}: {made:?}");
        for slowest in [slow_b, slow_c] {
            assert!(*slowest.lock() <= time * 2, "{time:?}: {slowest:?}");
        }
    }
}

#[test]
fn no_slot_is_lost_whatever_goes_away_at_the_same_time() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
    let slots = FairSlots::new(3, 64);
    runtime.block_on(async {
        let work = (0..24_u32).map(|n| {
            let (slots, caller) = (slots.clone(), callers()[n as usize % 3].clone());
            runtime.handle().spawn(async move {
                for round in 0..500 {
                    if let Some(slot) = slots.try_take(&caller) {
                        tokio::task::yield_now().await;
                        drop(slot);
                    } else if let Some(mut queued) = slots.queue(&caller, n % 2 == 0) {
                        let patience = Duration::from_micros(u64::from((n * 7 + round) % 50));
                        drop(tokio::time::timeout(patience, queued.wait(QUEUE_TIME, CALL_TIME)).await);
                    }
                    if n == 0 {
                        slots.set_number(1 + round as usize % 5);
                    }
                }
            })
        });
        futures_util::future::join_all(work.collect::<Vec<_>>()).await.into_iter().for_each(|ended| ended.unwrap());
    });
    slots.set_number(3);
    assert_eq!((slots.free(), slots.waiting()), (3, 0));
    assert!(callers().iter().all(|caller| slots.held(caller) == 0));
}
