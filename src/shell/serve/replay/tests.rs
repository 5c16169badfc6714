use super::*;
use crate::engine::replay::{KEPT, MAX_BYTES, MAX_EVENTS};

const LONG: Duration = Duration::from_secs(3600);

fn streams(revision: Revision) -> SessionStreams {
    SessionStreams::new(revision, kept())
}

fn kept() -> Arc<RecordedBytes> {
    RecordedBytes::new(ByteBudget::new(4 * ALL_BYTES))
}

fn message(text: &str) -> MessageSlices {
    Bytes::from(text.to_owned()).into()
}

async fn text(reader: &mut RecordingReader) -> Option<String> {
    let event = reader.next(LONG).await?;
    Some(event.slices().map(|slice| String::from_utf8(slice.to_vec()).unwrap()).collect())
}

/// Returns the messages that a client reads until nothing is left.
async fn rest(reader: &mut RecordingReader) -> Vec<String> {
    let mut messages = Vec::new();
    while let Some(event) = text(reader).await {
        let data = event.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or_default();
        messages.extend((!data.is_empty()).then(|| data.to_owned()));
    }
    messages
}

fn call_of(resumed: Option<ResumedStream>) -> Option<RecordingReader> {
    match resumed? {
        ResumedStream::Call(reader) => Some(reader),
        ResumedStream::Own(..) => None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_away_for_long_is_noticed_whatever_is_written_meanwhile() {
    let second = Duration::from_secs(1);
    let streams = streams(Revision::V2025_06_18);
    let (recording, reader) = streams.open();
    let unread = recording.unread(10 * second);
    tokio::pin!(unread);
    assert!(tokio::time::timeout(100 * second, &mut unread).await.is_err(), "it reads");
    drop(reader);
    assert!(tokio::time::timeout(9 * second, &mut unread).await.is_err(), "not long enough");
    let reader = recording.resume(0).unwrap();
    assert!(tokio::time::timeout(100 * second, &mut unread).await.is_err(), "it is back");
    drop(reader);
    for _ in 0..9 {
        assert!(tokio::time::timeout(second, &mut unread).await.is_err());
        streams.push(&recording, message("a"), true);
    }
    assert!(tokio::time::timeout(2 * second, &mut unread).await.is_ok());
}

#[tokio::test]
async fn each_revision_gets_what_it_can_read() {
    for (revision, hello, event) in [
        (Revision::V2024_11_05, ": open\n\n", "data: a\n\n"),
        (Revision::V2025_03_26, ": open\n\n", "id: ID-1\ndata: a\n\n"),
        (Revision::V2025_06_18, ": open\n\n", "id: ID-1\ndata: a\n\n"),
        (Revision::V2025_11_25, "id: ID-0\nretry: 1000\ndata: \n\n", "id: ID-1\ndata: a\n\n"),
    ] {
        let streams = streams(revision);
        let (recording, mut reader) = streams.open();
        streams.push(&recording, message("a"), true);
        for expected in [hello, event] {
            let shown = text(&mut reader).await.unwrap().replace(&recording.name, "ID");
            assert_eq!(shown, expected, "{revision}");
        }
        let resumed = streams.resume(&recording.id(0)).is_some();
        assert_eq!(resumed, revision != Revision::V2024_11_05, "{revision}");
    }
}

#[tokio::test]
async fn a_stream_goes_on_after_the_last_event_and_its_first_reader_ends() {
    let streams = streams(Revision::V2025_11_25);
    let (recording, mut first) = streams.open();
    for text in ["a", "b", "c"] {
        streams.push(&recording, message(text), true);
    }
    assert!(text(&mut first).await.is_some());
    assert!(text(&mut first).await.is_some());
    let mut second = call_of(streams.resume(&recording.id(1))).unwrap();
    assert_eq!(text(&mut first).await, None, "the first reader ends");
    drop(first);
    streams.push(&recording, message("answer"), false);
    recording.end();
    assert_eq!(rest(&mut second).await, ["b", "c", "answer"]);
    drop(second);
    let mut third = call_of(streams.resume(&recording.id(3))).unwrap();
    assert_eq!(rest(&mut third).await, ["answer"], "what was read can be read again");
}

#[test]
fn ids_that_lead_nowhere_are_all_alike() {
    let (mine, other) = (streams(Revision::V2025_11_25), streams(Revision::V2025_11_25));
    let (recording, _reader) = mine.open();
    let (foreign, _other_reader) = other.open();
    let name = &recording.name;
    for last in [
        String::new(),
        "-".to_owned(),
        name.clone(),
        format!("{name}-"),
        format!("{name}-1"),
        format!("{name}-+0"),
        format!("{name}-00"),
        format!("{name}-18446744073709551616"),
        "0000000000000000-0".to_owned(),
        foreign.id(0),
    ] {
        assert!(mine.resume(&last).is_none(), "{last}");
    }
    assert!(mine.resume(&recording.id(0)).is_some());
}

#[tokio::test]
async fn notices_give_way_and_what_must_arrive_stays() {
    let streams = streams(Revision::V2025_11_25);
    let (recording, reader) = streams.open();
    streams.push(&recording, message("question"), false);
    for n in 0..MAX_EVENTS * 2 {
        streams.push(&recording, message(&format!("n{n}")), true);
    }
    streams.push(&recording, message("answer"), false);
    recording.end();
    drop(reader);
    let messages = rest(&mut call_of(streams.resume(&recording.id(0))).unwrap()).await;
    assert_eq!(messages.len(), MAX_EVENTS);
    assert_eq!((messages[0].as_str(), messages.last().unwrap().as_str()), ("question", "answer"));
    assert_eq!(messages[messages.len() - 2], format!("n{}", MAX_EVENTS * 2 - 1));
}

#[tokio::test]
async fn an_answer_over_the_bounds_reaches_its_reader_and_is_not_kept() {
    let large = "x".repeat(MAX_BYTES + 1);
    let streams = streams(Revision::V2025_11_25);
    let (recording, mut reader) = streams.open();
    streams.push(&recording, message(&large), false);
    recording.end();
    assert_eq!(rest(&mut reader).await, std::slice::from_ref(&large));
    assert!(streams.resume(&recording.id(0)).is_none(), "it was dropped once it was read");
    let (left, gone) = streams.open();
    drop(gone);
    streams.push(&left, message(&large), false);
    assert!(streams.resume(&left.id(0)).is_none(), "nobody reads it, so it is not kept");
    assert_eq!(streams.account.all.bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn a_session_keeps_so_much_and_the_oldest_goes_first() {
    let all = kept();
    let streams = SessionStreams::new(Revision::V2025_11_25, Arc::clone(&all));
    let half = Bytes::from(vec![b'x'; MAX_BYTES / 2]);
    let ended: Vec<Arc<SessionRecording>> = (0..12)
        .map(|_| {
            let (recording, _) = streams.open();
            streams.push(&recording, half.clone().into(), false);
            recording.end();
            recording
        })
        .collect();
    assert!(all.bytes.load(Ordering::Relaxed) <= SESSION_BYTES);
    assert!(streams.resume(&ended[0].id(0)).is_none());
    assert!(streams.resume(&ended[11].id(0)).is_some());
    for _ in 0..SESSION_STREAMS * 2 {
        drop(streams.open());
    }
    assert!(streams.table.lock().calls.len() <= SESSION_STREAMS);
    drop((streams, ended));
    assert_eq!(all.bytes.load(Ordering::Relaxed), 0, "everything is given back");
}

#[test]
fn what_is_old_is_forgotten_unless_it_still_runs() {
    let streams = streams(Revision::V2025_11_25);
    let ((running, a), (ended, b), (read, _reader)) = (streams.open(), streams.open(), streams.open());
    drop((a, b));
    ended.end();
    read.end();
    streams.sweep(clock::uptime() + KEPT / 2);
    assert_eq!(streams.table.lock().calls.len(), 3);
    streams.sweep(clock::uptime() + KEPT * 2);
    let kept: Vec<String> = streams.table.lock().calls.iter().map(|recording| recording.name.clone()).collect();
    assert_eq!(kept, [running.name.clone(), read.name.clone()]);
}

#[tokio::test]
async fn a_sessions_own_stream_is_resumed_like_any_other() {
    let streams = streams(Revision::V2025_06_18);
    let (own, reader) = streams.open_own();
    streams.push(&own.recording, message("changed"), true);
    drop(reader);
    let Some(ResumedStream::Own(again, mut reader)) = streams.resume(&own.recording.id(0)) else { panic!("unknown") };
    assert!(Arc::ptr_eq(&own, &again));
    again.recording.end();
    assert_eq!(rest(&mut reader).await, ["changed"]);
    let (_newer, _reader) = streams.open_own();
    assert!(streams.resume(&own.recording.id(0)).is_none(), "a newer one replaces it");
}
