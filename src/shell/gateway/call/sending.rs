//! The state of a call that has its slot and is not written yet: it waits for a session, its turn
//! and the disk.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::clock;
use crate::catalog::merge::CatalogEntry;
use crate::engine::call::{CallDeadline, CallProgress, OutgoingCall};
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::engine::question::GatheredQuestions;
use crate::gateway::call::context::CallContext;
use crate::gateway::call::event::ClientEvent;
use crate::gateway::call::opening::{OpenSession, SessionOpening};
use crate::gateway::call::running::RunningCall;
use crate::gateway::call::turn::SlotHold;
use crate::gateway::decision::gate::DiskGate;
use crate::gateway::decision::prepared::ClientTaskUse;
use crate::mcp::version::Era;
use crate::upstream::call::exchange::UpstreamExchange;
use crate::upstream::call::task::{TaskExchange, TaskRelation};
use crate::upstream::session::handle::CallSlot;
use crate::upstream::turns::SharedCallTurn;

/// A call that has its slot and is not sent yet.
pub(super) struct SendingCall {
    request: OutgoingCall,
    gate: Option<DiskGate>,
    hold: SlotHold,
    /// The session that is being opened, if none was open.
    opening: Option<SessionOpening>,
}

/// The session, turn and catalog entry of a call that can be written now.
pub(super) struct ReadyCall<'c> {
    session: OpenSession,
    turn: SharedCallTurn,
    entry: &'c CatalogEntry,
}

impl SendingCall {
    pub(super) const fn new(request: OutgoingCall, gate: Option<DiskGate>, hold: SlotHold) -> Self {
        Self { request, gate, hold, opening: None }
    }

    /// Prepares to send a call again whose server ended before reading a byte of it. The call waits
    /// for the next process, and not for the disk a second time.
    pub(super) fn again(request: OutgoingCall, slot: CallSlot, context: &CallContext) -> Self {
        let hold = SlotHold::new(slot, Duration::ZERO);
        Self { request, gate: None, hold, opening: Some(SessionOpening::new(context, clock::now())) }
    }

    /// Waits until the call can be written: for its session, which is opened if necessary, for its
    /// turn, and for the writes of its [`DiskGate`], which use a once-grant up. Sets the log level
    /// that the client wants. Breaks with a progress notice for the client from time to time while
    /// it waits for the session; call it again then. Cancel-safe.
    ///
    /// # Errors
    /// The call must not be made.
    pub(super) async fn ready<'c>(
        &mut self,
        context: &'c CallContext,
        progress: &mut Option<CallProgress>,
        since: Instant,
    ) -> Result<ControlFlow<ClientEvent, ReadyCall<'c>>, CallFailure> {
        let mut session = match self.open_session(context, since) {
            Some(session) => session,
            // Boxed: this path is rare, and inlining it would grow every call's future.
            None => match Box::pin(self.wait_for_session(context, progress, since)).await? {
                ControlFlow::Continue(session) => session,
                ControlFlow::Break(notice) => return Ok(ControlFlow::Break(notice)),
            },
        };
        let item = self.request.party.item.as_ref();
        // A call that waits already keeps its position.
        let passer = self.hold.passer().or_else(|| session.lane.news.turns.passer(item));
        let mut turn = None;
        if let Some(passer) = passer.filter(|_| session.link.agreed().revision.era() == Era::Legacy) {
            let spec = context.handle.spec.load_full();
            turn = self.hold.turn(&session.lane, passer, item.cloned(), Arc::clone(&spec)).await?;
            // The server may have been restarted meanwhile.
            session.link = session.lane.link(&spec).await?;
        }
        if let Some(level) = self.request.log_level {
            Box::pin(context.handle.ask_for_logs(&session.link, &context.permit, level)).await;
        }
        context.pass(&mut self.gate, self.request.resumed).await?;
        let entry = context.item()?;
        if self.request.resumed && session.link.agreed().revision.era() == Era::Legacy {
            let text = "The server that asked for input was replaced; start the call again.";
            return Err(CallFailure::new(FailureReason::UpstreamProtocol, ExecutionDoubt::Unknown, text));
        }
        Ok(ControlFlow::Continue(ReadyCall { session, turn, entry }))
    }

    /// Returns the session for the call if one is open and none is being opened.
    fn open_session(&self, context: &CallContext, since: Instant) -> Option<OpenSession> {
        if self.opening.is_some() {
            return None;
        }
        context.handle.open_lane(&context.wants).map(|(lane, link)| OpenSession { lane, link, since })
    }

    /// Waits for the session, opening it if necessary. Breaks with a progress notice for the client
    /// from time to time.
    async fn wait_for_session(
        &mut self,
        context: &CallContext,
        progress: &mut Option<CallProgress>,
        since: Instant,
    ) -> Result<ControlFlow<ClientEvent, OpenSession>, CallFailure> {
        let opening = self.opening.get_or_insert_with(|| SessionOpening::new(context, since));
        loop {
            if let Some(session) = opening.session(progress.is_some()).await? {
                self.opening = None;
                return Ok(ControlFlow::Continue(session));
            }
            // Counted from the call's arrival, so that it continues the values sent while the call
            // was held.
            let waited = clock::now().duration_since(context.labels.arrived);
            let text = format!("Waiting for the server `{}` to start.", context.handle.name);
            let told = progress.as_mut().and_then(|progress| progress.waiting(waited, &text));
            if let Some(notice) = told.and_then(|params| context.notice("notifications/progress", &params)) {
                return Ok(ControlFlow::Break(notice));
            }
        }
    }

    /// Sends the call and returns it as a running one.
    pub(super) fn send(self, context: &CallContext, ready: ReadyCall<'_>) -> RunningCall {
        let ReadyCall { session: OpenSession { lane, link, since }, turn, entry } = ready;
        let (mut request, handle) = (self.request, &context.handle);
        request.party.in_turn = turn.is_some();
        let (sent, spec, is_resumed) = (clock::now(), handle.spec.load(), request.resumed);
        handle.metrics.queued(sent.duration_since(since));
        let manner =
            TaskRelation::of(&link, context.labels.method, entry, context.task_way() == Some(&ClientTaskUse::Passes));
        // Kept: a call that may ask for input may have to continue without its client being asked.
        let keeps = manner == TaskRelation::Perhaps
            || context.input.as_ref().is_some_and(|input| input.client_requests.is_some() || input.offered.any());
        let kept = keeps.then(|| request.clone());
        let exchange = if manner == TaskRelation::Required {
            let way = context.task_channel(link, lane.clone());
            UpstreamExchange::Task(Box::new(TaskExchange::start(way, context.terms(), request, &entry.headers)))
        } else {
            UpstreamExchange::Sent(handle.call(&link, &context.permit, request, &entry.headers))
        };
        let deadline = CallDeadline::new(sent, spec.call_timeout, spec.call_max);
        let (slot, gathered) = (self.hold.slot, GatheredQuestions::default());
        RunningCall { exchange, deadline, sent, lane, turn, slot, is_resumed, request: kept, gathered }
    }
}
