//! Findings of the doctor.

use serde::Serialize;

/// How grave a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Level {
    Ok,
    Note,
    Warning,
    Problem,
}

/// One finding.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// The thing that was looked at: `configuration`, `port`, the name of an upstream.
    pub(super) about: String,
    pub(super) what: String,
    /// The next step; empty where there is nothing to do.
    pub(super) next: String,
    /// Lines of a program, oldest first.
    pub(super) quoted: Vec<String>,
}

/// Everything that was found, in the order in which it was looked for.
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

    /// The last finding quotes these lines.
    pub(super) fn quoting(&mut self, lines: Vec<String>) {
        if let Some(last) = self.0.last_mut() {
            last.quoted = lines;
        }
    }

    pub(super) fn number(&self, level: Level) -> usize {
        self.0.iter().filter(|finding| finding.level == level).count()
    }
}
