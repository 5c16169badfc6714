//! Reads the lines of one chain backwards from a given place, in blocks. Memory holds one block and
//! the line that ends in it.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

use super::files::{LogFolder, LogSegment};
use crate::policy::records::chain::date_of;

/// Bytes of one read.
const BLOCK: u64 = 256 << 10;
/// Length limit of a line, in bytes; a longer line is damaged. A record has 64 KiB of arguments at
/// most, each byte of which takes up to six in the line.
const MAX_LINE: usize = 1 << 20;
/// Bytes at the beginning of a record that always include its date.
const BEGIN: u64 = 256;

/// The place of a line in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinePlace {
    pub segment: LogSegment,
    /// Offset of the line in the segment, in bytes.
    pub offset: u64,
}

/// The place at which backward reading begins.
#[derive(Clone, Debug)]
pub(super) enum BackwardStart {
    /// The last line of the chain.
    End,
    /// The line before the one at that place.
    Before(LinePlace),
    /// The last line before the first line with that date or a later one.
    Date(String),
}

/// The range in the buffer of the line that was read last.
#[derive(Debug)]
struct LineRange {
    from: usize,
    to: usize,
    is_whole: bool,
}

/// A backward reader of one chain.
#[derive(Debug)]
pub(super) struct BackwardReader {
    /// Segments still to be read, the latest last.
    older: Vec<LogSegment>,
    open: Option<(LogSegment, File)>,
    /// Offset of `buffer` in the file.
    start: u64,
    buffer: Vec<u8>,
    /// Bytes of `buffer` still to be read. They end with a newline, unless a line is being skipped.
    end: usize,
    /// True while the beginning of a line that is too long is skipped.
    skips: bool,
    taken: Option<LineRange>,
    /// Bytes read so far.
    pub(super) bytes: u64,
}

impl BackwardReader {
    /// Opens a reader of one chain; `segments` are all of its segments, in order.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(super) fn begin(folder: &LogFolder, mut segments: Vec<LogSegment>, from: &BackwardStart) -> io::Result<Self> {
        let mut end = None;
        match from {
            BackwardStart::End => {}
            BackwardStart::Before(place) => {
                segments.retain(|segment| *segment <= place.segment);
                end = segments.last().filter(|last| **last == place.segment).map(|_| place.offset);
            }
            BackwardStart::Date(date) => {
                while let Some(last) = segments.last() {
                    let mut first = Vec::new();
                    folder.read(last)?.take(BEGIN).read_to_end(&mut first)?;
                    if date_of(&first).is_some_and(|first| first < date.as_str()) {
                        break;
                    }
                    segments.pop();
                }
            }
        }
        let mut this = Self {
            older: segments,
            open: None,
            start: 0,
            buffer: Vec::new(),
            end: 0,
            skips: false,
            taken: None,
            bytes: 0,
        };
        if this.older.is_empty() {
            return Ok(this);
        }
        this.previous_segment(folder, end)?;
        if let BackwardStart::Date(date) = from {
            this.before_date(date)?;
        }
        Ok(this)
    }

    /// Opens the previous segment, to be read up to the offset `end`, else up to its last newline.
    /// Returns false if there is none.
    fn previous_segment(&mut self, folder: &LogFolder, end: Option<u64>) -> io::Result<bool> {
        self.open = None;
        let Some(segment) = self.older.pop() else { return Ok(false) };
        let file = match folder.read(&segment) {
            // Retention has removed the segment, and so all segments before it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.older.clear();
                return Ok(false);
            }
            file => file?,
        };
        let length = file.metadata()?.len();
        self.start = end.unwrap_or(length).min(length);
        self.open = Some((segment, file));
        self.buffer.clear();
        self.end = 0;
        self.skips = false;
        // Half a line is still being written, or a crash cut it.
        self.end_at_newline()?;
        Ok(true)
    }

    /// Drops all bytes behind the last newline before `start`.
    fn end_at_newline(&mut self) -> io::Result<()> {
        while self.end == 0 && self.start > 0 {
            self.fill()?;
            match self.buffer.get(..self.end).and_then(|text| text.iter().rposition(|byte| *byte == b'\n')) {
                Some(at) => self.end = at + 1,
                None => self.end = 0,
            }
        }
        Ok(())
    }

    /// Moves to the last line before that date by a binary search over the open segment. Its result
    /// is exact to a block, in which the caller skips lines one by one.
    fn before_date(&mut self, date: &str) -> io::Result<()> {
        let Some((_, file)) = &mut self.open else { return Ok(()) };
        let (mut low, mut high) = (0, file.metadata()?.len());
        while high - low > BLOCK {
            let middle = low + (high - low) / 2;
            file.seek(SeekFrom::Start(middle))?;
            let mut text = Vec::new();
            file.by_ref().take(MAX_LINE as u64 + BEGIN).read_to_end(&mut text)?;
            self.bytes += text.len() as u64;
            let line = text.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let found = line.and_then(|line| date_of(text.get(line..)?));
            if found.is_some_and(|found| found < date) {
                low = middle;
            } else {
                high = middle;
            }
        }
        // A line may begin before `high` and end behind it.
        let end = (high + BLOCK + MAX_LINE as u64).min(file.metadata()?.len());
        self.start = end;
        self.buffer.clear();
        self.end = 0;
        self.end_at_newline()
    }

    /// Reads the block before the buffer and puts it in front.
    fn fill(&mut self) -> io::Result<()> {
        let Some((_, file)) = &mut self.open else { return Ok(()) };
        let length = self.start.min(BLOCK);
        let from = self.start - length;
        file.seek(SeekFrom::Start(from))?;
        let mut block = Vec::with_capacity(usize::try_from(length).unwrap_or(0) + self.end);
        file.by_ref().take(length).read_to_end(&mut block)?;
        self.bytes += block.len() as u64;
        // A file that has become shorter is damaged; the bytes behind the gap then form no valid
        // record.
        let read = block.len();
        block.extend_from_slice(self.buffer.get(..self.end).unwrap_or_default());
        self.end += read;
        (self.buffer, self.start) = (block, from);
        Ok(())
    }

    /// Moves to the previous line. Returns false at the chain's beginning.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(super) fn step(&mut self, folder: &LogFolder) -> io::Result<bool> {
        self.taken = None;
        loop {
            if self.open.is_none() {
                return Ok(false);
            }
            if self.end == 0 && self.start == 0 {
                if self.previous_segment(folder, None)? {
                    continue;
                }
                return Ok(false);
            }
            let text = self.buffer.get(..self.end).unwrap_or_default();
            // The newline at the end belongs to the line itself.
            let searched = if self.skips { text } else { text.get(..self.end.saturating_sub(1)).unwrap_or_default() };
            let before = memchr::memrchr(b'\n', searched);
            let is_whole = !self.skips;
            if let Some(from) = before.map(|at| at + 1).or_else(|| (self.start == 0).then_some(0)) {
                let to = if is_whole { self.end.saturating_sub(1) } else { from };
                self.taken = Some(LineRange { from, to, is_whole });
                (self.end, self.skips) = (from, false);
                return Ok(true);
            }
            if self.end > MAX_LINE {
                (self.end, self.skips) = (0, true);
            }
            self.fill()?;
            if self.skips && self.start == 0 && self.end == 0 {
                // The file has become shorter: stop skipping and leave the segment.
                (self.skips, self.start) = (false, 0);
            }
        }
    }

    /// Returns the current line without its newline; an empty one if the line is too long.
    pub(super) fn line(&self) -> &[u8] {
        let taken = self.taken.as_ref().filter(|taken| taken.is_whole);
        taken.and_then(|taken| self.buffer.get(taken.from..taken.to)).unwrap_or_default()
    }

    /// Returns the place of the current line.
    pub(super) fn place(&self) -> Option<LinePlace> {
        let (taken, (segment, _)) = (self.taken.as_ref()?, self.open.as_ref()?);
        Some(LinePlace { segment: segment.clone(), offset: self.start + taken.from as u64 })
    }
}
