use super::*;
use crate::wire::frame::Frame;

const KIB: usize = 1024;

fn bytes(kib: usize) -> Bytes {
    Bytes::from(vec![0; kib * KIB])
}

#[test]
fn bytes_count_as_long_as_a_slice_of_them_lives() {
    let budget = Budget::new(64 * KIB);
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
    let budget = Budget::new(KIB);
    let kept = budget.try_count(bytes(15)).unwrap();
    assert_eq!((budget.used(), kept.len()), (0, 15 * KIB));
}

#[test]
fn room_goes_over_to_the_bytes_that_it_was_taken_for() {
    let budget = Budget::new(100 * KIB);
    let mut room = Room::new(&budget);
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
    let budget = Budget::new(64 * KIB);
    let held = budget.try_count(bytes(64)).unwrap();
    let mut room = Room::new(&budget);
    let (grown, ()) = tokio::join!(room.grow_to(32 * KIB), async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(budget.is_short());
        drop(held);
    });
    assert_eq!(grown, Ok(()));
    let start = Instant::now();
    assert_eq!(Room::new(&budget).grow_to(64 * KIB).await, Err(NoRoom));
    assert_eq!(start.elapsed(), PATIENCE);
    assert_eq!(Room::new(&budget).grow_to(65 * KIB).await, Err(NoRoom), "there will never be so much");
    assert_eq!(start.elapsed(), PATIENCE);
}

#[test]
fn a_message_that_is_printed_over_many_lines_takes_room_as_a_frame_too() {
    let budget = Budget::new(64 * KIB);
    let pretty = format!("{{\n{}}}", "\"a\": [\n\r\n1],\n".repeat(3 * KIB) + "\"b\": 2\n");
    for is_shared in [false, true] {
        let whole = Bytes::from(pretty.clone());
        let bytes = if is_shared { whole.slice(..) } else { whole };
        let length = bytes.len();
        let mut room = Room::new(&budget);
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
    let budget = Budget::new(64 * KIB);
    let (mut first, mut second) = (Room::new(&budget), Room::new(&budget));
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
    let budget = Budget::new(64 * KIB);
    let held = [budget.try_count(bytes(32)).unwrap(), budget.try_count(bytes(32)).unwrap()];
    let mut room = Room::shared(&budget);
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
    let budget = Budget::new(64 * KIB);
    let _held = budget.try_count(bytes(64)).unwrap();
    let mut room = Room::new(&budget);
    let start = Instant::now();
    let mut tries = 0;
    while tokio::time::timeout(Duration::from_secs(3), room.grow_to(32 * KIB)).await.is_err() {
        tries += 1;
        assert!(tries < 10, "it ends");
    }
    assert_eq!(start.elapsed(), PATIENCE);
}
