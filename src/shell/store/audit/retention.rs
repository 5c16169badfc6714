//! Removal of old files of the log, if the operator set a bound.
//!
//! A process removes the oldest files of its own chain, but never the one that it writes, and whole
//! chains of `headend stdio` and of commands that have ended: their files are locked as long as
//! their process lives. A separate thread reads the files first. The record of their removal says
//! which records go, what the last one is, and what was wrong with them. The writer puts that
//! record and the head on disk, and only then removes the files (`writer`).

use std::fs::File;
use std::io;
use std::time::Duration;

use super::files::{LogFolder, LogSegment};
use crate::policy::RecordRemoval;
use crate::policy::records::chain::{ChainHead, ChainVerifier, LogPiece, RetentionBounds, date_of, order_times};

/// Prefix of the chains that end with their process.
const PASSING: &str = "s-";
/// Time after its last write in which a chain is left alone: its process may not have locked it
/// yet.
const QUIET: Duration = Duration::from_secs(60);

/// Files to be removed once the removal is recorded. Their locks are held until then.
#[derive(Debug)]
pub(super) struct RetiredFiles {
    pub(super) removal: RecordRemoval,
    pub(super) segments: Vec<LogSegment>,
    /// True if nothing of the chain is left after the removal.
    pub(super) is_whole: bool,
    _locks: Vec<File>,
}

/// A unit of removal: one file of the own chain, or all files of another chain.
struct RemovalCandidate {
    piece: LogPiece,
    segments: Vec<LogSegment>,
    locks: Vec<File>,
}

/// Finds the files that the bounds allow to be removed, and reads them. `current` is the segment
/// that is written, `now` is in milliseconds since 1970.
///
/// # Errors
/// When a file cannot be read; then nothing is removed.
pub(super) fn find_retired(
    folder: &LogFolder,
    retain: &RetentionBounds,
    current: &LogSegment,
    now: u64,
) -> io::Result<Vec<RetiredFiles>> {
    let mut kept = 0;
    let mut stays = Vec::new();
    let mut candidates: Vec<RemovalCandidate> = Vec::new();
    for (chain, segments) in folder.chains()? {
        let pieces: Vec<LogPiece> = segments.iter().map(|segment| folder.piece(segment)).collect::<io::Result<_>>()?;
        if chain == current.chain {
            let own = pieces.iter().zip(segments);
            let (before, rest): (Vec<_>, Vec<_>) = own.partition(|(_, segment)| segment.number < current.number);
            kept += rest.iter().map(|(piece, _)| piece.bytes).sum::<u64>();
            stays = rest.into_iter().map(|(_, segment)| segment).collect();
            let mut ordered: Vec<LogPiece> = before.iter().map(|(piece, _)| **piece).collect();
            order_times(&mut ordered);
            let one = |(piece, (_, segment))| RemovalCandidate { piece, segments: vec![segment], locks: Vec::new() };
            candidates.extend(ordered.into_iter().zip(before).map(one));
            continue;
        }
        let bytes = pieces.iter().map(|piece| piece.bytes).sum();
        let last = pieces.iter().map(|piece| piece.last).max().unwrap_or(now);
        let is_quiet = u128::from(last) + QUIET.as_millis() <= u128::from(now);
        let locks = if chain.starts_with(PASSING) && is_quiet { lock_all(folder, &segments) } else { None };
        match locks {
            Some(locks) => candidates.push(RemovalCandidate { piece: LogPiece { bytes, last }, segments, locks }),
            None => kept += bytes,
        }
    }
    candidates.sort_by_key(|candidate| candidate.piece.last);
    let pieces: Vec<LogPiece> = candidates.iter().map(|candidate| candidate.piece).collect();
    let is_own = |candidate: &RemovalCandidate| candidate.segments.iter().any(|segment| segment.chain == current.chain);
    let later = candidates.split_off(retain.expired(&pieces, kept, now));
    let (own, others): (Vec<RemovalCandidate>, Vec<RemovalCandidate>) = candidates.into_iter().partition(is_own);
    let own: Vec<LogSegment> = own.into_iter().flat_map(|candidate| candidate.segments).collect();
    let next = later
        .iter()
        .filter(|candidate| is_own(candidate))
        .flat_map(|candidate| &candidate.segments)
        .chain(&stays)
        .next();
    let mut retired = Vec::new();
    if let Some(removal) = build_removal(folder, &own, next)? {
        retired.push(RetiredFiles { removal, segments: own, is_whole: false, _locks: Vec::new() });
    }
    for RemovalCandidate { segments, locks, .. } in others {
        if let Some(removal) = build_removal(folder, &segments, None)? {
            retired.push(RetiredFiles { removal, segments, is_whole: true, _locks: locks });
        }
    }
    Ok(retired)
}

/// Locks all files of a chain, which shows that its process has ended; `None` if one is locked by
/// another process.
fn lock_all(folder: &LogFolder, segments: &[LogSegment]) -> Option<Vec<File>> {
    let lock = |segment: &LogSegment| {
        let file = folder.read(segment).ok()?;
        file.try_lock().ok()?;
        Some(file)
    };
    segments.iter().map(lock).collect()
}

/// Reads files and builds the record of their removal. `next` is the file that stays behind them;
/// if it has no record yet, the last removed record is the end of the chain. Returns `None` if
/// there is no record, or the range of the records would not be certain.
fn build_removal(
    folder: &LogFolder,
    segments: &[LogSegment],
    next: Option<&LogSegment>,
) -> io::Result<Option<RecordRemoval>> {
    let Some(first) = segments.first() else { return Ok(None) };
    let mut reader = ChainVerifier::new(&first.chain, Vec::new()).beginning_anywhere();
    let (mut begin, mut since, mut to) = (None, None, None);
    for segment in segments {
        reader.segment(&segment.name());
        folder.lines(segment, |line, is_whole| {
            if !is_whole {
                return reader.rest(line);
            }
            reader.line(line);
            begin = begin.or_else(|| ChainHead::before_line(line));
            let date = date_of(line).map(str::to_owned);
            since = since.take().or_else(|| date.clone());
            to = date.or_else(|| to.take());
        })?;
    }
    let mut follows = None;
    if let Some(next) = next {
        folder.lines(next, |line, _| follows = follows.or_else(|| ChainHead::before_line(line)))?;
    }
    let end = follows.or_else(|| (!reader.is_broken()).then(|| reader.head()));
    let (Some(begin), Some(end)) = (begin, end) else { return Ok(None) };
    Ok(Some(RecordRemoval {
        chain: first.chain.clone(),
        from: begin.seq + 1,
        until: end.seq,
        hash: end.hash,
        since: since.unwrap_or_default(),
        to: to.unwrap_or_default(),
        files: segments.len() as u64,
        bad: reader.end().err().map(|bad| bad.to_string()),
        mac: String::new(),
    }))
}
