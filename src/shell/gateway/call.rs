//! Runs a permitted call from its permit to exactly one answer: slot, session, progress, questions,
//! deadline.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use bytes::Bytes;

use crate::base::clock;
use crate::engine::call::{CallProgress, OutgoingCall};
use crate::engine::connection::ask::{
    ClientAnswer, ServerRequest, refusal_answer as refused_question, unanswered_answer,
};
use crate::engine::event::CallEvent;
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::engine::fault::ProtocolFault;
use crate::engine::question::{ClientQuestion, QuestionRound, ShownQuestion, StreamQuestions};
use crate::engine::sealed::state::{MAX_ROUNDS, StatePayload};
use crate::gateway::answer::RequestAnswer;
use crate::gateway::client::admission::CallPlace;
use crate::gateway::client::quota::QuotaSlot;
use crate::gateway::client_requests::{PendingRequest, ask, next_answer};
use crate::gateway::decision::GatedPermit;
use crate::gateway::decision::prepared::{InputContext, PreparedCall};
use crate::gateway::service::Service;
use crate::mcp::asking::input::{InputError, InputRequest, read_input_required, write_for_client};
use crate::mcp::asking::kinds::InputKinds;
use crate::telemetry::metrics::OutcomeLabel;
use crate::upstream::call::exchange::UpstreamExchange;
use crate::upstream::session::lane::LaneRequest;
use crate::wire::json::raw::RawJson;

mod apps;
mod context;
mod declined;
mod ending;
mod event;
mod joining;
mod leaving;
mod opening;
mod outcome;
mod queued;
mod recheck;
mod running;
mod sending;
mod start;
mod state;
mod tasked;
mod turn;

pub use self::context::access_failure;
pub use self::event::ClientEvent;
pub use self::outcome::translate;

use self::context::CallContext;
use self::queued::{CallRequest, SlotQueuedCall};
use self::running::RunningCall;
use self::state::{AskingCall, CallState};

/// Reason in the withdrawal of a question whose time is over.
pub(super) const LATE: &str = "no answer in time";

/// A permitted call. Dropping it before the answer cancels it upstream.
pub struct PermittedCall {
    context: CallContext,
    state: CallState,
    /// True once the call was sent a second time because the server ended before reading it. It is
    /// not sent a third time.
    is_retried: bool,
    progress: Option<CallProgress>,
    place: CallPlace,
    _share: QuotaSlot,
    /// Questions that are open at a legacy client.
    on_stream: StreamQuestions<PendingRequest>,
    /// Withdrawals of questions, to be sent before any other event.
    closing: Vec<Bytes>,
}

/// The next event of a running call.
enum CallSignal {
    Event(CallEvent),
    Answered(ShownQuestion<PendingRequest>, Option<ClientAnswer>),
    TimeOut,
    AccessEnded,
}

impl PermittedCall {
    pub fn new(service: Arc<Service>, prepared: PreparedCall<'_>, permitted: GatedPermit, place: CallPlace) -> Self {
        let PreparedCall { client, found, action, labels, outgoing, asked, token, mut input, share, .. } = prepared;
        let offered = input.as_ref().map_or_else(InputKinds::default, |input| input.offered);
        let log_from = outgoing.log_level;
        let request = match input.as_mut().and_then(|input| input.parked.take()) {
            Some((id, answers)) => CallRequest::Join { id, answers },
            None => CallRequest::Send(outgoing),
        };
        let context = CallContext {
            service,
            access: Arc::clone(&client.access),
            handle: Arc::clone(found.handle),
            wants: LaneRequest {
                caller: action.caller.clone(),
                client: client.tag.clone(),
                offered,
                apps: client.apps.clone(),
            },
            view: Arc::clone(found.view),
            entry: found.at,
            permit: permitted.permit,
            action,
            generation: found.snapshot.generation,
            revision: client.revision,
            labels,
            asked,
            log_from,
            input,
            declines: AtomicU32::new(0),
        };
        Self {
            context,
            state: CallState::Queued(SlotQueuedCall::new(request, permitted.gate)),
            is_retried: false,
            progress: token.map(|token| CallProgress::new(token, client.revision)),
            place,
            _share: share,
            on_stream: StreamQuestions::default(),
            closing: Vec::new(),
        }
    }

    /// Waits for the next event for the client, sending the call first. Cancel-safe once the call
    /// runs; a wait cancelled before that sends nothing.
    pub async fn next(&mut self) -> ClientEvent {
        loop {
            if let Some(event) = self.parting_event() {
                return event;
            }
            let event = match self.state {
                CallState::Queued(_) | CallState::Sending(_) | CallState::Joining(_) => match self.begin().await {
                    Ok(notice) => notice,
                    Err(failure) => {
                        self.context.give_back();
                        return self.fail(&failure);
                    }
                },
                CallState::Running(_) => self.listen().await,
                CallState::Asking(_) => Box::pin(self.talk()).await,
                // A call has no events after its answer.
                CallState::Parting(_) | CallState::Ended => std::future::pending().await,
            };
            match event {
                Some(ClientEvent::Done(answer)) if !self.on_stream.is_empty() || !self.closing.is_empty() => {
                    self.closing
                        .extend(self.on_stream.close().map(|shown| shown.wait.withdrawal("the call has ended")));
                    self.state = CallState::Parting(answer);
                }
                Some(event) => return event,
                None => {}
            }
        }
    }

    /// Returns the next withdrawal, then the answer of a call that ended with open questions.
    fn parting_event(&mut self) -> Option<ClientEvent> {
        if let Some(withdrawal) = self.closing.pop() {
            return Some(ClientEvent::Notice(withdrawal));
        }
        let CallState::Parting(answer) = &mut self.state else { return None };
        let answer = answer.clone();
        self.state = CallState::Ended;
        Some(ClientEvent::Done(answer))
    }

    /// Waits for the next event from upstream; `None` when the call continues in another state.
    async fn listen(&mut self) -> Option<ClientEvent> {
        while let CallState::Running(running) = &mut self.state {
            let due = running.gathered.due();
            // No deadline while a question is open: a person may take longer than a server.
            let until = due.or_else(|| self.on_stream.is_empty().then(|| running.deadline.at()));
            let signal = tokio::select! {
                biased;
                event = running.exchange.next() => CallSignal::Event(event),
                (shown, answer) = Box::pin(next_answer(&mut self.on_stream)), if !self.on_stream.is_empty() => {
                    CallSignal::Answered(shown, answer)
                }
                () = clock::sleep_until(until) => {
                    if due.is_some() { return self.inquire() } else { CallSignal::TimeOut }
                }
                () = self.context.access.ended() => CallSignal::AccessEnded,
            };
            let event = match signal {
                CallSignal::Event(CallEvent::Progress(params)) => {
                    running.deadline.progressed(clock::now());
                    self.context.progress(&mut self.progress, &params)
                }
                CallSignal::Event(CallEvent::Log(params)) => self.context.log(&params),
                CallSignal::Event(CallEvent::Ask(request)) => self.asked(request),
                CallSignal::Event(CallEvent::Withdrawn(id)) => {
                    running.gathered.withdraw(&id);
                    let withdrawn = self.on_stream.withdraw(&id);
                    running.settle(&mut self.on_stream);
                    withdrawn.map(|shown| ClientEvent::Notice(shown.wait.withdrawal("withdrawn by the server")))
                }
                CallSignal::Event(CallEvent::Alive) => {
                    running.deadline.progressed(clock::now());
                    None
                }
                CallSignal::Event(CallEvent::Unwritten) => match self.context.recheck(running.is_resumed) {
                    Ok(()) => None,
                    Err(failure) => {
                        self.context.give_back();
                        Some(self.fail(&failure))
                    }
                },
                // Only streams that were requested as a whole have these.
                CallSignal::Event(CallEvent::Notice(_)) => None,
                CallSignal::Event(CallEvent::Done(outcome)) => {
                    return if self.send_again() { None } else { self.ended(outcome) };
                }
                CallSignal::Answered(ShownQuestion { question, wait, .. }, answer) => {
                    let late = answer.is_none().then(|| ClientEvent::Notice(wait.withdrawal(LATE)));
                    let answer = answer.unwrap_or_else(|| unanswered_answer(&question.request.method));
                    running.exchange.reply(&question.key, answer);
                    running.settle(&mut self.on_stream);
                    late
                }
                CallSignal::TimeOut => {
                    running.exchange.give_up();
                    let handle = &self.context.handle;
                    handle.health.doubt("a call was not answered in time");
                    let text = format!("The server `{}` did not answer in time; it was told to stop.", handle.name);
                    Some(self.fail(&CallFailure::new(FailureReason::UpstreamTimeout, ExecutionDoubt::Unknown, text)))
                }
                CallSignal::AccessEnded => Some(self.give_up()),
            };
            if event.is_some() {
                return event;
            }
        }
        None
    }

    /// Handles a legacy server's question: asks a legacy client on its stream, gathers it for a
    /// modern client and parks the call, declines it in the person's name, or refuses it.
    fn asked(&mut self, request: ServerRequest) -> Option<ClientEvent> {
        let (id, method) = (request.id.clone(), request.method.clone());
        let question = |request| ClientQuestion { key: id.clone(), request };
        let context = &self.context;
        let CallState::Running(running) = &mut self.state else { return None };
        let judged = InputRequest::of_legacy(&method, request.params.as_ref(), &context.terms());
        let is_taken = match (context.input.as_deref(), judged) {
            (Some(_), Err(why)) if why.is_declined() => {
                context.declined(why);
                running.exchange.reply(&id, refused_question(&method));
                return None;
            }
            (Some(InputContext { client_requests: Some(client_requests), .. }), Ok(judged)) => {
                let judged = judged.for_revision(context.revision, page_id).ok();
                match judged.and_then(|judged| ask(&mut self.on_stream, client_requests, question(judged))) {
                    Some(message) => return Some(ClientEvent::Question(context.service.budget.count(message))),
                    None => false,
                }
            }
            (Some(_), Ok(judged)) if matches!(running.exchange, UpstreamExchange::Held(_)) => {
                running.gathered.add(question(judged), clock::now());
                true
            }
            // The parked call repeats its question through `UpstreamExchange::Held`.
            (Some(_), Ok(_)) => return self.park(request, &id, &method),
            (Some(_), Err(_)) | (None, _) => false,
        };
        if !is_taken {
            running.refuse(context, &id, &method);
        }
        None
    }

    /// Parks the call, so that it outlives this request. The server's question is refused if too
    /// many calls are parked.
    fn park(&mut self, question: ServerRequest, id: &RawJson, method: &str) -> Option<ClientEvent> {
        let context = &self.context;
        self.state.advance(|state| {
            let CallState::Running(running) = state else { return state };
            let RunningCall { exchange, lane, turn, slot, deadline, sent, is_resumed, request, gathered } = running;
            let (session, permit) = ((lane.clone(), turn.clone()), Some(context.permit.onward()));
            let (parks, caller) = (&context.service.parks, &context.action.caller);
            let parked = parks.park(caller, &context.access, exchange, session, permit, question);
            let is_full = parked.is_err();
            let exchange = parked.map_or_else(|exchange| exchange, UpstreamExchange::Held);
            let mut running = RunningCall { exchange, lane, turn, slot, deadline, sent, is_resumed, request, gathered };
            if is_full {
                running.refuse(context, id, method);
            }
            CallState::Running(running)
        });
        None
    }

    /// Ends this request with the gathered questions; the call stays parked.
    fn inquire(&mut self) -> Option<ClientEvent> {
        let (CallState::Running(RunningCall { exchange: UpstreamExchange::Held(held), gathered, .. }), Some(input)) =
            (&self.state, &self.context.input)
        else {
            return Some(self.misasked(InputError::NotOffered));
        };
        let Some(sealed) = self.context.sealed(input, StatePayload::Parked(held.id)) else {
            held.give_up();
            return Some(self.misasked(InputError::Malformed));
        };
        let result = gathered.result(&sealed);
        if let CallState::Running(RunningCall { mut exchange, turn, .. }) =
            std::mem::replace(&mut self.state, CallState::Ended)
        {
            exchange.parked(turn);
        }
        self.count(OutcomeLabel::InputRequired);
        self.end();
        Some(ClientEvent::Done(self.context.counted(RequestAnswer::ok(result))))
    }

    /// Asks a legacy client the next question of a modern server and waits for the answer to the
    /// one before. `None` when the call continues upstream.
    async fn talk(&mut self) -> Option<ClientEvent> {
        let CallState::Asking(asking) = &mut self.state else { return None };
        if !self.on_stream.is_empty() {
            let (ShownQuestion { question, wait, .. }, answer) = tokio::select! {
                ended = next_answer(&mut self.on_stream) => ended,
                () = self.context.access.ended() => return Some(self.give_up()),
            };
            if answer.is_none() {
                self.closing.push(wait.withdrawal(LATE));
            }
            if let Err(why) = asking.round.answered(&question, answer) {
                return Some(self.unfinished(why));
            }
        }
        let Some(question) = asking.round.next_question() else {
            // Resets the time of questions: the server's time has not begun.
            self.on_stream.settled(clock::now());
            self.state.advance(|state| {
                let CallState::Asking(AskingCall { round, request }) = state else { return state };
                let (responses, state) = round.into_answers();
                CallState::next_round(request, responses, state)
            });
            return None;
        };
        let client_requests = self.context.input.as_ref().and_then(|input| input.client_requests.as_ref());
        match client_requests.and_then(|client_requests| ask(&mut self.on_stream, client_requests, question)) {
            Some(message) => Some(ClientEvent::Question(self.context.service.budget.count(message))),
            None => Some(self.unfinished("the client has too many questions open")),
        }
    }

    /// Fails the call because its server's questions could not be answered.
    fn unfinished(&mut self, why: &str) -> ClientEvent {
        let text = format!("The call was not finished: {why}.");
        self.fail(&CallFailure::new(FailureReason::UpstreamProtocol, ExecutionDoubt::Unknown, text))
    }

    /// Takes the sent request out of a running call, to send it again.
    fn take_request(&mut self) -> Option<OutgoingCall> {
        let CallState::Running(running) = &mut self.state else { return None };
        running.request.take()
    }

    /// Starts a round of questions to a legacy client, from a modern server's `input_required`
    /// result.
    fn begin_round(&mut self, raw: &RawJson) -> Result<(), InputError> {
        let request = self.take_request().ok_or(InputError::NotOffered)?;
        let input = self.context.input.as_mut().ok_or(InputError::NotOffered)?;
        input.round += 1;
        if input.round > MAX_ROUNDS {
            return Err(InputError::Malformed);
        }
        let wanted = read_input_required(raw, &self.context.terms())?;
        wanted.declined.iter().for_each(|(_, why)| self.context.declined(*why));
        let round = Box::new(QuestionRound::new(wanted, self.context.revision, page_id));
        self.state = CallState::Asking(AskingCall { round, request });
        Ok(())
    }

    /// Passes a modern server's `input_required` result on: to a modern client with a state sealed
    /// for this caller and call, to a legacy client as questions.
    fn ask(&mut self, raw: &RawJson) -> Option<ClientEvent> {
        let context = &self.context;
        if context.input.as_ref().is_some_and(|input| input.client_requests.is_some()) {
            return match self.begin_round(raw) {
                Ok(()) => None,
                Err(why) => Some(self.misasked(why)),
            };
        }
        let passed = context.input.as_ref().map_or(Err(InputError::NotOffered), |input| {
            write_for_client(raw, &context.terms(), |inner| {
                context.sealed(input, inner.map_or(StatePayload::Nothing, StatePayload::Upstream))
            })
        });
        match passed {
            Ok(result) => {
                self.count(OutcomeLabel::InputRequired);
                self.end();
                Some(ClientEvent::Done(RequestAnswer::ok(result)))
            }
            Err(why) if why.is_declined() => {
                context.declined(why);
                if self.decline_all(raw) { None } else { Some(self.misasked(why)) }
            }
            Err(why) => Some(self.misasked(why)),
        }
    }

    /// Fails the call because its server asked for input that it may not ask for; counts the fault.
    fn misasked(&mut self, why: InputError) -> ClientEvent {
        self.context.handle.metrics.fault(ProtocolFault::UnexpectedResultType);
        self.fail(&CallFailure::new(FailureReason::UpstreamProtocol, ExecutionDoubt::Unknown, why.to_string()))
    }
}

/// Returns a random id for a page whose server gave none.
fn page_id() -> String {
    data_encoding::HEXLOWER.encode(&clock::random::<16>())
}

impl Drop for PermittedCall {
    fn drop(&mut self) {
        if !self.is_over() {
            self.count(OutcomeLabel::Cancelled);
        }
    }
}
