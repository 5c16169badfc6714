//! The budgets of the first release, and whether a run keeps them.

use std::fmt::Write;

use crate::table::{CPU, P50, RATE, Results, number};

/// Targets' names in the results.
pub(crate) const DIRECT: &str = "direct";
pub(crate) const FLOOR: &str = "floor";
pub(crate) const NGINX: &str = "nginx";
pub(crate) const HEADEND: &str = "headend";
pub(crate) const HEADEND_TEN: &str = "headend, ten upstreams";
pub(crate) const HEADEND_RULES: &str = "headend, 100 rules";
pub(crate) const HEADEND_GRANTED: &str = "headend, a live grant";

/// Rows' names in the results.
pub(crate) const CALL_C16: &str = "call, c16";
pub(crate) const CALL_C64: &str = "call, c64";
pub(crate) const MODERN_C16: &str = "modern call, c16";
pub(crate) const CALL_C1: &str = "call, c1";
pub(crate) const LIST_C4: &str = "tools/list of 500, c4";
pub(crate) const BIG64K_C8: &str = "64 KiB result, c8";
pub(crate) const BIG1M_C4: &str = "1 MiB result, c4";
pub(crate) const ARG64K_C8: &str = "64 KiB argument, c8";
pub(crate) const PROGRESS_C4: &str = "10 progress a call, c4";
pub(crate) const STDIO_C16: &str = "HTTP to stdio, c16";
pub(crate) const STDIO_C1: &str = "HTTP to stdio, c1";

/// Memory of one process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) idle_mib: f64,
    /// For each session with an open stream.
    pub(crate) session_kib: f64,
}

/// Figures that are measured without a load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Singles {
    pub(crate) headend: Option<Memory>,
    pub(crate) floor: Option<Memory>,
    /// Milliseconds from the start to the full list of ten upstreams, with an empty state directory.
    pub(crate) spawn_ms: Option<f64>,
    /// The same once more, with the state that the first start left.
    pub(crate) respawn_ms: Option<f64>,
    /// Microseconds of one decision under 100 rules, of which 20 look at the call's arguments.
    pub(crate) decide_us: Option<f64>,
    /// Instructions of one call, by the name of the way that it takes; none where they cannot be counted.
    pub(crate) instructions: Vec<(&'static str, f64)>,
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// A figure without a budget, for watching.
    None,
}

struct Budget {
    figure: String,
    measured: Option<f64>,
    unit: &'static str,
    digits: usize,
    bound: Bound,
    /// The gateway's figure as a multiple of the floor's.
    to_floor: Option<f64>,
}

/// The budgets as a Markdown table.
pub(crate) fn markdown(results: &Results, singles: &Singles) -> String {
    let mut table = String::from("| figure | measured | x floor | budget | verdict |\n|---|---|---|---|---|\n");
    let budgets = [calls(results), payloads(results), single_figures(singles)];
    for budget in budgets.iter().flatten() {
        let Budget { figure, measured, unit, digits, bound, to_floor } = budget;
        let show = |value: f64| format!("{value} {unit}");
        let (limit, kept) = match bound {
            Bound::AtMost(limit) => (format!("<= {}", show(*limit)), measured.map(|value| value <= *limit)),
            Bound::AtLeast(limit) => (format!(">= {}", show(*limit)), measured.map(|value| value >= *limit)),
            Bound::None => ("-".to_owned(), None),
        };
        let verdict = match (kept, measured) {
            (Some(true), _) => "pass",
            (Some(false), _) => "**miss**",
            (None, Some(_)) => "-",
            (None, None) => "not measured",
        };
        let measured = measured.map_or("-".to_owned(), |_| format!("{} {unit}", number(*measured, *digits)));
        let to_floor = number(*to_floor, 2);
        writeln!(table, "| {figure} | {measured} | {to_floor} | {limit} | {verdict} |")
            .expect("invariant: writing to a string does not fail");
    }
    table
}

/// The cost of a small call.
fn calls(results: &Results) -> Vec<Budget> {
    let mut budgets = Vec::new();
    for row in [CALL_C16, CALL_C64, MODERN_C16] {
        let to_floor = results.ratio(row, (HEADEND, FLOOR), CPU);
        budgets.push(Budget {
            figure: format!("{row}: CPU per call"),
            measured: to_floor,
            unit: "x floor",
            digits: 2,
            bound: Bound::AtMost(1.6),
            to_floor,
        });
    }
    for row in [CALL_C16, CALL_C64] {
        budgets.push(against_nginx(results, row, 0.5));
    }
    let added = |target| results.paired(CALL_C1, (target, DIRECT), P50, |left, right| left - right);
    budgets.push(Budget {
        figure: format!("{CALL_C1}: p50 over direct"),
        measured: added(HEADEND),
        unit: "us",
        digits: 0,
        bound: Bound::AtMost(40.0),
        to_floor: added(HEADEND).zip(added(FLOOR)).map(|(gateway, floor)| gateway / floor),
    });
    budgets.push(Budget {
        figure: format!("{CALL_C16}: CPU per call with ten upstreams"),
        measured: results.ratio(CALL_C16, (HEADEND_TEN, HEADEND), CPU),
        unit: "x one",
        digits: 2,
        bound: Bound::AtMost(1.05),
        to_floor: results.ratio(CALL_C16, (HEADEND_TEN, FLOOR), CPU),
    });
    budgets.push(Budget {
        figure: format!("{CALL_C16}: CPU that 100 rules add"),
        measured: results.paired(CALL_C16, (HEADEND_RULES, HEADEND), CPU, |left, right| left - right),
        unit: "us",
        digits: 1,
        bound: Bound::AtMost(5.0),
        to_floor: results.ratio(CALL_C16, (HEADEND_RULES, FLOOR), CPU),
    });
    budgets.push(Budget {
        figure: format!("{CALL_C16}: CPU per call with a live grant"),
        measured: results.ratio(CALL_C16, (HEADEND_GRANTED, HEADEND), CPU),
        unit: "x without policy",
        digits: 2,
        bound: Bound::AtMost(1.10),
        to_floor: results.ratio(CALL_C16, (HEADEND_GRANTED, FLOOR), CPU),
    });
    budgets.push(Budget {
        figure: format!("{CALL_C16}: p50 with a live grant"),
        measured: results.ratio(CALL_C16, (HEADEND_GRANTED, HEADEND), P50),
        unit: "x without policy",
        digits: 2,
        bound: Bound::None,
        to_floor: None,
    });
    budgets
}

/// Lists, large messages, notices and stdio.
fn payloads(results: &Results) -> Vec<Budget> {
    let cpu = |row: &str, target, bound| Budget {
        figure: format!("{row}: CPU"),
        measured: results.median(row, target, CPU),
        unit: "us",
        digits: 1,
        bound,
        to_floor: results.ratio(row, (target, FLOOR), CPU),
    };
    vec![
        cpu(LIST_C4, HEADEND_TEN, Bound::AtMost(500.0)),
        Budget {
            figure: format!("{LIST_C4}: req/s"),
            measured: results.ratio(LIST_C4, (HEADEND_TEN, DIRECT), RATE),
            unit: "x direct",
            digits: 2,
            bound: Bound::None,
            to_floor: None,
        },
        against_nginx(results, BIG64K_C8, 0.6),
        against_nginx(results, BIG1M_C4, 0.8),
        cpu(ARG64K_C8, HEADEND, Bound::None),
        cpu(PROGRESS_C4, HEADEND, Bound::AtMost(110.0)),
        cpu(STDIO_C16, HEADEND, Bound::AtMost(35.0)),
        cpu(STDIO_C1, HEADEND, Bound::None),
    ]
}

fn against_nginx(results: &Results, row: &str, least: f64) -> Budget {
    Budget {
        figure: format!("{row}: req/s"),
        measured: results.ratio(row, (HEADEND, NGINX), RATE),
        unit: "x nginx",
        digits: 2,
        bound: Bound::AtLeast(least),
        to_floor: results.ratio(row, (HEADEND, FLOOR), RATE),
    }
}

fn single_figures(singles: &Singles) -> Vec<Budget> {
    let memory = |figure: &str, unit, of: fn(Memory) -> f64, most| Budget {
        figure: figure.to_owned(),
        measured: singles.headend.map(of),
        unit,
        digits: 1,
        bound: Bound::AtMost(most),
        to_floor: singles.headend.zip(singles.floor).map(|(gateway, floor)| of(gateway) / of(floor)),
    };
    let start = |figure: &str, measured, bound| Budget {
        figure: figure.to_owned(),
        measured,
        unit: "ms",
        digits: 1,
        bound,
        to_floor: None,
    };
    let mut figures = vec![
        memory("idle RSS", "MiB", |memory| memory.idle_mib, 15.0),
        memory("RSS per idle session with an open stream", "KiB", |memory| memory.session_kib, 40.0),
        start("start to full list, ten upstreams", singles.spawn_ms, Bound::AtMost(40.0)),
        start("the same with the state of an earlier run", singles.respawn_ms, Bound::None),
        Budget {
            figure: "a decision, 100 rules of which 20 look at its arguments".to_owned(),
            measured: singles.decide_us,
            unit: "us",
            digits: 2,
            bound: Bound::AtMost(5.0),
            to_floor: None,
        },
    ];
    figures.extend(singles.instructions.iter().map(|(way, count)| Budget {
        figure: format!("{way}: instructions per call"),
        measured: Some(*count),
        unit: "instructions",
        digits: 0,
        bound: Bound::None,
        to_floor: None,
    }));
    figures
}
