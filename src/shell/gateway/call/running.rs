//! The state of a call that is in flight upstream.

use std::time::Instant;

use crate::base::clock;
use crate::engine::call::{CallDeadline, OutgoingCall};
use crate::engine::connection::ask::unable_answer;
use crate::engine::fault::ProtocolFault;
use crate::engine::question::{GatheredQuestions, StreamQuestions};
use crate::gateway::call::context::CallContext;
use crate::gateway::client_requests::PendingRequest;
use crate::upstream::call::exchange::UpstreamExchange;
use crate::upstream::session::handle::CallSlot;
use crate::upstream::session::lane::LaneUse;
use crate::upstream::turns::SharedCallTurn;
use crate::wire::json::raw::RawJson;

/// A call in flight upstream.
pub(super) struct RunningCall {
    pub exchange: UpstreamExchange,
    pub deadline: CallDeadline,
    pub sent: Instant,
    /// The session of the call, which stays open for it. A parked call's session is held by its
    /// task.
    pub lane: LaneUse,
    pub turn: SharedCallTurn,
    pub slot: CallSlot,
    /// True if the request continues a call that asked for input.
    pub is_resumed: bool,
    /// The sent request, kept for clients that can be asked.
    pub request: Option<OutgoingCall>,
    /// Questions of a legacy server that a modern client is about to be sent.
    pub gathered: GatheredQuestions,
}

impl RunningCall {
    /// Resumes the server's deadline once the client has no question open.
    pub(super) fn settle(&mut self, on_stream: &mut StreamQuestions<PendingRequest>) {
        let now = clock::now();
        if let Some(asked) = on_stream.settled(now) {
            self.deadline.asked_for(asked, now);
        }
    }

    /// Refuses a question of the server that no client can be asked; counts the fault.
    pub(super) fn refuse(&mut self, context: &CallContext, id: &RawJson, method: &str) {
        context.handle.metrics.fault(ProtocolFault::RefusedRequest);
        self.exchange.reply(id, unable_answer(method));
    }
}
