//! Effects of rules, and the stand-ins for a rule's id.

/// The effect of a rule or of the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::VariantArray, serde::Serialize)]
#[strum(const_into_str, serialize_all = "lowercase")]
#[serde(into = "&'static str")]
pub enum Effect {
    Allow,
    Ask,
    Deny,
}

/// Stand-in for a rule's id when no rule decided.
pub(crate) const DEFAULT_RULE: &str = "default";

/// Stand-in for a rule's id when the facts did not fit together.
pub(crate) const DOUBT_RULE: &str = "doubt";

/// Stand-in for a rule's id when a call continues that was decided before.
pub const AGAIN_RULE: &str = "again";
