//! Consents: what decisions need of them.

use std::sync::Arc;

/// A person's leave for an action.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) id: Arc<str>,
}

/// Proof that a live grant covers an action.
#[derive(Debug)]
pub(crate) struct Consented {
    grant: Arc<Grant>,
}

impl Consented {
    #[cfg(test)]
    pub(in crate::policy) fn stand_in(id: &str) -> Self {
        Self { grant: Arc::new(Grant { id: Arc::from(id) }) }
    }

    pub(crate) fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Uses the grant for the call that is allowed.
    pub(crate) fn spend(self) -> Arc<Grant> {
        self.grant
    }
}
