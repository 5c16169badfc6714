//! Decides before a launch: the rules about it, the filters of its items, and the pipe that its
//! guards hold.

use std::collections::HashSet;
use std::sync::Arc;

use super::Supervisor;

use crate::catalog::filter::ItemFilter;
use crate::catalog::merge::ItemFilters;
use crate::catalog::name::UpstreamName;
use crate::config;
use crate::config::{UpstreamSettings, UpstreamTarget};
use crate::gateway::role::GatewayRole;
use crate::policy::{ActionKind, Caller, OperatorHints, Policy, RuleSubject, ToolFacts};
use crate::upstream::process::lifeline::Lifeline;
use crate::upstream::session::handle::UpstreamHandle;
use crate::upstream::session::lane::Lane;
use crate::upstream::spawner::Spawner;

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

/// Opens no session: the opener in a process that starts no upstream.
pub(super) fn leave_closed(_: &Arc<UpstreamHandle>, _: &Spawner, _: &Arc<Lane>) {}

/// Names the rule that denies an upstream's launch; without one, being configured allows it.
pub(super) fn launch_denial(policy: &Policy, upstream: &UpstreamName) -> Option<String> {
    let rules = policy.item_rules(ActionKind::Launch, upstream.as_str(), upstream.as_str());
    let subject = RuleSubject::ungrouped(Caller::local(), "", ToolFacts::default());
    policy.forbidding(&rules, &subject).map(|rule| format!("the rule `{rule}` forbids its launch"))
}

/// Compiles the filters of an upstream's lists, and checks its annotations too.
pub(super) fn filters(spec: &UpstreamSettings) -> Result<ItemFilters, String> {
    let build = |filter: &config::FilterSettings| {
        ItemFilter::build(&filter.allow, &filter.deny, &filter.rename)
            .map_err(|error| format!("upstreams.{}: {error}", spec.name))
    };
    OperatorHints::build(spec.trust, &spec.annotations)
        .map_err(|error| format!("upstreams.{}.annotations: {error}", spec.name))?;
    Ok(ItemFilters { tools: build(&spec.tools)?, prompts: build(&spec.prompts)?, resources: build(&spec.resources)? })
}

pub(super) fn join(problems: &[crate::policy::PolicyProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
