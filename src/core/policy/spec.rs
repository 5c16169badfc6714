//! Policies as the operator writes them.

use super::effect::RuleEffect;
use super::limit::LimitSpec;
use super::rule::RuleSpec;

/// The `[policy]` table as written.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicySpec {
    /// The effect if no rule matches.
    pub default: RuleEffect,
    pub rules: Vec<RuleSpec>,
    pub limits: Vec<LimitSpec>,
}
