//! The findings of `headend doctor`.

use serde::Serialize;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Level {
    Ok,
    Note,
    Warning,
    Problem,
}

/// A finding of one check, with the next step.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// The subject of the check: `configuration`, `port`, or the name of an upstream.
    pub(super) about: String,
    pub(super) what: String,
    /// The next step; empty if there is nothing to do.
    pub(super) next: String,
    /// Lines that a program has printed, oldest first.
    pub(super) quoted: Vec<String>,
}

/// All findings, in the order of the checks.
#[derive(Debug, Default)]
pub(super) struct Findings(pub(super) Vec<Finding>);

impl Findings {
    pub(super) fn ok(&mut self, about: &str, what: impl Into<String>) {
        self.add(Level::Ok, about, what, "");
    }

    pub(super) fn add(&mut self, level: Level, about: &str, what: impl Into<String>, next: impl Into<String>) {
        let (what, next) = (what.into(), next.into());
        self.0.push(Finding { level, about: about.to_owned(), what, next, quoted: Vec::new() });
    }

    pub(super) fn problem(&mut self, about: &str, what: impl Into<String>, next: impl Into<String>) {
        self.add(Level::Problem, about, what, next);
    }

    /// Attaches quoted lines to the last finding.
    pub(super) fn quoting(&mut self, lines: Vec<String>) {
        if let Some(last) = self.0.last_mut() {
            last.quoted = lines;
        }
    }

    pub(super) fn number(&self, level: Level) -> usize {
        self.0.iter().filter(|finding| finding.level == level).count()
    }
}
