//! The states of a permitted call, and the steps between them.

use crate::engine::call::OutgoingCall;
use crate::engine::question::QuestionRound;
use crate::gateway::answer::RequestAnswer;
use crate::gateway::call::joining::JoiningCall;
use crate::gateway::call::queued::{CallRequest, SlotQueuedCall};
use crate::gateway::call::running::RunningCall;
use crate::gateway::call::sending::SendingCall;
use crate::gateway::call::turn::SlotHold;
use crate::wire::json::raw::RawJson;

/// The state of a call, from its permit to its answer.
///
/// | from | to |
/// |---|---|
/// | `Queued` | `Sending`, or `Joining` for the request that continues a parked call |
/// | `Sending`, `Joining` | `Running` |
/// | `Running` | `Sending` if its server ended early; `Asking`; `Queued` after declines |
/// | `Asking` | `Queued` |
/// | any | `Ended`, with questions open by way of `Parting` |
pub(super) enum CallState {
    /// Waits for a place among all calls and for a slot of its upstream.
    Queued(SlotQueuedCall),
    /// Has its slot, and waits for a session, its turn and the disk.
    Sending(SendingCall),
    /// Has its slot, and joins a parked call; it starts none, however often the request is
    /// repeated.
    Joining(JoiningCall),
    Running(RunningCall),
    /// A legacy client is asked a modern server's questions; nothing is in flight upstream
    /// meanwhile.
    Asking(AskingCall),
    /// Has ended with open questions, whose withdrawals go out before the answer.
    Parting(RequestAnswer),
    Ended,
}

/// A call whose legacy client is being asked a modern server's questions.
pub(super) struct AskingCall {
    pub round: Box<QuestionRound>,
    /// The request to send again with the answers.
    pub request: OutgoingCall,
}

impl CallState {
    /// Replaces the state with one made from it.
    pub(super) fn advance(&mut self, next: impl FnOnce(Self) -> Self) {
        *self = next(std::mem::replace(self, Self::Ended));
    }

    /// Returns the state after a slot was given: sending, or joining a parked call.
    pub(super) fn with_slot(queued: SlotQueuedCall, hold: SlotHold) -> Self {
        match queued.request {
            CallRequest::Send(request) => Self::Sending(SendingCall::new(request, queued.gate, hold)),
            CallRequest::Join { id, answers } => Self::Joining(JoiningCall::new(id, answers, queued.gate, hold)),
        }
    }

    /// Returns the queued state of a call's next round, with the answers to its server's questions.
    pub(super) fn next_round(mut request: OutgoingCall, responses: RawJson, state: Option<String>) -> Self {
        request.body.set("inputResponses", responses);
        request.body.remove("requestState");
        request.body.set_some("requestState", state.map(|state| RawJson::string(&state)));
        request.resumed = true;
        Self::Queued(SlotQueuedCall::new(CallRequest::Send(request), None))
    }
}
