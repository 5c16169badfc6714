//! Refusal of tool calls while their server starts for the first time or lists its tools for the
//! first time, so that none of them is known yet.

use std::sync::Arc;

use crate::base::clock;
use crate::catalog::filter::ItemFilter as Patterns;
use crate::catalog::name::canonical_name;
use crate::config::{FilterSettings, UpstreamSettings};
use crate::gateway::answer::{RequestAnswer, refusal_answer};
use crate::gateway::client::ClientContext;
use crate::gateway::service::Service;
use crate::gateway::snapshot::Snapshot;
use crate::mcp::method::Method;
use crate::policy::{ActionKind, RuleSubject, ToolFacts};
use crate::wire::json::raw::RawObject;

impl Service {
    /// Refuses a call whose tool may belong to a server that is starting and has never listed its
    /// tools. Only the name, the configuration and the rules decide, so the client learns of no
    /// tool, and of no server that could not show it a tool of that name.
    pub(super) fn starting(
        &self,
        snapshot: &Arc<Snapshot>,
        client: &ClientContext,
        method: Method,
        params: &RawObject,
    ) -> Option<RequestAnswer> {
        let name = params.said("name").filter(|_| method == Method::ToolsCall)?;
        let unlisted = snapshot.handles.iter().zip(&snapshot.unlisted).filter(|(_, unlisted)| **unlisted);
        let failure = unlisted.into_iter().find_map(|(handle, _)| {
            let spec = handle.spec.load();
            handle.main.starting(&spec).filter(|_| may_show(snapshot, client, &spec, &name))
        })?;
        Some(refusal_answer(&failure, &self.labels(method, clock::now()), client.revision))
    }
}

/// Whether the upstream could show the client a tool of that exposed name.
fn may_show(snapshot: &Snapshot, client: &ClientContext, spec: &UpstreamSettings, name: &str) -> bool {
    let profile = client.profile.as_deref().and_then(|name| snapshot.config.profiles.iter().find(|p| p.name == name));
    let prefix = if profile.is_some_and(|profile| profile.transparent) { "" } else { spec.prefix.as_str() };
    let Some(local) = name.strip_prefix(prefix).filter(|local| !local.is_empty()) else { return false };
    let renamed = spec.tools.rename.iter().find(|(_, own)| own == local).map(|(original, _)| original.as_str());
    let original = renamed.unwrap_or(local);
    let canonical = canonical_name(&spec.name, original);
    let rules = snapshot.policy.item_rules(ActionKind::Tool, spec.name.as_str(), &canonical);
    let view = client.profile.as_deref().unwrap_or_default();
    let subject = RuleSubject::new(&client.caller, client.access.rights(), view, ToolFacts::default());
    let in_profile =
        profile.is_none_or(|profile| profile.upstreams.contains(&spec.name) && admits(&profile.tools, &canonical));
    in_profile && admits(&spec.tools, original) && !snapshot.policy.hidden(&rules, &subject)
}

fn admits(filter: &FilterSettings, name: &str) -> bool {
    Patterns::build(&filter.allow, &filter.deny, &[]).is_ok_and(|patterns| patterns.admits(name))
}
