//! Searches the audit log: returns one page of the decisions that match a query, the latest first,
//! with the outcome of each call.
//!
//! The records of a call's end and of an approval's answer are later than that of its decision, so
//! backward reading meets them first. For a page that continues another, the records of a minute
//! behind its beginning are read first to learn these ends. A page ends when it is full, when
//! enough bytes were read, or when its time is over; the next page continues there.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::files::LogFolder;
use super::past::{FoundLine, LogCursor, LogReading, ReadingStart, ReadingTally};
use crate::base::clock;
use crate::policy::records::chain::{AuditLine, timestamp};

/// Most decisions on one page.
pub const ROWS: usize = 50;
/// Bytes after which a page ends.
const MAX_BYTES: u64 = 256 << 20;
/// Time after which a page ends.
const MAX_TIME: Duration = Duration::from_secs(2);
/// Records between two checks of time and bytes.
const LOOK: u64 = 1024;
/// Most remembered ends of calls whose decision was not met yet.
const MAX_OPEN: usize = 4096;
/// Most records behind the beginning of a page that are read for ends of calls.
const LEAD_IN: u64 = 20_000;
/// Time behind the page's beginning from which these records are read.
const LEAD_TIME: Duration = Duration::from_secs(60);
/// Length limit of shown arguments, in bytes.
const MAX_SHOWN: usize = 4096;

/// The filter of a search. An empty text matches all; caller, client, item and rule match parts of
/// names, ignoring case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecisionQuery {
    pub caller: String,
    pub client: String,
    pub item: String,
    pub rule: String,
    /// Exact word of the decision.
    pub decision: String,
    /// Exact word of the outcome.
    pub outcome: String,
    /// Day in UTC, such as `2026-11-23`.
    pub day: String,
    /// The end of the previous page.
    pub after: Option<LogCursor>,
}

/// A decision as a search returns it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecisionRow {
    pub date: String,
    pub call: String,
    pub caller: String,
    pub client: String,
    pub profile: String,
    pub kind: String,
    pub item: String,
    pub decision: String,
    pub rule: String,
    pub why: String,
    /// The person who granted or answered.
    pub by: String,
    /// Outcome of the call or of its approval; empty if the log has none.
    pub outcome: String,
    /// Duration of the call, in microseconds.
    pub us: Option<u64>,
    /// Arguments, if the log has them; long ones are cut.
    pub arguments: Option<String>,
    /// Number of calls, if the record stands for several.
    pub count: Option<u64>,
}

/// A page of decisions.
#[derive(Clone, Debug, Default)]
pub struct DecisionPage {
    pub rows: Vec<DecisionRow>,
    pub tally: ReadingTally,
    /// The beginning of the next page; `None` at the beginning of the log.
    pub next: Option<LogCursor>,
    /// True if a bound in bytes or time ended the page before it was full.
    pub is_cut: bool,
}

/// The reason why a search failed.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    #[error("no audit log is kept")]
    NoLog,
    #[error("other searches run at this moment")]
    Busy,
    #[error("{0}")]
    Unreadable(#[source] io::Error),
}

/// The bounds of one page.
#[derive(Clone, Copy, Debug)]
pub struct PageBounds {
    rows: usize,
    bytes: u64,
    time: Duration,
}

impl Default for PageBounds {
    fn default() -> Self {
        Self { rows: ROWS, bytes: MAX_BYTES, time: MAX_TIME }
    }
}

/// Outcomes of calls and approvals that were met before their decisions. A key is a chain and a
/// call's number, or an approval's id.
#[derive(Debug, Default)]
struct KnownEnds {
    by_key: HashMap<String, KnownEnd>,
    order: VecDeque<String>,
}

#[derive(Clone, Debug, Default)]
struct KnownEnd {
    word: String,
    by: String,
    us: Option<u64>,
}

impl KnownEnds {
    fn add(&mut self, key: String, end: KnownEnd) {
        if self.by_key.insert(key.clone(), end).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > MAX_OPEN {
            self.order.pop_front().and_then(|oldest| self.by_key.remove(&oldest));
        }
    }

    /// Remembers the outcome that a record tells about an earlier call or approval.
    fn learn(&mut self, line: &AuditLine<'_>, chain: &str) {
        let text = |text: &Option<std::borrow::Cow<'_, str>>| text.as_deref().unwrap_or_default().to_owned();
        match &*line.event {
            "outcome" => {
                let Some(call) = &line.call else { return };
                self.add(
                    format!("{chain} {call}"),
                    KnownEnd { word: text(&line.result), by: String::new(), us: line.us },
                );
            }
            "answer" => {
                let Some(approval) = &line.approval else { return };
                self.add(approval.to_string(), KnownEnd { word: text(&line.result), by: text(&line.by), us: None });
            }
            // A call that needed approval ends as its approval did.
            "prompt" => {
                let (Some(approval), Some(call)) = (&line.approval, &line.call) else { return };
                let end = self.by_key.remove(&**approval);
                let end = end.unwrap_or_else(|| KnownEnd { word: "unanswered".to_owned(), ..KnownEnd::default() });
                self.add(format!("{chain} {call}"), end);
            }
            // Numbers of calls start again with each process.
            "gateway" if line.result.as_deref() == Some("started") => {
                self.by_key.retain(|key, _| key.split_once(' ').is_none_or(|(other, _)| other != chain));
            }
            _ => {}
        }
    }

    fn take(&mut self, chain: &str, call: Option<&str>) -> Option<KnownEnd> {
        self.by_key.remove(&format!("{chain} {}", call?))
    }
}

/// Reads one page of the log. Blocks.
///
/// # Errors
/// When the folder cannot be read.
pub fn search(folder: &LogFolder, query: &DecisionQuery, bounds: PageBounds) -> io::Result<DecisionPage> {
    let begun = clock::now();
    let (first, end) = day_bounds(&query.day);
    let begin = match (&query.after, end) {
        (Some(cursor), _) => ReadingStart::After(cursor.clone()),
        (None, Some(end)) => ReadingStart::Before(end),
        (None, None) => ReadingStart::Latest,
    };
    let mut ends = KnownEnds::default();
    if let ReadingStart::After(LogCursor { date, .. }) | ReadingStart::Before(date) = &begin {
        read_later_ends(folder, date, &mut ends)?;
    }
    let wanted = QueryMatcher::new(query);
    let mut past = LogReading::begin(folder.clone(), &begin)?;
    let mut page = DecisionPage::default();
    let mut records = 0_u64;
    while let Some(found) = past.next() {
        records += 1;
        if let FoundLine::Record { line, chain } = found {
            if first.as_ref().is_some_and(|first| *line.ts < **first) {
                page.tally = past.tally();
                return Ok(page);
            }
            ends.learn(&line, chain);
            page.rows.extend(DecisionRow::of(&line, chain, &mut ends, &wanted));
        }
        if page.rows.len() >= bounds.rows {
            page.next = past.cursor();
            break;
        }
        if records.is_multiple_of(LOOK) && (past.bytes() > bounds.bytes || clock::since(begun) > bounds.time) {
            (page.next, page.is_cut) = (past.cursor(), true);
            break;
        }
    }
    page.tally = past.tally();
    Ok(page)
}

/// Learns the outcomes of calls that were decided before that date, from the records of the
/// following minute.
fn read_later_ends(folder: &LogFolder, date: &str, ends: &mut KnownEnds) -> io::Result<()> {
    let Ok(from) = OffsetDateTime::parse(date, &Rfc3339) else { return Ok(()) };
    let until = (from + LEAD_TIME).unix_timestamp_nanos() / 1_000_000;
    let until = timestamp(u64::try_from(until).unwrap_or(0));
    let mut past = LogReading::begin(folder.clone(), &ReadingStart::Before(until))?;
    let mut records = 0;
    while let Some(found) = past.next() {
        let FoundLine::Record { line, chain } = found else { continue };
        records += 1;
        if *line.ts < *date || records > LEAD_IN {
            break;
        }
        ends.learn(&line, chain);
        if line.event == "decision" {
            ends.take(chain, line.call.as_deref());
        }
    }
    Ok(())
}

/// Returns the first date of a day and that of the next day; `None` for a text that is no day.
fn day_bounds(day: &str) -> (Option<String>, Option<String>) {
    let date = format!("{day}T00:00:00.000Z");
    let Ok(begin) = OffsetDateTime::parse(&date, &Rfc3339) else { return (None, None) };
    let next = begin.unix_timestamp() + 86_400;
    (Some(date), Some(timestamp(u64::try_from(next).unwrap_or(0).saturating_mul(1000))))
}

/// A query with its texts in lower case.
struct QueryMatcher<'q> {
    query: &'q DecisionQuery,
    caller: String,
    client: String,
    item: String,
    rule: String,
}

impl<'q> QueryMatcher<'q> {
    fn new(query: &'q DecisionQuery) -> Self {
        let DecisionQuery { caller, client, item, rule, .. } = query;
        let [caller, client, item, rule] = [caller, client, item, rule].map(|text| text.to_lowercase());
        Self { query, caller, client, item, rule }
    }

    /// Returns true if a decision matches, apart from its outcome.
    fn takes(&self, line: &AuditLine<'_>) -> bool {
        let has = |text: Option<&str>, part: &str| {
            part.is_empty() || text.is_some_and(|text| text.to_lowercase().contains(part))
        };
        let is = |text: Option<&str>, word: &str| word.is_empty() || text == Some(word);
        is(line.result.as_deref(), &self.query.decision)
            && has(line.caller.as_deref(), &self.caller)
            && has(line.client.as_deref(), &self.client)
            && has(line.item.as_deref(), &self.item)
            && has(line.rule.as_deref(), &self.rule)
    }
}

impl DecisionRow {
    /// Builds the row of a record; `None` if the record is no decision or does not match.
    fn of(line: &AuditLine<'_>, chain: &str, ends: &mut KnownEnds, wanted: &QueryMatcher<'_>) -> Option<Self> {
        if !matches!(&*line.event, "decision" | "refusals") {
            return None;
        }
        let end = ends.take(chain, line.call.as_deref()).unwrap_or_default();
        let outcome = &wanted.query.outcome;
        if !wanted.takes(line) || !(outcome.is_empty() || *outcome == end.word) {
            return None;
        }
        let text = |text: &Option<std::borrow::Cow<'_, str>>| text.as_deref().unwrap_or_default().to_owned();
        Some(Self {
            date: line.ts.clone().into_owned(),
            call: text(&line.call),
            caller: text(&line.caller),
            client: text(&line.client),
            profile: text(&line.profile),
            kind: text(&line.kind),
            item: text(&line.item),
            decision: text(&line.result),
            rule: text(&line.rule),
            why: text(&line.why),
            by: if end.by.is_empty() { text(&line.by) } else { end.by },
            outcome: end.word,
            us: end.us,
            arguments: line.shown_arguments().map(shorten_arguments),
            count: line.count,
        })
    }
}

/// Cuts a text to [`MAX_SHOWN`] bytes and says how long it is.
fn shorten_arguments(text: &str) -> String {
    if text.len() <= MAX_SHOWN {
        return text.to_owned();
    }
    let end = (0..=MAX_SHOWN).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}… ({} bytes in all)", text.get(..end).unwrap_or_default(), text.len())
}
