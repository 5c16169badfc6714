use std::time::Duration;

use bytes::Bytes;
use expect_test::expect;
use proptest::prelude::*;

use super::{SseDecoder, SseError, SseEvent, comment, event};

type Outcome = Result<SseEvent, SseError>;

#[test]
fn encoder_output_is_stable() {
    let parts: &[&[u8]] = &[b"{\"id\":", b"1", b"}"];
    let cases = [
        event(None, None, parts),
        event(Some("s1-2"), None, parts),
        event(Some("s1-3"), Some("endpoint"), &[b"/messages"]),
        event(None, Some("message"), &[]),
        comment("keep-alive"),
    ];
    let all: String = cases.iter().map(|case| format!("{:?}\n", String::from_utf8_lossy(case))).collect();
    expect![[r#"
        "data: {\"id\":1}\n\n"
        "id: s1-2\ndata: {\"id\":1}\n\n"
        "id: s1-3\nevent: endpoint\ndata: /messages\n\n"
        "event: message\ndata: \n\n"
        ": keep-alive\n\n"
    "#]]
    .assert_eq(&all);
}

#[test]
fn streams_are_read_by_the_whatwg_rules() {
    let cases: &[(&str, &[u8], &[SseEvent])] = &[
        ("lf", b"data: a\n\ndata: b\n\n", &[data("a"), data("b")]),
        ("crlf", b"data: a\r\n\r\ndata: b\r\n\r\n", &[data("a"), data("b")]),
        ("cr", b"data: a\r\rdata: b\r\r", &[data("a"), data("b")]),
        ("mixed ends", b"data: a\r\n\ndata: b\n\r", &[data("a"), data("b")]),
        ("bom", b"\xEF\xBB\xBFdata: a\n\n", &[data("a")]),
        ("second bom is part of an unknown name", b"data: a\n\xEF\xBB\xBFdata: b\n\n", &[data("a")]),
        ("bom and blank line", b"\xEF\xBB\xBF\ndata: a\n\n", &[data("a")]),
        ("comments", b": hi\n\n:\ndata: a\n:x\ndata: b\n\n", &[data("a\nb")]),
        ("several data lines", b"data: a\ndata:\ndata: c\n\n", &[data("a\n\nc")]),
        ("first data line empty", b"data\ndata: b\n\n", &[data("\nb")]),
        ("one space is removed", b"data:  a\n\ndata:b\n\n", &[data(" a"), data("b")]),
        ("colons in the value", b"data: a: b\n\n", &[data("a: b")]),
        ("empty data is reported", b"data: \n\n", &[data("")]),
        ("field without colon", b"data\n\n", &[data("")]),
        ("unknown fields only", b"foo: bar\nDATA: a\n\n", &[]),
        ("no field", b"\n\n\n", &[]),
        ("unfinished", b"data: a\n", &[]),
        ("name", b"event: endpoint\ndata: /m\n\n", &[SseEvent { name: Some("endpoint".into()), ..data("/m") }]),
        ("empty name is message", b"event: x\nevent:\ndata: a\n\n", &[data("a")]),
        ("name does not stick", b"event: x\n\ndata: a\n\n", &[named("x"), data("a")]),
        ("id", b"id: 7\ndata: a\n\n", &[SseEvent { id: Some("7".into()), ..data("a") }]),
        ("empty id resets", b"id\n\n", &[SseEvent { id: Some(String::new()), ..SseEvent::default() }]),
        ("id with nul", b"id: a\0b\ndata: a\n\n", &[data("a")]),
        ("priming", b"id: p\nretry: 500\ndata: \n\n", &[SseEvent { id: Some("p".into()), ..waiting(500) }]),
    ];
    for (label, input, expected) in cases {
        let expected: Vec<Outcome> = expected.iter().cloned().map(Ok).collect();
        assert_eq!(whole(input, 1024), expected, "{label}");
        let parts: Vec<_> = input.chunks(1).collect();
        assert_eq!(decode(&parts, 1024), expected, "{label}, byte by byte");
    }
}

#[test]
fn retry_is_digits_only_and_clamped() {
    let cases: &[(&str, Option<u64>)] = &[
        ("250", Some(250)),
        ("0", Some(100)),
        ("99999999", Some(30_000)),
        ("99999999999999999999999999", Some(30_000)),
        ("1s", None),
        ("-1", None),
        ("1.5", None),
        ("", None),
        ("\u{661}", None),
    ];
    for (value, millis) in cases {
        let events = whole(format!("retry: {value}\ndata: \n\n").as_bytes(), 1024);
        let expected = millis.map_or_else(|| data(""), waiting);
        assert_eq!(events, [Ok(expected)], "{value:?}");
    }
}

#[test]
fn bad_event_is_one_error_and_the_next_one_is_read() {
    let large = Err(SseError::TooLarge { limit: 20, start: Bytes::new() });
    let cases: &[(&str, &[u8], Outcome)] = &[
        ("one long line", b"data: 0123456789abcdef\n\n", large.clone()),
        ("many lines", b"data: 01\ndata: 23\ndata: 45\ndata: 67\ndata: 89\n\n", large.clone()),
        ("unknown fields count", b"foo: 01\nbar: 23\nbaz: 45\n\n", large.clone()),
        ("long comment", b": 0123456789abcdefghi\ndata: a\n\n", large),
        ("invalid data", b"data: \xFF\ndata: \xFF\n\n", Err(SseError::Utf8 { line: Bytes::from_static(b"\xFF") })),
        ("invalid id", b"id: \xC3\ndata: a\n\n", Err(SseError::Utf8 { line: Bytes::from_static(b"\xC3") })),
        ("invalid name", b"event: \xC3\ndata: a\n\n", Err(SseError::Utf8 { line: Bytes::from_static(b"\xC3") })),
    ];
    for (label, input, outcome) in cases {
        let stream = [input, b"data: next\n\n".as_slice()].concat();
        assert_eq!(whole(&stream, 20), [outcome.clone(), Ok(data("next"))], "{label}");
    }
}

#[test]
fn invalid_bytes_in_comments_and_unknown_fields_are_ignored() {
    assert_eq!(whole(b": \xFF\nfoo: \xFF\n\xFF: x\ndata: a\n\n", 1024), [Ok(data("a"))]);
}

#[test]
fn keep_alives_between_two_lines_do_not_add_up() {
    let stream = [b"data: a\n".as_slice(), &b": keep-alive\n".repeat(1000), b"data: b\n\n"].concat();
    assert_eq!(whole(&stream, 64), [Ok(data("a\nb"))]);
}

#[test]
fn endless_line_is_reported_early_and_not_kept() {
    let mut decoder = SseDecoder::new(1000);
    decoder.push(Bytes::from_static(b"data: "));
    let mut errors = 0;
    for _ in 0..1000 {
        decoder.push(Bytes::from_static(&[b'x'; 100]));
        while let Some(outcome) = decoder.next_event() {
            let Err(SseError::TooLarge { limit: 1000, start }) = outcome else { panic!("{outcome:?}") };
            assert!((900..=1000).contains(&start.len()) && start.iter().all(|byte| *byte == b'x'));
            errors += 1;
        }
        assert!(decoder.carry.capacity() <= 2000);
    }
    assert_eq!(errors, 1);
    decoder.push(Bytes::from_static(b"\r\n\r\ndata: ok\n\n"));
    assert_eq!(decoder.next_event(), Some(Ok(data("ok"))));
}

#[test]
fn data_of_an_uncut_line_is_a_slice_of_the_chunk() {
    let chunk = Bytes::from(b"event: message\nid: 1\ndata: {\"jsonrpc\":\"2.0\"}\n\n".to_vec());
    let range = chunk.as_ptr_range();
    let mut decoder = SseDecoder::new(1024);
    decoder.push(chunk);
    let event = decoder.next_event().unwrap().unwrap();
    assert_eq!(event.data, "{\"jsonrpc\":\"2.0\"}");
    assert!(range.contains(&event.data.as_ptr()));
}

#[test]
fn chunks_pushed_without_draining_are_joined() {
    let mut decoder = SseDecoder::new(1024);
    for part in ["da", "ta: a\r", "\n\r", "\ndata", ": b\n\n"] {
        decoder.push(Bytes::from(part));
    }
    let events: Vec<_> = std::iter::from_fn(|| decoder.next_event()).collect();
    assert_eq!(events, [Ok(data("a")), Ok(data("b"))]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn chunking_does_not_change_the_events(
        stream in stream(),
        cuts in proptest::collection::vec(0_usize..12, 1..30),
        limit in prop_oneof![0_usize..40, Just(4096)],
    ) {
        let mut parts = Vec::new();
        let mut rest = stream.as_slice();
        for cut in &cuts {
            let (part, later) = rest.split_at((*cut).min(rest.len()));
            parts.push(part);
            rest = later;
        }
        parts.push(rest);
        prop_assert_eq!(decode(&parts, limit), whole(&stream, limit));
    }

    #[test]
    fn data_agrees_with_a_plain_reading_of_the_rules(stream in stream()) {
        let text = String::from_utf8_lossy(&stream).into_owned();
        let read: Vec<_> = whole(text.as_bytes(), 1 << 20).into_iter().map(|outcome| outcome.unwrap().data).collect();
        let read: Vec<_> = read.into_iter().filter(|data| !data.is_empty()).collect();
        prop_assert_eq!(read, model(&text));
    }

    #[test]
    fn encoded_events_are_read_back(
        events in proptest::collection::vec((
            proptest::option::of("[^\r\n\0]{0,12}"),
            proptest::option::of("[a-z/]{1,12}"),
            proptest::collection::vec("[^\r\n]{0,20}", 0..4),
        ), 0..6),
        size in 1_usize..64,
    ) {
        let mut stream = Vec::new();
        let mut expected = Vec::new();
        for (id, name, parts) in events {
            let slices: Vec<_> = parts.iter().map(|part| part.as_bytes()).collect();
            stream.extend_from_slice(&event(id.as_deref(), name.as_deref(), &slices));
            stream.extend_from_slice(&comment("keep-alive"));
            expected.push(Ok(SseEvent { name, id, retry: None, data: Bytes::from(parts.concat()) }));
        }
        let chunks: Vec<_> = stream.chunks(size).collect();
        prop_assert_eq!(decode(&chunks, 1 << 20), expected);
    }
}

/// Generates streams in which every rule of the format has a chance to apply.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        4 => prop_oneof![Just("\n"), Just("\r"), Just("\r\n")].prop_map(|end| end.as_bytes().to_vec()),
        3 => prop_oneof![Just("data: "), Just("data:"), Just("data"), Just("id: 1"), Just("event: e"), Just("retry: 5")]
            .prop_map(|field| field.as_bytes().to_vec()),
        1 => prop_oneof![Just(": c"), Just("foo: "), Just(" "), Just(":")].prop_map(|noise| noise.as_bytes().to_vec()),
        1 => Just(b"\xEF\xBB\xBF".to_vec()),
        1 => "\\PC{0,4}".prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 0..4),
    ];
    proptest::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

/// Finds the data of the events in `text` without any state machine.
fn model(text: &str) -> Vec<String> {
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(text).replace("\r\n", "\n").replace('\r', "\n");
    let mut lines: Vec<_> = text.split('\n').collect();
    lines.pop();
    let complete = lines.iter().rposition(|line| line.is_empty()).map_or(0, |last| last + 1);
    let blocks = lines[..complete].split(|line| line.is_empty());
    let data = blocks.map(|block| {
        let values = block.iter().filter_map(|line| {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            (name == "data").then(|| value.strip_prefix(' ').unwrap_or(value))
        });
        values.collect::<Vec<_>>().join("\n")
    });
    data.filter(|data| !data.is_empty()).collect()
}

fn whole(stream: &[u8], limit: usize) -> Vec<Outcome> {
    decode(&[stream], limit)
}

fn decode(chunks: &[&[u8]], limit: usize) -> Vec<Outcome> {
    let mut decoder = SseDecoder::new(limit);
    let mut events = Vec::new();
    for chunk in chunks {
        decoder.push(Bytes::copy_from_slice(chunk));
        events.extend(std::iter::from_fn(|| decoder.next_event()).map(|event| event.map_err(SseError::without_start)));
    }
    events
}

fn data(text: &str) -> SseEvent {
    SseEvent { data: Bytes::copy_from_slice(text.as_bytes()), ..SseEvent::default() }
}

fn named(name: &str) -> SseEvent {
    SseEvent { name: Some(name.into()), ..SseEvent::default() }
}

fn waiting(millis: impl std::borrow::Borrow<u64>) -> SseEvent {
    SseEvent { retry: Some(Duration::from_millis(*millis.borrow())), ..SseEvent::default() }
}

#[test]
fn an_event_that_is_too_large_comes_with_the_start_of_its_data() {
    for (label, stream, want) in [
        ("one line", "data:{\"id\":7,\"x\":\"0123456789\"}\n\n", "{\"id\":7,"),
        ("two lines", "data:{\"id\":7,\ndata:\"x\":\"0123456789\"}\n\n", "{\"id\":7,"),
        ("another field before it", "id: 1\ndata:{\"id\":7,\"x\":\"0123456789\"}\n\n", "{\"id\":7,"),
        ("a comment", ":{\"id\":7,\"x\":\"0123456789\"}\n\n", ""),
    ] {
        for size in [1, 7, stream.len()] {
            let mut decoder = SseDecoder::new(20);
            let mut starts = Vec::new();
            for chunk in stream.as_bytes().chunks(size) {
                decoder.push(Bytes::copy_from_slice(chunk));
                while let Some(event) = decoder.next_event() {
                    let Err(SseError::TooLarge { start, .. }) = event else { panic!("{label}: {event:?}") };
                    starts.push(String::from_utf8(start.to_vec()).unwrap());
                }
            }
            let is_right =
                starts.len() == 1 && starts[0].starts_with(want) && (want.is_empty() == starts[0].is_empty());
            assert!(is_right, "{label}, {size}: {starts:?}");
        }
    }
}
