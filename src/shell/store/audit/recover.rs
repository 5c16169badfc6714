//! Recovery of the audit log at the start: finds the end of the chain, cuts off a torn line, and
//! notices a log that was changed or cut.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

use super::files::{LogFolder, LogSegment};
use crate::policy::AuditEntry;
use crate::policy::records::chain::{ChainHead, ChainVerifier, ChainWriter};
use crate::store::port::AuditHead;

/// Bytes at the end of the last segment that are verified at the start; several times the longest
/// line.
const TAIL: u64 = 4 << 20;

/// A log that is ready to be written.
#[derive(Debug)]
pub(super) struct ChainStart {
    pub(super) chain: ChainWriter,
    pub(super) segment: LogSegment,
    pub(super) file: File,
    /// Bytes in the segment.
    pub(super) length: u64,
    /// Records of the log about its own state, to be written first.
    pub(super) notes: Vec<AuditEntry>,
}

/// The verified end of one segment.
#[derive(Debug)]
struct SegmentScan {
    /// Last record of the sound part; `None` if it has none.
    head: Option<ChainHead>,
    /// Offset of the end of that record.
    sound: u64,
    length: u64,
    /// True if the bytes behind `sound` are less than a line.
    torn: bool,
    /// True if the record that the store kept is in the verified part.
    has_kept: bool,
}

/// Finds the end of a chain, or begins it.
pub(super) fn resume(folder: &LogFolder, chain: &str, kept: Option<&AuditHead>) -> io::Result<ChainStart> {
    let segments = folder.chains()?.remove(chain).unwrap_or_default();
    let Some(last) = segments.last() else {
        return match kept {
            None => create_segment(folder, chain, 1, ChainHead::none(chain), Vec::new()),
            Some(kept) => begin_after_damage(folder, chain, 0, ChainHead::none(chain), kept),
        };
    };
    let mut scan = verify_tail(folder, last, kept)?;
    let mut head = scan.head;
    // A segment that was created and never written: the chain's end is in an earlier one.
    for earlier in segments.iter().rev().skip(1) {
        if head.is_some() {
            break;
        }
        let before = verify_tail(folder, earlier, kept)?;
        head = before.head;
        scan.has_kept |= before.has_kept;
    }
    let head = head.unwrap_or_else(|| ChainHead::none(chain));
    // Everything up to the kept record was synced to disk, so a crash does not explain its absence.
    if let Some(kept) = kept
        && !scan.has_kept
        && (head.seq < kept.head.seq || !is_in_its_segment(folder, kept)?)
    {
        return begin_after_damage(folder, chain, last.number, head, kept);
    }
    let mut notes = Vec::new();
    if kept.is_none() && head.seq != 0 {
        let why = format!("nothing is known of records after {}: the store kept no head", head.seq);
        notes.push(AuditEntry::gateway("no-head", why));
    }
    let over = scan.length.saturating_sub(scan.sound);
    if over == 0 || scan.torn || kept.is_some() {
        let file = folder.append(last)?;
        if over != 0 {
            file.set_len(scan.sound)?;
            tracing::warn!(segment = %last.name(), bytes = over, "a torn record was cut off the audit log");
            notes.push(AuditEntry::gateway("recovered", format!("recovered a torn record: {over} bytes were cut off")));
        }
        let chain = ChainWriter::after(head);
        return Ok(ChainStart { chain, segment: last.clone(), file, length: scan.sound, notes });
    }
    tracing::error!(segment = %last.name(), "the end of the audit log was changed; `headend audit verify` names the record");
    notes.push(AuditEntry::gateway("damaged", format!("records after {} are not what was written", head.seq)));
    create_segment(folder, chain, last.number + 1, head, notes)
}

/// The log is not the one that was left. What is there stays as it is; the chain goes on with what
/// the store expected, which no record of the log fits.
fn begin_after_damage(
    folder: &LogFolder,
    chain: &str,
    last: u32,
    head: ChainHead,
    kept: &AuditHead,
) -> io::Result<ChainStart> {
    let expected = ChainHead { seq: kept.head.seq.max(head.seq), hash: kept.head.hash };
    tracing::error!(
        audit.chain = chain,
        expected = %kept.head,
        found = %head,
        "the audit log was cut, changed or rolled back; `headend audit verify` names the place"
    );
    let why = format!("the log was cut, changed or rolled back: it ends at {head}, where {} was known", kept.head);
    let number = LogSegment::parse(&kept.segment).map_or(0, |segment| segment.number).max(last);
    create_segment(folder, chain, number + 1, expected, vec![AuditEntry::gateway("cut", why)])
}

/// Creates a segment that continues a chain after `head`.
fn create_segment(
    folder: &LogFolder,
    chain: &str,
    number: u32,
    head: ChainHead,
    notes: Vec<AuditEntry>,
) -> io::Result<ChainStart> {
    let segment = LogSegment { chain: chain.to_owned(), number };
    let file = folder.create(&segment)?;
    Ok(ChainStart { chain: ChainWriter::after(head), segment, file, length: 0, notes })
}

fn verify_tail(folder: &LogFolder, segment: &LogSegment, kept: Option<&AuditHead>) -> io::Result<SegmentScan> {
    let mut file = folder.read(segment)?;
    let length = file.metadata()?.len();
    let mut from = length.saturating_sub(TAIL);
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.take(TAIL).read_to_end(&mut tail)?;
    let mut rest = tail.as_slice();
    if from != 0 {
        let skipped = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
        rest = rest.get(skipped..).unwrap_or_default();
        from += skipped as u64;
    }
    let mut reader = ChainVerifier::new(&segment.chain, Vec::new()).beginning_anywhere();
    let mut scan = SegmentScan { head: None, sound: from, length, torn: true, has_kept: false };
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        reader.line(rest.get(..end).unwrap_or_default());
        if reader.is_broken() {
            scan.torn = false;
            break;
        }
        let head = reader.head();
        scan.head = Some(head);
        scan.sound += end as u64 + 1;
        scan.has_kept |= kept.is_some_and(|kept| kept.head == head);
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    Ok(scan)
}

/// Whether the kept record is where it was; for logs that grew by much after it was kept.
fn is_in_its_segment(folder: &LogFolder, kept: &AuditHead) -> io::Result<bool> {
    if kept.head.seq == 0 {
        return Ok(true);
    }
    let Some(segment) = LogSegment::parse(&kept.segment).filter(|segment| segment.chain == kept.chain) else {
        return Ok(false);
    };
    let mut text = Vec::new();
    match folder.read(&segment) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => {
            file?.read_to_end(&mut text)?;
        }
    }
    Ok(text.split(|byte| *byte == b'\n').any(|line| ChainHead::of_line(line) == Some(kept.head)))
}
