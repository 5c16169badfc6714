//! Ids of runs: each run of a replica has one, and a text that leads to something in the memory of
//! one process names it. Without a cluster nothing has a run.

use std::fmt;
use std::num::NonZeroU64;

use data_encoding::BASE64URL_NOPAD;

/// Length of the text of an id, in characters.
const TEXT: usize = 11;
/// The character between a run and the text that it marks; no sealed text contains it.
const MARK: char = '.';

/// The id of one run of a replica: the time from its start, or from the moment at which others took
/// it for dead, to its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(NonZeroU64);

impl RunId {
    /// Makes an id of random bytes; `None` for zeros.
    pub fn new(random: [u8; 8]) -> Option<Self> {
        NonZeroU64::new(u64::from_be_bytes(random)).map(Self)
    }

    pub const fn bytes(self) -> [u8; 8] {
        self.0.get().to_be_bytes()
    }

    /// Parses what [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).ok()?;
        Self::new(bytes.try_into().ok()?)
    }

    /// Puts the run in front of a sealed text, so that any replica can tell whose text it is. The
    /// run is a hint: the replica that it names judges the text.
    pub fn mark(self, text: &str) -> String {
        format!("{self}{MARK}{text}")
    }
}

/// Returns the run in front of a text, and the text without it.
pub fn split_mark(text: &str) -> (Option<RunId>, &str) {
    let marked = text.split_once(MARK).filter(|(run, _)| run.len() == TEXT);
    let marked = marked.and_then(|(run, rest)| Some((RunId::parse(run)?, rest)));
    marked.map_or((None, text), |(run, rest)| (Some(run), rest))
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64URL_NOPAD.encode(&self.bytes()))
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_names_its_run_and_any_other_text_names_none() {
        let run = RunId::new([7; 8]).unwrap();
        assert_eq!(split_mark(&run.mark("sealed")), (Some(run), "sealed"));
        assert_eq!(RunId::new([0; 8]), None);
        for text in ["", "sealed", ".sealed", "AAAAAAAAAAA.sealed", "short.sealed", "%%%%%%%%%%%.x"] {
            assert_eq!(split_mark(text), (None, text), "{text}");
        }
    }
}
