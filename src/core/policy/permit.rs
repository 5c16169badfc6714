//! Permits: the proof that a call was allowed, with what it took from limits and the grant that it
//! used.

use std::sync::Arc;

use super::action::PolicyAction;
use super::compiled::{ItemRules, Policy};
use super::consent::ApprovalGrant;
use super::evidence::ApprovalEvidence;
use super::limit::LimitLease;
use super::limiter::{CallSlots, DrawTime, LimitDraws, Limiter};
use crate::mcp::definition::annotations::Annotations;

/// The permission to send one call upstream.
///
/// Only [`decide`](super::decide::decide) and [`decide_again`](super::decide::decide_again) issue
/// permits, one for each call, so each call that is sent was decided.
#[derive(Debug)]
#[must_use = "a permit that is dropped is a call that was allowed and not sent"]
pub struct Permit {
    rule: Arc<str>,
    grant: Option<Arc<ApprovalGrant>>,
    /// The evidence that the rule needs for an approval; `None` if no rule asked.
    need: Option<ApprovalEvidence>,
    /// The slots of the call among the calls under way.
    held: Option<Arc<CallSlots>>,
    lease: Option<LimitLease>,
    /// The time at which the call drew from limits, until that is given back.
    drawn: Option<DrawTime>,
}

impl Permit {
    /// Makes a permit. Only for [`decide`](super::decide::decide) and
    /// [`decide_again`](super::decide::decide_again).
    pub(in crate::policy) fn mint(rule: Arc<str>, grant: Option<Arc<ApprovalGrant>>) -> Self {
        Self { rule, grant, need: None, held: None, lease: None, drawn: None }
    }

    /// Makes a permit for a call that a rule asks about and a grant covers. Only for
    /// [`decide`](super::decide::decide).
    pub(in crate::policy) fn consented(rule: Arc<str>, grant: Arc<ApprovalGrant>, need: ApprovalEvidence) -> Self {
        Self { need: Some(need), ..Self::mint(rule, Some(grant)) }
    }

    /// Adds what the call took from its limits.
    pub(in crate::policy) fn with(self, taken: LimitDraws) -> Self {
        Self { held: taken.held.map(Arc::new), lease: taken.lease, drawn: taken.drawn, ..self }
    }

    /// Returns a permit for the further requests that belong to the same call. The call keeps its
    /// slots among the calls under way until both permits are dropped.
    pub fn onward(&self) -> Self {
        Self {
            rule: Arc::clone(&self.rule),
            grant: self.grant.clone(),
            need: self.need,
            held: self.held.clone(),
            lease: None,
            drawn: None,
        }
    }

    /// Returns the lease that must be durable before the call is sent, if there is one.
    pub fn lease(&self) -> Option<&LimitLease> {
        self.lease.as_ref()
    }

    /// Gives back what the call drew, once, because it is refused before it is sent. `limiter`,
    /// `policy` and `item` are the present ones; after a reload only a lease is given back, since
    /// the earlier limits are not known.
    pub fn give_back(&mut self, limiter: &Limiter, policy: &Policy, item: &ItemRules, action: &PolicyAction) {
        let Some(drawn) = self.drawn.take() else { return };
        match &self.lease {
            Some(lease) => lease.give_back(),
            None => limiter.give_back(item, action, policy, &drawn),
        }
    }

    /// Frees the slots of a call that has ended or was never made.
    pub fn leave(&mut self) {
        self.held = None;
    }

    /// Id of the rule that allowed the call or asked for the consent,
    /// [`DEFAULT_RULE`](super::effect::DEFAULT_RULE) or [`AGAIN_RULE`](super::effect::AGAIN_RULE).
    pub fn rule(&self) -> &Arc<str> {
        &self.rule
    }

    /// Whether the record of the decision must be on disk before the call is sent: for a
    /// once-grant, for the first use of another grant, for evidence above the client's word, and
    /// for a tool known to destroy.
    pub fn is_grave(&self, annotations: Annotations) -> bool {
        let consented = |grant: &Arc<ApprovalGrant>| {
            grant.is_grave() || self.need.is_some_and(|need| need > ApprovalEvidence::Client)
        };
        annotations.known_destructive || self.grant.as_ref().is_some_and(consented)
    }

    /// Returns the grant that the call uses.
    pub fn grant(&self) -> Option<&Arc<ApprovalGrant>> {
        self.grant.as_ref()
    }
}
