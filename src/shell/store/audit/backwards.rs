//! One chain's lines from a place on, the latest first, read in blocks. What is in memory is a block and the line that ends in it.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

use super::files::{Folder, Segment};
use crate::policy::chain::date_of;

/// Bytes that are read at once.
const BLOCK: u64 = 256 << 10;
/// Longer lines are damaged: a record has 64 KiB of arguments at most, each byte of them up to six in the line.
const MAX_LINE: usize = 1 << 20;
/// More bytes than a record needs to say its date.
const BEGIN: u64 = 256;

/// Place of a line in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub segment: Segment,
    /// In bytes.
    pub offset: u64,
}

/// Where to begin.
#[derive(Clone, Debug)]
pub(super) enum From {
    End,
    /// Before the line there.
    Before(Place),
    /// Before the first line of that date or a later one.
    Date(String),
}

/// The line that was taken last.
#[derive(Debug)]
struct Taken {
    from: usize,
    to: usize,
    is_whole: bool,
}

/// Reads one chain backwards.
#[derive(Debug)]
pub(super) struct Backwards {
    /// Segments that were not begun, the latest last.
    older: Vec<Segment>,
    open: Option<(Segment, File)>,
    /// Place of `buffer` in the file.
    start: u64,
    buffer: Vec<u8>,
    /// Bytes of `buffer` that were not taken yet. They end with a newline, unless a line is being skipped.
    end: usize,
    /// A line that is too long is left out up to its beginning.
    skips: bool,
    taken: Option<Taken>,
    /// Bytes that were read.
    pub(super) bytes: u64,
}

impl Backwards {
    /// `segments` are those of one chain, in order.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(super) fn begin(folder: &Folder, mut segments: Vec<Segment>, from: &From) -> io::Result<Self> {
        let mut end = None;
        match from {
            From::End => {}
            From::Before(place) => {
                segments.retain(|segment| *segment <= place.segment);
                end = segments.last().filter(|last| **last == place.segment).map(|_| place.offset);
            }
            From::Date(date) => {
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
        if let From::Date(date) = from {
            this.before_date(date)?;
        }
        Ok(this)
    }

    /// Opens the segment before, up to that place, else up to its last newline. False where there is none.
    fn previous_segment(&mut self, folder: &Folder, end: Option<u64>) -> io::Result<bool> {
        self.open = None;
        let Some(segment) = self.older.pop() else { return Ok(false) };
        let file = match folder.read(&segment) {
            // It was removed by retention, and so were those before it.
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
        // Half a line is being written, or was cut by a crash.
        self.end_at_newline()?;
        Ok(true)
    }

    /// Takes back what stands behind the last newline before `start`.
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

    /// Moves to the last line before that date. Within the block where it lies, lines are skipped one by one.
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

    /// Reads the block before the buffer.
    fn fill(&mut self) -> io::Result<()> {
        let Some((_, file)) = &mut self.open else { return Ok(()) };
        let length = self.start.min(BLOCK);
        let from = self.start - length;
        file.seek(SeekFrom::Start(from))?;
        let mut block = Vec::with_capacity(usize::try_from(length).unwrap_or(0) + self.end);
        file.by_ref().take(length).read_to_end(&mut block)?;
        self.bytes += block.len() as u64;
        // A file that has become shorter is damaged; what follows is of another place and is no line.
        let read = block.len();
        block.extend_from_slice(self.buffer.get(..self.end).unwrap_or_default());
        self.end += read;
        (self.buffer, self.start) = (block, from);
        Ok(())
    }

    /// Goes to the line before. False at the chain's beginning.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(super) fn step(&mut self, folder: &Folder) -> io::Result<bool> {
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
                self.taken = Some(Taken { from, to, is_whole });
                (self.end, self.skips) = (from, false);
                return Ok(true);
            }
            if self.end > MAX_LINE {
                (self.end, self.skips) = (0, true);
            }
            self.fill()?;
            if self.skips && self.start == 0 && self.end == 0 {
                // Nothing could be read where something was.
                (self.skips, self.start) = (false, 0);
            }
        }
    }

    /// The line, without its newline; empty for one that is too long.
    pub(super) fn line(&self) -> &[u8] {
        let taken = self.taken.as_ref().filter(|taken| taken.is_whole);
        taken.and_then(|taken| self.buffer.get(taken.from..taken.to)).unwrap_or_default()
    }

    /// The place of the line.
    pub(super) fn place(&self) -> Option<Place> {
        let (taken, (segment, _)) = (self.taken.as_ref()?, self.open.as_ref()?);
        Some(Place { segment: segment.clone(), offset: self.start + taken.from as u64 })
    }
}
