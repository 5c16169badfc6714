//! Verification of the log on disk, whether or not a daemon writes it meanwhile.

use std::io;
use std::str::FromStr;

use super::files::{LogFolder, LogSegment};
use crate::policy::records::chain::{BadRecord, ChainHead, ChainVerifier, LogSettings, RecordDefect, SoundLog};
use crate::policy::{Digest, RecordRemoval};
use crate::store::port::AuditHead;

/// How often a chain is read again because its oldest files are removed meanwhile, at most.
const REMOVALS: usize = 50;

/// A record that is known from elsewhere, written as `CHAIN:SEQ:HASH`; the log must have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownRecord {
    chain: String,
    head: ChainHead,
}

impl KnownRecord {
    pub fn chain(&self) -> &str {
        &self.chain
    }
}

impl FromStr for KnownRecord {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.rsplitn(3, ':');
        let hash = parts.next().and_then(Digest::from_hex);
        let seq = parts.next().and_then(|seq| seq.parse().ok());
        match (parts.next(), seq, hash) {
            (Some(chain), Some(seq), Some(hash)) if !chain.is_empty() => {
                Ok(Self { chain: chain.to_owned(), head: ChainHead { seq, hash } })
            }
            _ => {
                Err("write CHAIN:SEQ:HASH, as the journal's line has it: main:1000:<64 hexadecimal digits>".to_owned())
            }
        }
    }
}

impl From<AuditHead> for KnownRecord {
    fn from(kept: AuditHead) -> Self {
        Self { chain: kept.chain, head: kept.head }
    }
}

/// The verdict on one chain.
#[derive(Debug)]
pub struct ChainReport {
    pub chain: String,
    pub segments: usize,
    /// Removals of old records that the chain tells of, its own and those of other chains, oldest
    /// first.
    pub removals: Vec<RecordRemoval>,
    /// The sound chain, or its first bad record.
    pub verdict: Result<SoundLog, BadRecord>,
}

/// Verifies every chain of the log. `anchors` must have been read before the call, so that they are
/// not newer than the files. With `archived`, a chain may begin anywhere, since its first records
/// may be stored elsewhere. `form` has the installation's key, if its store is at hand.
///
/// A chain may begin later if it tells itself that its first records were removed, and a chain that
/// the store knows may be missing if another chain that the store knows tells of its removal. Both
/// count only with the installation's MAC if `form` is there: anyone can add lines.
///
/// # Errors
/// When a file cannot be read.
pub fn verify(
    folder: &LogFolder,
    anchors: &[KnownRecord],
    form: Option<&LogSettings>,
    archived: bool,
) -> io::Result<Vec<ChainReport>> {
    let mut chains = folder.chains()?;
    for anchor in anchors {
        // A chain that is known and has no files left is reported as missing, unless all of it may
        // be archived.
        if !archived && anchor.head.seq != 0 {
            chains.entry(anchor.chain.clone()).or_default();
        }
    }
    let known_of = |chain: &str| -> Vec<ChainHead> {
        anchors.iter().filter(|anchor| anchor.chain == chain).map(|anchor| anchor.head).collect()
    };
    let mut reports = Vec::new();
    for (chain, segments) in chains {
        reports.push(verify_chain(folder, &chain, segments, (&known_of(&chain), form), archived)?);
    }
    let is_known = |report: &&ChainReport| report.verdict.is_ok() && !known_of(&report.chain).is_empty();
    let told: Vec<RecordRemoval> = reports.iter().filter(is_known).flat_map(|report| report.removals.clone()).collect();
    for report in reports.iter_mut().filter(|report| lacks_its_beginning(report)) {
        let of_chain = told.iter().filter(|removal| removal.chain == report.chain);
        let removed: Vec<ChainHead> = of_chain.map(removal_head).collect();
        if removed.is_empty() {
            continue;
        }
        let reader = ChainVerifier::new(&report.chain, known_of(&report.chain)).beginning_after(removed);
        let segments = folder.chains()?.remove(&report.chain).unwrap_or_default();
        *report = read_segments(folder, &report.chain, &segments, form, reader)?;
    }
    explain_gone(&mut reports, &told, &known_of);
    Ok(reports)
}

/// Marks a chain without files as sound if its last known record is covered by a removal that
/// another chain tells of.
fn explain_gone(reports: &mut [ChainReport], told: &[RecordRemoval], known_of: &dyn Fn(&str) -> Vec<ChainHead>) {
    for report in reports.iter_mut().filter(|report| report.segments == 0) {
        let known = known_of(&report.chain);
        let covers = |removal: &&RecordRemoval| {
            let last = removal_head(removal);
            removal.chain == report.chain && known.iter().all(|known| known.seq < last.seq || *known == last)
        };
        if let Some(removal) = told.iter().find(covers) {
            let head = removal_head(removal);
            report.verdict = Ok(SoundLog { head, torn: false, after: Some(head) });
            report.removals.push(removal.clone());
        }
    }
}

fn removal_head(removal: &RecordRemoval) -> ChainHead {
    ChainHead { seq: removal.until, hash: removal.hash }
}

/// Reads and verifies the files of one chain, which may be written meanwhile. `known` are records
/// that the chain must have, and the settings whose key signs removals. With `archived`, the chain
/// may begin with any record.
///
/// A first defect may be half a write or its undoing, so the chain is listed and read a second
/// time. It is read again as long as its oldest files are removed meanwhile, [`REMOVALS`] times at
/// most. A real defect stays, and is in the report.
///
/// # Errors
/// When a file cannot be read.
fn verify_chain(
    folder: &LogFolder,
    chain: &str,
    mut segments: Vec<LogSegment>,
    known: (&[ChainHead], Option<&LogSettings>),
    archived: bool,
) -> io::Result<ChainReport> {
    let mut is_second = false;
    for _ in 0..REMOVALS {
        let report = verify_once(folder, chain, &segments, known, archived);
        let is_final = match &report {
            Ok(report) => report.verdict.is_ok(),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        };
        if is_final {
            return report;
        }
        let newest = folder.chains()?.remove(chain).unwrap_or_default();
        if is_second && newest.first() == segments.first() {
            return report;
        }
        is_second = true;
        segments = newest;
    }
    verify_once(folder, chain, &segments, known, archived)
}

/// Verifies one chain without a retry. If its first records are missing and it records their
/// removal itself, reads it once more and allows it to begin after that removal. Parameters and
/// errors are those of [`verify_chain`].
fn verify_once(
    folder: &LogFolder,
    chain: &str,
    segments: &[LogSegment],
    (known, form): (&[ChainHead], Option<&LogSettings>),
    archived: bool,
) -> io::Result<ChainReport> {
    let reader = ChainVerifier::new(chain, known.to_vec());
    let reader = if archived { reader.beginning_anywhere() } else { reader };
    let report = read_segments(folder, chain, segments, form, reader)?;
    let removed: Vec<ChainHead> =
        report.removals.iter().filter(|removal| removal.chain == chain).map(removal_head).collect();
    let begins_later =
        report.verdict.as_ref().is_err_and(|bad| bad.line == 1 && bad.what == RecordDefect::Removed { from: 1 });
    if !begins_later || removed.is_empty() {
        return Ok(report);
    }
    // The second verdict includes that the records of the removals belong to the chain.
    let again = read_segments(
        folder,
        chain,
        segments,
        form,
        ChainVerifier::new(chain, known.to_vec()).beginning_after(removed),
    )?;
    Ok(if again.verdict.is_ok() || !lacks_its_beginning(&again) { again } else { report })
}

/// Returns true if the chain's defect is that records are missing before its first one.
fn lacks_its_beginning(report: &ChainReport) -> bool {
    report.verdict.as_ref().is_err_and(|bad| bad.what == RecordDefect::Removed { from: 1 })
}

/// Passes the lines of the segments to the verifier, and reports its verdict and the removals that
/// the lines record. With `form`, only removals with the installation's MAC are collected.
fn read_segments(
    folder: &LogFolder,
    chain: &str,
    segments: &[LogSegment],
    form: Option<&LogSettings>,
    mut reader: ChainVerifier,
) -> io::Result<ChainReport> {
    if segments.is_empty() {
        reader.segment(&LogSegment { chain: chain.to_owned(), number: 1 }.name());
    }
    let mut removals = Vec::new();
    for segment in segments {
        reader.segment(&segment.name());
        folder.lines(segment, |line, is_whole| {
            if !is_whole {
                return reader.rest(line);
            }
            let removal = RecordRemoval::of_line(line);
            removals.extend(removal.filter(|removal| form.is_none_or(|form| form.vouches(removal))));
            reader.line(line);
        })?;
    }
    Ok(ChainReport { chain: chain.to_owned(), segments: segments.len(), removals, verdict: reader.end() })
}
