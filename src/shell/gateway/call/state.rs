//! The states of a call.

use crate::engine::call::Outgoing;
use crate::engine::question::Round;
use crate::gateway::answer::Answer;
use crate::gateway::call::joining::JoiningCall;
use crate::gateway::call::queued::{CallRequest, QueuedCall};
use crate::gateway::call::running::RunningCall;
use crate::gateway::call::sending::SendingCall;
use crate::gateway::call::turn::SlotHold;
use crate::wire::raw::RawJson;

/// The state of a call, from its permit to its answer.
///
/// | from | to |
/// |---|---|
/// | `Queued` | `Sending`, or `Joining` for the request that continues a parked call |
/// | `Sending`, `Joining` | `Running` |
/// | `Running` | `Sending` if its server ended before reading it; `Asking`; `Queued` with declines |
/// | `Asking` | `Queued` |
/// | any | `Ended`, with questions open by way of `Parting` |
pub(super) enum CallState {
    /// Waits for its place among all calls and for a slot of its upstream.
    Queued(QueuedCall),
    /// Has its slot, and waits for the upstream, its turn and the disk.
    Sending(SendingCall),
    /// Has its slot, and joins a call that is parked; it starts none, however often it comes.
    Joining(JoiningCall),
    Running(RunningCall),
    /// A legacy client is asked what a modern server wants to know; nothing is in flight upstream
    /// meanwhile.
    Asking(AskingCall),
    /// Has ended with open questions, whose withdrawals come before the answer.
    Parting(Answer),
    Ended,
}

/// A call whose legacy client is asked.
pub(super) struct AskingCall {
    pub round: Box<Round>,
    /// The request, to be sent again with the answers.
    pub request: Outgoing,
}

impl CallState {
    /// Makes the next state of this one.
    pub(super) fn advance(&mut self, next: impl FnOnce(Self) -> Self) {
        *self = next(std::mem::replace(self, Self::Ended));
    }

    /// The call with its slot.
    pub(super) fn with_slot(queued: QueuedCall, hold: SlotHold) -> Self {
        match queued.request {
            CallRequest::Send(request) => Self::Sending(SendingCall::new(request, queued.gate, hold)),
            CallRequest::Join { id, answers } => Self::Joining(JoiningCall::new(id, answers, queued.gate, hold)),
        }
    }

    /// The next round of a call, with the answers to its server's questions.
    pub(super) fn next_round(mut request: Outgoing, responses: RawJson, state: Option<String>) -> Self {
        request.body.set("inputResponses", responses);
        request.body.remove("requestState");
        request.body.set_some("requestState", state.map(|state| RawJson::string(&state)));
        request.resumed = true;
        Self::Queued(QueuedCall::new(CallRequest::Send(request), None))
    }
}
