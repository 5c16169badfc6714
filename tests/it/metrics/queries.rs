//! Checks of the queries of the dashboard and the alerts in `config/` against the series that they
//! need. Queries are parsed as text: metric names with their matchers, `by (…)` before an
//! aggregation, and labels in legends and annotations.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Labels that Prometheus adds at the scrape.
const ADDED: [&str; 2] = ["instance", "job"];

/// A query, with the labels that its legend or annotations show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MetricQuery {
    pub(super) place: String,
    pub(super) text: String,
    shown: BTreeSet<String>,
}

/// A metric name with its matchers: label, operator and value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Selector {
    at: usize,
    name: String,
    matchers: Vec<(String, String, String)>,
}

/// The series of a page: the labels of each, by metric name.
#[derive(Debug, Default)]
pub(super) struct Series(BTreeMap<String, Vec<BTreeMap<String, String>>>);

impl Series {
    /// Parses a page in Prometheus' text format.
    pub(super) fn read(page: &str) -> Self {
        let mut series = Self::default();
        for line in page.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (selector, _) = line.rsplit_once(' ').unwrap();
            let selector = selectors(selector).remove(0);
            let labels = selector.matchers.into_iter().map(|(label, _, value)| (label, value)).collect();
            series.0.entry(selector.name).or_default().push(labels);
        }
        // Prometheus creates this series itself.
        series.0.entry("up".to_owned()).or_default().push(BTreeMap::new());
        series
    }

    /// Returns the reasons why a query would find nothing; empty if each metric exists with the
    /// labels that the query names.
    pub(super) fn lacks(&self, query: &MetricQuery) -> Vec<String> {
        let selectors = selectors(&query.text);
        if selectors.is_empty() {
            return vec![format!("{}: no metric in {}", query.place, query.text)];
        }
        let groups = groups(&query.text);
        let mut lacking = Vec::new();
        for selector in &selectors {
            let inside = groups.iter().filter(|group| group.range.contains(&selector.at));
            let by: Vec<&String> = inside.flat_map(|group| &group.labels).collect();
            // Without an aggregation, all labels of the series are kept.
            let shown = query.shown.iter().filter(|_| groups.is_empty());
            let fits = |labels: &BTreeMap<String, String>| {
                let has = |label: &str| ADDED.contains(&label) || labels.contains_key(label);
                let matches = selector.matchers.iter().all(|(label, operator, value)| {
                    let is_equal = ADDED.contains(&label.as_str()) || labels.get(label) == Some(value);
                    has(label) && (operator != "=" || is_equal)
                });
                matches && by.iter().all(|label| has(label)) && shown.clone().all(|label| has(label))
            };
            if !self.0.get(&selector.name).is_some_and(|series| series.iter().any(fits)) {
                lacking.push(format!("{}: no series for {selector:?} by {by:?}", query.place));
            }
        }
        let left: BTreeSet<&String> = groups.iter().flat_map(|group| &group.labels).collect();
        let lost = query.shown.iter().filter(|label| !groups.is_empty() && !left.contains(label));
        lacking.extend(lost.map(|label| format!("{}: {label} is shown and aggregated away", query.place)));
        lacking
    }
}

/// Returns the queries of a dashboard, and the query of its variable.
pub(super) fn of_dashboard(dashboard: &str) -> Vec<MetricQuery> {
    let dashboard: Value = serde_json::from_str(dashboard).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            queries.push(MetricQuery {
                place: format!("panel {}", panel["title"]),
                text: target["expr"].as_str().unwrap().replace("$__rate_interval", "5m").replace("$instance", ".*"),
                shown: shown(target["legendFormat"].as_str().unwrap()),
            });
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if let Some(text) = variable["query"]["query"].as_str() {
            let (text, label) = text.strip_prefix("label_values(").unwrap().rsplit_once(", ").unwrap();
            let shown = BTreeSet::from([label.trim_end_matches(')').to_owned()]);
            queries.push(MetricQuery { place: format!("variable {}", variable["name"]), text: text.to_owned(), shown });
        }
    }
    queries
}

/// Returns the queries of a file of alerts in the form of `config/prometheus-alerts.yml`.
pub(super) fn of_alerts(alerts: &str) -> Vec<MetricQuery> {
    let rules = alerts.split("- alert: ").skip(1);
    let query = |rule: &str| {
        let (name, rest) = rule.split_once('\n').unwrap();
        let (_, rest) = rest.split_once("expr: ").unwrap();
        let is_over = |line: &&str| !line.trim_start().starts_with("for:") && !line.trim_start().starts_with("labels:");
        let lines = rest.lines().take_while(is_over).map(str::trim).filter(|line| *line != ">-");
        MetricQuery { place: format!("alert {name}"), text: lines.collect::<Vec<_>>().join(" "), shown: shown(rest) }
    };
    rules.map(query).collect()
}

/// Returns the labels in `{{label}}` and `{{ $labels.label }}`.
fn shown(text: &str) -> BTreeSet<String> {
    let inside = text.split("{{").skip(1).filter_map(|rest| rest.split_once("}}")).map(|(inside, _)| inside.trim());
    let labels = inside.filter(|inside| !inside.starts_with("$value"));
    labels.map(|inside| inside.trim_start_matches("$labels.").to_owned()).collect()
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':'
}

/// Returns the end of the quoted text that begins at `begin`.
fn end_of_string(text: &str, begin: usize) -> usize {
    let bytes = text.as_bytes();
    let mut at = begin + 1;
    while bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at
}

/// Returns the metrics of a query. Functions are recognised by their parenthesis, and keywords are
/// those used in the files.
fn selectors(text: &str) -> Vec<Selector> {
    let bytes = text.as_bytes();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let begin = at;
        match bytes[at] {
            b'[' => at += text[at..].find(']').unwrap(),
            b'"' => at = end_of_string(text, at),
            byte if is_of_name(byte) => {
                at += text[at..].bytes().take_while(|byte| is_of_name(*byte)).count();
                let word = &text[begin..at];
                if word == "by" {
                    at += text[at..].find(')').unwrap();
                } else if !byte.is_ascii_digit() && !matches!(word, "and" | "or" | "unless") {
                    if bytes.get(at) == Some(&b'{') {
                        let matchers = matchers(text, &mut at);
                        found.push(Selector { at: begin, name: word.to_owned(), matchers });
                    } else if !text[at..].starts_with('(') && !text[at..].starts_with(" by (") {
                        found.push(Selector { at: begin, name: word.to_owned(), matchers: Vec::new() });
                    }
                }
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Parses `{label="value", …}` and moves `at` behind it.
fn matchers(text: &str, at: &mut usize) -> Vec<(String, String, String)> {
    let mut matchers = Vec::new();
    *at += 1;
    while text.as_bytes()[*at] != b'}' {
        let quote = *at + text[*at..].find('"').unwrap();
        let (end, before) = (end_of_string(text, quote), &text[*at..quote]);
        let (label, operator) = before.split_at(before.find(['=', '!']).unwrap());
        let label = label.trim_start_matches([',', ' ']).to_owned();
        matchers.push((label, operator.to_owned(), text[quote + 1..end].to_owned()));
        *at = end + 1;
    }
    *at += 1;
    matchers
}

/// An aggregation: its labels, and its range in the text.
#[derive(Debug)]
struct LabelGroup {
    labels: Vec<String>,
    range: std::ops::Range<usize>,
}

fn groups(text: &str) -> Vec<LabelGroup> {
    let group = |(at, _): (usize, &str)| {
        let labels = at + " by (".len();
        let end = labels + text[labels..].find(')').unwrap();
        let begin = end + text[end..].find('(').unwrap();
        let mut depth = 0;
        let close = text[begin..].bytes().position(|byte| {
            depth += i32::from(byte == b'(') - i32::from(byte == b')');
            depth == 0
        });
        let labels = text[labels..end].split(',').map(|label| label.trim().to_owned()).collect();
        LabelGroup { labels, range: begin..begin + close.unwrap() }
    };
    text.match_indices(" by (").map(group).collect()
}

#[test]
fn a_query_that_would_find_nothing_is_told_from_one_that_finds_something() {
    let page = "# TYPE a_total counter\na_total{outcome=\"ok\",upstream=\"x\"} 1\nb 2\nc_bucket{le=\"+Inf\"} 3\n";
    let series = Series::read(page);
    let lacks = |text: &str, shows: &[&str]| {
        let shown = shows.iter().map(|label| (*label).to_owned()).collect();
        series.lacks(&MetricQuery { place: "here".to_owned(), text: text.to_owned(), shown }).len()
    };
    for (text, shows) in [
        ("sum by (upstream) (rate(a_total{job=\"headend\", outcome=\"ok\"}[5m]))", &["upstream"][..]),
        ("histogram_quantile(0.95, sum by (le) (rate(c_bucket{instance=~\".*\"}[5m])))", &[]),
        ("a_total{outcome=~\"error|ok\"} / ignoring_nothing(b) > 0.2", &["instance"]),
        ("time() - max(b)", &[]),
        ("up{job=\"headend\"} == 0", &["instance"]),
    ] {
        assert_eq!(lacks(text, shows), 0, "{text}");
    }
    for (text, shows) in [
        ("absent_total", &[][..]),
        ("a_total{outcome=\"error\"}", &[]),
        ("a_total{caller=~\"x\"}", &[]),
        ("sum by (caller) (a_total)", &[]),
        ("sum by (upstream) (a_total) / sum by (upstream) (b)", &[]),
        ("sum by (upstream) (a_total)", &["outcome"]),
        ("b", &["upstream"]),
        ("1 + 2", &[]),
    ] {
        assert_eq!(lacks(text, shows), 1, "{text}");
    }
}
