use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::{KEEP_BYTES, LineDecoder, StreamLine};

#[test]
fn lines_are_split_trimmed_and_blank_ones_skipped() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("two lines", "a\nb\n", &["a", "b"]),
        ("crlf", "a\r\nb\r\n", &["a", "b"]),
        ("only one cr is trimmed", "a\r\r\n", &["a\r"]),
        ("cr inside stays", "a\rb\n", &["a\rb"]),
        ("blank lines", "\n\r\n \t \n\na\n\n", &["a"]),
        ("leading spaces stay", "  a \n", &["  a "]),
        ("partial line waits", "a\nb", &["a"]),
        ("empty input", "", &[]),
        ("exactly the limit", "0123456789\n", &["0123456789"]),
    ];
    for (label, input, expected) in cases {
        let mut decoder = LineDecoder::new(10);
        let expected: Vec<_> = expected.iter().map(|line| full(line)).collect();
        assert_eq!(feed(&mut decoder, input.as_bytes()), expected, "{label}");
    }
}

#[test]
fn oversize_line_is_reported_and_the_next_line_is_read() {
    let mut decoder = LineDecoder::new(8);
    let lines = feed(&mut decoder, b"{\"id\":1,\"x\":2}\nnext\n");
    assert_eq!(lines, [oversize("{\"id\":1,", 14), full("next")]);
}

#[test]
fn oversize_line_in_many_reads_is_counted_whole() {
    let mut decoder = LineDecoder::new(8);
    let mut lines = Vec::new();
    for part in ["0123", "456789", "abc", "def", "\nok\n"] {
        lines.extend(feed(&mut decoder, part.as_bytes()));
    }
    assert_eq!(lines, [oversize("01234567", 16), full("ok")]);
}

#[test]
fn prefix_of_an_oversize_line_is_at_most_4_kib() {
    let mut decoder = LineDecoder::new(10_000);
    let mut input = vec![b'x'; 20_000];
    input.push(b'\n');
    let lines = feed(&mut decoder, &input);
    let [StreamLine::Oversize { prefix, bytes }] = lines.as_slice() else { panic!("one oversize line, got {lines:?}") };
    assert_eq!((prefix.len(), *bytes), (4096, 20_000));
}

#[test]
fn end_of_stream_reports_the_dropped_bytes() {
    let cases: &[(&str, &str, Option<usize>)] = &[
        ("nothing", "", None),
        ("complete line", "a\n", None),
        ("partial line", "a\nbc", Some(2)),
        ("oversize without newline", "0123456789abcdef", Some(16)),
    ];
    for (label, input, dropped) in cases {
        let mut decoder = LineDecoder::new(8);
        feed(&mut decoder, input.as_bytes());
        assert_eq!(decoder.finish(), *dropped, "{label}");
        assert_eq!(decoder.finish(), None, "{label}: second time");
        assert_eq!(feed(&mut decoder, b"again\n"), [full("again")], "{label}: reuse");
    }
}

#[test]
fn endless_line_needs_bounded_memory() {
    let limit = 1024 * 1024;
    let mut decoder = LineDecoder::new(limit);
    let part = vec![b'a'; 16 * 1024];
    let mut sent = 0;
    while sent < 50 * limit {
        decoder.buffer().extend_from_slice(&part);
        sent += part.len();
        assert_eq!(decoder.next_line(), None);
        assert!(decoder.buffer.capacity() <= limit + KEEP_BYTES, "while collecting");
        if sent > limit {
            assert!(decoder.buffer.capacity() <= KEEP_BYTES, "while discarding");
        }
    }
    let lines = feed(&mut decoder, b"\n{}\n");
    assert!(
        matches!(lines.as_slice(), [StreamLine::Oversize { bytes, .. }, StreamLine::Full(_)] if *bytes == sent as u64)
    );
}

#[test]
fn memory_of_a_long_line_is_given_back() {
    for (label, tail, kept) in [("idle", "", 0), ("start of the next line", "{\"id", 4)] {
        let mut decoder = LineDecoder::new(16 * 1024 * 1024);
        let mut input = vec![b'a'; 3 * 1024 * 1024];
        input.push(b'\n');
        input.extend_from_slice(tail.as_bytes());
        for part in input.chunks(10_000) {
            decoder.buffer().extend_from_slice(part);
            while let Some(line) = decoder.next_line() {
                assert!(matches!(line, StreamLine::Full(bytes) if bytes.len() == 3 * 1024 * 1024), "{label}");
            }
        }
        assert_eq!(decoder.buffer.len(), kept, "{label}");
        assert!(decoder.peak <= KEEP_BYTES, "{label}");
    }
}

#[test]
fn a_line_is_a_slice_of_the_read_buffer() {
    let mut decoder = LineDecoder::new(1024);
    decoder.buffer().extend_from_slice(b"first\nsecond\n");
    let range = decoder.buffer.as_ptr_range();
    while let Some(line) = decoder.next_line() {
        let StreamLine::Full(bytes) = line else { panic!("short lines") };
        assert!(range.contains(&bytes.as_ptr()));
    }
}

#[test]
fn a_line_after_a_much_longer_one_does_not_keep_its_memory() {
    let mut decoder = LineDecoder::new(16 * 1024 * 1024);
    let mut input = Vec::new();
    for length in [3 << 20, 20 * 1024, 2 << 20] {
        input.extend(std::iter::repeat_n(b'a', length).chain([b'\n']));
    }
    decoder.buffer().extend_from_slice(&input);
    let range = decoder.buffer.as_ptr_range();
    let lines: Vec<StreamLine> = std::iter::from_fn(|| decoder.next_line()).collect();
    let within = lines.iter().map(|line| matches!(line, StreamLine::Full(bytes) if range.contains(&bytes.as_ptr())));
    assert_eq!(within.collect::<Vec<bool>>(), [true, false, true], "large lines are not copied");
}

#[test]
fn short_lines_reuse_one_allocation() {
    let mut decoder = LineDecoder::new(1024);
    decoder.buffer().extend_from_slice(b"x\n");
    assert!(decoder.next_line().is_some());
    let start = decoder.buffer.as_ptr() as usize;
    for _ in 0..100_000 {
        decoder.buffer().extend_from_slice(b"0123456789\n");
        assert!(decoder.next_line().is_some());
        assert_eq!(decoder.next_line(), None);
        let distance = (decoder.buffer.as_ptr() as usize).abs_diff(start);
        assert!(distance <= KEEP_BYTES, "moved by {distance} bytes");
    }
}

proptest! {
    #[test]
    fn reads_of_any_size_give_the_lines_of_the_model(
        input in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b' '), any::<u8>()], 0..400),
        cuts in proptest::collection::vec(1_usize..40, 1..40),
        limit in 0_usize..30,
    ) {
        let mut decoder = LineDecoder::new(limit);
        let mut lines = Vec::new();
        let mut rest = input.as_slice();
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (part, later) = rest.split_at((*cut).min(rest.len()));
            lines.extend(feed(&mut decoder, part));
            rest = later;
        }
        let (expected, dropped) = model(&input, limit);
        prop_assert_eq!(lines, expected);
        prop_assert_eq!(decoder.finish(), dropped);
    }
}

/// Computes the expected lines for the whole input at once, and the length of the dropped rest.
fn model(input: &[u8], limit: usize) -> (Vec<StreamLine>, Option<usize>) {
    let mut parts: Vec<_> = input.split(|byte| *byte == b'\n').collect();
    let partial = parts.pop().unwrap_or_default();
    let lines = parts.into_iter().filter_map(|line| {
        if line.len() > limit {
            return Some(StreamLine::Oversize {
                prefix: Bytes::copy_from_slice(&line[..limit]),
                bytes: line.len() as u64,
            });
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        (!line.iter().all(u8::is_ascii_whitespace)).then(|| StreamLine::Full(Bytes::copy_from_slice(line)))
    });
    (lines.collect(), (!partial.is_empty()).then_some(partial.len()))
}

fn feed(decoder: &mut LineDecoder, input: &[u8]) -> Vec<StreamLine> {
    let buffer: &mut BytesMut = decoder.buffer();
    buffer.extend_from_slice(input);
    std::iter::from_fn(|| decoder.next_line()).collect()
}

fn full(line: &str) -> StreamLine {
    StreamLine::Full(Bytes::copy_from_slice(line.as_bytes()))
}

fn oversize(prefix: &str, bytes: u64) -> StreamLine {
    StreamLine::Oversize { prefix: Bytes::copy_from_slice(prefix.as_bytes()), bytes }
}

#[test]
fn the_last_line_of_a_stream_needs_no_newline() {
    let mut decoder = LineDecoder::new(8);
    decoder.buffer().extend_from_slice(b"one\ntwo\r");
    assert_eq!(decoder.next_line(), Some(StreamLine::Full(Bytes::from_static(b"one"))));
    assert_eq!(decoder.next_line(), None);
    assert_eq!(decoder.last_line(), Some(StreamLine::Full(Bytes::from_static(b"two"))));
    assert_eq!(decoder.last_line(), None);
    decoder.buffer().extend_from_slice(b"much too long");
    assert_eq!(decoder.next_line(), None);
    assert!(matches!(decoder.last_line(), Some(StreamLine::Oversize { bytes: 13, .. })));
    decoder.buffer().extend_from_slice(b"  ");
    assert_eq!(decoder.last_line(), None, "a blank line is none");
}
