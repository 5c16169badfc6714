//! Decides before a launch: the rules about it, and the filters of its items.

use std::sync::Arc;

use crate::catalog::filter::ItemFilter;
use crate::catalog::merge::ItemFilters;
use crate::catalog::name::UpstreamName;
use crate::config;
use crate::config::UpstreamSettings;
use crate::policy::{ActionKind, Caller, OperatorHints, Policy, RuleSubject, ToolFacts};
use crate::upstream::session::handle::UpstreamHandle;
use crate::upstream::session::lane::Lane;
use crate::upstream::spawner::Spawner;

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
