//! Invented calls for the page of calls, some of them hostile.

use super::fake::HOSTILE;
use crate::store::audit::past::ReadingTally;
use crate::store::audit::search::{self, DecisionPage, DecisionQuery};

/// Returns a page of the invented calls that have the decision of the filter.
pub(super) fn page(query: &DecisionQuery) -> DecisionPage {
    let row = |decision: &str, item: &str, client: &str, outcome: &str| search::DecisionRow {
        date: "2026-11-21T09:59:58.250Z".to_owned(),
        call: "2a".to_owned(),
        caller: "local".to_owned(),
        client: client.to_owned(),
        kind: "tool".to_owned(),
        item: item.to_owned(),
        decision: decision.to_owned(),
        rule: "reads".to_owned(),
        why: "rule matches".to_owned(),
        outcome: outcome.to_owned(),
        us: Some(12_500),
        arguments: Some("{\"path\":\"/srv/<b>work</b>\u{202e}\"}".to_owned()),
        ..search::DecisionRow::default()
    };
    let mut rows = vec![
        row("allow", "files__read_file", "claude-code 2.1", "ok"),
        row("ask", "files__write_file", HOSTILE, "granted"),
        row("deny", HOSTILE, "", HOSTILE),
    ];
    rows.retain(|row| query.decision.is_empty() || row.decision == query.decision);
    let tally = ReadingTally {
        lines: 3,
        damaged: 1,
        example: Some("audit-main-000001.jsonl, at byte 9".to_owned()),
        ..ReadingTally::default()
    };
    DecisionPage { rows, tally, next: None, is_cut: false }
}
