//! Reads the records of all chains together, the latest first. No state is kept from one reading to
//! the next; memory holds one block of each open chain.
//!
//! A chain is opened only when the reading reaches the time of its last write, so that the many
//! short chains of `headend stdio` cost one open file at a time. The order is that of the records'
//! dates; in a chain whose clock went back, that of its lines.

use std::collections::BTreeMap;
use std::io;

use super::backwards::{BackwardReader, BackwardStart, LinePlace};
use super::files::{LogFolder, LogSegment};
use crate::policy::records::chain::{AuditLine, date_of, timestamp};

/// Most chains that are open at once; further ones are skipped and counted.
const MAX_CHAINS: usize = 64;

/// The amount that was read, and the damage that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadingTally {
    pub bytes: u64,
    pub lines: u64,
    /// Lines that are no valid records.
    pub damaged: u64,
    /// Place of the first damaged line.
    pub example: Option<String>,
    /// Chains that could not be read.
    pub unread: u64,
    /// The last reason why a chain could not be read.
    pub why: Option<String>,
}

/// The beginning of a reading.
#[derive(Clone, Debug)]
pub enum ReadingStart {
    /// The latest record.
    Latest,
    /// The last record before this date, in the format of records.
    Before(String),
    /// The place where another reading stopped.
    After(LogCursor),
}

/// The place where a reading stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogCursor {
    /// Date of the last record that was read.
    pub date: String,
    /// Place of the last line that was read in each open chain.
    pub places: Vec<LinePlace>,
}

/// A line of the log.
#[expect(clippy::large_enum_variant, reason = "one at a time, and nearly all are records")]
pub enum FoundLine<'l> {
    Record { line: AuditLine<'l>, chain: &'l str },
    Damaged,
}

/// A chain, open or not.
#[derive(Debug)]
struct ChainPosition {
    name: String,
    segments: Vec<LogSegment>,
    from: BackwardStart,
    reader: Option<BackwardReader>,
    /// Upper bound of the dates of its remaining records.
    date: String,
}

/// A reading of the log, backwards.
#[derive(Debug)]
pub struct LogReading {
    folder: LogFolder,
    /// The chains with lines left, in no order.
    chains: Vec<ChainPosition>,
    /// Bytes read from chains that have ended.
    bytes: u64,
    /// Index of the chain of the current line.
    at: Option<usize>,
    tally: ReadingTally,
}

impl LogReading {
    /// Begins a reading. A missing folder has no records.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn begin(folder: LogFolder, begin: &ReadingStart) -> io::Result<Self> {
        let mut chains = Vec::new();
        for (name, segments) in folder.chains()? {
            let written = segments.last().and_then(|last| folder.piece(last).ok()).map_or(u64::MAX, |piece| piece.last);
            // A file's time is that of the kernel's last tick, so it may be slightly early.
            let mut date = timestamp(written.saturating_add(1000));
            let from = match begin {
                ReadingStart::Latest => BackwardStart::End,
                ReadingStart::Before(before) => BackwardStart::Date(before.clone()),
                ReadingStart::After(cursor) => {
                    let place = cursor.places.iter().find(|place| place.segment.chain == name);
                    place.map_or_else(
                        || BackwardStart::Date(cursor.date.clone()),
                        |place| BackwardStart::Before(place.clone()),
                    )
                }
            };
            if let ReadingStart::Before(before) | ReadingStart::After(LogCursor { date: before, .. }) = begin {
                date = date.min(before.clone());
            }
            chains.push(ChainPosition { name, segments, from, reader: None, date });
        }
        Ok(Self { folder, chains, bytes: 0, at: None, tally: ReadingTally::default() })
    }

    /// Moves to the next line, the latest of all that are left, and returns it; `None` at the
    /// beginning of the log. Damaged lines are counted.
    pub fn next(&mut self) -> Option<FoundLine<'_>> {
        if let Some(at) = self.at.take() {
            self.step(at);
        }
        let at = loop {
            let latest = self.chains.iter().enumerate().max_by(|(_, one), (_, other)| one.date.cmp(&other.date));
            let (at, chain) = latest?;
            if chain.reader.is_some() {
                break at;
            }
            self.open(at);
        };
        self.at = Some(at);
        self.tally.lines += 1;
        let chain = self.chains.get(at)?;
        let reader = chain.reader.as_ref()?;
        Some(match AuditLine::read(reader.line()) {
            Some(line) => FoundLine::Record { line, chain: &chain.name },
            None => {
                self.tally.damaged += 1;
                if self.tally.example.is_none() {
                    let place = reader.place();
                    self.tally.example =
                        place.map(|place| format!("{}, at byte {}", place.segment.name(), place.offset));
                }
                FoundLine::Damaged
            }
        })
    }

    /// Opens a chain and moves to its first line; drops the chain if it cannot be read or too many
    /// are open.
    fn open(&mut self, at: usize) {
        let open = self.chains.iter().filter(|chain| chain.reader.is_some()).count();
        let Some(chain) = self.chains.get_mut(at) else { return };
        if open >= MAX_CHAINS {
            let why = format!("more than {MAX_CHAINS} chains were written at the same time");
            return self.leave(at, Some(why));
        }
        match BackwardReader::begin(&self.folder, std::mem::take(&mut chain.segments), &chain.from) {
            Ok(reader) => {
                chain.reader = Some(reader);
                self.step(at);
            }
            Err(error) => self.leave(at, Some(error.to_string())),
        }
    }

    /// Moves to the previous line of a chain; drops the chain at its beginning or if it cannot be
    /// read.
    fn step(&mut self, at: usize) {
        let Some(chain) = self.chains.get_mut(at) else { return };
        let Some(reader) = &mut chain.reader else { return };
        loop {
            match reader.step(&self.folder) {
                Ok(true) => {
                    // A line without a date keeps its neighbour's date.
                    if let Some(date) = date_of(reader.line()) {
                        if let BackwardStart::Date(before) = &chain.from
                            && date >= before.as_str()
                        {
                            continue;
                        }
                        // The date filter is done: only the first lines that are read can have that
                        // date or a later one.
                        chain.from = BackwardStart::End;
                        date.clone_into(&mut chain.date);
                    }
                    return;
                }
                Ok(false) => return self.leave(at, None),
                Err(error) => {
                    let why = error.to_string();
                    return self.leave(at, Some(why));
                }
            }
        }
    }

    /// Drops a chain. `why` is set if it could not be read.
    fn leave(&mut self, at: usize, why: Option<String>) {
        let chain = self.chains.swap_remove(at);
        self.bytes += chain.reader.map_or(0, |reader| reader.bytes);
        if why.is_some() {
            self.tally.unread += 1;
            self.tally.why = why;
        }
    }

    /// Returns the counts so far.
    pub fn tally(&self) -> ReadingTally {
        let open = self.chains.iter().filter_map(|chain| chain.reader.as_ref());
        ReadingTally { bytes: self.bytes + open.map(|reader| reader.bytes).sum::<u64>(), ..self.tally.clone() }
    }

    /// Returns the bytes read so far.
    pub fn bytes(&self) -> u64 {
        let open = self.chains.iter().filter_map(|chain| chain.reader.as_ref());
        self.bytes + open.map(|reader| reader.bytes).sum::<u64>()
    }

    /// Returns the date of the current line.
    pub fn date(&self) -> Option<&str> {
        Some(self.chains.get(self.at?)?.date.as_str())
    }

    /// Returns the place from which another reading continues behind the current line.
    pub fn cursor(&self) -> Option<LogCursor> {
        let date = self.date()?.to_owned();
        let mut places: BTreeMap<String, LinePlace> = BTreeMap::new();
        for (at, chain) in self.chains.iter().enumerate() {
            let Some(mut place) = chain.reader.as_ref().and_then(BackwardReader::place) else { continue };
            if Some(at) != self.at {
                // The current line of every other chain is still to be read, so the cursor includes
                // it.
                place.offset =
                    place.offset.saturating_add(chain.reader.as_ref().map_or(0, |r| r.line().len() as u64 + 1));
            }
            places.insert(place.segment.chain.clone(), place);
        }
        Some(LogCursor { date, places: places.into_values().collect() })
    }
}

impl LogCursor {
    /// Most chains in an encoded cursor; further chains continue by its date.
    const MOST: usize = 8;

    /// Encodes the cursor for the address of a page.
    pub fn encode(&self) -> String {
        let mut out = self.date.clone();
        for LinePlace { segment, offset } in self.places.iter().take(Self::MOST) {
            out.push_str(&format!("~{}.{}.{offset}", segment.chain, segment.number));
        }
        out
    }

    /// Decodes the text of [`Self::encode`]. Any text is safe, since its names are only compared
    /// with those of the log's own chains.
    pub fn decode(text: &str) -> Option<Self> {
        let mut parts = text.split('~');
        let date = parts.next().filter(|date| is_date(date))?.to_owned();
        let place = |part: &str| {
            let mut words = part.rsplitn(3, '.');
            let (offset, number, chain) = (words.next()?, words.next()?, words.next()?);
            let segment = LogSegment { chain: chain.to_owned(), number: number.parse().ok()? };
            Some(LinePlace { segment, offset: offset.parse().ok()? })
        };
        let places = parts.take(Self::MOST).map(place).collect::<Option<_>>()?;
        Some(Self { date, places })
    }
}

/// Returns true if a text has the form of a record's date.
fn is_date(text: &str) -> bool {
    let form = "0000-00-00T00:00:00.000Z";
    let same = |(c, form): (char, char)| if form == '0' { c.is_ascii_digit() } else { c == form };
    text.len() == form.len() && text.is_ascii() && text.chars().zip(form.chars()).all(same)
}

#[cfg(test)]
mod tests;
