//! Grants and blocks.

use super::{HOSTILE, NOW};
use crate::console::desk::{BlockView, GrantView};
use crate::policy::Evidence;
use crate::policy::consent::Lifetime;

/// A block after approvals that nobody answered, and one of a denial.
pub(super) fn blocks() -> Vec<BlockView> {
    let block = |id: &str, client: Option<&str>, denied_by: Option<&str>| BlockView {
        id: id.to_owned(),
        caller: "local".to_owned(),
        client: client.map(str::to_owned),
        item: "files__write_file".to_owned(),
        until: NOW + 570,
        denied_by: denied_by.map(str::to_owned),
    };
    vec![block("b4xw2nkd7q3tz6mp", Some(HOSTILE), None), block("c4xw2nkd7q3tz6mp", None, Some("console"))]
}

pub(super) fn grants() -> Vec<GrantView> {
    let grant = |id: &str, item: &str, caller: &str, lifetime, uses| GrantView {
        id: id.to_owned(),
        caller: caller.to_owned(),
        kind: "tool",
        item: item.to_owned(),
        rule: "ask-writes".to_owned(),
        lifetime,
        exact: matches!(lifetime, Lifetime::Once),
        below: None,
        destructive: item.contains("delete"),
        evidence: if caller == "ci" { Evidence::Operator } else { Evidence::Page },
        by: if caller == "ci" { "uid:1000" } else { "console" }.to_owned(),
        granted_at: NOW - 1500,
        last_used: (uses > 0).then_some(NOW - 130),
        uses,
    };
    vec![
        grant("a1b2c3d4e5f60718", "github__create_issue", "local", Lifetime::Until(NOW + 2100), 4),
        grant("b1b2c3d4e5f60718", "notion__update_page_properties", "local", Lifetime::Session, 1),
        grant("c1b2c3d4e5f60718", "files__delete_file", "ci", Lifetime::Once, 0),
        grant("d1b2c3d4e5f60718", "calendar__create_event", "ci", Lifetime::UntilChanged, 37),
    ]
}
