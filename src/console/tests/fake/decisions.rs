//! The decisions that the fake operator service lists.

use super::NOW;
use crate::store::recent::DecisionView;

pub(super) fn decisions() -> Vec<DecisionView> {
    let rows = [
        ("ask", "postgres__execute_sql", "local", "ask-destructive", "rule matches", 40),
        ("allow", "files__read_file", "local", "read-only", "rule matches", 47),
        ("allow", "github__search_code", "local", "read-only", "rule matches", 63),
        ("deny", "browser__evaluate", "ci", "no-scripts", "rule matches", 70),
        ("limit", "search__web", "ci", "search-per-minute", "limit used up", 75),
        ("ask", "mail__send", "local", "default", "no rule matches", 95),
        ("allow", "calendar__list_events", "uid:1001", "read-only", "rule matches", 400),
        (
            "allow",
            "files+file:///srv/work/a-very-long-folder-name/with-another-one/report-of-the-third-quarter-2026.md",
            "local",
            "read-only",
            "rule matches",
            4000,
        ),
        ("allow", "time__now", "local", "default", "no rule matches", 90_000),
    ];
    let view =
        |(decision, item, caller, rule, why, age): (&'static str, &str, &str, &str, &'static str, u64)| DecisionView {
            at: NOW - age,
            decision,
            caller: caller.to_owned(),
            kind: if item.contains("__") { "tool" } else { "resource" },
            item: item.to_owned(),
            rule: rule.to_owned(),
            why: why.into(),
        };
    rows.into_iter().map(view).collect()
}
