//! Judges a run by its figures: lost answers, growth, and things that were not given back.

use std::time::Duration;

use crate::ledger::{Ledger, RequestEnd};
use crate::sample::{GIVEN_BACK, ProcessSample};
use crate::{SoakOptions, disorder};

/// Runs below this duration say nothing about memory.
const LEAST: Duration = Duration::from_secs(120);
/// From here on, memory must not grow; in shorter runs from their first sixth on.
const STEADY_FROM: Duration = Duration::from_secs(600);
/// Samples at either end whose median counts: one alone may meet a burst.
const AROUND: usize = 5;
/// The least time to settle within which everything has to be given back.
const SETTLE: Duration = Duration::from_secs(60);

/// One judgement; `None` stands for "not judged".
#[derive(Debug)]
pub(crate) struct SoakVerdict {
    pub(crate) passed: Option<bool>,
    pub(crate) text: String,
}

impl SoakVerdict {
    fn of(passed: bool, text: String) -> Self {
        Self { passed: Some(passed), text }
    }

    fn none(text: String) -> Self {
        Self { passed: None, text }
    }
}

/// The figures by which a run is judged.
#[derive(Debug)]
pub(crate) struct RunFindings<'f> {
    pub(crate) ledger: &'f Ledger,
    /// Samples under load, in order of time.
    pub(crate) samples: &'f [ProcessSample],
    pub(crate) start: &'f ProcessSample,
    pub(crate) end: &'f ProcessSample,
    /// Time after the last client until everything was given back, if it was.
    pub(crate) settled_after: Option<Duration>,
    /// Number of processes that the daemon left behind, or how its end failed.
    pub(crate) stopped: Result<usize, String>,
}

/// Returns the verdicts of a run.
pub(crate) fn verdicts(options: &SoakOptions, findings: &RunFindings<'_>) -> Vec<SoakVerdict> {
    let mut verdicts = vec![answers(findings.ledger)];
    for end in RequestEnd::ALL.into_iter().filter(|end| end.is_bad()) {
        let count = findings.ledger.total().of(end);
        verdicts.push(SoakVerdict::of(count == 0, format!("{count} requests {}", end.name())));
    }
    for bad in [disorder::FAILED, disorder::TAKEN] {
        let count = findings.ledger.noted(bad);
        verdicts.push(SoakVerdict::of(count == 0, format!("{count} {bad}")));
    }
    verdicts.push(memory(options, findings.samples));
    verdicts.extend(given_back(options, findings));
    verdicts.push(match &findings.stopped {
        Ok(0) => SoakVerdict::of(true, "the daemon ended at SIGTERM and left no process behind".to_owned()),
        Ok(left) => SoakVerdict::of(false, format!("the daemon ended and left {left} processes behind")),
        Err(why) => SoakVerdict::of(false, why.clone()),
    });
    verdicts
}

fn answers(ledger: &Ledger) -> SoakVerdict {
    let total = ledger.total();
    SoakVerdict::of(total.sent == total.ended(), format!("{} requests had {} ends", total.sent, total.ended()))
}

fn memory(options: &SoakOptions, samples: &[ProcessSample]) -> SoakVerdict {
    let load = Duration::from_secs(options.seconds);
    if options.restarts > 0 {
        return SoakVerdict::none("memory: not judged, since the daemon was restarted".to_owned());
    }
    if load < LEAST {
        return SoakVerdict::none(format!("memory: not judged below {} s of load", LEAST.as_secs()));
    }
    let from = STEADY_FROM.min(load / 6);
    let at = samples.iter().position(|sample| sample.at >= from).unwrap_or_default();
    let first = median(&samples[at..(at + AROUND).min(samples.len())]);
    let last = median(&samples[samples.len().saturating_sub(AROUND)..]);
    let growth = (last as f64 / (first as f64).max(1.0) - 1.0) * 100.0;
    let mib = |kib: u64| kib as f64 / 1024.0;
    SoakVerdict::of(
        growth <= options.growth,
        format!(
            "memory: {:.1} MiB after {} s, {:.1} MiB at the end: {growth:+.1} %",
            mib(first),
            from.as_secs(),
            mib(last)
        ),
    )
}

fn median(samples: &[ProcessSample]) -> u64 {
    let mut sizes: Vec<u64> = samples.iter().map(|sample| sample.rss_kib).collect();
    sizes.sort_unstable();
    sizes.get(sizes.len() / 2).copied().unwrap_or_default()
}

fn given_back(options: &SoakOptions, findings: &RunFindings<'_>) -> Vec<SoakVerdict> {
    let is_judged = options.settling() >= SETTLE;
    let mut verdicts = Vec::new();
    for (name, figure) in GIVEN_BACK {
        let (Some(start), Some(end)) = (figure(findings.start), figure(findings.end)) else {
            verdicts.push(SoakVerdict::none(format!("{name}: not judged, since the daemon does not tell")));
            continue;
        };
        let text = format!("{name}: {start} at the start, {end} after the last client");
        verdicts.push(if is_judged { SoakVerdict::of(end <= start, text) } else { SoakVerdict::none(text) });
    }
    let settled = match findings.settled_after {
        Some(after) => format!("everything was given back {:.0} s after the last client", after.as_secs_f64()),
        None => format!("not everything was given back {} s after the last client", options.settle),
    };
    verdicts.push(SoakVerdict::none(settled));
    verdicts
}
