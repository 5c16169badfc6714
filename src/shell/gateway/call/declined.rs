//! Declined questions: the terms on which a server may ask, and the continuation of its call
//! without an answer.

use std::sync::atomic::Ordering;

use crate::base::clock;
use crate::engine::fault::ProtocolFault;
use crate::engine::sealed::state::MAX_ROUNDS;
use crate::gateway::call::PermittedCall;
use crate::gateway::call::context::CallContext;
use crate::gateway::call::state::CallState;
use crate::mcp::asking::elicitation::ElicitationTerms;
use crate::mcp::asking::input::{InputError, RequestsByKey, decline_all, read_pages};
use crate::wire::code;
use crate::wire::json::raw::{RawJson, RawObject};

/// Most declined questions of one call that are logged.
const MAX_TOLD: u32 = 8;

impl PermittedCall {
    /// Continues the call as if the person had declined every question of this result, so that
    /// questions beside a forged one gain nothing. Returns false if the call cannot be continued.
    pub(super) fn decline_all(&mut self, raw: &RawJson) -> bool {
        let (Some((responses, state)), Some(input)) = (decline_all(raw), &mut self.context.input) else { return false };
        input.round = input.round.saturating_add(1);
        if input.round > MAX_ROUNDS {
            return false;
        }
        let Some(request) = self.take_request() else { return false };
        self.state = CallState::next_round(request, responses, state);
        true
    }
}

impl CallContext {
    /// Returns the terms on which the call's server may ask its client.
    pub(super) fn terms(&self) -> ElicitationTerms {
        let spec = self.handle.spec.load();
        let (offered, is_here) = self.input.as_ref().map(|input| (input.offered, input.is_here)).unwrap_or_default();
        ElicitationTerms {
            upstream: self.handle.name.shared(),
            offered,
            elicit: spec.elicit.clone(),
            on_this_machine: is_here && spec.target.is_here(),
            own: self.service.own(),
        }
    }

    /// Counts a declined question as a fault, and logs why, up to [`MAX_TOLD`] times a call.
    pub(super) fn declined(&self, why: InputError) {
        self.handle.metrics.fault(ProtocolFault::from(why));
        if self.declines.fetch_add(1, Ordering::Relaxed) >= MAX_TOLD {
            return;
        }
        if let Some(count) = self.handle.health.lines.declined.count(clock::uptime()) {
            let (upstream, call) = (self.handle.name.as_str(), self.labels.call);
            tracing::warn!(upstream, call, item = &*self.action.canonical, why = %why, count, "question declined");
        }
    }

    /// Returns the checked pages that an error wants opened before the call.
    ///
    /// # Errors
    /// The error wants none, or pages that the client is not asked to open.
    pub(super) fn pages_of(&self, raw: &RawJson) -> Result<RequestsByKey, InputError> {
        let error = RawObject::parse(raw).map_err(|_| InputError::Malformed)?;
        let code = error.get("code").and_then(|raw| raw.parse::<i64>().ok());
        if code != Some(code::URL_ELICITATION_REQUIRED) {
            return Err(InputError::Malformed);
        }
        read_pages(&error, &self.terms()).inspect_err(|why| {
            if why.is_declined() {
                self.declined(*why);
            }
        })
    }
}
