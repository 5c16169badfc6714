//! Looks for calls that need more scopes than their credential has, before any call of a batch is
//! decided: such a batch is refused as a whole.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use crate::engine::failure::CallFailure;
use crate::engine::route::{RequestParams, route};
use crate::gateway::answer::{RequestAnswer, error_answer, label};
use crate::gateway::client::{ClientContext, view_of};
use crate::gateway::decision::found::{FoundItem, rename_bare};
use crate::gateway::service::Service;
use crate::gateway::snapshot::Snapshot;
use crate::mcp::method::Method;
use crate::policy::{ActionKind, Decision, DecisionRecord, PolicyAction, Scopes, decide_scope};
use crate::telemetry::metrics::OutcomeLabel;

impl Service {
    /// Returns the refusal of a batch with a call that lacks a scope; it names the scopes of all
    /// such calls. Each of them is recorded, and waits until its record has a place in the log's
    /// queue.
    pub async fn refuse_batch<'r>(
        &self,
        client: &ClientContext,
        requests: impl Iterator<Item = (&'r str, &'r RequestParams)>,
    ) -> Option<RequestAnswer> {
        if client.access.rights().scopes == Scopes::All {
            return None;
        }
        let snapshot = self.snapshots.load_full();
        let (mut needed, mut records, mut last) = (BTreeSet::new(), Vec::new(), 0);
        for (method, params) in requests {
            let method = Method::parse(method);
            let Some((action, decision)) = lacking_scope(&snapshot, client, method, params) else { continue };
            let Decision::Scope { scopes, .. } = &decision else { continue };
            needed.extend(scopes.split(' ').map(str::to_owned));
            last = self.calls.fetch_add(1, Ordering::Relaxed);
            if let Some(handle) = snapshot.handles.iter().find(|handle| *handle.name.as_str() == *action.upstream) {
                handle.metrics.count(label(method), OutcomeLabel::Denied);
            }
            records.push(self.write_down(&DecisionRecord::new(&action, &decision), Some(last)));
        }
        for record in records {
            record.placed().await;
        }
        let scopes = needed.into_iter().collect::<Vec<String>>().join(" ");
        (!scopes.is_empty()).then(|| error_answer(&CallFailure::insufficient_scope(scopes.into()), last))
    }
}

/// Returns the decision about a call that lacks a scope, with its action; `None` for other calls
/// and for requests that are none.
fn lacking_scope(
    snapshot: &Snapshot,
    client: &ClientContext,
    method: Method,
    params: &RequestParams,
) -> Option<(PolicyAction, Decision)> {
    let view = view_of(snapshot, client)?;
    let visible = |at| view.visible(&snapshot.policy, at, client.viewer());
    let renamed = rename_bare(snapshot, view, client, method, &params.object);
    let object = renamed.as_ref().unwrap_or(&params.object);
    let routed = route(&view.catalog, method, object, params.meta.clone(), visible).ok()?;
    let found = FoundItem::new(snapshot, view, routed.entry)?;
    let arguments = routed.outgoing.body.get("arguments").cloned();
    let action = found.action(client, ActionKind::of(method), routed.canonical);
    let action = PolicyAction { arguments, client: client.name.clone(), ..action };
    let own_rules = found.own_rules(&action);
    let decision = decide_scope(&snapshot.policy, own_rules.as_ref().unwrap_or(found.rules), &action)?;
    Some((action, decision))
}
