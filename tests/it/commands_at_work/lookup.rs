//! Tests of looking up calls in a long log on the console's page, without more memory and without
//! reading anything twice.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::consenting_people::habit::week;
use crate::tools::browser::Browser;
use crate::tools::harness::GatewaySetup;
use crate::tools::process::eventually;
use crate::tools::upstream::Fake;

const RECORDS: u64 = 100_000;
/// Bytes by which the daemon may grow: blocks of the log, a page, and the allocator's reserve.
const GROWTH: u64 = 24 << 20;

/// One page of calls.
struct AuditPage {
    rows: usize,
    looked_at: u64,
    next: Option<String>,
    text: String,
    took: Duration,
}

fn page(browser: &Browser, path: &str) -> AuditPage {
    let begun = Instant::now();
    let answer = browser.get(path);
    let took = begun.elapsed();
    assert_eq!(answer.head.status, 200, "{path}");
    let text = answer.text();
    let looked = text.rsplit_once(" looked at").unwrap_or_default().0;
    let number = looked.split(|c: char| !c.is_ascii_digit()).rfind(|part| !part.is_empty());
    let next = text.split("rel=\"next\"").next().filter(|before| before.len() < text.len());
    let next = next.and_then(|before| before.rsplit_once("href=\"")?.1.split('"').next());
    AuditPage {
        rows: text.matches("<tr role=\"row\"><td").count(),
        looked_at: number.unwrap_or_else(|| panic!("{text}")).parse().unwrap(),
        next: next.map(|next| next.replace("&#38;", "&").replace("&amp;", "&")),
        text,
        took,
    }
}

/// Reads all pages of a filter. Returns their rows, the records looked at, the number of pages, and
/// the longest time for one.
fn all(browser: &Browser, path: &str) -> (usize, u64, usize, Duration) {
    let (mut rows, mut looked_at, mut pages, mut longest) = (0, 0, 0, Duration::ZERO);
    let mut next = Some(path.to_owned());
    while let Some(path) = next.take() {
        let page = page(browser, &path);
        (rows, looked_at, pages, longest) =
            (rows + page.rows, looked_at + page.looked_at, pages + 1, longest.max(page.took));
        next = page.next;
    }
    (rows, looked_at, pages, longest)
}

#[test]
fn a_filter_over_a_hundred_thousand_records_reads_each_once_and_keeps_nothing() {
    let gateway = GatewaySetup::new().start();
    let browser = Browser::signed_in(&gateway);
    let path = week::write_chain(&gateway.world.path("state/headend/audit"), "s-0badcafe", 23, true, 24_000);
    let text = fs::read_to_string(&path).unwrap();
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = records.len() as u64;
    assert!(count >= RECORDS, "{count}");
    // Three damaged lines among them.
    let damaged = text.replacen(",\"event\":\"outcome\"", ",\"event\":\"outcom\"", 3);
    fs::write(&path, damaged).unwrap();
    for _ in 0..3 {
        page(&browser, "/calls");
    }
    let before = gateway.resident();
    let of = |event: &str, members: &[(&str, &str)]| {
        let is =
            |record: &&Value| record["event"] == event && members.iter().all(|(name, value)| record[*name] == *value);
        records.iter().filter(is).count()
    };
    let filters = [
        (
            "/calls?caller=hal&item=git__tag&decision=ask",
            of("decision", &[("caller", "hal"), ("item", "git__tag"), ("result", "ask")]),
        ),
        ("/calls?outcome=timed-out&decision=ask", of("answer", &[("result", "timed-out")])),
        ("/calls?item=GIT__PUSH&client=MADE-up&rule=default", of("decision", &[("item", "git__push_force")])),
        ("/calls?caller=nobody", 0),
    ];
    for (filter, want) in filters {
        let (rows, looked_at, pages, longest) = all(&browser, filter);
        println!("{filter}: {rows} rows, {looked_at} records looked at in {pages} pages, at most {longest:?} each");
        assert_eq!(rows, want, "{filter}");
        // The daemon's own chain has a few records, and the last record of a page is not looked at
        // again.
        assert!((count..count + 20).contains(&looked_at), "{filter}: {looked_at} of {count}");
    }
    let growth = gateway.resident().saturating_sub(before);
    println!("{count} records, {} MiB; the daemon grew by {} KiB", text.len() >> 20, growth >> 10);
    assert!(growth < GROWTH, "{growth}");
    // They are among the oldest records, so on the last page.
    let mut last = page(&browser, "/calls?caller=nobody");
    while let Some(next) = last.next.take() {
        last = page(&browser, &next);
    }
    assert!(last.text.contains("3 damaged lines"), "{}", last.text);
}

#[test]
fn days_back_are_pages_of_their_own() {
    let gateway = GatewaySetup::new().start();
    let browser = Browser::signed_in(&gateway);
    let path = week::write_chain(&gateway.world.path("state/headend/audit"), "s-0badcafe", 5, false, 600);
    let mut days: BTreeMap<String, usize> = BTreeMap::new();
    for line in fs::read_to_string(path).unwrap().lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        if record["event"] == "decision" {
            *days.entry(record["ts"].as_str().unwrap()[..10].to_owned()).or_default() += 1;
        }
    }
    assert!(days.len() > 4, "{days:?}");
    for (day, decisions) in &days {
        let (rows, ..) = all(&browser, &format!("/calls?day={day}"));
        assert_eq!(rows, *decisions, "{day}");
        let first = page(&browser, &format!("/calls?day={day}"));
        assert!(first.text.matches(&format!("datetime=\"{day}T")).count() == first.rows, "{day}");
    }
    assert_eq!(all(&browser, "/calls?day=2001-01-01").0, 0);
}

#[test]
fn a_call_is_there_with_its_client_its_outcome_and_its_arguments() {
    let setup = GatewaySetup::new().fake("fx", &Fake::stdio("both")).toml("[audit]\ncapture-arguments = \"full\"");
    let gateway = setup.start();
    gateway.wait_for_tools(&["fx__echo"]);
    let browser = Browser::signed_in(&gateway);
    for mut client in [gateway.legacy(), gateway.modern()] {
        client.call("fx__echo", json!({"text": "<i>\u{202e}needle"}));
    }
    eventually("both calls are there", || page(&browser, "/calls?item=fx__echo").rows == 2);
    let text = page(&browser, "/calls?item=fx__echo&outcome=ok").text;
    // Fast calls take less than a millisecond.
    assert!(text.contains(" ms") || text.contains(" µs"), "{text}");
    for part in ["needle", "says it is", "Ok", "<mark>\\u{202e}</mark>", "rule matches", "local"] {
        let found = text.contains(part) || (part == "rule matches" && text.contains("no rule matches"));
        assert!(found, "{part}: {text}");
    }
    assert!(!text.contains("<i>"), "{text}");
}
