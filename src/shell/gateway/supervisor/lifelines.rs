//! The names under which lists are kept, and the pipes that the guards of upstreams hold.

use std::collections::HashSet;
use std::sync::Arc;

use super::Supervisor;
use crate::config::{UpstreamSettings, UpstreamTarget};
use crate::gateway::role::GatewayRole;
use crate::upstream::process::lifeline::Lifeline;

impl Supervisor {
    pub(super) fn inventory_keys(&self) -> HashSet<String> {
        self.config.upstreams.iter().chain(&self.config.disabled).map(UpstreamSettings::inventory_key).collect()
    }

    /// Returns the pipe that the guards of an upstream hold, the same one for each launch; `None`
    /// if it starts no program. Logs a failure: this daemon can then not be taken over.
    pub(super) fn lifeline_of(&mut self, spec: &UpstreamSettings) -> Option<Arc<Lifeline>> {
        let is_program = matches!(spec.target, UpstreamTarget::Stdio { .. });
        if !is_program || self.parts.role != GatewayRole::Serve {
            return None;
        }
        if let Some(lifeline) = self.lifelines.get(&spec.name) {
            return Some(Arc::clone(lifeline));
        }
        let made = Lifeline::new().map(Arc::new).inspect_err(|error| {
            tracing::warn!(upstream.name = %spec.name, error = %error, "`serve --take-over` will be refused");
        });
        let lifeline = made.ok()?;
        self.lifelines.insert(spec.name.clone(), Arc::clone(&lifeline));
        Some(lifeline)
    }
}
