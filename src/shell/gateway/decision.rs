//! Decides an action and records the decision. Every decision about any request is made and
//! recorded here.

use std::sync::Arc;

use crate::base::clock;
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::engine::sealed::state::StateUse;
use crate::gateway::decision::found::FoundItem;
use crate::gateway::decision::gate::DiskGate;
use crate::gateway::service::Service;
use crate::policy::consent::{ApprovalId, ApprovalSubject};
use crate::policy::{ApprovalEvidence, Decision, DecisionRecord, Permit, PolicyAction, decide, decide_again};
use crate::store::audit::RecordState;
use crate::store::leases::limit_failure;
use crate::wire::json::raw::RawJson;

pub mod dry_run;
pub(crate) mod found;
pub(crate) mod gate;
pub(super) mod prepared;
mod scopes;
pub(super) mod starting;

/// How a request continues an earlier one, if it does.
pub enum CallContinuation {
    Anew,
    /// The request continues a permitted call: its permit covers all rounds. Holds the use of the
    /// sealed state that proves it, which has to be on disk first; `None` if the request joins a
    /// parked call, which uses no state up.
    Permitted(Option<StateUse>),
    /// The call waited for its approval, or this request brings the client's answer to it.
    Consent {
        approval: ApprovalId,
        answer: Option<RawJson>,
    },
    /// The call has waited until its open approval was in the store of the cluster.
    Listed(ApprovalId),
    /// The client was led to the page for its upstream's login, and may bring an answer about that.
    Login(Option<RawJson>),
}

impl CallContinuation {
    /// Returns the approval that the call has already.
    pub const fn approval(&self) -> Option<&ApprovalId> {
        match self {
            Self::Consent { approval, .. } | Self::Listed(approval) => Some(approval),
            Self::Anew | Self::Permitted(_) | Self::Login(_) => None,
        }
    }

    /// Returns the client's answer about an approval: `None` if the request is not about it,
    /// `Some(None)` if it brings no answer.
    pub(crate) fn consent_to(&self, approval: &ApprovalId) -> Option<Option<&RawJson>> {
        match self {
            Self::Consent { approval: own, answer } if own == approval => Some(answer.as_ref()),
            Self::Consent { .. } | Self::Listed(_) | Self::Anew | Self::Permitted(_) | Self::Login(_) => None,
        }
    }
}

/// A permit with what has to be on disk before it is used.
pub struct GatedPermit {
    pub(crate) permit: Permit,
    pub(crate) gate: Option<DiskGate>,
}

/// The reason why an action got no permit.
pub enum DecisionRefusal {
    /// Answered like an item that does not exist.
    Hidden,
    Told(CallFailure),
    /// A person has to approve first, with evidence of at least `need`.
    Ask {
        rule: Arc<str>,
        need: ApprovalEvidence,
    },
}

/// A refusal and its record. The client's answer waits until the record has a place in the log's
/// queue ([`RecordState::placed`]).
pub struct RecordedRefusal {
    pub refusal: DecisionRefusal,
    pub recorded: RecordState,
}

impl DecisionRefusal {
    fn told(reason: FailureReason, text: &str) -> Self {
        Self::Told(CallFailure::new(reason, ExecutionDoubt::No, text))
    }

    /// Returns the failure to answer if the request cannot wait for an approval; `None` for a
    /// hidden item.
    pub fn failure(self) -> Option<CallFailure> {
        match self {
            Self::Hidden => None,
            Self::Told(failure) => Some(failure),
            Self::Ask { .. } => {
                let text = "This needs an approval, and this kind of request cannot wait for one.";
                Some(CallFailure::new(FailureReason::Denied, ExecutionDoubt::No, text))
            }
        }
    }
}

impl Service {
    /// Decides an action, takes from its limits, and writes the decision to the log, the metrics
    /// and the audit log. Returns the permit with what has to be on disk before it is used. `call`
    /// is the number of the call.
    ///
    /// # Errors
    /// [`RecordedRefusal`].
    pub fn decide(
        &self,
        found: &FoundItem<'_>,
        action: &PolicyAction,
        going_on: &CallContinuation,
        call: u64,
    ) -> Result<GatedPermit, RecordedRefusal> {
        let (policy, limiter) = (&found.snapshot.policy, &found.snapshot.limiter);
        let own_rules = found.own_rules(action);
        let rules = own_rules.as_ref().unwrap_or(found.rules);
        let decision = if matches!(going_on, CallContinuation::Permitted(_)) {
            decide_again(policy, rules, action)
        } else {
            let own = going_on.approval();
            let consent = |rule: &Arc<str>, need| {
                let asked = ApprovalSubject::new(action, rule, need);
                self.approvals.grants().claim_call(&asked, action.arguments.as_ref(), self.approvals.wall(), own)
            };
            decide(policy, rules, action, &consent, limiter, clock::since_1970())
        };
        let record = DecisionRecord::new(action, &decision);
        let is_grave = record.is_grave();
        let recorded = match (&decision, going_on) {
            // Recorded when the approval was opened.
            (Decision::Ask { .. }, CallContinuation::Consent { answer: Some(_), .. } | CallContinuation::Listed(_)) => {
                RecordState::Accepted
            }
            _ => self.write_down(&record, Some(call)),
        };
        let refusal = match decision {
            Decision::Allow(permit) => {
                let lease = permit.lease().map(|lease| (self.leases.clone(), lease.clone()));
                let state = match going_on {
                    CallContinuation::Permitted(state) => state.map(|state| (self.keys.used.clone(), state)),
                    CallContinuation::Anew
                    | CallContinuation::Consent { .. }
                    | CallContinuation::Listed(_)
                    | CallContinuation::Login(_) => None,
                };
                let gate = DiskGate::new(&self.approvals, recorded, permit.grant(), lease, state, is_grave);
                return Ok(GatedPermit { permit, gate });
            }
            Decision::Deny { hidden: true, .. } => {
                // No wait for a record: an unknown item has none, and both must take equally long.
                return Err(RecordedRefusal { refusal: DecisionRefusal::Hidden, recorded: RecordState::Accepted });
            }
            Decision::Deny { hidden: false, .. } => {
                DecisionRefusal::told(FailureReason::Denied, "The policy does not allow this call.")
            }
            Decision::Scope { scopes, .. } => DecisionRefusal::Told(CallFailure::insufficient_scope(scopes)),
            Decision::Ask { rule, need } => DecisionRefusal::Ask { rule, need },
            Decision::Limit { limit, retry_after } => {
                self.metrics.limit_hit(&limit);
                DecisionRefusal::Told(limit_failure(retry_after))
            }
        };
        Err(RecordedRefusal { refusal, recorded })
    }

    /// Writes a decision to the log, the metrics, the console's list and the audit log.
    pub fn write_down(&self, record: &DecisionRecord<'_>, call: Option<u64>) -> RecordState {
        self.log_decision(record, call);
        self.metrics.decision(record.decision.into_str(), record.decision.rule());
        if self.console.get().is_some() {
            self.recent.push(record, clock::unix_seconds());
        }
        self.audit.record(record.entry(call), record.is_grave())
    }

    fn log_decision(&self, record: &DecisionRecord<'_>, call: Option<u64>) {
        let DecisionRecord { action, decision, .. } = *record;
        let why = &*record.why();
        // Without an audit log, the log line is the record, so it is written at info level.
        let is_record = !self.audit.is_kept();
        macro_rules! told {
            ($level:ident) => {
                tracing::$level!(
                    target: "audit",
                    decision = decision.into_str(),
                    rule = &**decision.rule(),
                    caller = action.caller.name(),
                    upstream.name = &*action.upstream,
                    item.kind = action.kind.into_str(),
                    item.name = &*action.listed,
                    why,
                    retry_after_ms = record.retry_after().map(clock::millis),
                    call.id = call.map(|call| format!("{call:x}")),
                    "decision"
                )
            };
        }
        if is_record {
            told!(info);
        } else {
            told!(debug);
        }
    }
}
