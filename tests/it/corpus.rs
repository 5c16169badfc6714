//! The bad-input corpus: malformed requests, each with its acceptable answers.
//!
//! `tests/data/bad-inputs.jsonl` has one case on each line. This runner plays cases of clients over
//! HTTP, raw bytes and stdio, cases of upstreams over stdio and HTTP, and configuration files. A
//! case that needs a missing feature is printed with the reason.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use self::case::Case;
use self::judge::{CaseOutcome, same};
use self::stage::CorpusGateway;

mod case;
mod codings;
mod consent;
mod files;
mod judge;
mod over_h2;
mod over_http;
mod over_sse;
mod over_stdio;
mod over_upstream;
mod raw_server;
mod stage;

/// Cases whose answer differs from the corpus on purpose: the only allowed differences, with
/// reasons. May only shrink.
const KNOWN_DIFFERENCES: &[(&str, &str, &str)] = &[(
    "D51",
    r#"code None, not [Number(-32602)]: {"id":2,"jsonrpc":"2.0","result":{"inputRequests":{"gw.consent":"#,
    "a state whose consent was used is genuine still, so the call is one that nobody has agreed to: the person is asked again",
)];

/// Transports whose cases have no runner here, with the reason.
const NOT_PLAYED: &[(&str, &str)] =
    &[("oauth-client", "documents of a login, played by the tables of `login` and by `upstream::login::fetcher`")];

/// Cases that take seconds; they run at the same time on a daemon of their own.
const SLOW_MS: u64 = 5_000;

#[test]
fn bad_requests_over_http_get_the_expected_answers() {
    let cases: Vec<Case> = Case::load().into_iter().filter(|case| case.is_http() && !case.has_streams()).collect();
    let mut report = CorpusReport::default();
    let (slow, fast): (Vec<Case>, Vec<Case>) = cases.into_iter().partition(|case| case.within_ms() > SLOW_MS);
    let shared = CorpusGateway::plain();
    let slowly = CorpusGateway::plain();
    let outcomes = thread::scope(|scope| {
        let slow: Vec<_> = slow
            .iter()
            .filter(|case| !report.skips(case))
            .map(|case| (case, scope.spawn(|| over_http::play(case, &slowly))))
            .collect();
        let mut outcomes = BTreeMap::new();
        for case in &fast {
            if !report.skips(case) {
                let own = CorpusGateway::of(case);
                outcomes.insert(case.id.clone(), over_http::play(case, own.as_ref().unwrap_or(&shared)));
            }
        }
        outcomes.extend(slow.into_iter().map(|(case, thread)| (case.id.clone(), thread.join().unwrap())));
        outcomes
    });
    for case in fast.iter().chain(&slow) {
        if let Some(outcome) = outcomes.get(&case.id) {
            let mut wrong = outcome.wrong.clone();
            wrong.extend(compared(case, outcome, &outcomes));
            report.take(case, "http", wrong);
        }
    }
    report.finish(&shared.gateway.story());
}

#[test]
fn bad_frames_over_h2_get_the_expected_answers() {
    let cases: Vec<Case> = Case::load().into_iter().filter(|case| case.transport == "http2-raw").collect();
    let mut report = CorpusReport::default();
    let stage = over_h2::FramedGateway::start();
    for case in &cases {
        report.take(case, "h2", stage.play(case));
    }
    report.finish(&stage.gateway.story());
}

#[test]
fn bad_lines_over_stdio_get_the_expected_answers() {
    let cases: Vec<Case> = Case::load().into_iter().filter(Case::is_stdio).collect();
    let mut report = CorpusReport::default();
    let cases: Vec<Case> = cases.into_iter().filter(|case| !report.skips(case)).collect();
    for (case, wrong) in in_lanes(&cases, over_stdio::play) {
        report.take(case, "stdio", wrong);
    }
    report.finish("");
}

#[test]
fn bad_upstreams_cost_their_own_callers_alone() {
    let cases: Vec<Case> = Case::load().into_iter().filter(Case::is_upstream).collect();
    let mut report = CorpusReport::default();
    let cases: Vec<Case> = cases.into_iter().filter(|case| !report.skips(case)).collect();
    for (case, wrong) in in_lanes(&cases, over_upstream::play) {
        report.take(case, &case.transport, wrong);
    }
    report.finish("");
}

#[test]
fn bad_configuration_files_are_refused_and_change_nothing() {
    let cases: Vec<Case> = Case::load().into_iter().filter(|case| case.transport == "config").collect();
    let mut report = CorpusReport::default();
    let running = CorpusGateway::plain();
    for case in &cases {
        if !report.skips(case) {
            report.take(case, "config", files::play(case, &running));
        }
    }
    report.finish(&running.gateway.story());
}

#[test]
fn every_known_difference_names_a_case_and_a_reason() {
    let cases = Case::load();
    for (id, _, why) in KNOWN_DIFFERENCES {
        assert!(cases.iter().any(|case| case.id == *id), "{id} is no case");
        assert!(why.len() > 20, "{id}: say why");
    }
}

#[test]
fn every_case_has_a_runner_or_a_reason() {
    let mut left_out = BTreeMap::new();
    for case in Case::load() {
        let here = case.is_http() || case.is_stdio() || case.is_upstream();
        if !(here || matches!(case.transport.as_str(), "config" | "sse" | "upstream-sse")) {
            let reason = NOT_PLAYED.iter().find(|(transport, _)| *transport == case.transport);
            let (_, why) = reason.unwrap_or_else(|| panic!("nobody plays {} ({})", case.id, case.transport));
            left_out.entry((case.transport, why)).or_insert_with(Vec::new).push(case.id);
        }
    }
    for ((transport, why), ids) in left_out {
        eprintln!("left out: {transport}: {why}: {}", ids.join(" "));
    }
}

/// Plays each case in one of four threads.
fn in_lanes(cases: &[Case], play: impl Fn(&Case) -> Vec<String> + Sync) -> Vec<(&Case, Vec<String>)> {
    const LANES: usize = 4;
    thread::scope(|scope| {
        let lane = |first: usize| {
            let play = &play;
            // One case that panics must not hide the others.
            let safely =
                move |case| catch_unwind(AssertUnwindSafe(|| play(case))).unwrap_or_else(|why| vec![said(&*why)]);
            move || cases.iter().skip(first).step_by(LANES).map(|case| (case, safely(case))).collect::<Vec<_>>()
        };
        let lanes: Vec<_> = (0..LANES).map(|first| scope.spawn(lane(first))).collect();
        lanes.into_iter().flat_map(|lane| lane.join().unwrap()).collect()
    })
}

/// Returns the message of a panic.
fn said(why: &(dyn Any + Send)) -> String {
    let text = why.downcast_ref::<String>().map(String::as_str).or_else(|| why.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("see above"))
}

/// Compares a case with the other case whose answer it must have, and returns the difference.
fn compared(case: &Case, outcome: &CaseOutcome, all: &BTreeMap<String, CaseOutcome>) -> Option<String> {
    let (member, whole) = match (case.expect("same_as"), case.expect("same_shape_as")) {
        (Some(other), _) => (other, true),
        (None, Some(other)) => (other, false),
        (None, None) => return None,
    };
    let other = all.get(member.as_str()?)?;
    same(outcome, other, whole).map(|why| format!("not like {member}: {why}"))
}

#[derive(Debug, Default)]
struct CorpusReport {
    played: usize,
    skipped: Vec<String>,
    known: Vec<String>,
    wrong: Vec<String>,
}

impl CorpusReport {
    fn skips(&mut self, case: &Case) -> bool {
        let why = case.needs_what_is_missing();
        self.skipped.extend(why.map(|why| format!("{}: {why}", case.id)));
        why.is_some()
    }

    fn take(&mut self, case: &Case, over: &str, wrong: Vec<String>) {
        self.played += 1;
        let known = KNOWN_DIFFERENCES.iter().find(|(id, _, _)| *id == case.id);
        match (known, wrong.as_slice()) {
            (Some((id, what, why)), [only]) if only.starts_with(what) => self.known.push(format!("{id}: {why}")),
            (Some((id, _, _)), []) => self.wrong.push(format!("{id} passes over {over}: no longer a known difference")),
            (None, []) => {}
            (_, wrong) => self.wrong.push(format!("{} over {over} ({}): {}", case.id, case.why, wrong.join("; "))),
        }
    }

    fn finish(self, story: &str) {
        eprintln!(
            "{} cases played, {} left out, {} known differences",
            self.played,
            self.skipped.len(),
            self.known.len()
        );
        for line in self.skipped.iter().chain(&self.known) {
            eprintln!("  {line}");
        }
        assert!(self.played > 0, "the corpus is empty");
        assert!(self.wrong.is_empty(), "{} differ:\n{}\n{story}", self.wrong.len(), self.wrong.join("\n"));
    }
}
