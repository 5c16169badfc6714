//! Looks records up: those of all chains together, the latest first. Nothing is kept from one look to the next, and what is in memory
//! is a block of each chain that is being read.
//!
//! A chain whose file was written last before the record at hand is not begun yet, so that the many short chains of `headend stdio`
//! cost one open file at a time. Dates are those of the records: where the clock went back, order is by the chain.

use std::collections::BTreeMap;
use std::io;

use super::backwards::{Backwards, From, Place};
use super::files::{Folder, Segment};
use crate::policy::chain::{Line, date_of, timestamp};

/// Chains that are read at the same time; more are left out, and counted.
const MAX_CHAINS: usize = 64;

/// How much was read, and how much of it was damaged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub bytes: u64,
    pub lines: u64,
    /// Lines that are no records, or not those that were written.
    pub damaged: u64,
    /// The first of them.
    pub example: Option<String>,
    /// Chains that could not be read, and one reason.
    pub unread: u64,
    pub why: Option<String>,
}

/// Where a look begins.
#[derive(Clone, Debug)]
pub enum Begin {
    Latest,
    /// Before that date, as records write it.
    Before(String),
    /// Where another look ended.
    After(Cursor),
}

/// Where a look ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The date of the last record that was looked at.
    pub date: String,
    /// The last line of each chain that was being read.
    pub places: Vec<Place>,
}

/// A line of the log.
#[expect(clippy::large_enum_variant, reason = "one at a time, and nearly all are records")]
pub enum Found<'l> {
    Record { line: Line<'l>, chain: &'l str },
    Damaged,
}

/// One chain that was begun or not.
#[derive(Debug)]
struct Chain {
    name: String,
    segments: Vec<Segment>,
    from: From,
    reader: Option<Backwards>,
    /// No record of it is later.
    date: String,
}

/// A look at the log.
#[derive(Debug)]
pub struct Past {
    folder: Folder,
    /// The chains that have something left, in no order.
    chains: Vec<Chain>,
    /// Bytes of chains that have ended.
    bytes: u64,
    /// The chain of the line at hand.
    at: Option<usize>,
    tally: Tally,
}

impl Past {
    /// Begins a look. A folder that is not there has no records.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn begin(folder: Folder, begin: &Begin) -> io::Result<Self> {
        let mut chains = Vec::new();
        for (name, segments) in folder.chains()? {
            let written = segments.last().and_then(|last| folder.piece(last).ok()).map_or(u64::MAX, |piece| piece.last);
            // The file's time is that of the kernel's last tick.
            let mut date = timestamp(written.saturating_add(1000));
            let from = match begin {
                Begin::Latest => From::End,
                Begin::Before(before) => From::Date(before.clone()),
                Begin::After(cursor) => {
                    let place = cursor.places.iter().find(|place| place.segment.chain == name);
                    place.map_or_else(|| From::Date(cursor.date.clone()), |place| From::Before(place.clone()))
                }
            };
            if let Begin::Before(before) | Begin::After(Cursor { date: before, .. }) = begin {
                date = date.min(before.clone());
            }
            chains.push(Chain { name, segments, from, reader: None, date });
        }
        Ok(Self { folder, chains, bytes: 0, at: None, tally: Tally::default() })
    }

    /// The next line, the latest of all that are left; `None` at the beginning of the log.
    pub fn next(&mut self) -> Option<Found<'_>> {
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
        Some(match Line::read(reader.line()) {
            Some(line) => Found::Record { line, chain: &chain.name },
            None => {
                self.tally.damaged += 1;
                if self.tally.example.is_none() {
                    let place = reader.place();
                    self.tally.example =
                        place.map(|place| format!("{}, at byte {}", place.segment.name(), place.offset));
                }
                Found::Damaged
            }
        })
    }

    /// Begins a chain.
    fn open(&mut self, at: usize) {
        let open = self.chains.iter().filter(|chain| chain.reader.is_some()).count();
        let Some(chain) = self.chains.get_mut(at) else { return };
        if open >= MAX_CHAINS {
            let why = format!("more than {MAX_CHAINS} chains were written at the same time");
            return self.leave(at, Some(why));
        }
        match Backwards::begin(&self.folder, std::mem::take(&mut chain.segments), &chain.from) {
            Ok(reader) => {
                chain.reader = Some(reader);
                self.step(at);
            }
            Err(error) => self.leave(at, Some(error.to_string())),
        }
    }

    /// Goes to the line before in a chain, which ends where there is none.
    fn step(&mut self, at: usize) {
        let Some(chain) = self.chains.get_mut(at) else { return };
        let Some(reader) = &mut chain.reader else { return };
        loop {
            match reader.step(&self.folder) {
                Ok(true) => {
                    // A line without a date stands where its neighbour stands.
                    if let Some(date) = date_of(reader.line()) {
                        if let From::Date(before) = &chain.from
                            && date >= before.as_str()
                        {
                            continue;
                        }
                        // Only the first lines can be of that date or later.
                        chain.from = From::End;
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

    fn leave(&mut self, at: usize, why: Option<String>) {
        let chain = self.chains.swap_remove(at);
        self.bytes += chain.reader.map_or(0, |reader| reader.bytes);
        if why.is_some() {
            self.tally.unread += 1;
            self.tally.why = why;
        }
    }

    /// How much was read so far.
    pub fn tally(&self) -> Tally {
        let open = self.chains.iter().filter_map(|chain| chain.reader.as_ref());
        Tally { bytes: self.bytes + open.map(|reader| reader.bytes).sum::<u64>(), ..self.tally.clone() }
    }

    /// Bytes that were read so far.
    pub fn bytes(&self) -> u64 {
        let open = self.chains.iter().filter_map(|chain| chain.reader.as_ref());
        self.bytes + open.map(|reader| reader.bytes).sum::<u64>()
    }

    /// The date of the line at hand.
    pub fn date(&self) -> Option<&str> {
        Some(self.chains.get(self.at?)?.date.as_str())
    }

    /// Where another look goes on behind the line at hand.
    pub fn cursor(&self) -> Option<Cursor> {
        let date = self.date()?.to_owned();
        let mut places: BTreeMap<String, Place> = BTreeMap::new();
        for (at, chain) in self.chains.iter().enumerate() {
            let Some(mut place) = chain.reader.as_ref().and_then(Backwards::place) else { continue };
            if Some(at) != self.at {
                // Its line is still to come.
                place.offset =
                    place.offset.saturating_add(chain.reader.as_ref().map_or(0, |r| r.line().len() as u64 + 1));
            }
            places.insert(place.segment.chain.clone(), place);
        }
        Some(Cursor { date, places: places.into_values().collect() })
    }
}

impl Cursor {
    /// Most chains that one names; those that it does not name go on by its date.
    const MOST: usize = 8;

    /// As a page's address has it.
    pub fn encode(&self) -> String {
        let mut out = self.date.clone();
        for Place { segment, offset } in self.places.iter().take(Self::MOST) {
            out.push_str(&format!("~{}.{}.{offset}", segment.chain, segment.number));
        }
        out
    }

    /// Reads what [`Self::encode`] wrote. Any text is safe: names are looked for among the log's own.
    pub fn decode(text: &str) -> Option<Self> {
        let mut parts = text.split('~');
        let date = parts.next().filter(|date| is_date(date))?.to_owned();
        let place = |part: &str| {
            let mut words = part.rsplitn(3, '.');
            let (offset, number, chain) = (words.next()?, words.next()?, words.next()?);
            let segment = Segment { chain: chain.to_owned(), number: number.parse().ok()? };
            Some(Place { segment, offset: offset.parse().ok()? })
        };
        let places = parts.take(Self::MOST).map(place).collect::<Option<_>>()?;
        Some(Self { date, places })
    }
}

/// Whether a text has the form of a record's date.
fn is_date(text: &str) -> bool {
    let form = "0000-00-00T00:00:00.000Z";
    let same = |(c, form): (char, char)| if form == '0' { c.is_ascii_digit() } else { c == form };
    text.len() == form.len() && text.is_ascii() && text.chars().zip(form.chars()).all(same)
}

#[cfg(test)]
mod tests;
