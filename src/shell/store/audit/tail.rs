//! Follows the audit log: reads its last lines, then the lines that are added.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Seek as _, SeekFrom};

use super::files::{LogFolder, LogSegment};

/// Bytes of one read.
const CHUNK: u64 = 1 << 20;

/// A follower of all chains of a log.
#[derive(Debug)]
pub struct LogTail {
    folder: LogFolder,
    /// The place up to which each chain was read.
    read: BTreeMap<String, (LogSegment, u64)>,
}

impl LogTail {
    /// Reads the last lines that match `wanted`, at most `count` of each chain, chain by chain.
    /// Following continues behind the last whole line.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn begin(folder: LogFolder, count: usize, wanted: &dyn Fn(&str) -> bool) -> io::Result<(Self, Vec<String>)> {
        let mut tail = Self { folder, read: BTreeMap::new() };
        let mut lines = Vec::new();
        for (chain, segments) in tail.folder.chains()? {
            let mut found: Vec<String> = Vec::new();
            for segment in segments.iter().rev() {
                let mut text = Vec::new();
                tail.folder.read(segment)?.read_to_end(&mut text)?;
                let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                text.truncate(whole);
                tail.read.entry(chain.clone()).or_insert_with(|| (segment.clone(), whole as u64));
                let text = String::from_utf8_lossy(&text);
                found.extend(
                    text.lines().rev().filter(|line| wanted(line)).take(count - found.len()).map(str::to_owned),
                );
                if found.len() == count {
                    break;
                }
            }
            lines.extend(found.into_iter().rev());
        }
        Ok((tail, lines))
    }

    /// Reads the whole lines that were added since the last call, chain by chain. Empty if there
    /// are none.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn more(&mut self) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        for (chain, segments) in self.folder.chains()? {
            for segment in segments {
                let (at, read) = self.read.entry(chain.clone()).or_insert_with(|| (segment.clone(), 0));
                if segment < *at {
                    continue;
                }
                if segment > *at {
                    (*at, *read) = (segment.clone(), 0);
                }
                *read += whole_lines(&self.folder, &segment, *read, &mut lines)?;
            }
        }
        Ok(lines)
    }
}

/// Reads whole lines from the offset `from` on; returns their length in bytes.
fn whole_lines(folder: &LogFolder, segment: &LogSegment, from: u64, lines: &mut Vec<String>) -> io::Result<u64> {
    let mut file = folder.read(segment)?;
    file.seek(SeekFrom::Start(from))?;
    let mut length = 0;
    loop {
        let mut text = Vec::new();
        file.by_ref().take(CHUNK).read_to_end(&mut text)?;
        let Some(end) = text.iter().rposition(|byte| *byte == b'\n') else { return Ok(length) };
        let whole = text.get(..end).unwrap_or_default();
        lines.extend(String::from_utf8_lossy(whole).lines().map(str::to_owned));
        length += end as u64 + 1;
        file.seek(SeekFrom::Start(from + length))?;
    }
}
