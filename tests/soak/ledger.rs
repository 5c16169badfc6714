//! Counts requests: each one ends once, and in one of these ways.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Texts of bad ends to keep, of one kind and in all.
const OF_A_KIND: usize = 3;
const EXAMPLES: usize = 60;

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RequestEnd {
    /// The expected answer.
    Answered,
    /// An HTTP status that means "not now" or "not this".
    Refused,
    /// The client cancelled the request, or closed the stream that it had requested.
    Cancelled,
    /// The client went away.
    HungUp,
    /// The daemon was restarted.
    Cut,
    /// A refusal or an error without a cause.
    Failed,
    /// The answer to another request.
    Wrong,
    /// Two answers.
    Twice,
    /// No answer.
    Lost,
}

impl RequestEnd {
    pub(crate) const ALL: [Self; 9] = [
        Self::Answered,
        Self::Refused,
        Self::Cancelled,
        Self::HungUp,
        Self::Cut,
        Self::Failed,
        Self::Wrong,
        Self::Twice,
        Self::Lost,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Cancelled => "cancelled",
            Self::HungUp => "hung up",
            Self::Cut => "cut",
            Self::Failed => "failed",
            Self::Wrong => "wrong",
            Self::Twice => "twice",
            Self::Lost => "lost",
        }
    }

    /// Returns whether a single end of this kind fails the run.
    pub(crate) fn is_bad(self) -> bool {
        matches!(self, Self::Failed | Self::Wrong | Self::Twice | Self::Lost)
    }
}

/// Requests of one kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct LedgerRow {
    pub(crate) sent: u64,
    ends: BTreeMap<RequestEnd, u64>,
}

impl LedgerRow {
    pub(crate) fn of(&self, end: RequestEnd) -> u64 {
        self.ends.get(&end).copied().unwrap_or_default()
    }

    pub(crate) fn ended(&self) -> u64 {
        self.ends.values().sum()
    }

    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        for (end, count) in &other.ends {
            *self.ends.entry(*end).or_default() += count;
        }
    }
}

#[derive(Debug, Default)]
struct LedgerBook {
    rows: BTreeMap<&'static str, LedgerRow>,
    examples: Vec<String>,
    /// Other events by name.
    notes: BTreeMap<&'static str, u64>,
}

/// All requests so far. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Arc<Mutex<LedgerBook>>);

impl Ledger {
    fn book(&self) -> MutexGuard<'_, LedgerBook> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request that is being sent.
    pub(crate) fn sent(&self, kind: &'static str) -> RequestTicket {
        self.book().rows.entry(kind).or_default().sent += 1;
        RequestTicket { ledger: self.clone(), kind, open: true }
    }

    /// Counts an answer to a request that had one already.
    pub(crate) fn twice(&self, kind: &'static str, what: &str) {
        let mut book = self.book();
        *book.rows.entry(kind).or_default().ends.entry(RequestEnd::Twice).or_default() += 1;
        remember(&mut book.examples, &format!("{kind}: {}", RequestEnd::Twice.name()), what);
    }

    /// Counts any other event.
    pub(crate) fn note(&self, what: &'static str) {
        *self.book().notes.entry(what).or_default() += 1;
    }

    pub(crate) fn noted(&self, what: &str) -> u64 {
        self.book().notes.get(what).copied().unwrap_or_default()
    }

    pub(crate) fn notes(&self) -> Vec<(&'static str, u64)> {
        self.book().notes.iter().map(|(name, count)| (*name, *count)).collect()
    }

    pub(crate) fn rows(&self) -> Vec<(&'static str, LedgerRow)> {
        self.book().rows.iter().map(|(kind, row)| (*kind, row.clone())).collect()
    }

    pub(crate) fn total(&self) -> LedgerRow {
        let mut total = LedgerRow::default();
        self.book().rows.values().for_each(|row| total.add(row));
        total
    }

    pub(crate) fn examples(&self) -> Vec<String> {
        self.book().examples.clone()
    }
}

fn remember(examples: &mut Vec<String>, head: &str, why: &str) {
    let like = examples.iter().filter(|example| example.starts_with(head)).count();
    if like < OF_A_KIND && examples.len() < EXAMPLES {
        examples.push(format!("{head}: {}", why.chars().take(400).collect::<String>()));
    }
}

/// One open request. If dropped without an end, it counts as lost.
#[derive(Debug)]
pub(crate) struct RequestTicket {
    ledger: Ledger,
    kind: &'static str,
    open: bool,
}

impl RequestTicket {
    pub(crate) fn end(self, end: RequestEnd) {
        self.end_with(end, String::new);
    }

    /// Ends the request, with a text that explains a bad end.
    pub(crate) fn end_with(mut self, end: RequestEnd, why: impl FnOnce() -> String) {
        self.open = false;
        let mut book = self.ledger.book();
        *book.rows.entry(self.kind).or_default().ends.entry(end).or_default() += 1;
        if end.is_bad() {
            remember(&mut book.examples, &format!("{}: {}", self.kind, end.name()), &why());
        }
    }
}

impl Drop for RequestTicket {
    fn drop(&mut self) {
        if self.open {
            let mut book = self.ledger.book();
            *book.rows.entry(self.kind).or_default().ends.entry(RequestEnd::Lost).or_default() += 1;
        }
    }
}
