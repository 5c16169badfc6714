//! Patterns over callers and over the groups that their credentials state.

use super::patterns::PatternList;
use super::spec::PatternField;
use crate::policy::caller::{Caller, Groups};
use crate::policy::rules::pattern::NamePattern;
use crate::policy::rules::problems::{PolicyProblem, PolicyProblems};
use crate::policy::rules::truth::Truth;

/// The callers that a rule, a limit or a profile is about. An empty list means everyone; if both
/// lists are written, a caller must be in both.
#[derive(Debug, Default)]
pub struct CallerPatterns {
    pub(in crate::policy) callers: PatternList,
    pub(in crate::policy) groups: PatternList,
}

impl CallerPatterns {
    /// Compiles the lists of a table outside `[policy]`. `path` is its position.
    ///
    /// # Errors
    /// The problems of all broken patterns.
    pub fn build(path: &str, callers: &[String], groups: &[String]) -> Result<Self, Vec<PolicyProblem>> {
        let mut problems = PolicyProblems::default();
        let patterns = Self::compile(path, callers, groups, &mut problems);
        if problems.0.is_empty() { Ok(patterns) } else { Err(problems.0) }
    }

    /// Compiles the lists, and adds the problems of broken patterns to `problems`.
    pub(in crate::policy) fn compile(
        path: &str,
        callers: &[String],
        groups: &[String],
        problems: &mut PolicyProblems,
    ) -> Self {
        Self {
            callers: PatternList::compile(path, PatternField::Callers, callers, problems),
            groups: PatternList::compile(path, PatternField::Groups, groups, problems),
        }
    }

    /// Whether the patterns are about this caller with these groups. Unknown groups leave patterns
    /// over groups unknown.
    pub(in crate::policy) fn covers(&self, caller: &Caller, groups: &Groups) -> Truth {
        if !self.callers.is_empty() && !self.callers.matches(caller.name()) {
            return Truth::No;
        }
        match groups {
            _ if self.groups.is_empty() => Truth::Yes,
            Groups::Unknown => Truth::Unknown,
            Groups::Of(groups) => groups.iter().any(|group| self.groups.matches(group)).into(),
        }
    }

    /// Whether the patterns certainly match this caller with these groups.
    pub fn admit(&self, caller: &Caller, groups: &Groups) -> bool {
        self.covers(caller, groups) == Truth::Yes
    }

    /// Returns all patterns, each with the list that it belongs to.
    pub(in crate::policy) fn patterns(&self) -> impl Iterator<Item = (PatternField, &NamePattern)> {
        let callers = self.callers.iter().map(|pattern| (PatternField::Callers, pattern));
        callers.chain(self.groups.iter().map(|pattern| (PatternField::Groups, pattern)))
    }
}
