//! The page of calls: searches the audit log for decisions by a filter and shows them, latest
//! first.

use askama::Template;
use http::{Response, StatusCode};
use strum::VariantArray as _;
use url::form_urlencoded::{self, Serializer};

use super::page::PageFrame;
use super::reply;
use super::site::ConsoleSite;
use super::text::{DisplayTime, ForeignPiece, ForeignPieceKind, capitalised, counted, json, visible};
use crate::base::local_time::{local, local_of, zone};
use crate::listener::body::ReplyBody;
use crate::policy::consent::SteadySeconds;
use crate::store::audit::past::LogCursor;
use crate::store::audit::search::{self, DecisionQuery, SearchError};
use crate::telemetry::metrics::OutcomeLabel;

/// Most bytes of one text of the filter.
const MAX_TEXT: usize = 256;
/// Decisions as the log writes them, and as the page shows them.
const DECISIONS: [(&str, &str); 4] = [("allow", "allowed"), ("ask", "asked"), ("deny", "denied"), ("limit", "limited")];
/// Ways in which approvals end, which the filter offers besides the outcomes of calls.
const ANSWERS: [&str; 5] = ["granted", "denied", "dismissed", "timed-out", "unanswered"];

/// An option of a selection list in the filter.
#[derive(Debug)]
struct FilterChoice {
    value: &'static str,
    text: String,
    is_chosen: bool,
}

/// The row of one call.
#[derive(Debug)]
struct SearchedCallRow {
    at: DisplayTime,
    decision: String,
    tone: &'static str,
    caller: String,
    client: Option<String>,
    kind: String,
    item: String,
    rule: String,
    why: String,
    outcome: String,
    /// Duration of the call, and the person who allowed or denied it.
    more: Option<String>,
    arguments: Vec<ForeignPiece>,
}

#[derive(Debug, Template)]
#[template(path = "calls.html", config = "src/console/askama.toml")]
struct CallsPage {
    frame: PageFrame,
    query: DecisionQuery,
    is_filtered: bool,
    decisions: Vec<FilterChoice>,
    outcomes: Vec<FilterChoice>,
    rows: Vec<SearchedCallRow>,
    /// Time zone of the times in `rows`.
    zone: String,
    /// Reason why the search failed.
    problem: Option<&'static str>,
    /// Number of records that were read, in words.
    read: String,
    damaged: Option<String>,
    /// Address of the next page, with older calls.
    older: Option<String>,
    /// True if the search ended before the page was full.
    is_cut: bool,
    /// Address of the first page; `None` on the first page.
    newest: Option<String>,
}

/// Searches the audit log by the filter in `query` and renders the page.
pub(super) async fn show(console: &ConsoleSite, frame: PageFrame, query: &str) -> Response<ReplyBody> {
    let query = read(query);
    let found = console.desk().calls(query.clone()).await;
    let (status, problem) = match &found {
        Ok(_) => (StatusCode::OK, None),
        Err(SearchError::NoLog) => {
            (StatusCode::OK, Some("This gateway keeps no audit log, so it has no calls to look up."))
        }
        Err(SearchError::Busy) => (
            StatusCode::SERVICE_UNAVAILABLE,
            Some("Other pages search the log at this moment. Reload this one in a few seconds."),
        ),
        Err(SearchError::Unreadable(why)) => {
            tracing::warn!(error = %why, "the audit log cannot be searched");
            (StatusCode::OK, Some("The audit log cannot be read. The daemon's log says why."))
        }
    };
    let page = found.unwrap_or_default();
    let now = console.desk().now();
    let search::DecisionPage { rows, tally, next, is_cut } = page;
    let damaged = (tally.damaged + tally.unread > 0).then(|| {
        let place = tally.example.as_deref().or(tally.why.as_deref()).unwrap_or_default();
        let lines = counted(usize::try_from(tally.damaged).unwrap_or(usize::MAX), "damaged line");
        let chains = match tally.unread {
            0 => String::new(),
            unread => format!(" and {} that could not be read", counted(usize::try_from(unread).unwrap_or(0), "chain")),
        };
        format!("{lines}{chains}: {}. Run headend audit verify.", visible(place))
    });
    let page = CallsPage {
        is_filtered: query != DecisionQuery { after: query.after.clone(), ..DecisionQuery::default() },
        decisions: choices(DECISIONS.into_iter().map(|(value, text)| (value, text.to_owned())), &query.decision),
        outcomes: choices(outcomes(), &query.outcome),
        rows: rows.iter().map(|row| SearchedCallRow::new(row, now)).collect(),
        zone: zone(now),
        problem,
        read: format!("{} looked at", counted(usize::try_from(tally.lines).unwrap_or(usize::MAX), "record")),
        damaged,
        older: next.map(|cursor| address(&query, Some(&cursor))),
        is_cut,
        newest: query.after.is_some().then(|| address(&query, None)),
        frame,
        query,
    };
    reply::page(status, &page)
}

/// Returns the outcomes of calls and of approvals, each once.
fn outcomes() -> impl Iterator<Item = (&'static str, String)> {
    let calls = OutcomeLabel::VARIANTS.iter().map(|label| label.into_str());
    let answers =
        ANSWERS.into_iter().filter(|answer| !OutcomeLabel::VARIANTS.iter().any(|label| label.into_str() == *answer));
    calls.chain(answers).map(|word| (word, words(word)))
}

/// Makes the options of a selection list, of which `chosen` is selected.
fn choices(all: impl Iterator<Item = (&'static str, String)>, chosen: &str) -> Vec<FilterChoice> {
    all.map(|(value, text)| FilterChoice { value, text, is_chosen: value == chosen }).collect()
}

/// Replaces the hyphens and underscores of a log word by spaces.
fn words(word: &str) -> String {
    word.replace(['_', '-'], " ")
}

/// Reads the filter from the query of an address. Unknown fields and malformed cursors are ignored,
/// and long values are cut.
fn read(query: &str) -> DecisionQuery {
    let mut out = DecisionQuery::default();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let text = value.trim();
        let text: String = text
            .chars()
            .scan(0, |bytes, c| {
                *bytes += c.len_utf8();
                (*bytes <= MAX_TEXT).then_some(c)
            })
            .collect();
        match &*name {
            "caller" => out.caller = text,
            "client" => out.client = text,
            "item" => out.item = text,
            "rule" => out.rule = text,
            "decision" => out.decision = text,
            "outcome" => out.outcome = text,
            "day" => out.day = text,
            "after" => out.after = LogCursor::decode(value.trim()),
            _ => {}
        }
    }
    out
}

/// Returns the address of a page with this filter, after the record at `after`.
fn address(query: &DecisionQuery, after: Option<&LogCursor>) -> String {
    let DecisionQuery { caller, client, item, rule, decision, outcome, day, .. } = query;
    let mut out = Serializer::new(String::from("/calls?"));
    let fields = [caller, client, item, rule, decision, outcome, day];
    for (name, value) in ["caller", "client", "item", "rule", "decision", "outcome", "day"].into_iter().zip(fields) {
        if !value.is_empty() {
            out.append_pair(name, value);
        }
    }
    if let Some(cursor) = after {
        out.append_pair("after", &cursor.encode());
    }
    out.finish().trim_end_matches('?').to_owned()
}

impl SearchedCallRow {
    fn new(row: &search::DecisionRow, now: SteadySeconds) -> Self {
        let (word, tone) = match row.decision.as_str() {
            "allow" => ("allowed", "good"),
            "deny" => ("denied", "danger"),
            "ask" => ("asked", "warn"),
            "limit" => ("limited", "warn"),
            other => (other, "calm"),
        };
        let calls = row.count.map(|count| format!("{count} calls of items that the caller cannot see"));
        let took = row.us.map(format_duration);
        let by = Some(visible(&row.by)).filter(|by| !by.is_empty()).map(|by| format!("by {by}"));
        let more: Vec<String> = took.into_iter().chain(by).collect();
        Self {
            at: moment(&row.date, now),
            decision: visible(word),
            tone,
            caller: visible(&row.caller),
            client: Some(visible(&row.client)).filter(|client| !client.is_empty()),
            kind: visible(&row.kind),
            item: calls.unwrap_or_else(|| visible(&row.item)),
            rule: visible(&row.rule),
            why: visible(&row.why),
            outcome: if row.outcome.is_empty() {
                "–".to_owned()
            } else {
                capitalised(&visible(&words(&row.outcome)))
            },
            more: Some(more.join(", ")).filter(|more| !more.is_empty()),
            arguments: row.arguments.as_deref().map(json).unwrap_or_default(),
        }
    }
}

/// Formats the duration of a call.
fn format_duration(us: u64) -> String {
    match us {
        0..1000 => format!("{us} µs"),
        1000..10_000_000 => format!("{} ms", us / 1000),
        _ => format!("{} s", us / 1_000_000),
    }
}

/// Formats the time of a record: the time of day, with the date if it is not today, and with the
/// zone if it differs from the present one.
fn moment(date: &str, now: SteadySeconds) -> DisplayTime {
    let (shown, today) = (local_of(date), local(now));
    let is_now = |part: std::ops::RangeFrom<usize>| shown.get(part.clone()) == today.get(part);
    let shown = if is_now(20..) { shown.get(..19).unwrap_or(&shown) } else { &shown };
    let words = if shown.get(..10) == today.get(..10) { shown.get(11..).unwrap_or(shown) } else { shown };
    DisplayTime { words: visible(words), moment: visible(date) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_the_day_where_it_is_not_today() {
        let now = 1_795_867_509;
        let words = |date: &str| moment(date, now).words;
        assert_eq!(words("2026-11-28T12:05:01.250Z"), local(now - 8)[11..19]);
        assert_eq!(words("2026-11-01T12:05:01.250Z")[..19], local_of("2026-11-01T12:05:01.250Z")[..19]);
        assert_eq!(words("yesterday"), "yesterday");
        assert_eq!(moment("2026-11-28T12:05:01.250Z", now).moment, "2026-11-28T12:05:01.250Z");
    }

    #[test]
    fn an_address_leads_to_the_same_filter() {
        let cursor = "2026-11-23T10:00:00.000Z~main.3.1200";
        let query = read(&format!("caller=ci&item=a%26b+%C3%A9&day=2026-11-23&decision=ask&after={cursor}"));
        assert_eq!((query.caller.as_str(), query.item.as_str()), ("ci", "a&b é"));
        assert_eq!(query.after.as_ref().unwrap().encode(), cursor);
        assert_eq!(read(address(&query, query.after.as_ref()).split_once('?').unwrap().1), query);
        assert_eq!(address(&DecisionQuery::default(), None), "/calls");
        for odd in
            ["after=x", "after=2026-11-23", "after=2026-11-23T10:00:00.000Z~../../etc/passwd.1.1x", "nothing", "=&&="]
        {
            assert_eq!(read(odd), DecisionQuery::default(), "{odd}");
        }
        let long = read(&format!("item={}", "é".repeat(1000)));
        assert!(long.item.len() <= MAX_TEXT);
    }
}
