//! Looks for calls that need more scopes than their credential has, before any call of a batch, or
//! any watch of a subscription, is decided: such a request is refused as a whole.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::failure::CallFailure;
use crate::engine::route::{RequestParams, route};
use crate::gateway::answer::{RequestAnswer, error_answer, label};
use crate::gateway::client::{ClientContext, view_of};
use crate::gateway::decision::found::{FoundItem, rename_bare};
use crate::gateway::service::Service;
use crate::gateway::snapshot::Snapshot;
use crate::mcp::method::Method;
use crate::policy::{ActionKind, CallerRights, Decision, DecisionRecord, PolicyAction, Scopes, decide_scope};
use crate::telemetry::metrics::OutcomeLabel;
use crate::wire::json::raw::RawObject;

/// The scopes of one call: all that it needs, and the refusal if its credential lacks one.
struct NeededScopes {
    /// The scopes, with spaces between.
    scopes: Box<str>,
    refusal: Option<(PolicyAction, Decision)>,
}

impl Service {
    /// Returns the refusal of a batch with a call that lacks a scope; it names the scopes that the
    /// calls of the batch need. Each call that lacks one is recorded, and waits until its record
    /// has a place in the log's queue.
    pub async fn refuse_batch<'r>(
        &self,
        client: &ClientContext,
        requests: impl Iterator<Item = (&'r str, &'r RequestParams)>,
    ) -> Option<RequestAnswer> {
        let requests = requests.map(|(method, params)| (Method::parse(method), params));
        self.refuse_for_scopes(client, requests, usize::MAX).await
    }

    /// Returns the refusal of a subscription to resources of which one lacks a scope; it names the
    /// scopes that all of them need. The refusal is one record, about the first such resource.
    pub async fn refuse_watches(&self, client: &ClientContext, uris: &[String]) -> Option<RequestAnswer> {
        if client.access.rights().scopes == Scopes::All {
            return None;
        }
        let params =
            |uri: &String| RequestParams { object: RawObject::of_strings(&[("uri", uri)]), ..Default::default() };
        let watches: Vec<RequestParams> = uris.iter().map(params).collect();
        let watches = watches.iter().map(|params| (Method::ResourcesSubscribe, params));
        self.refuse_for_scopes(client, watches, 1).await
    }

    /// Returns the refusal of requests of which one lacks a scope, and writes at most this number
    /// of records.
    async fn refuse_for_scopes<'r>(
        &self,
        client: &ClientContext,
        requests: impl Iterator<Item = (Method, &'r RequestParams)>,
        most_records: usize,
    ) -> Option<RequestAnswer> {
        if client.access.rights().scopes == Scopes::All {
            return None;
        }
        let snapshot = self.snapshots.load_full();
        let (mut needed, mut records, mut last) = (BTreeSet::new(), Vec::new(), 0);
        for (method, params) in requests {
            let Some(found) = needed_scopes(&snapshot, client, method, params) else { continue };
            needed.extend(found.scopes.split(' ').map(str::to_owned));
            let Some((action, decision)) = found.refusal.filter(|_| records.len() < most_records) else { continue };
            last = self.calls.fetch_add(1, Ordering::Relaxed);
            if let Some(handle) = snapshot.handles.iter().find(|handle| *handle.name.as_str() == *action.upstream) {
                handle.metrics.count(label(method), OutcomeLabel::Denied);
            }
            records.push(self.write_down(&DecisionRecord::new(&action, &decision), Some(last)));
        }
        if records.is_empty() {
            return None;
        }
        for record in records {
            record.placed().await;
        }
        let scopes = needed.into_iter().collect::<Vec<String>>().join(" ");
        Some(error_answer(&CallFailure::insufficient_scope(scopes.into()), last))
    }
}

/// Returns the scopes of a call; `None` if it needs none, is denied by the rules, or is no call.
fn needed_scopes(
    snapshot: &Snapshot,
    client: &ClientContext,
    method: Method,
    params: &RequestParams,
) -> Option<NeededScopes> {
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
    let rules = own_rules.as_ref().unwrap_or(found.rules);
    let groups = action.rights.groups.clone();
    let without_scopes = Arc::new(CallerRights { scopes: Scopes::Of(Box::default()), groups });
    let asked = PolicyAction { rights: without_scopes, ..action.clone() };
    let Decision::Scope { scopes, .. } = decide_scope(&snapshot.policy, rules, &asked)? else { return None };
    let refusal = decide_scope(&snapshot.policy, rules, &action).map(|decision| (action, decision));
    Some(NeededScopes { scopes, refusal })
}
