//! A policy as the operator wrote it.

use super::effect::Effect;
use super::limit::LimitSpec;
use super::rule::RuleSpec;

/// The `[policy]` table as written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PolicySpec {
    /// For what no rule matches.
    pub(crate) default: Effect,
    pub(crate) rules: Vec<RuleSpec>,
    pub(crate) limits: Vec<LimitSpec>,
}
