//! Invented grants and blocks.

use super::{HOSTILE, NOW};
use crate::policy::consent::{BlockView, GrantView};

/// Returns a block after unanswered approvals, and a block after a denial.
pub(super) fn blocks() -> Vec<BlockView> {
    let block = |id: &str, client: Option<&str>, denied_by: Option<&str>| BlockView {
        id: id.to_owned(),
        caller: "local".to_owned(),
        client: client.map(str::to_owned),
        item: "files__write_file".to_owned(),
        until: NOW + 570,
        by: denied_by.map(str::to_owned),
        ..BlockView::default()
    };
    vec![block("b4xw2nkd7q3tz6mp", Some(HOSTILE), None), block("c4xw2nkd7q3tz6mp", None, Some("console"))]
}

pub(super) fn grants() -> Vec<GrantView> {
    let grant = |id: &str, item: &str, caller: &str, lifetime: &str, uses| GrantView {
        id: id.to_owned(),
        caller: caller.to_owned(),
        kind: "tool".to_owned(),
        item: item.to_owned(),
        rule: "ask-writes".to_owned(),
        lifetime: lifetime.to_owned(),
        until: (lifetime == "until").then_some(NOW + 2100),
        arguments: if lifetime == "once" { "exact" } else { "any" }.to_owned(),
        destructive: item.contains("delete"),
        evidence: if caller == "ci" { "L3" } else { "L2" }.to_owned(),
        by: if caller == "ci" { "uid:1000" } else { "console" }.to_owned(),
        granted_at: NOW - 1500,
        last_used: if uses > 0 { NOW - 130 } else { 0 },
        uses,
        ..GrantView::default()
    };
    vec![
        grant("a1b2c3d4e5f60718", "github__create_issue", "local", "until", 4),
        grant("b1b2c3d4e5f60718", "notion__update_page_properties", "local", "session", 1),
        grant("c1b2c3d4e5f60718", "files__delete_file", "ci", "once", 0),
        grant("d1b2c3d4e5f60718", "calendar__create_event", "ci", "until-changed", 37),
    ]
}
