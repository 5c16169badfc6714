//! Completions of items whose calls need a consent: what they complete to tells of the server, so nobody learns it before a person
//! has agreed to calls.

use std::sync::Arc;

use crate::catalog::merge::Entry;
use crate::config::Completions;
use crate::gateway::client::ClientContext;
use crate::gateway::service::{Service, decided};
use crate::gateway::snapshot::{self, Snapshot};
use crate::policy::consent::Asked;
use crate::policy::{self, Decision, Digest, Evidence, Facts, ItemRules, Record, may_ask, still_allowed};
use crate::upstream::handle::Handle;

impl Service {
    /// Which rule has the completions of an item answered empty: one that asks about its calls, while the caller has no live grant
    /// for longer than once. Completions that are denied are not this function's.
    ///
    /// `rules` are those of the item and those of its completions; `facts` are the completion's.
    pub(super) fn keeps_completions(
        &self,
        snapshot: &Snapshot,
        (item, completion): (&ItemRules, &ItemRules),
        facts: &Facts<'_>,
        entry: &Entry,
        client: &ClientContext,
        handle: &Handle,
    ) -> Option<(Arc<str>, Evidence)> {
        let kind = snapshot::kind(entry.list);
        let calls = Facts { kind, arguments: None, ..*facts };
        let (rule, need) = may_ask(&snapshot.policy, item, &calls)?;
        let passes = handle.spec.load().completions == Completions::Pass;
        if passes || !still_allowed(&snapshot.policy, completion, facts, true) {
            return None;
        }
        let asked = Asked {
            caller: Arc::clone(&client.caller),
            session: Some(client.session()),
            upstream: entry.upstream_name.shared(),
            kind,
            item: Arc::clone(&entry.canonical),
            definition: entry.definition_digest,
            launch: handle.launch(),
            arguments: Digest::of_arguments(None),
            rule: Arc::clone(rule),
            need,
            destructive: false,
        };
        let lasting = self.approvals.grants().lasting(&asked, self.approvals.wall());
        (!lasting).then(|| (Arc::clone(rule), need))
    }

    /// Records completions that were answered empty.
    pub(super) fn wrote_empty(
        &self,
        rule: Arc<str>,
        need: Evidence,
        facts: &Facts<'_>,
        entry: &Entry,
        client: &ClientContext,
        call: u64,
    ) {
        let decision = Decision::Ask { rule, need };
        let record = Record::new(facts, &entry.canonical, &decision);
        let why = "answered empty: no consent to calls of this item lasts";
        let decided = decided(&record, facts, entry, client, Some(call));
        self.wrote_ask(&record, policy::Entry { evidence: Some(need), why: why.into(), ..decided });
    }
}
