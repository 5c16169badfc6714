//! Verification of the log on disk, with or without a daemon that writes it.

use std::io::{self, BufRead as _, BufReader};
use std::str::FromStr;

use super::files::{Folder, Segment};
use super::heads::Kept;
use crate::policy::Digest;
use crate::policy::chain::{Bad, Head, Reader, Sound};

/// A record that is known from elsewhere, written `CHAIN:SEQ:HASH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Anchor {
    chain: String,
    head: Head,
}

impl FromStr for Anchor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.rsplitn(3, ':');
        let hash = parts.next().and_then(Digest::from_hex);
        let seq = parts.next().and_then(|seq| seq.parse().ok());
        match (parts.next(), seq, hash) {
            (Some(chain), Some(seq), Some(hash)) if !chain.is_empty() => {
                Ok(Self { chain: chain.to_owned(), head: Head { seq, hash } })
            }
            _ => {
                Err("write CHAIN:SEQ:HASH, as the journal's line has it: main:1000:<64 hexadecimal digits>".to_owned())
            }
        }
    }
}

impl From<Kept> for Anchor {
    fn from(kept: Kept) -> Self {
        Self { chain: kept.chain, head: kept.head }
    }
}

/// The result for one chain.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) chain: String,
    pub(crate) segments: usize,
    /// The first bad record, where there is one.
    pub(crate) verdict: Result<Sound, Bad>,
}

/// Verifies every chain. `anchors` must have been read before the call, so that they are not newer than the files.
/// `archived`: what chains began with may be elsewhere.
///
/// # Errors
/// When a file cannot be read.
pub(crate) fn verify(folder: &Folder, anchors: &[Anchor], archived: bool) -> io::Result<Vec<Report>> {
    let mut chains = folder.chains()?;
    for anchor in anchors {
        // A chain of which nothing is left is missed all the same, unless all of it may be elsewhere.
        if !archived && anchor.head.seq != 0 {
            chains.entry(anchor.chain.clone()).or_default();
        }
    }
    let mut reports = Vec::new();
    for (chain, segments) in chains {
        let known: Vec<Head> =
            anchors.iter().filter(|anchor| anchor.chain == chain).map(|anchor| anchor.head).collect();
        let mut report = one(folder, &chain, &segments, known.clone(), archived)?;
        if report.verdict.is_err() {
            // The log may have been read in the middle of a write or of its undoing; a real defect stays.
            let segments = folder.chains()?.remove(&chain).unwrap_or_default();
            report = one(folder, &chain, &segments, known, archived)?;
        }
        reports.push(report);
    }
    Ok(reports)
}

fn one(folder: &Folder, chain: &str, segments: &[Segment], known: Vec<Head>, archived: bool) -> io::Result<Report> {
    let mut reader = Reader::new(chain, known);
    if archived {
        reader = reader.beginning_anywhere();
    }
    if segments.is_empty() {
        reader.segment(&Segment { chain: chain.to_owned(), number: 1 }.name());
    }
    let mut text = Vec::new();
    for segment in segments {
        reader.segment(&segment.name());
        let mut file = BufReader::with_capacity(1 << 16, folder.read(segment)?);
        loop {
            text.clear();
            if file.read_until(b'\n', &mut text)? == 0 {
                break;
            }
            match text.strip_suffix(b"\n") {
                Some(line) => reader.line(line),
                None => reader.rest(&text),
            }
        }
    }
    Ok(Report { chain: chain.to_owned(), segments: segments.len(), verdict: reader.end() })
}
