//! A permitted call on its way: slot, upstream, progress, deadline, exactly one answer.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

use bytes::Bytes;

use crate::base::access::Access;
use crate::base::clock;
use crate::engine::ask::{ClientAnswer, ServerRequest, declined, refused as refused_question, unable};
use crate::engine::call::{Deadline, Outgoing, Progress};
use crate::engine::event::ExchangeEvent;
use crate::engine::failure::{Executed, Failure, Reason};
use crate::engine::fault::Fault;
use crate::engine::question::{Gathered, OnStream, Question, Round, Shown};
use crate::engine::state::{Carried, MAX_ROUNDS, StateScope};
use crate::gateway::admission::InFlight;
use crate::gateway::answer::{Answer, CallLabels};
use crate::gateway::gate::Gate;
use crate::gateway::prepared::{InputContext, Prepared};
use crate::gateway::question::client_requests::{PendingRequest, ask, next_answer};
use crate::gateway::quota::Place;
use crate::gateway::service::Service;
use crate::gateway::snapshot::View;
use crate::mcp::input::{ByKey, InputError, InputRequest, Kinds, input_required, passed_on, requests};
use crate::mcp::log::{LogLevel, shown};
use crate::mcp::version::{Era, Revision};
use crate::policy::{Action, Permit};
use crate::telemetry::metrics::OutcomeLabel;
use crate::upstream::exchange::Exchange;
use crate::upstream::handle::{Handle, Slot};
use crate::upstream::session::{LaneUse, Wants};
use crate::upstream::turns::InTurn;
use crate::wire::message::encode_notification;
use crate::wire::raw::RawJson;

mod declined;
mod ending;
mod leaving;
mod opening;
mod outcome;
mod queued;
mod recheck;
mod start;
mod tasked;

pub use self::ending::given_up;
pub use self::outcome::translate;

use self::opening::Opening;
use self::queued::Queued;

/// Why a question is taken back whose time is over.
const LATE: &str = "no answer in time";

/// The events of a call for its client.
#[derive(Debug)]
pub enum ClientEvent {
    /// A whole notification for the client.
    Notice(Bytes),
    /// A whole request to the client, which must reach it: the call waits for the answer.
    Question(Bytes),
    Done(Answer),
}

/// One call. Dropping it before the answer cancels it upstream.
pub struct Call {
    service: Arc<Service>,
    /// The call ends with it.
    access: Arc<Access>,
    handle: Arc<Handle>,
    wants: Wants,
    view: Arc<View>,
    entry: usize,
    permit: Permit,
    /// Conditions on disk before the call is sent.
    gate: Option<Gate>,
    action: Action,
    /// The snapshot that the action was decided in.
    generation: u64,
    waiting: Option<Outgoing>,
    /// It was not written, since its server ended in that moment, and waits for the next one. Not a second time.
    again: bool,
    /// The upstream is not ready yet.
    opening: Option<Opening>,
    queued: Queued,
    running: Option<Running>,
    /// A legacy client is asked what a modern server wants to know; nothing is in flight upstream meanwhile.
    round: Option<(Box<Round>, Outgoing)>,
    /// The sent request, for clients that can be asked.
    kept: Option<Outgoing>,
    progress: Option<Progress>,
    revision: Revision,
    labels: CallLabels,
    done: bool,
    place: InFlight,
    _share: Place,
    /// The level from which on the client is shown log messages.
    log_from: Option<LogLevel>,
    /// For clients that can be asked for input.
    input: Option<Box<InputContext>>,
    /// Questions that a legacy client has before it.
    on_stream: OnStream<PendingRequest>,
    /// Messages for a legacy client before the answer: withdrawals of open questions.
    closing: Vec<Bytes>,
    answer: Option<Answer>,
    /// Questions of a legacy server that a modern client is about to get.
    gathered: Gathered,
    /// Questions that were declined in the person's name.
    declines: AtomicU32,
}

enum Turn {
    Event(ExchangeEvent),
    Answered(Shown<PendingRequest>, Option<ClientAnswer>),
    TimeOut,
    GivingUp,
}

struct Running {
    exchange: Exchange,
    deadline: Deadline,
    sent: Instant,
    /// The session of the call, which stays open for it. A parked call holds it elsewhere.
    lane: LaneUse,
    turn: InTurn,
    _slot: Slot,
}

impl Call {
    pub fn new(
        service: Arc<Service>,
        prepared: Prepared<'_>,
        (permit, gate): (Permit, Option<Gate>),
        place: InFlight,
    ) -> Self {
        let Prepared { client, found, action, labels, outgoing, token, input, share, .. } = prepared;
        let offered = input.as_ref().map_or_else(Kinds::default, |input| input.offered);
        Self {
            service,
            access: Arc::clone(&client.access),
            handle: Arc::clone(found.handle),
            wants: Wants { caller: action.caller.clone(), client: client.tag.clone(), offered },
            view: Arc::clone(found.view),
            entry: found.at,
            permit,
            gate,
            action,
            generation: found.snapshot.generation,
            log_from: outgoing.log_level,
            // A request that joins a parked call must never start a second one.
            waiting: input.as_ref().is_none_or(|input| input.parked.is_none()).then_some(outgoing),
            again: false,
            opening: None,
            queued: Queued::default(),
            running: None,
            round: None,
            kept: None,
            progress: token.map(|token| Progress::new(token, client.revision)),
            revision: client.revision,
            labels,
            done: false,
            place,
            _share: share,
            input,
            on_stream: OnStream::default(),
            closing: Vec::new(),
            answer: None,
            gathered: Gathered::default(),
            declines: AtomicU32::new(0),
        }
    }

    /// The next thing for the client. Cancel-safe once the call runs; before that a cancelled wait sends nothing.
    pub async fn next(&mut self) -> ClientEvent {
        loop {
            if let Some(event) = self.part() {
                return event;
            }
            let event = if self.round.is_some() {
                Box::pin(self.talk()).await
            } else {
                if self.running.is_none() {
                    match self.begin().await {
                        Ok(None) => {}
                        Ok(Some(notice)) => return notice,
                        Err(failure) => {
                            self.give_back();
                            return self.fail(&failure);
                        }
                    }
                }
                self.listen().await
            };
            match event {
                Some(ClientEvent::Done(answer)) if !self.on_stream.is_empty() || !self.closing.is_empty() => {
                    self.closing
                        .extend(self.on_stream.close().map(|shown| shown.wait.withdrawal("the call has ended")));
                    self.answer = Some(answer);
                }
                Some(event) => return event,
                None => {}
            }
        }
    }

    /// The last messages of a call that ended with open questions.
    fn part(&mut self) -> Option<ClientEvent> {
        let withdrawal = self.closing.pop().map(ClientEvent::Notice);
        withdrawal.or_else(|| self.answer.take().map(ClientEvent::Done))
    }

    /// The next thing from upstream; `None` when the call goes on in another way.
    async fn listen(&mut self) -> Option<ClientEvent> {
        loop {
            let Some(running) = &mut self.running else { return Some(self.fail(&Failure::down())) };
            let due = self.gathered.due();
            // A person may take longer than a server.
            let until = due.or_else(|| self.on_stream.is_empty().then(|| running.deadline.at()));
            let turn = tokio::select! {
                biased;
                event = running.exchange.next() => Turn::Event(event),
                (shown, answer) = Box::pin(next_answer(&mut self.on_stream)), if !self.on_stream.is_empty() => {
                    Turn::Answered(shown, answer)
                }
                () = clock::sleep_until(until) => if due.is_some() { return self.inquire() } else { Turn::TimeOut },
                () = self.access.ended() => Turn::GivingUp,
            };
            let event = match turn {
                Turn::Event(ExchangeEvent::Progress(params)) => self.progress(&params),
                Turn::Event(ExchangeEvent::Log(params)) => self.log(&params),
                Turn::Event(ExchangeEvent::Ask(request)) => self.asked(request),
                Turn::Event(ExchangeEvent::Withdrawn(id)) => {
                    self.gathered.withdraw(&id);
                    let withdrawn = self.on_stream.withdraw(&id);
                    self.settle();
                    withdrawn.map(|shown| ClientEvent::Notice(shown.wait.withdrawal("withdrawn by the server")))
                }
                Turn::Event(ExchangeEvent::Alive) => {
                    running.deadline.progressed(clock::now());
                    None
                }
                // Only streams that were asked for as a whole have these.
                Turn::Event(ExchangeEvent::Notice(_)) => None,
                Turn::Event(ExchangeEvent::Done(outcome)) => {
                    return if self.send_again() { None } else { self.ended(outcome) };
                }
                Turn::Answered(Shown { question, wait, .. }, answer) => {
                    let late = answer.is_none().then(|| ClientEvent::Notice(wait.withdrawal(LATE)));
                    let answer = answer.unwrap_or_else(|| declined(&question.request.method));
                    running.exchange.reply(&question.key, answer);
                    self.settle();
                    late
                }
                Turn::TimeOut => {
                    running.exchange.give_up();
                    self.handle.health.doubt("a call was not answered in time");
                    let text =
                        format!("The server `{}` did not answer in time; it was told to stop.", self.handle.name);
                    Some(self.fail(&Failure::new(Reason::UpstreamTimeout, Executed::Unknown, text)))
                }
                Turn::GivingUp => Some(self.give_up()),
            };
            if event.is_some() {
                return event;
            }
        }
    }

    /// The server's time runs on when the client has no question open any more.
    fn settle(&mut self) {
        let now = clock::now();
        if let (Some(asked), Some(running)) = (self.on_stream.settled(now), &mut self.running) {
            running.deadline.asked_for(asked, now);
        }
    }

    fn progress(&mut self, params: &RawJson) -> Option<ClientEvent> {
        if let Some(running) = &mut self.running {
            running.deadline.progressed(clock::now());
        }
        let relayed = self.progress.as_mut().and_then(|progress| progress.relay(params));
        if relayed.is_none() && self.progress.as_ref().is_none_or(Progress::is_fault) {
            self.handle.metrics.fault(Fault::BadProgress);
        }
        self.notice("notifications/progress", &relayed?)
    }

    /// A notification for the client; one that finds no room is missed.
    fn notice(&self, method: &str, params: &RawJson) -> Option<ClientEvent> {
        let message = encode_notification(method, Some(params));
        let counted = self.service.budget.try_count_progress(self.access.caller(), message);
        counted.ok().map(ClientEvent::Notice)
    }

    fn log(&self, params: &RawJson) -> Option<ClientEvent> {
        let message = self.log_from.and_then(|least| shown(params, least, self.handle.name.as_str()))?;
        self.notice("notifications/message", &message)
    }

    /// A legacy server wants to know something of the client.
    fn asked(&mut self, request: ServerRequest) -> Option<ClientEvent> {
        let (id, method) = (request.id.clone(), request.method.clone());
        let question = |request| Question { key: id.clone(), request };
        let judged = InputRequest::of_legacy(&method, request.params.as_ref(), &self.terms());
        let taken = match (self.input.as_deref(), judged) {
            (Some(_), Err(why)) if why.is_declined() => {
                self.declined(why);
                if let Some(running) = &mut self.running {
                    running.exchange.reply(&id, refused_question(&method));
                }
                return None;
            }
            (Some(InputContext { client_requests: Some(client_requests), .. }), Ok(judged)) => {
                let judged = judged.for_revision(self.revision, page_id).ok();
                match judged.and_then(|judged| ask(&mut self.on_stream, client_requests, question(judged))) {
                    Some(message) => return Some(ClientEvent::Question(self.service.budget.count(message))),
                    None => false,
                }
            }
            (Some(_), Ok(judged)) => {
                let is_parked = self.running.as_ref().is_some_and(|r| matches!(r.exchange, Exchange::Held(_)));
                if is_parked {
                    self.gathered.add(question(judged), clock::now());
                    true
                } else {
                    self.park(request)
                }
            }
            (Some(_), Err(_)) | (None, _) => false,
        };
        if !taken {
            self.handle.metrics.fault(Fault::RefusedRequest);
            if let Some(running) = &mut self.running {
                running.exchange.reply(&id, unable(&method));
            }
        }
        None
    }

    /// Has the call kept elsewhere, so that it outlives this request. The question comes back from there.
    fn park(&mut self, question: ServerRequest) -> bool {
        let (Some(running), Some(_)) = (self.running.take(), &self.input) else { return false };
        let (lane, permit) = ((running.lane.clone(), running.turn.clone()), Some(self.permit.onward()));
        let (exchange, parked) = match self.service.parks.park(
            &self.action.caller,
            &self.access,
            running.exchange,
            lane,
            permit,
            question,
        ) {
            Ok(held) => (Exchange::Held(held), true),
            Err(exchange) => (exchange, false),
        };
        self.running = Some(Running { exchange, ..running });
        parked
    }

    /// The state that the client goes on with, good for this very call; `None` where there have been too many rounds.
    fn sealed(&self, input: &InputContext, carried: Carried) -> Option<String> {
        let scope = StateScope { method: self.labels.method, action: &self.action, carrier: input.carrier };
        self.service.keys.states.next(&scope, input.round, carried, clock::since_1970(), clock::random())
    }

    /// Ends this request with the questions that have gathered; the call stays parked.
    fn inquire(&mut self) -> Option<ClientEvent> {
        let (Some(Running { exchange: Exchange::Held(held), .. }), Some(input)) = (&self.running, &self.input) else {
            return Some(self.misasked(InputError::NotOffered));
        };
        let sealed = self.sealed(input, Carried::Parked(held.id));
        let Some(sealed) = sealed else {
            held.give_up();
            return Some(self.misasked(InputError::Malformed));
        };
        let result = self.gathered.result(&sealed);
        if let Some(Running { mut exchange, turn, .. }) = self.running.take() {
            exchange.parked(turn);
        }
        self.count(OutcomeLabel::InputRequired);
        self.end();
        Some(ClientEvent::Done(self.counted(Answer::ok(result))))
    }

    /// Asks a legacy client the next question of a modern server. `None` when the call can go on upstream.
    async fn talk(&mut self) -> Option<ClientEvent> {
        let (round, _) = self.round.as_mut()?;
        if !self.on_stream.is_empty() {
            let (Shown { question, wait, .. }, answer) = tokio::select! {
                ended = next_answer(&mut self.on_stream) => ended,
                () = self.access.ended() => {
                    self.round = None;
                    return Some(self.give_up());
                }
            };
            if answer.is_none() {
                self.closing.push(wait.withdrawal(LATE));
            }
            if let Err(why) = round.answered(&question, answer) {
                return Some(self.unfinished(why));
            }
        }
        let Some(question) = round.next_question() else {
            let (round, outgoing) = self.round.take()?;
            // The server's time has not begun.
            self.on_stream.settled(clock::now());
            let (responses, state) = round.into_answers();
            self.go_on(outgoing, responses, state);
            return None;
        };
        let client_requests = self.input.as_ref().and_then(|input| input.client_requests.as_ref());
        match client_requests.and_then(|client_requests| ask(&mut self.on_stream, client_requests, question)) {
            Some(message) => Some(ClientEvent::Question(self.service.budget.count(message))),
            None => Some(self.unfinished("the client has too many questions open")),
        }
    }

    fn unfinished(&mut self, why: &str) -> ClientEvent {
        self.round = None;
        let text = format!("The call was not finished: {why}.");
        self.fail(&Failure::new(Reason::UpstreamProtocol, Executed::Unknown, text))
    }

    /// Starts to ask a legacy client.
    fn begin_round(&mut self, raw: &RawJson) -> Result<(), InputError> {
        let outgoing = self.kept.take().ok_or(InputError::NotOffered)?;
        let input = self.input.as_mut().ok_or(InputError::NotOffered)?;
        input.round += 1;
        if input.round > MAX_ROUNDS {
            return Err(InputError::Malformed);
        }
        let wanted = requests(raw, &self.terms())?;
        wanted.declined.iter().for_each(|(_, why)| self.declined(*why));
        let round = Round::new(wanted, self.revision, page_id);
        self.running = None;
        self.round = Some((Box::new(round), outgoing));
        Ok(())
    }

    /// Passes a request for input on, bound to this caller and this call.
    fn ask(&mut self, raw: &RawJson) -> Option<ClientEvent> {
        if self.input.as_ref().is_some_and(|input| input.client_requests.is_some()) {
            return match self.begin_round(raw) {
                Ok(()) => None,
                Err(why) => Some(self.misasked(why)),
            };
        }
        let passed = self.input.as_ref().map_or(Err(InputError::NotOffered), |input| {
            passed_on(raw, &self.terms(), |inner| self.sealed(input, inner.map_or(Carried::Nothing, Carried::Upstream)))
        });
        match passed {
            Ok(result) => {
                self.count(OutcomeLabel::InputRequired);
                self.end();
                Some(ClientEvent::Done(Answer::ok(result)))
            }
            Err(why) if why.is_declined() => {
                self.declined(why);
                if self.decline_all(raw) { None } else { Some(self.misasked(why)) }
            }
            Err(why) => Some(self.misasked(why)),
        }
    }

    /// Asks a modern client to open the pages without which the server did not take the call.
    fn pages(&self, wanted: &Result<ByKey, InputError>) -> Option<Answer> {
        let input = self.input.as_ref().filter(|_| self.revision.era() == Era::Modern)?;
        let pages = wanted.as_ref().ok()?;
        let keys = pages.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>().join(" ");
        let sealed = self.sealed(input, Carried::Pages(keys))?;
        Some(Answer::ok(input_required(pages.iter().map(|(key, page)| (key, page)), &sealed)))
    }

    /// The server asked for input that it must not ask for.
    fn misasked(&mut self, why: InputError) -> ClientEvent {
        self.handle.metrics.fault(Fault::UnexpectedResultType);
        self.fail(&Failure::new(Reason::UpstreamProtocol, Executed::Unknown, why.to_string()))
    }
}

/// A name for a page that its server gave none.
fn page_id() -> String {
    data_encoding::HEXLOWER.encode(&clock::random::<16>())
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.done {
            self.count(OutcomeLabel::Cancelled);
        }
    }
}
