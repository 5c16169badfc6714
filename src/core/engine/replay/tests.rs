use proptest::prelude::*;

use super::*;

const NOW: Duration = Duration::from_secs(1000);

/// Writes a message of that length, which is its own number.
fn push(recording: &mut StreamRecording<u64>, bytes: usize, may_be_missed: bool) {
    let number = recording.next;
    recording.push(|| number, bytes, may_be_missed, NOW);
}

/// Reads all events that the reader is given now, and returns how the reading ended.
fn read(recording: &mut StreamRecording<u64>, reader: u64) -> (Vec<u64>, RecordingItem<u64>) {
    let mut messages = Vec::new();
    loop {
        match recording.find(reader, |number, message| {
            assert_eq!(number, *message);
            number
        }) {
            RecordingItem::Event(number) => messages.push(number),
            end @ (RecordingItem::Nothing | RecordingItem::Over) => return (messages, end),
        }
    }
}

#[test]
fn a_client_that_comes_back_reads_on_and_the_reader_before_it_ends() {
    let mut recording = StreamRecording::new(NOW);
    let first = recording.attach(1);
    for _ in 0..3 {
        push(&mut recording, 10, true);
    }
    assert_eq!(recording.find(first, |number, _| number), RecordingItem::Event(1));
    let second = recording.resume(1).unwrap();
    assert_eq!(read(&mut recording, first), (vec![], RecordingItem::Over));
    assert!(!recording.leave(first, NOW) && recording.has_reader(), "it has nothing to leave");
    assert_eq!(read(&mut recording, second), (vec![2, 3], RecordingItem::Nothing));
    recording.end(NOW);
    assert_eq!(read(&mut recording, second), (vec![], RecordingItem::Over));
    assert!(recording.resume(4).is_none(), "there is no such event");
}

#[test]
fn a_recording_is_kept_for_a_while_after_its_end_and_for_as_long_as_it_is_read() {
    let late = NOW + KEPT + Duration::from_secs(1);
    let mut recording = StreamRecording::<u64>::new(NOW);
    let reader = recording.attach(1);
    recording.end(NOW);
    assert!(!recording.is_over() && !recording.is_stale(late), "somebody reads");
    recording.leave(reader, NOW);
    assert!(recording.is_over() && !recording.is_stale(NOW + KEPT) && recording.is_stale(late));
}

#[test]
fn what_has_to_arrive_gives_way_to_nothing_while_it_is_read_and_else_the_recording_is_forgotten() {
    let mut recording = StreamRecording::new(NOW);
    let reader = recording.attach(1);
    push(&mut recording, 10, true);
    push(&mut recording, MAX_BYTES, false);
    push(&mut recording, MAX_BYTES, false);
    assert_eq!(recording.bytes(), 2 * MAX_BYTES, "the notice went, the others are for the reader");
    assert_eq!(read(&mut recording, reader).0, [2, 3]);
    assert_eq!(recording.bytes(), MAX_BYTES, "what was read gives way");
    assert!(recording.resume(1).is_none() && recording.resume(2).is_some(), "from where on it is whole");
    let reader = recording.resume(2).unwrap();
    push(&mut recording, 1, false);
    recording.leave(reader, NOW);
    assert_eq!((recording.bytes(), recording.resume(3)), (0, None), "nobody reads what is over the bounds");
    push(&mut recording, 1, false);
    assert_eq!(recording.bytes(), 0, "and nothing is written to it");
}

#[test]
fn room_that_is_wanted_elsewhere_is_given_up_by_notices_first() {
    let mut recording = StreamRecording::new(NOW);
    let reader = recording.attach(1);
    for may_be_missed in [false, true, false, true] {
        push(&mut recording, 10, may_be_missed);
    }
    recording.fit(5);
    recording.fit(5);
    assert_eq!(recording.bytes(), 20);
    recording.fit(5);
    assert_eq!(recording.bytes(), 20, "what has to arrive stays for its reader");
    assert_eq!(read(&mut recording, reader).0, [1, 3]);
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize, bool),
    Read,
    Leave,
    Resume(u64),
    End,
    Excess(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..MAX_BYTES / 3, any::<bool>()).prop_map(|(bytes, may_be_missed)| Step::Write(bytes, may_be_missed)),
        3 => Just(Step::Read),
        1 => Just(Step::Leave),
        2 => (0..30_u64).prop_map(Step::Resume),
        1 => Just(Step::End),
        1 => (0..MAX_BYTES / 2).prop_map(Step::Excess),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_reader_misses_nothing_that_has_to_arrive_and_reads_nothing_twice(steps in steps()) {
        let mut recording = StreamRecording::new(NOW);
        let mut reader = recording.attach(1);
        // Events that must arrive, and the reader's position.
        let (mut owed, mut at, mut reads, mut ended) = (Vec::new(), 0, true, false);
        for step in steps {
            match step {
                Step::Write(bytes, may_be_missed) if !ended => {
                    let number = recording.next;
                    push(&mut recording, bytes, may_be_missed);
                    owed.extend((!may_be_missed).then_some(number));
                }
                Step::Write(..) => {}
                Step::Read if reads => {
                    let (messages, end) = read(&mut recording, reader);
                    prop_assert!(messages.is_sorted() && messages.first().is_none_or(|first| *first > at));
                    let due: Vec<u64> = owed.iter().copied().filter(|number| *number > at).collect();
                    prop_assert!(due.iter().all(|number| messages.contains(number)), "{:?} of {:?}", messages, due);
                    prop_assert_eq!(end == RecordingItem::Over, ended);
                    at = recording.next - 1;
                }
                Step::Read => prop_assert_eq!(read(&mut recording, reader), (vec![], RecordingItem::Over)),
                Step::Leave => {
                    prop_assert_eq!(recording.leave(reader, NOW), reads);
                    reads = false;
                }
                Step::Resume(last) => if let Some(next) = recording.resume(last) {
                    let before = std::mem::replace(&mut reader, next);
                    prop_assert!(last < recording.next && read(&mut recording, before).0.is_empty());
                    (at, reads) = (last, true);
                },
                Step::End => {
                    ended = true;
                    recording.end(NOW);
                }
                Step::Excess(bytes) => recording.fit(bytes),
            }
            prop_assert!(reads || (recording.bytes() <= MAX_BYTES && recording.events.len() <= MAX_EVENTS));
            prop_assert_eq!(recording.bytes(), recording.events.iter().map(|event| event.bytes).sum::<usize>());
            prop_assert_eq!(recording.has_reader(), reads);
        }
    }
}
