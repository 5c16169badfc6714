//! Policies as the operator writes them.

use super::effect::RuleEffect;
use super::limit::LimitSpec;
use crate::policy::rules::rule::{RuleSpec, ScopeSpec};

/// The `[policy]` table as written, with the scopes of `[server.auth.scopes]`.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicySpec {
    /// The effect if no rule matches.
    pub default: RuleEffect,
    pub rules: Vec<RuleSpec>,
    pub scopes: Vec<ScopeSpec>,
    pub limits: Vec<LimitSpec>,
}
