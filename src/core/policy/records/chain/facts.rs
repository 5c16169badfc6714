//! The text form of the facts about a tool in a record: three members made of words.
//!
//! ```text
//! "hints":"read-only idempotent","claims":"read-only not-destructive","heard":true
//! ```

use crate::mcp::definition::annotations::{Annotations, Hints};
use crate::mcp::definition::claims::Claims;
use crate::policy::action::ToolFacts;

/// The words of the four hints, in order.
const WORDS: [&str; 4] = ["read-only", "destructive", "idempotent", "open-world"];
/// The word for a tool that its server or the operator calls destructive.
const KNOWN: &str = "known-destructive";
/// Prefix for the word of a hint that is false.
const NOT: &str = "not-";

/// Writes the value of `hints`. None of its words needs an escape.
pub(super) fn put_hints(annotations: &Annotations, out: &mut Vec<u8>) {
    let Annotations { read_only, destructive, idempotent, open_world, known_destructive } = *annotations;
    let held = [read_only, destructive, idempotent, open_world, known_destructive];
    let words = WORDS.iter().chain(&[KNOWN]).zip(held).filter_map(|(word, is)| is.then_some(["", *word]));
    put(words, out);
}

/// Writes the value of `claims`.
pub(super) fn put_claims(hints: &Hints, out: &mut Vec<u8>) {
    let words = WORDS.iter().zip(hints.values());
    put(words.filter_map(|(word, value)| value.map(|is| [if is { "" } else { NOT }, *word])), out);
}

fn put<'w>(words: impl Iterator<Item = [&'w str; 2]>, out: &mut Vec<u8>) {
    out.push(b'"');
    for (n, [before, word]) in words.enumerate() {
        if n > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(before.as_bytes());
        out.extend_from_slice(word.as_bytes());
    }
    out.push(b'"');
}

/// Parses the facts of a record; `None` if a word is unknown, as a later release may write.
pub(super) fn read(hints: &str, claims: &str, heard: bool) -> Option<ToolFacts> {
    let mut held = [false; 5];
    for word in hints.split(' ').filter(|word| !word.is_empty()) {
        let place = WORDS.iter().chain(&[KNOWN]).position(|known| *known == word)?;
        *held.get_mut(place)? = true;
    }
    let mut said = [None; 4];
    for word in claims.split(' ').filter(|word| !word.is_empty()) {
        let (word, value) = word.strip_prefix(NOT).map_or((word, true), |word| (word, false));
        let place = WORDS.iter().position(|known| *known == word)?;
        *said.get_mut(place)? = Some(value);
    }
    let [read_only, destructive, idempotent, open_world, known_destructive] = held;
    let annotations = Annotations { read_only, destructive, idempotent, open_world, known_destructive };
    let [read_only, destructive, idempotent, open_world] = said;
    let hints = Hints { read_only, destructive, idempotent, open_world };
    Some(ToolFacts { annotations, claims: Claims { hints, may_open: heard } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_facts_are_read_as_they_were_written() {
        let three = [None, Some(true), Some(false)];
        for bits in 0..32_u8 {
            for (one, other) in three.into_iter().flat_map(|one| three.map(|other| (one, other))) {
                let bit = |at: u8| bits & (1 << at) != 0;
                let annotations = Annotations {
                    read_only: bit(0),
                    destructive: bit(1),
                    idempotent: bit(2),
                    open_world: bit(3),
                    known_destructive: bit(4),
                };
                let hints = Hints { read_only: one, destructive: other, idempotent: None, open_world: one };
                let facts = ToolFacts { annotations, claims: Claims { hints, may_open: bit(0) } };
                let text = |put: &dyn Fn(&mut Vec<u8>)| {
                    let mut out = Vec::new();
                    put(&mut out);
                    serde_json::from_slice::<String>(&out).unwrap()
                };
                let hints = text(&|out| put_hints(&facts.annotations, out));
                let said = text(&|out| put_claims(&facts.claims.hints, out));
                let again = read(&hints, &said, bit(0));
                assert_eq!(again, Some(facts), "{hints}, {said}");
            }
        }
        for unknown in ["read-only later", "not-read-only", "Read-only"] {
            assert_eq!(read(unknown, "", false), None, "{unknown}");
        }
        assert_eq!(read("", "not-known-destructive", false), None);
    }
}
