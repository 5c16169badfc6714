//! Looks calls up: one page of the decisions that a filter wants, the latest first, with what became of each call.
//!
//! The records of a call's end and of an approval's answer are later than that of its decision, so they are met before. On a page
//! that goes on where another ended, a stretch behind its beginning is read for them first. A page ends when it is full, when
//! enough was read, or when its time is over; the next one goes on there.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::files::Folder;
use super::past::{Begin, Cursor, Found, Past, Tally};
use crate::base::clock;
use crate::policy::chain::{Line, timestamp};

/// Decisions on one page.
pub const ROWS: usize = 50;
/// Bytes that one page reads.
const MAX_BYTES: u64 = 256 << 20;
/// Time that one page takes.
const MAX_TIME: Duration = Duration::from_secs(2);
/// Records between two looks at the clock.
const LOOK: u64 = 1024;
/// Ends of calls whose decision was not met yet.
const MAX_OPEN: usize = 4096;
/// Records behind the beginning of a page that are read for the ends of calls.
const LEAD_IN: u64 = 20_000;
/// How much later than the page's beginning the latest of them is.
const LEAD_TIME: Duration = Duration::from_secs(60);
/// Bytes of arguments that are shown.
const MAX_SHOWN: usize = 4096;

/// The wanted decisions. Empty texts want all; others are parts of names, in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    pub caller: String,
    pub client: String,
    pub item: String,
    pub rule: String,
    /// The word of the decision and of the outcome.
    pub decision: String,
    pub outcome: String,
    /// A day in UTC, as `2026-11-23`.
    pub day: String,
    pub after: Option<Cursor>,
}

/// One decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
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
    /// The person behind a grant or an answer.
    pub by: String,
    /// How the call, or its approval, ended; empty where the log does not say.
    pub outcome: String,
    pub us: Option<u64>,
    /// As far as they are kept and shown.
    pub arguments: Option<String>,
    /// For so many calls, where it is not one.
    pub count: Option<u64>,
}

/// Decisions, and where to go on.
#[derive(Clone, Debug, Default)]
pub struct Page {
    pub rows: Vec<Row>,
    pub tally: Tally,
    /// There may be more behind this.
    pub next: Option<Cursor>,
    /// The page ended before it was full.
    pub is_cut: bool,
}

/// Why nothing was looked up.
#[derive(Debug, thiserror::Error)]
pub enum CannotSearch {
    #[error("no audit log is kept")]
    NoLog,
    #[error("other searches run at this moment")]
    Busy,
    #[error("{0}")]
    Unreadable(#[source] io::Error),
}

/// Bounds of one page.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    rows: usize,
    bytes: u64,
    time: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { rows: ROWS, bytes: MAX_BYTES, time: MAX_TIME }
    }
}

/// How calls and approvals ended. A key is a chain and a number, or an approval's id.
#[derive(Debug, Default)]
struct Ends {
    by_key: HashMap<String, End>,
    order: VecDeque<String>,
}

#[derive(Clone, Debug, Default)]
struct End {
    word: String,
    by: String,
    us: Option<u64>,
}

impl Ends {
    fn add(&mut self, key: String, end: End) {
        if self.by_key.insert(key.clone(), end).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > MAX_OPEN {
            self.order.pop_front().and_then(|oldest| self.by_key.remove(&oldest));
        }
    }

    /// Remembers what a record says about the end of something earlier.
    fn learn(&mut self, line: &Line<'_>, chain: &str) {
        let text = |text: &Option<std::borrow::Cow<'_, str>>| text.as_deref().unwrap_or_default().to_owned();
        match &*line.event {
            "outcome" => {
                let Some(call) = &line.call else { return };
                self.add(format!("{chain} {call}"), End { word: text(&line.result), by: String::new(), us: line.us });
            }
            "answer" => {
                let Some(prompt) = &line.prompt else { return };
                self.add(prompt.to_string(), End { word: text(&line.result), by: text(&line.by), us: None });
            }
            // The answer to its question is how a call that asked went on.
            "prompt" => {
                let (Some(prompt), Some(call)) = (&line.prompt, &line.call) else { return };
                let end = self.by_key.remove(&**prompt);
                let end = end.unwrap_or_else(|| End { word: "unanswered".to_owned(), ..End::default() });
                self.add(format!("{chain} {call}"), end);
            }
            // Numbers of calls begin anew with the process.
            "gateway" if line.result.as_deref() == Some("started") => {
                self.by_key.retain(|key, _| key.split_once(' ').is_none_or(|(other, _)| other != chain));
            }
            _ => {}
        }
    }

    fn take(&mut self, chain: &str, call: Option<&str>) -> Option<End> {
        self.by_key.remove(&format!("{chain} {}", call?))
    }
}

/// One page of the log. Blocks.
///
/// # Errors
/// When the folder cannot be read.
pub fn search(folder: &Folder, query: &Query, bounds: Bounds) -> io::Result<Page> {
    let begun = clock::now();
    let (first, end) = day(&query.day);
    let begin = match (&query.after, end) {
        (Some(cursor), _) => Begin::After(cursor.clone()),
        (None, Some(end)) => Begin::Before(end),
        (None, None) => Begin::Latest,
    };
    let mut ends = Ends::default();
    if let Begin::After(Cursor { date, .. }) | Begin::Before(date) = &begin {
        lead_in(folder, date, &mut ends)?;
    }
    let wanted = Wanted::new(query);
    let mut past = Past::begin(folder.clone(), &begin)?;
    let mut page = Page::default();
    let mut records = 0_u64;
    while let Some(found) = past.next() {
        records += 1;
        if let Found::Record { line, chain } = found {
            if first.as_ref().is_some_and(|first| *line.ts < **first) {
                page.tally = past.tally();
                return Ok(page);
            }
            ends.learn(&line, chain);
            page.rows.extend(Row::of(&line, chain, &mut ends, &wanted));
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

/// Learns how calls ended whose decision is before that date.
fn lead_in(folder: &Folder, date: &str, ends: &mut Ends) -> io::Result<()> {
    let Ok(from) = OffsetDateTime::parse(date, &Rfc3339) else { return Ok(()) };
    let until = (from + LEAD_TIME).unix_timestamp_nanos() / 1_000_000;
    let until = timestamp(u64::try_from(until).unwrap_or(0));
    let mut past = Past::begin(folder.clone(), &Begin::Before(until))?;
    let mut records = 0;
    while let Some(found) = past.next() {
        let Found::Record { line, chain } = found else { continue };
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

/// The first date of a day, and that of the next day; of what is no day, none.
fn day(day: &str) -> (Option<String>, Option<String>) {
    let date = format!("{day}T00:00:00.000Z");
    let Ok(begin) = OffsetDateTime::parse(&date, &Rfc3339) else { return (None, None) };
    let next = begin.unix_timestamp() + 86_400;
    (Some(date), Some(timestamp(u64::try_from(next).unwrap_or(0).saturating_mul(1000))))
}

/// A query in the form in which records are compared with it.
struct Wanted<'q> {
    query: &'q Query,
    caller: String,
    client: String,
    item: String,
    rule: String,
}

impl<'q> Wanted<'q> {
    fn new(query: &'q Query) -> Self {
        let Query { caller, client, item, rule, .. } = query;
        let [caller, client, item, rule] = [caller, client, item, rule].map(|text| text.to_lowercase());
        Self { query, caller, client, item, rule }
    }

    /// Whether a decision is wanted, its outcome aside.
    fn takes(&self, line: &Line<'_>) -> bool {
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

impl Row {
    /// The row of a record, if it is one of a decision that is wanted.
    fn of(line: &Line<'_>, chain: &str, ends: &mut Ends, wanted: &Wanted<'_>) -> Option<Self> {
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
            arguments: line.shown_arguments().map(shortened),
            count: line.count,
        })
    }
}

/// As much of a text as is shown.
fn shortened(text: &str) -> String {
    if text.len() <= MAX_SHOWN {
        return text.to_owned();
    }
    let end = (0..=MAX_SHOWN).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}… ({} bytes in all)", text.get(..end).unwrap_or_default(), text.len())
}
