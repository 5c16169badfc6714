//! Properties of patterns, of arguments and of the audit log, for property tests and fuzzing.
#![allow(clippy::panic, clippy::unwrap_used, clippy::indexing_slicing, reason = "a property fails by panicking")]

use super::consent::CallDetails;
use super::consent::view::ViewColours;
use crate::catalog::glob::glob;
use crate::mcp::definition::annotations::StatedHints;
use crate::policy::caller::Caller;
use crate::policy::records::chain::{ChainHead, ChainVerifier, ChainWriter, LogSettings};
use crate::policy::records::record::{AuditEntry, AuditEvent};
use crate::policy::rules::pattern::{NamePattern, is_special};
use crate::policy::rules::{arguments, uri};
use crate::wire::foreign::is_hidden;
use crate::wire::fuzz::{halves, value};

/// Checks that a pattern matches the names that the glob library matches, and that a pattern which
/// covers another matches its names. `data` is a pattern, a line feed and a name.
pub fn patterns(data: &[u8]) {
    let (text, name) = halves(data);
    let (Ok(text), Ok(name)) = (std::str::from_utf8(text), std::str::from_utf8(name)) else { return };
    let respelled = uri::respell(text);
    let Ok(pattern) = NamePattern::compile(text, respelled.as_deref()) else { return };
    let matches = pattern.matches(name);
    assert!(pattern.matches(text), "a pattern matches its own text");
    if let Ok(glob) = glob(text)
        && !text.contains("**")
        && text != name
    {
        assert_eq!(matches, glob.compile_matcher().is_match(name), "{text:?} and {name:?}");
    }
    if let Ok(other) = NamePattern::compile(name, None)
        && pattern.covers(&other)
    {
        let example = name.replace('*', "x/y");
        if !example.contains(is_special) {
            assert!(pattern.matches(&example), "{text:?} covers {name:?} and not {example:?}");
        }
    }
    if let uri::UriReading::Other(other) = uri::read(name) {
        // A second reading of a URI has no third one.
        assert!(!matches!(uri::read(&other), uri::UriReading::Other(third) if third != other && !other.contains('%')));
    }
}

/// Checks that arguments that are JSON can be shown without hidden characters and tested with every
/// kind of matcher. `data` is a pointer, a line feed and arguments.
pub fn arguments(data: &[u8]) {
    let (pointer, arguments) = halves(data);
    let Some(arguments) = value(arguments) else { return };
    let shown = CallDetails::new("x", StatedHints::default(), Some(&arguments));
    let told = shown.arguments.view(4096).map(|view| view.told(&ViewColours::NONE)).unwrap_or_default();
    assert!(!told.contains(|c| c != '\n' && is_hidden(c) && !matches!(c, '\u{200d}' | '\u{fe0f}')), "{told:?}");
    assert!(told.len() < 3 * 4096, "{} bytes", told.len());
    let Ok(pointer) = std::str::from_utf8(pointer) else { return };
    arguments::fuzz::look_at(pointer, &arguments);
}

/// Checks that a log is sound as written, and not once anything in it was changed. `data` is the
/// text of the records, a line feed and the bytes that are put into the log.
pub fn audit(data: &[u8]) {
    let (said, put) = halves(data);
    let form = LogSettings::new(&[7; 32], true);
    let mut chain = ChainWriter::after(ChainHead::none("main"));
    let mut log = Vec::new();
    for at in 0..3 {
        let said = String::from_utf8_lossy(said).into_owned();
        let arguments = value(put);
        let entry = AuditEntry {
            caller: Some(Caller::named(&said)),
            why: said.into(),
            arguments,
            ..AuditEntry::new(AuditEvent::Decision)
        };
        chain.append(&entry, at * 1000, &form, &mut log);
    }
    let sound = |log: &[u8]| {
        let mut reader = ChainVerifier::new("main", vec![chain.head()]);
        reader.segment("one");
        for line in log.split_inclusive(|byte| *byte == b'\n') {
            match line.strip_suffix(b"\n") {
                Some(line) => reader.line(line),
                None => reader.rest(line),
            }
        }
        reader.end()
    };
    assert_eq!(sound(&log).unwrap().head, chain.head());
    let at = data.iter().map(|byte| usize::from(*byte) * 7).sum::<usize>() % (log.len() + 1);
    for taken in [0, put.len()] {
        let rest = log.get(at + taken..).unwrap_or_default();
        let changed = [&log[..at], put, rest].concat();
        if changed != log {
            // A crash may leave half a line at the end.
            assert!(sound(&changed).is_err() || changed.starts_with(&log), "at {at}");
        }
    }
    let _any = ChainHead::of_line(data);
}
