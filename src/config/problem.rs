//! Findings in a configuration: problems refuse it, warnings do not.

use std::fmt;

/// One finding and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// File name, or a description of the text.
    pub origin: String,
    /// Counted from 1; `None` when the finding is about the whole text.
    pub line: Option<usize>,
    /// Key path such as `upstreams.fs.command`; may be empty.
    pub path: String,
    /// What is wrong and what to write.
    pub message: String,
}

/// A finding that refuses the configuration.
pub type Problem = Finding;

/// A finding that does not.
pub type Warning = Finding;

impl Finding {
    /// About the file itself.
    pub(super) fn of_file(origin: &str, message: String) -> Self {
        Self { origin: origin.to_owned(), line: None, path: String::new(), message }
    }
}

impl fmt::Display for Finding {
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

/// Why a configuration is refused: at least one problem, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            write!(f, "{end}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
