use super::*;
use crate::policy::Caller;
use crate::wire::frame::Frame;

const KIB: usize = 1024;

fn bytes(kib: usize) -> Bytes {
    Bytes::from(vec![0; kib * KIB])
}

#[test]
fn bytes_count_as_long_as_a_slice_of_them_lives() {
    let budget = ByteBudget::new(64 * KIB);
    let first = budget.try_count(bytes(32)).unwrap();
    let second = budget.try_count(bytes(32)).unwrap();
    assert_eq!(budget.try_count(bytes(16)), Err(NoRoom));
    assert!(budget.is_short() && !budget.is_overdrawn());
    let question = budget.count(bytes(16));
    assert!(budget.is_overdrawn());
    drop(question);
    let slice = first.slice(1..2);
    drop((first, second));
    assert_eq!(budget.used(), 32 * KIB);
    drop(slice);
    assert_eq!(budget.used(), 0);
}

#[test]
fn small_messages_are_not_counted() {
    let budget = ByteBudget::new(KIB);
    let kept = budget.try_count(bytes(15)).unwrap();
    assert_eq!((budget.used(), kept.len()), (0, 15 * KIB));
}

#[test]
fn room_goes_over_to_the_bytes_that_it_was_taken_for() {
    let budget = ByteBudget::new(100 * KIB);
    let mut room = BudgetRoom::new(&budget);
    room.try_grow_to(60 * KIB).unwrap();
    let kept = room.keep(bytes(40));
    assert_eq!(budget.used(), 60 * KIB, "the rest is held for what comes");
    drop(room);
    assert_eq!(budget.used(), 40 * KIB);
    drop(kept);
    assert_eq!(budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_message_waits_for_room_and_not_for_ever() {
    let budget = ByteBudget::new(64 * KIB);
    let held = budget.try_count(bytes(64)).unwrap();
    let mut room = BudgetRoom::new(&budget);
    let (grown, ()) = tokio::join!(room.grow_to(32 * KIB), async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(budget.is_short());
        drop(held);
    });
    assert_eq!(grown, Ok(()));
    let start = Instant::now();
    assert_eq!(BudgetRoom::new(&budget).grow_to(64 * KIB).await, Err(NoRoom));
    assert_eq!(start.elapsed(), PATIENCE);
    assert_eq!(BudgetRoom::new(&budget).grow_to(65 * KIB).await, Err(NoRoom), "there will never be so much");
    assert_eq!(start.elapsed(), PATIENCE);
}

#[test]
fn a_message_that_is_printed_over_many_lines_takes_room_as_a_frame_too() {
    let budget = ByteBudget::new(64 * KIB);
    let pretty = format!("{{\n{}}}", "\"a\": [\n\r\n1],\n".repeat(3 * KIB) + "\"b\": 2\n");
    for is_shared in [false, true] {
        let whole = Bytes::from(pretty.clone());
        let bytes = if is_shared { whole.slice(..) } else { whole };
        let length = bytes.len();
        let mut room = BudgetRoom::new(&budget);
        room.try_grow_to(length).unwrap();
        let frame = Frame::from_upstream(room.keep(bytes)).unwrap();
        assert_eq!(budget.used(), length, "{is_shared}");
        assert!(!frame.bytes().contains(&b'\n') && !frame.bytes().contains(&b'\r'));
        drop(frame);
        assert_eq!(budget.used(), 0, "{is_shared}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_those_that_hold_a_part_one_waits_and_gets_what_the_other_gives_back() {
    let budget = ByteBudget::new(64 * KIB);
    let (mut first, mut second) = (BudgetRoom::new(&budget), BudgetRoom::new(&budget));
    first.try_grow_to(32 * KIB).unwrap();
    second.try_grow_to(32 * KIB).unwrap();
    let (grown, ()) = tokio::join!(first.grow_to(48 * KIB), async {
        tokio::task::yield_now().await;
        assert_eq!(second.grow_to(48 * KIB).await, Err(NoRoom));
        drop(second);
    });
    assert_eq!(grown, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_others_wait_behind_waits_briefly_and_once() {
    let budget = ByteBudget::new(64 * KIB);
    let held = [budget.try_count(bytes(32)).unwrap(), budget.try_count(bytes(32)).unwrap()];
    let mut room = BudgetRoom::shared(&budget);
    let start = Instant::now();
    for _ in 0..100 {
        assert_eq!(room.grow_to(48 * KIB).await, Err(NoRoom));
        assert_eq!(start.elapsed(), STUCK, "while nothing is given back, no second message waits");
    }
    let [first, second] = held;
    drop(first);
    let (grown, ()) = tokio::join!(room.grow_to(48 * KIB), async {
        tokio::task::yield_now().await;
        drop(second);
    });
    assert_eq!(grown, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_dropped_and_made_anew_is_not_longer_for_it() {
    let budget = ByteBudget::new(64 * KIB);
    let _held = budget.try_count(bytes(64)).unwrap();
    let mut room = BudgetRoom::new(&budget);
    let start = Instant::now();
    let mut tries = 0;
    while tokio::time::timeout(Duration::from_secs(3), room.grow_to(32 * KIB)).await.is_err() {
        tries += 1;
        assert!(tries < 10, "it ends");
    }
    assert_eq!(start.elapsed(), PATIENCE);
}

const A: CallerNumber = CallerNumber::LOCAL;

fn b() -> CallerNumber {
    CallerNumber::of(&Caller::named("budget-b"))
}

/// Creates a budget of 256 KiB that several callers share, so that each has 64 KiB.
fn shared() -> Arc<ByteBudget> {
    let budget = ByteBudget::new(256 * KIB);
    budget.set_shared(true);
    budget
}

/// Takes room for a request of a caller.
fn request(budget: &Arc<ByteBudget>, caller: &CallerNumber, kib: usize) -> Result<BudgetRoom, NoRoom> {
    let mut room = BudgetRoom::of_request(budget, caller);
    room.try_grow_to(kib * KIB).map(|()| room)
}

/// Takes room for an answer to a caller.
fn answer(budget: &Arc<ByteBudget>, caller: &CallerNumber, kib: usize) -> Result<BudgetRoom, NoRoom> {
    let mut room = BudgetRoom::new(budget);
    room.use_share_of(caller.clone());
    room.try_grow_to(kib * KIB).map(|()| room)
}

#[test]
fn each_of_several_callers_has_a_quarter_and_one_that_is_alone_has_all() {
    let budget = shared();
    let mut held = vec![request(&budget, &A, 32).unwrap(), answer(&budget, &A, 32).unwrap()];
    assert!(request(&budget, &A, 16).is_err() && answer(&budget, &A, 16).is_err(), "the share is used up");
    held.push(request(&budget, &b(), 64).unwrap());
    held.clear();
    assert!(request(&budget, &A, 200).is_ok(), "a message that its caller has no other beside");
    budget.set_shared(false);
    let all: Result<Vec<BudgetRoom>, NoRoom> = (0..4).map(|_| request(&budget, &A, 64)).collect();
    assert!(all.is_ok() && request(&budget, &A, 16).is_err());
    drop(all);
    assert_eq!(budget.used(), 0);
    assert!(budget.callers.all().all(|used| used.load(Ordering::Relaxed) == 0), "every share is given back");
}

#[test]
fn of_many_callers_each_has_a_share_of_its_own() {
    let budget = shared();
    let many: Vec<CallerNumber> =
        (0..200).map(|n| CallerNumber::of(&Caller::named(&format!("budget-many-{n}")))).collect();
    for (greedy, other) in [(&many[0], &many[1]), (&many[198], &many[199])] {
        let held = request(&budget, greedy, 64).unwrap();
        assert!(request(&budget, greedy, 16).is_err(), "its share is used up");
        let result = budget.try_count(bytes(32)).unwrap();
        assert!(
            budget.try_count_in_share(other.clone(), result).is_ok(),
            "an executed result of another caller's is kept"
        );
        drop(held);
    }
}

#[test]
fn requests_leave_a_quarter_to_answers_and_answers_have_a_sixteenth_more() {
    let budget = shared();
    let callers: [CallerNumber; 4] = std::array::from_fn(|n| CallerNumber::of(&Caller::named(&format!("budget-{n}"))));
    let requests: Vec<_> = callers.iter().filter_map(|caller| request(&budget, caller, 64).ok()).collect();
    assert_eq!((requests.len(), budget.used()), (3, 192 * KIB));
    assert!(budget.is_short());
    let answered = answer(&budget, &callers[3], 64).unwrap();
    let mut line = BudgetRoom::shared(&budget);
    line.try_grow_to(16 * KIB).unwrap();
    assert!(line.try_grow_to(17 * KIB).is_err() && !budget.is_overdrawn());
    drop((requests, answered));
}

#[test]
fn an_answer_counts_once_and_towards_its_caller_s_share_until_it_is_read() {
    let budget = shared();
    let received = budget.try_count(bytes(48)).unwrap();
    let answer = budget.try_count_in_share(A, received).unwrap();
    assert_eq!(budget.used(), 48 * KIB);
    let second = budget.try_count(bytes(32)).unwrap();
    assert_eq!(budget.try_count_in_share(A, second.clone()), Err(NoRoom));
    assert!(budget.try_count_in_share(b(), second).is_ok());
    assert!(request(&budget, &A, 32).is_err());
    let slice = answer.slice(1..2);
    drop(answer);
    assert!(request(&budget, &A, 32).is_err());
    drop(slice);
    assert!(request(&budget, &A, 32).is_ok() && budget.used() == 0);
    let rewritten = budget.count_rewritten(&A, bytes(80));
    assert!(request(&budget, &A, 16).is_err() && budget.used() == 80 * KIB);
    drop(rewritten);
    assert_eq!(budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_for_its_own_share_makes_room_short_for_no_other() {
    let budget = shared();
    let held = request(&budget, &A, 64).unwrap();
    assert!(budget.is_short_for(&A) && !budget.is_short_for(&b()));
    let mut room = BudgetRoom::new(&budget);
    room.use_share_of(A);
    let (grown, ()) = tokio::join!(room.grow_to(32 * KIB), async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(!budget.is_short() && answer(&budget, &b(), 64).is_ok());
        drop(held);
    });
    assert_eq!(grown, Ok(()));
    drop(room);
    assert_eq!((budget.used(), budget.is_short_for(&A)), (0, false));
}
