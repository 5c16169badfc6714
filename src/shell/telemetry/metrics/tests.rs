use std::collections::HashMap;

use expect_test::expect_file;

use super::family::MetricRow;
use super::*;
use crate::mcp::method::ItemList;

#[test]
fn a_call_is_counted_and_its_time_is_split() -> Result<(), prometheus::Error> {
    let metrics = Metrics::new()?;
    let upstream = metrics.upstream("git");
    upstream.finished(
        MethodLabel::ToolsCall,
        OutcomeLabel::Ok,
        Duration::from_millis(30),
        Some(Duration::from_millis(20)),
    );
    let text = metrics.render();
    let has = |line: &str| assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    has(r#"headend_calls_total{method="tools/call",outcome="ok",upstream="git"} 1"#);
    has(r#"headend_call_duration_seconds_sum{method="tools/call",upstream="git"} 0.03"#);
    has(r#"headend_upstream_duration_seconds_sum{method="tools/call",upstream="git"} 0.02"#);
    has(r#"headend_call_overhead_seconds_sum{upstream="git"} 0.01"#);
    Ok(())
}

#[test]
fn a_forgotten_upstream_leaves_no_series() -> Result<(), prometheus::Error> {
    let metrics = Metrics::new()?;
    let upstream = metrics.upstream("gone");
    upstream.set_state(UpstreamState::Ready);
    upstream.items([1, 2, 3, 4]);
    upstream.excess(5);
    upstream.repairs(6);
    upstream.unread_lists(1);
    upstream.fault(ProtocolFault::Garbage);
    upstream.reserved(RemovedWords { keys: 2, errors: 1 });
    assert!(metrics.render().contains(r#"headend_upstream_reserved_total{kind="meta",upstream="gone"} 2"#));
    upstream.sent(1);
    upstream.sessions(3);
    upstream.started(Duration::from_secs(1));
    let running = upstream.process(Some(7));
    let used = HashMap::from([(7, Usage { cpu: Duration::from_secs(1), memory: 4096 })]);
    metrics.usage().observe(&used);
    upstream.finished(MethodLabel::Other, OutcomeLabel::Protocol, Duration::ZERO, Some(Duration::ZERO));
    upstream.retire(false);
    metrics.forget_upstream("gone");
    // Late calls, the end of the process and a scrape may still follow.
    upstream.set_state(UpstreamState::Stopped);
    upstream.items([0, 0, 0, 0]);
    upstream.pins_waiting(1);
    upstream.unread_lists(1);
    upstream.fault(ProtocolFault::Garbage);
    upstream.reserved(RemovedWords { keys: 2, errors: 1 });
    upstream.finished(MethodLabel::ToolsCall, OutcomeLabel::Ok, Duration::ZERO, None);
    upstream.sessions(2);
    upstream.started(Duration::from_secs(1));
    drop(upstream.process(Some(8)));
    metrics.usage().observe(&used);
    drop(running);
    assert!(!metrics.render().contains("gone"), "{}", metrics.render());
    Ok(())
}

#[test]
fn a_replaced_upstream_counts_on_and_hides_no_state_of_the_new_one() -> Result<(), prometheus::Error> {
    let metrics = Metrics::new()?;
    let (old, new) = (metrics.upstream("a"), metrics.upstream("a"));
    old.set_state(UpstreamState::Ready);
    old.retire(true);
    new.set_state(UpstreamState::Ready);
    old.set_state(UpstreamState::Stopped);
    old.count(MethodLabel::ToolsCall, OutcomeLabel::Ok);
    let text = metrics.render();
    assert!(text.contains(r#"headend_upstream_state{state="ready",upstream="a"} 1"#), "{text}");
    assert!(text.contains(r#"headend_calls_total{method="tools/call",outcome="ok",upstream="a"} 1"#), "{text}");
    Ok(())
}

#[test]
fn one_state_at_a_time() -> Result<(), prometheus::Error> {
    let metrics = Metrics::new()?;
    let upstream = metrics.upstream("a");
    upstream.set_state(UpstreamState::Starting);
    upstream.set_state(UpstreamState::Ready);
    let text = metrics.render();
    let ones: Vec<&str> =
        text.lines().filter(|l| l.starts_with("headend_upstream_state{") && l.ends_with(" 1")).collect();
    assert_eq!(ones, [r#"headend_upstream_state{state="ready",upstream="a"} 1"#]);
    Ok(())
}

#[test]
fn kinds_stand_in_the_order_of_the_lists() {
    let lists = ItemList::ALL.map(|list| format!("{list:?}").trim_end_matches('s').to_lowercase());
    assert_eq!(lists, KINDS);
}

#[test]
fn a_token_has_a_series_while_it_has_an_end_and_a_removed_upstream_has_none() {
    let metrics = Metrics::new().unwrap();
    let upstream = metrics.upstream("docs");
    upstream.token_expires(Some(Duration::from_millis(1_700_000_900)));
    let series = "headend_login_token_expiry_timestamp_seconds{upstream=\"docs\"} 1700000\n";
    assert!(metrics.render().contains(series), "{}", metrics.render());
    upstream.token_expires(None);
    assert!(!metrics.render().contains("headend_login_token_expiry"), "{}", metrics.render());
    upstream.renewal(RenewalLabel::Failed);
    upstream.renewal(RenewalLabel::Failed);
    let series = "headend_login_renewals_total{result=\"failed\",upstream=\"docs\"} 2\n";
    assert!(metrics.render().contains(series), "{}", metrics.render());
    upstream.retire(false);
    metrics.forget_upstream("docs");
    upstream.renewal(RenewalLabel::Expired);
    assert!(!metrics.render().contains("headend_login"), "{}", metrics.render());
}

/// Returns the line of the documentation for a row.
fn line(row: &MetricRow) -> String {
    let (labels, text) = (row.labels.join(", "), row.doc.unwrap_or(row.help.trim_end_matches('.')));
    format!("| `{}` | {} | {labels} | {text} |\n", row.name, row.kind)
}

/// Compares the page with the table. `UPDATE_EXPECT=1` rewrites the page.
#[test]
fn the_page_about_the_service_has_the_table_of_metrics() {
    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../systemd/README.md");
    let page = std::fs::read_to_string(PAGE).unwrap();
    let is_row = |line: &&str| line.starts_with("| `headend_");
    let (before, after) = page.split_at(page.find("| `headend_").unwrap());
    let after: String = after.split_inclusive('\n').skip_while(is_row).collect();
    let table: String = Families::ROWS.iter().map(line).collect();
    expect_file![PAGE].assert_eq(&format!("{before}{table}{after}"));
}
