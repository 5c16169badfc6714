//! Findings in a configuration: problems refuse it, warnings do not.

use std::fmt;

/// A finding and its place in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFinding {
    /// The file name, or a description of the text.
    pub origin: String,
    /// The line, counted from 1; `None` for a finding about the whole text.
    pub line: Option<usize>,
    /// The key path, such as `upstreams.fs.command`; may be empty.
    pub path: String,
    /// The fault, and what to write instead.
    pub message: String,
}

/// A finding that refuses the configuration.
pub type ConfigProblem = ConfigFinding;

/// A finding with which the configuration is still accepted.
pub type ConfigWarning = ConfigFinding;

impl ConfigFinding {
    /// Creates a finding about a file as a whole.
    pub(crate) fn of_file(origin: &str, message: String) -> Self {
        Self { origin: origin.to_owned(), line: None, path: String::new(), message }
    }
}

impl fmt::Display for ConfigFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// The reasons why a configuration is refused: at least one problem, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblems(pub Vec<ConfigProblem>);

impl fmt::Display for ConfigProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            write!(f, "{end}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigProblems {}
