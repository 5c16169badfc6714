//! Problems of a policy, with their positions in the configuration.

use std::collections::HashSet;

use crate::policy::effect::{AGAIN_RULE, DEFAULT_RULE, DOUBT_RULE};

/// Longest id of a rule or limit, in bytes. Ids are written to each line of the audit log.
const MAX_ID_LENGTH: usize = 64;

/// One problem of a [`PolicySpec`](crate::policy::spec::PolicySpec).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct PolicyProblem {
    /// Position of the problem, as a key path with indices from zero: `policy.rules[2].tools[0]`.
    pub path: String,
    /// Description of the problem and, if known, of the solution.
    pub message: String,
}

/// The problems found so far.
#[derive(Debug, Default)]
pub(in crate::policy) struct PolicyProblems(pub(in crate::policy) Vec<PolicyProblem>);

impl PolicyProblems {
    pub(in crate::policy) fn add(&mut self, path: String, message: impl Into<String>) {
        self.0.push(PolicyProblem { path, message: message.into() });
    }

    /// Checks the ids in one array of tables, and adds their problems.
    pub(in crate::policy) fn check_ids<'s>(&mut self, table: &str, ids: impl Iterator<Item = &'s str>) {
        let mut seen = HashSet::new();
        for (index, id) in ids.enumerate() {
            let message = if id.is_empty() {
                "must not be empty".to_owned()
            } else if MAX_ID_LENGTH < id.len() || !id.chars().all(is_id_character) {
                format!("must be up to {MAX_ID_LENGTH} letters, digits, `-`, `_` or `.`")
            } else if [DEFAULT_RULE, DOUBT_RULE, AGAIN_RULE].contains(&id) {
                format!("`{id}` is what the audit log says where no rule decided; choose another")
            } else if !seen.insert(id) {
                format!("`{id}` is used more than once")
            } else {
                continue;
            };
            self.add(format!("{table}[{index}].id"), message);
        }
    }
}

fn is_id_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}
