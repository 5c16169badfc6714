//! The proof that a call was allowed.

use std::sync::Arc;

use super::action::Action;
use super::compiled::{ItemRules, Policy};
use super::consent::Grant;
use super::evidence::Evidence;
use super::limit::Lease;
use super::limiter::{Drawn, Held, Limiter, Taken};
use crate::mcp::annotations::Annotations;

/// Leave to send one call upstream.
///
/// Only [`decide`](super::decide::decide) and [`decide_again`](super::decide::decide_again) make one, and there is one for
/// each call: so each call sent was decided.
#[derive(Debug)]
#[must_use = "a permit that is dropped is a call that was allowed and not sent"]
pub struct Permit {
    rule: Arc<str>,
    grant: Option<Arc<Grant>>,
    /// The evidence that the rule wants of the consent.
    need: Option<Evidence>,
    held: Option<Arc<Held>>,
    lease: Option<Lease>,
    /// What it drew from limits, until that is given back.
    drawn: Option<Drawn>,
}

impl Permit {
    /// For [`decide`](super::decide::decide) alone.
    pub(in crate::policy) fn mint(rule: Arc<str>, grant: Option<Arc<Grant>>) -> Self {
        Self { rule, grant, need: None, held: None, lease: None, drawn: None }
    }

    /// For [`decide`](super::decide::decide) alone: by a consent to what a rule asks about.
    pub(in crate::policy) fn consented(rule: Arc<str>, grant: Arc<Grant>, need: Evidence) -> Self {
        Self { need: Some(need), ..Self::mint(rule, Some(grant)) }
    }

    /// With what the call took from its limits.
    pub(in crate::policy) fn with(self, taken: Taken) -> Self {
        Self { held: taken.held.map(Arc::new), lease: taken.lease, drawn: taken.drawn, ..self }
    }

    /// Leave for the further requests of the same call, which its server wants made. The call keeps its place among the calls
    /// under way until both permits are gone.
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

    /// The lease that has to be durable before the call is sent, if there is one.
    pub fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// The call is refused before it is sent: what it drew goes back, once. `limiter`, `policy` and `item` are those of now; after a
    /// reload only a lease goes back, since the limits of before are not known.
    pub fn give_back(&mut self, limiter: &Limiter, policy: &Policy, item: &ItemRules, action: &Action) {
        let Some(drawn) = self.drawn.take() else { return };
        match &self.lease {
            Some(lease) => lease.give_back(),
            None => limiter.give_back(item, action, policy, &drawn),
        }
    }

    /// The call has ended, or never was one: its place among the calls under way is free.
    pub fn leave(&mut self) {
        self.held = None;
    }

    /// Id of the rule that allowed the call or asked for the consent, [`DEFAULT_RULE`](super::effect::DEFAULT_RULE) or
    /// [`AGAIN_RULE`](super::effect::AGAIN_RULE).
    pub fn rule(&self) -> &Arc<str> {
        &self.rule
    }

    /// Whether the record of the decision has to be on disk before the call is sent: for a grant without another record
    /// of it, for evidence above the client's word, and for a tool known to destroy.
    pub fn is_grave(&self, annotations: Annotations) -> bool {
        let consented = |grant: &Arc<Grant>| grant.is_grave() || self.need.is_some_and(|need| need > Evidence::Client);
        annotations.known_destructive || self.grant.as_ref().is_some_and(consented)
    }

    /// The consent that the call was allowed by.
    pub fn grant(&self) -> Option<&Arc<Grant>> {
        self.grant.as_ref()
    }
}
