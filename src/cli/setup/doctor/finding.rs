//! The findings of `headend doctor`.

use serde::Serialize;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum FindingLevel {
    Ok,
    Note,
    Warning,
    Problem,
}

/// A finding of one check, with the next step.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DoctorFinding {
    pub(super) level: FindingLevel,
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
pub(super) struct DoctorFindings(pub(super) Vec<DoctorFinding>);

impl DoctorFindings {
    pub(super) fn ok(&mut self, about: &str, what: impl Into<String>) {
        self.add(FindingLevel::Ok, about, what, "");
    }

    pub(super) fn add(&mut self, level: FindingLevel, about: &str, what: impl Into<String>, next: impl Into<String>) {
        let (what, next) = (what.into(), next.into());
        self.0.push(DoctorFinding { level, about: about.to_owned(), what, next, quoted: Vec::new() });
    }

    pub(super) fn problem(&mut self, about: &str, what: impl Into<String>, next: impl Into<String>) {
        self.add(FindingLevel::Problem, about, what, next);
    }

    /// Attaches quoted lines to the last finding.
    pub(super) fn quoting(&mut self, lines: Vec<String>) {
        if let Some(last) = self.0.last_mut() {
            last.quoted = lines;
        }
    }

    pub(super) fn number(&self, level: FindingLevel) -> usize {
        self.0.iter().filter(|finding| finding.level == level).count()
    }
}
