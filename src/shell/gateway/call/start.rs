//! Sends a permitted call: waits for its place, its slot and its session, then writes it.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::base::clock;
use crate::engine::call::CallProgress;
use crate::engine::failure::{CallFailure, ExecutionDoubt};
use crate::gateway::call::running::RunningCall;
use crate::gateway::call::sending::SendingCall;
use crate::gateway::call::state::CallState;
use crate::gateway::call::{ClientEvent, PermittedCall};
use crate::gateway::client::admission::CallPlace;
use crate::upstream::call::exchange::UpstreamExchange;

impl PermittedCall {
    /// Starts the call, or fails if the caller's access ends before that. Returns a notice for the
    /// client if the call still waits for the upstream.
    pub async fn begin(&mut self) -> Result<Option<ClientEvent>, CallFailure> {
        let access = Arc::clone(&self.context.access);
        tokio::select! {
            // In this order: nearly every call starts at once, and then does not look at the end of
            // the access.
            biased;
            started = self.start() => started,
            () = access.ended() => Err(self.context.given_up(ExecutionDoubt::No)),
        }
    }

    /// Sends the call once it has a place, a slot and a session, and all its writes are on disk.
    /// Returns early with a notice for a client whose call waits for the upstream. Can be cancelled
    /// and called again until the call is sent.
    async fn start(&mut self) -> Result<Option<ClientEvent>, CallFailure> {
        let since = clock::now();
        let Self { context, state, progress, place, .. } = self;
        if let CallPlace::Queued(queued) = place {
            // A call that reports progress may hold its place for this long.
            let longest = context.handle.spec.load().call_max;
            *place = Box::pin(context.service.admission.wait(queued, longest)).await?;
        }
        if let CallState::Queued(queued) = state {
            let hold = queued.slot(context).await?;
            state.advance(|state| {
                let CallState::Queued(queued) = state else { return state };
                CallState::with_slot(queued, hold)
            });
        }
        if let CallState::Sending(sending) = state {
            let ready = match sending.ready(context, progress, since).await? {
                ControlFlow::Continue(ready) => ready,
                ControlFlow::Break(notice) => return Ok(Some(notice)),
            };
            state.advance(|state| {
                let CallState::Sending(sending) = state else { return state };
                CallState::Running(sending.send(context, ready))
            });
        } else if let CallState::Joining(joining) = state {
            // Boxed: this path is rare, and inlining it would grow every call's future.
            let joined = Box::pin(joining.join(context)).await?;
            state.advance(|state| {
                let CallState::Joining(joining) = state else { return state };
                CallState::Running(joining.joined(context, joined))
            });
        }
        Ok(None)
    }

    /// Continues the progress counter from the value the client saw while the call was held.
    pub fn resume_progress(&mut self, progress: Option<CallProgress>) {
        if progress.is_some() {
            self.progress = progress;
        }
    }

    /// Sends the call once more if its server ended before reading a byte of it: it waits for the
    /// next session. Returns false if the call was read or was sent again before.
    pub fn send_again(&mut self) -> bool {
        let CallState::Running(RunningCall { exchange: UpstreamExchange::Sent(sent), .. }) = &mut self.state else {
            return false;
        };
        let Some(request) = sent.take_unsent().filter(|_| !self.is_retried) else { return false };
        self.is_retried = true;
        let context = &self.context;
        self.state.advance(|state| {
            let CallState::Running(running) = state else { return state };
            CallState::Sending(SendingCall::again(*request, running.slot, context))
        });
        true
    }
}
