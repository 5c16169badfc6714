//! The proof that a call was allowed.

use std::sync::Arc;

/// Leave to send one call upstream.
///
/// Only [`decide`](super::decide::decide) makes one, it cannot be copied, and whoever sends a call
/// takes it by value: so each call sent was decided, once.
#[derive(Debug)]
#[must_use = "a permit that is dropped is a call that was allowed and not sent"]
pub(crate) struct Permit {
    rule: Arc<str>,
}

impl Permit {
    /// For [`decide`](super::decide::decide) alone.
    pub(in crate::policy) fn mint(rule: Arc<str>) -> Self {
        Self { rule }
    }

    /// Id of the rule that allowed the call, or [`DEFAULT_RULE`](super::DEFAULT_RULE).
    pub(crate) fn rule(&self) -> &Arc<str> {
        &self.rule
    }
}
