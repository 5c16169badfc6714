//! What is decided, and what stands for a rule where none decided.

/// What a rule, or the default, says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub(crate) enum Effect {
    Allow,
    Ask,
    Deny,
}

/// What stands in place of a rule's id when no rule decided.
pub(crate) const DEFAULT_RULE: &str = "default";

/// What stands in place of a rule's id when the facts did not fit together.
pub(crate) const DOUBT_RULE: &str = "doubt";

/// What stands in place of a rule's id where a call goes on that was decided before.
pub(crate) const AGAIN_RULE: &str = "again";
