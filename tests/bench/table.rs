//! Collects samples, and renders medians over rounds as Markdown.

use std::fmt::Write;
use std::fs;
use std::time::SystemTime;

use crate::load::LoadSample;

/// A figure of a sample; `None` if the sample lacks it.
pub(crate) type SampleFigure = fn(&LoadSample) -> Option<f64>;

pub(crate) const RATE: SampleFigure = |sample| Some(sample.req_per_s);
pub(crate) const P50: SampleFigure = |sample| Some(sample.p50_us);
pub(crate) const P99: SampleFigure = |sample| Some(sample.p99_us);
pub(crate) const CPU: SampleFigure = |sample| sample.cpu_us_per_call;

/// Every sample of every target, by round.
#[derive(Debug, Default)]
pub(crate) struct Results {
    lines: Vec<TableLine>,
}

/// One target in one row of the run.
#[derive(Debug)]
struct TableLine {
    row: &'static str,
    target: String,
    rounds: Vec<LoadSample>,
    problem: Option<String>,
}

impl Results {
    /// Adds a round's sample. A target that failed once stays failed: its rounds would no longer
    /// match the others'.
    pub(crate) fn record(&mut self, row: &'static str, target: &str, outcome: anyhow::Result<LoadSample>) {
        let at = self.lines.iter().position(|line| line.row == row && line.target == target);
        if at.is_none() {
            self.lines.push(TableLine { row, target: target.to_owned(), rounds: Vec::new(), problem: None });
        }
        let line = match at {
            Some(at) => self.lines.get_mut(at),
            None => self.lines.last_mut(),
        };
        match (line, outcome) {
            (Some(line), Ok(sample)) => line.rounds.push(sample),
            (Some(line), Err(error)) => line.problem = Some(format!("{error:#}")),
            (None, _) => {}
        }
    }

    pub(crate) fn has_failed(&self, row: &str, target: &str) -> bool {
        self.lines.iter().any(|line| line.row == row && line.target == target && line.problem.is_some())
    }

    pub(crate) fn problems(&self) -> impl Iterator<Item = String> {
        self.lines.iter().filter_map(|line| Some(format!("{}, {}: {}", line.row, line.target, line.problem.as_ref()?)))
    }

    /// Returns the median of a figure over the rounds.
    pub(crate) fn median(&self, row: &str, target: &str, figure: SampleFigure) -> Option<f64> {
        median(self.rounds(row, target)?.iter().filter_map(figure).collect())
    }

    /// Returns the median over the rounds of `combine`, applied to two targets' figures of the same
    /// round.
    pub(crate) fn paired(
        &self,
        row: &str,
        (left, right): (&str, &str),
        figure: SampleFigure,
        combine: fn(f64, f64) -> f64,
    ) -> Option<f64> {
        let pairs = self.rounds(row, left)?.iter().zip(self.rounds(row, right)?);
        median(pairs.filter_map(|(left, right)| Some(combine(figure(left)?, figure(right)?))).collect())
    }

    pub(crate) fn ratio(&self, row: &str, targets: (&str, &str), figure: SampleFigure) -> Option<f64> {
        self.paired(row, targets, figure, |left, right| left / right)
    }

    fn rounds(&self, row: &str, target: &str) -> Option<&[LoadSample]> {
        let line = self.lines.iter().find(|line| line.row == row && line.target == target)?;
        Some(line.rounds.as_slice()).filter(|_| line.problem.is_none())
    }

    /// Returns every line as a Markdown table.
    pub(crate) fn markdown(&self) -> String {
        let mut table = String::from(
            "| scenario | target | req/s | x direct | x floor | x nginx | p50 us | p99 us | CPU us/call | CPU x floor |\n|---|---|---|---|---|---|---|---|---|---|\n",
        );
        for TableLine { row, target, problem, .. } in &self.lines {
            let figure = |figure, digits| number(self.median(row, target, figure), digits);
            let ratio = |other: &str, figure| number(self.ratio(row, (target, other), figure), 3);
            let cells = if problem.is_some() {
                "failed | - | - | - | - | - | - | -".to_owned()
            } else {
                [
                    figure(RATE, 0),
                    ratio("direct", RATE),
                    ratio("floor", RATE),
                    ratio("nginx", RATE),
                    figure(P50, 0),
                    figure(P99, 0),
                    figure(CPU, 1),
                    ratio("floor", CPU),
                ]
                .join(" | ")
            };
            writeln!(table, "| {row} | {target} | {cells} |").expect("invariant: writing to a string does not fail");
        }
        table
    }
}

/// Returns the middle value, or the mean of the two in the middle; `None` without values.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2)?;
    let lower = values.get(values.len().saturating_sub(1) / 2)?;
    Some(f64::midpoint(*lower, *upper))
}

/// Returns a number for a table, a dash where there is none.
pub(crate) fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

/// Describes the machine and the day, without which no figure means anything.
pub(crate) fn machine() -> String {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("CPU", |(_, model)| model.trim());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // Only the numbers of the kernel, without the parts of the distribution.
    let kernel: Vec<&str> = kernel.trim().split('.').take(2).collect();
    let date = httpdate::fmt_http_date(SystemTime::now());
    let day = date.get(5..16).unwrap_or(&date);
    format!("{day}: {cpus} x {model}, Linux {}", kernel.join("."))
}
