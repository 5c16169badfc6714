//! Effects of rules, and the ids that stand for a rule when none decided.

/// The effect of a rule or of the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::VariantArray, serde::Serialize)]
#[strum(const_into_str, serialize_all = "lowercase")]
#[serde(into = "&'static str")]
pub enum RuleEffect {
    Allow,
    Ask,
    Deny,
}

/// Id that stands for a rule when none matched.
pub(crate) const DEFAULT_RULE: &str = "default";

/// Id that stands for a rule when the facts do not fit together.
pub(crate) const DOUBT_RULE: &str = "doubt";

/// Id that stands for a rule when a call continues that was decided before.
pub const AGAIN_RULE: &str = "again";
