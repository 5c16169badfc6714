//! Tests of the metrics page: numbers about files and processes of a running daemon, and the files
//! for Prometheus and Grafana in `config/` that use them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;

use crate::tools::harness::{GatewaySetup, TestHome, left_out};
use crate::tools::process::{eventually, installed, output_within, said};
use crate::tools::upstream::Fake;

mod queries;

use self::queries::Series;

const ASK: &str = r#"default = "allow"
    [[policy.rules]]
    id = "asks"
    effect = "ask"
    tools = ["fx__echo"]"#;

/// Returns the value of a series, named with its labels as the page writes them.
fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} is missing:\n{page}")).parse().unwrap()
}

#[test]
fn files_starts_and_processes_are_on_the_page() {
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let before = value(&gateway.scrape(), "headend_audit_bytes");
    for _ in 0..20 {
        gateway.modern().call("fx__echo", json!({"text": "recorded"}));
    }
    // Records that no call waits for are written within a second.
    eventually("records of calls", || value(&gateway.scrape(), "headend_audit_bytes") > before);
    let page = gateway.scrape();
    let at_start = value(&page, "process_start_time_seconds");
    for family in ["headend_audit_last_write_timestamp_seconds", "headend_store_last_write_timestamp_seconds"] {
        assert!(value(&page, family) + 2.0 > at_start, "{family}:\n{page}");
    }
    assert!(value(&page, "headend_store_bytes") >= 4096.0);
    assert_eq!(value(&page, "headend_log_dropped_lines_total"), 0.0);
    assert!(value(&page, "headend_start_duration_seconds") > 0.0);
    assert!(value(&page, r#"headend_upstream_start_duration_seconds{upstream="fx"}"#) > 0.0);
    let memory = value(&page, r#"headend_upstream_resident_memory_bytes{upstream="fx"}"#);
    assert!((1e5..1e9).contains(&memory), "{memory} bytes");
    value(&page, r#"headend_upstream_cpu_seconds_total{upstream="fx"}"#);
}

const LIMIT: &str =
    "[[policy.limits]]\nid = \"one\"\ntools = [\"fx__fail\"]\nkey = [\"caller\"]\nrate = \"1/h\"\nburst = 1";

/// Returns the path of a file in `config/`.
fn config(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(name)
}

#[test]
fn each_query_of_the_dashboard_and_the_alerts_finds_its_series_on_the_page() {
    let gateway = GatewaySetup::new().policy(ASK).toml(LIMIT).fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    // Families whose series begin with the first event: outcomes, limits, decisions.
    let mut client = gateway.legacy();
    client.call("fx__echo", json!({"text": "asks"}));
    (0..2).for_each(|_| drop(client.call("fx__fail", json!({}))));
    let page = gateway.scrape();
    let series = Series::read(&page);
    let dashboard = queries::of_dashboard(&fs::read_to_string(config("grafana-dashboard.json")).unwrap());
    let alerts = queries::of_alerts(&fs::read_to_string(config("prometheus-alerts.yml")).unwrap());
    assert!(dashboard.len() > 50 && alerts.len() > 10, "{} and {} queries", dashboard.len(), alerts.len());
    let lacking: Vec<String> = dashboard.iter().chain(&alerts).flat_map(|query| series.lacks(query)).collect();
    assert!(lacking.is_empty(), "{}\n{}", lacking.join("\n"), page);
}

#[test]
fn the_files_for_prometheus_pass_its_checks_and_the_alerts_their_tests() {
    if !installed("promtool") {
        return left_out("checks of the files for Prometheus", "promtool is not installed");
    }
    let world = TestHome::new();
    let passes = |args: &[&str], file: &Path| {
        let mut command = world.command("promtool");
        command.args(args).arg(file).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = output_within(command.spawn().unwrap(), Duration::from_secs(60), "promtool");
        assert!(output.status.success(), "promtool {args:?} {}: {}", file.display(), said(&output));
    };
    passes(&["check", "config"], &config("prometheus.yml"));
    passes(&["check", "rules", "--lint-fatal"], &config("prometheus-alerts.yml"));
    passes(&["test", "rules"], &config("prometheus-alerts-test.yml"));
    let tests = fs::read_to_string(config("prometheus-alerts-test.yml")).unwrap();
    for query in queries::of_alerts(&fs::read_to_string(config("prometheus-alerts.yml")).unwrap()) {
        let name = query.place.trim_start_matches("alert ");
        let (quiet, fires) = (format!("alertname: {name} }}"), format!("alertname: {name}\n        exp_alerts:"));
        assert!(tests.contains(&quiet) && tests.contains(&fires), "{name} has no test");
    }
    // Queries of the dashboard are well-formed: Prometheus would take them as rules.
    let dashboard = queries::of_dashboard(&fs::read_to_string(config("grafana-dashboard.json")).unwrap());
    let rules = dashboard.iter().enumerate();
    let rules = rules.map(|(n, query)| json!({"record": format!("dashboard:query:{n}"), "expr": query.text}));
    let rules = json!({"groups": [{"name": "dashboard", "rules": rules.collect::<Vec<_>>()}]});
    passes(&["check", "rules"], &world.write("dashboard.yml", &rules.to_string()));
}
