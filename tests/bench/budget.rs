//! The budgets, and whether a run keeps them.

use std::fmt::Write;

use crate::table::{CPU, P50, RATE, Results, number};

/// Targets' names in the results.
pub(crate) const DIRECT: &str = "direct";
pub(crate) const FLOOR: &str = "floor";
pub(crate) const NGINX: &str = "nginx";
pub(crate) const HEADEND: &str = "headend";
pub(crate) const HEADEND_HUNDRED: &str = "headend, 100 upstreams";
pub(crate) const HEADEND_RULES: &str = "headend, 100 rules";
pub(crate) const HEADEND_GRANTED: &str = "headend, a live grant";

/// Rows' names in the results.
pub(crate) const CALL_C16: &str = "call, c16";
pub(crate) const CALL_C64: &str = "call, c64";
pub(crate) const MODERN_C16: &str = "modern call, c16";
pub(crate) const LEGACY_TO_MODERN_C16: &str = "legacy call of a modern server, c16";
pub(crate) const MODERN_TO_LEGACY_C16: &str = "modern call of a legacy server, c16";
pub(crate) const CALL_C1: &str = "call, c1";
pub(crate) const LIST_C4: &str = "tools/list of 5,000, c4";
pub(crate) const BIG64K_C8: &str = "64 KiB result, c8";
pub(crate) const BIG1M_C4: &str = "1 MiB result, c4";
pub(crate) const ARG64K_C8: &str = "64 KiB argument, c8";
pub(crate) const ARG1M_C4: &str = "1 MiB argument, c4";
pub(crate) const PROGRESS_C4: &str = "10 progress a call, c4";
pub(crate) const TLS_C16: &str = "call of a server over TLS, c16";
pub(crate) const STDIO_C16: &str = "HTTP to stdio, c16";
pub(crate) const STDIO_C1: &str = "HTTP to stdio, c1";

/// Names of the call paths whose instructions are counted.
pub(crate) const LEGACY_TO_LEGACY: &str = "legacy";
pub(crate) const MODERN_TO_MODERN: &str = "modern";
pub(crate) const LEGACY_TO_MODERN: &str = "legacy-to-modern";
pub(crate) const MODERN_TO_LEGACY: &str = "modern-to-legacy";
pub(crate) const LONG_ARGUMENT: &str = "64 KiB argument";
pub(crate) const TOKEN: &str = "generated token";
pub(crate) const JWT: &str = "JWT seen before";
pub(crate) const GRANTED: &str = "a live grant";
pub(crate) const RULES: &str = "100 rules";

/// Memory of one process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) idle_mib: f64,
    /// Resident memory that is backed by no file, in MiB.
    pub(crate) anonymous_mib: f64,
    /// Memory for each session with an open stream, in KiB.
    pub(crate) session_kib: f64,
}

/// The cost of a call, counted by callgrind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallCost {
    /// Instructions of a call, without those of [`Self::sha`].
    pub(crate) instructions: f64,
    /// Instructions of SHA-256 by software, which real processors do by their own.
    pub(crate) sha: f64,
    pub(crate) allocations: f64,
}

/// Figures that are measured without a load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Singles {
    /// True if the gateway is a build of `[profile.dist]`.
    pub(crate) is_dist: bool,
    pub(crate) headend: Option<Memory>,
    pub(crate) floor: Option<Memory>,
    /// Milliseconds from the start to the full list of ten upstreams, with an empty state
    /// directory.
    pub(crate) spawn_ms: Option<f64>,
    /// Milliseconds of the next start, with the state directory that the first start left.
    pub(crate) respawn_ms: Option<f64>,
    /// Microseconds of one decision under 100 rules, of which 20 look at the call's arguments.
    pub(crate) decide_us: Option<f64>,
    /// Counts by the name of the call's path; empty if they cannot be counted.
    pub(crate) counts: Vec<(&'static str, CallCost)>,
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    /// The required bound and the aimed one.
    AtMost(f64, f64),
    AtLeast(f64, f64),
    /// A figure without a budget, for watching.
    None,
}

struct CostBudget {
    figure: String,
    measured: Option<f64>,
    unit: &'static str,
    digits: usize,
    bound: Bound,
}

/// Returns the budgets as a Markdown table.
pub(crate) fn markdown(results: &Results, singles: &Singles) -> String {
    let mut table = String::from("| figure | measured | required | goal | verdict |\n|---|---|---|---|---|\n");
    let budgets = [calls(results, singles), payloads(results), counted(singles), single_figures(singles)];
    for budget in budgets.iter().flatten() {
        let CostBudget { figure, measured, unit, digits, bound } = budget;
        let limits = |sign: &str, required: &f64, goal: &f64| (format!("{sign} {required}"), format!("{goal}"));
        let (required, goal) = match bound {
            Bound::AtMost(required, goal) => limits("<=", required, goal),
            Bound::AtLeast(required, goal) => limits(">=", required, goal),
            Bound::None => ("-".to_owned(), "-".to_owned()),
        };
        let verdict = measured.map_or("not measured", |value| bound.verdict(value));
        let measured =
            measured.map_or("-".to_owned(), |_| format!("{} {unit}", number(*measured, *digits)).trim_end().to_owned());
        writeln!(table, "| {figure} | {measured} | {required} | {goal} | {verdict} |")
            .expect("invariant: writing to a string does not fail");
    }
    table
}

impl Bound {
    fn verdict(self, value: f64) -> &'static str {
        let (is_kept, is_goal) = match self {
            Self::AtMost(required, goal) => (value <= required, value <= goal),
            Self::AtLeast(required, goal) => (value >= required, value >= goal),
            Self::None => return "-",
        };
        match (is_kept, is_goal) {
            (_, true) => "goal",
            (true, false) => "kept",
            (false, false) => "**missed**",
        }
    }
}

/// Returns the budgets of a small call.
fn calls(results: &Results, singles: &Singles) -> Vec<CostBudget> {
    let mut budgets = Vec::new();
    for (row, required) in [
        (CALL_C16, Some(1.6)),
        (MODERN_C16, Some(1.65)),
        (LEGACY_TO_MODERN_C16, None),
        (MODERN_TO_LEGACY_C16, None),
        (CALL_C64, None),
    ] {
        let bound = match required {
            Some(required) if singles.is_dist => Bound::AtMost(required, 1.3),
            Some(_) => Bound::AtMost(1.8, 1.5),
            None => Bound::None,
        };
        budgets.push(to_floor(results, row, HEADEND, bound));
    }
    budgets.push(CostBudget {
        figure: format!("{CALL_C64}: requests a second"),
        measured: results.ratio(CALL_C64, (HEADEND, NGINX), RATE),
        unit: "x nginx",
        digits: 2,
        bound: Bound::AtLeast(0.6, 0.75),
    });
    budgets.push(CostBudget {
        figure: format!("{CALL_C1}: p50 over direct"),
        measured: results.paired(CALL_C1, (HEADEND, DIRECT), P50, |left, right| left - right),
        unit: "us",
        digits: 0,
        bound: Bound::AtMost(30.0, 20.0),
    });
    for other in [HEADEND_GRANTED, HEADEND_RULES, HEADEND_HUNDRED] {
        budgets.push(CostBudget {
            figure: format!("{CALL_C16}: CPU of {other}"),
            measured: results.ratio(CALL_C16, (other, HEADEND), CPU),
            unit: "x headend",
            digits: 2,
            bound: Bound::AtMost(1.05, 1.0),
        });
    }
    budgets
}

fn to_floor(results: &Results, row: &str, target: &str, bound: Bound) -> CostBudget {
    CostBudget {
        figure: format!("{row}: CPU"),
        measured: results.ratio(row, (target, FLOOR), CPU),
        unit: "x floor",
        digits: 2,
        bound,
    }
}

/// Returns the budgets of lists, large messages, notices and stdio.
fn payloads(results: &Results) -> Vec<CostBudget> {
    let cpu = |row: &str, target| CostBudget {
        figure: format!("{row}: CPU"),
        measured: results.median(row, target, CPU),
        unit: "us",
        digits: 1,
        bound: Bound::None,
    };
    let nginx = |row: &str| CostBudget {
        figure: format!("{row}: requests a second"),
        measured: results.ratio(row, (HEADEND, NGINX), RATE),
        unit: "x nginx",
        digits: 2,
        bound: Bound::None,
    };
    vec![
        to_floor(results, PROGRESS_C4, HEADEND, Bound::AtMost(1.2, 0.8)),
        to_floor(results, TLS_C16, HEADEND, Bound::None),
        to_floor(results, STDIO_C16, HEADEND, Bound::AtMost(1.2, 0.8)),
        cpu(STDIO_C1, HEADEND),
        cpu(LIST_C4, HEADEND_HUNDRED),
        nginx(BIG64K_C8),
        nginx(BIG1M_C4),
        to_floor(results, ARG64K_C8, HEADEND, Bound::None),
        to_floor(results, ARG1M_C4, HEADEND, Bound::None),
    ]
}

/// Returns the budgets of the figures that callgrind counts.
fn counted(singles: &Singles) -> Vec<CostBudget> {
    let mut budgets = Vec::new();
    let counted = |name: &str| singles.counts.iter().find(|(way, _)| *way == name).map(|(_, count)| count.instructions);
    let (plain, token) = (counted(LEGACY_TO_LEGACY), counted(TOKEN));
    for (way, CallCost { instructions, sha, allocations }) in &singles.counts {
        if [GRANTED, RULES].contains(way) {
            budgets.push(CostBudget {
                figure: format!("{way}: instructions of a call"),
                measured: plain.map(|plain| instructions / plain),
                unit: "x legacy",
                digits: 3,
                bound: Bound::AtMost(1.05, 1.0),
            });
            continue;
        }
        if *way == JWT {
            budgets.push(CostBudget {
                figure: format!("{way}: instructions of a call"),
                measured: token.map(|token| instructions / token),
                unit: "x generated token",
                digits: 3,
                bound: Bound::AtMost(1.03, 1.0),
            });
            continue;
        }
        let (most, goal) = match *way {
            LEGACY_TO_LEGACY => (70_000.0, 50_000.0),
            MODERN_TO_MODERN => (78_000.0, 50_000.0),
            LONG_ARGUMENT => (400_000.0, 200_000.0),
            _ => (f64::NAN, f64::NAN),
        };
        budgets.push(CostBudget {
            figure: format!("{way}: instructions of a call (besides {sha:.0} of SHA-256 by software)"),
            measured: Some(*instructions),
            unit: "",
            digits: 0,
            bound: if most.is_nan() { Bound::None } else { Bound::AtMost(most, goal) },
        });
        budgets.push(CostBudget {
            figure: format!("{way}: allocations of a call"),
            measured: Some(*allocations),
            unit: "",
            digits: 0,
            bound: Bound::AtMost(40.0, 25.0),
        });
    }
    budgets
}

fn single_figures(singles: &Singles) -> Vec<CostBudget> {
    let memory = |figure: &str, unit, of: fn(Memory) -> f64, bound| CostBudget {
        figure: figure.to_owned(),
        measured: singles.headend.map(of),
        unit,
        digits: 1,
        bound,
    };
    let watched = |figure: &str, measured, unit, digits| CostBudget {
        figure: figure.to_owned(),
        measured,
        unit,
        digits,
        bound: Bound::None,
    };
    vec![
        memory("idle RSS", "MiB", |memory| memory.idle_mib, Bound::AtMost(12.0, 10.0)),
        memory("the anonymous part of it", "MiB", |memory| memory.anonymous_mib, Bound::AtMost(4.0, 3.0)),
        watched("idle RSS of the floor", singles.floor.map(|memory| memory.idle_mib), "MiB", 1),
        memory("RSS per idle session with an open stream", "KiB", |memory| memory.session_kib, Bound::None),
        watched("start to full list, ten upstreams", singles.spawn_ms, "ms", 1),
        watched("the same with the state of an earlier run", singles.respawn_ms, "ms", 1),
        watched("a decision, 100 rules of which 20 look at its arguments", singles.decide_us, "us", 2),
    ]
}
