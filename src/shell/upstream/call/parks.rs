//! The tasks that hold parked calls. [`crate::engine::question::park`] decides what happens to a
//! call.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::base::access::Access;
use crate::base::clock;
use crate::base::never::or_never;
use crate::base::task_group::TaskGroup;
use crate::engine::call::CallOutcome;
use crate::engine::connection::ask::ServerRequest;
use crate::engine::event::CallEvent;
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::engine::question::MAX_OPEN;
use crate::engine::question::park::{ParkAction, ParkId, ParkTable, ParkedCall};
use crate::policy::{Caller, Permit};
use crate::upstream::call::exchange::UpstreamExchange;
use crate::upstream::call::parked::{ParkOrder, ParkedExchange, ended};
use crate::upstream::session::lane::LaneUse;
use crate::upstream::turns::{CallTurn, SharedCallTurn};
use crate::wire::json::raw::{RawJson, RawObject};

/// Most events that may wait for a request that reads slowly. Progress is dropped when only the
/// positions reserved for questions and the outcome are left.
const EVENTS: usize = 32;
const RESERVED: usize = 2 * MAX_OPEN + 1;

/// All parked calls.
#[derive(Debug)]
pub struct ParkedCalls {
    table: Arc<ParkedCallTable>,
    tasks: TaskGroup,
    draining: CancellationToken,
}

/// The table of parked calls. The lock is held for one operation at a time.
type ParkedCallTable = Mutex<ParkTable<ParkedCallEntry>>;

/// The task of a parked call, and what its further requests need.
#[derive(Clone, Debug)]
struct ParkedCallEntry {
    /// Kept open for the call.
    lane: LaneUse,
    keeper: mpsc::Sender<ParkOrder>,
    /// The turn of the request that resumes the parked call.
    turn: Weak<CallTurn>,
}

impl ParkedCalls {
    /// Creates an empty table. `draining` fires when no new request is accepted any more.
    pub fn new(tasks: TaskGroup, draining: CancellationToken) -> Self {
        Self { table: Arc::default(), tasks, draining }
    }

    /// Parks a call, with its turn, its permit and its first question, in a task of its own that
    /// ends with the caller's access. Returns a view of the parked call, or the call itself if
    /// there is no room.
    #[expect(clippy::result_large_err, reason = "a call that finds no room goes back as it came")]
    pub fn park(
        &self,
        caller: &Caller,
        access: &Arc<Access>,
        exchange: UpstreamExchange,
        (lane, turn): (LaneUse, SharedCallTurn),
        permit: Option<Permit>,
        question: ServerRequest,
    ) -> Result<ParkedExchange, UpstreamExchange> {
        let id: ParkId = clock::random();
        let (orders, mut inbox) = mpsc::channel(MAX_OPEN);
        if !self.table.lock().enter(id, caller, ParkedCallEntry { lane, keeper: orders.clone(), turn: Weak::new() }) {
            return Err(exchange);
        }
        let (viewer, events) = mpsc::channel(EVENTS);
        let mut keeper = ParkedCallTask {
            id,
            table: Arc::clone(&self.table),
            park: ParkedCall::new(clock::now()),
            exchange: Some(exchange),
            permit,
            turn,
            viewer: Some(viewer),
            draining: self.draining.clone(),
        };
        keeper.hear(CallEvent::Ask(question));
        let access = Arc::clone(access);
        self.tasks.spawn("parked call", async move {
            tokio::select! {
                () = keeper.run(&mut inbox) => {}
                () = access.ended() => {}
            }
            keeper.end();
            // A sender may have reserved its slot and not have sent its order yet. The request of
            // such an order would otherwise wait for its timeout.
            inbox.close();
            while inbox.recv().await.is_some() {}
        });
        Ok(ParkedExchange { id, orders, events })
    }

    /// Number of parked calls.
    #[cfg(any(test, feature = "testing"))]
    pub fn count(&self) -> usize {
        self.table.lock().count()
    }

    /// Returns the lane of a parked call of this caller.
    pub fn lane(&self, caller: &Caller, id: &ParkId) -> Option<LaneUse> {
        self.table.lock().find(caller, id).map(|way| way.lane.clone())
    }

    /// Returns the turn of the request that currently resumes a parked call.
    pub fn turn(&self, caller: &Caller, id: &ParkId) -> SharedCallTurn {
        self.table.lock().find(caller, id).and_then(|way| way.turn.upgrade())
    }

    /// Sets the turn of the request that resumes a parked call.
    pub fn set_turn(&self, caller: &Caller, id: &ParkId, turn: &Arc<CallTurn>) {
        if let Some(way) = self.table.lock().find_mut(caller, id) {
            way.turn = Arc::downgrade(turn);
        }
    }

    /// Attaches a request to a parked call of this caller, with its turn; `None` if the call no
    /// longer exists.
    pub async fn attach(
        &self,
        caller: &Caller,
        id: &ParkId,
        responses: Option<&RawJson>,
        turn: SharedCallTurn,
    ) -> Option<ParkedExchange> {
        let orders = self.table.lock().find(caller, id).map(|way| way.keeper.clone())?;
        let answers = responses.and_then(|raw| RawObject::parse(raw).ok()).unwrap_or_default();
        let (viewer, events) = mpsc::channel(EVENTS);
        orders.send(ParkOrder::Attach { answers, viewer, turn }).await.ok()?;
        Some(ParkedExchange { id: *id, orders, events })
    }
}

/// Returns the failure of a request that was sent again while it was being served.
fn superseded() -> CallFailure {
    let text = "The same request was sent again; the call goes on there.";
    CallFailure::new(FailureReason::UpstreamProtocol, ExecutionDoubt::Unknown, text)
}

/// The owner of one parked call.
struct ParkedCallTask {
    id: ParkId,
    table: Arc<ParkedCallTable>,
    park: ParkedCall,
    /// The call, until its outcome is known.
    exchange: Option<UpstreamExchange>,
    /// The permit counts the call as under way while it is parked, because its server has it.
    permit: Option<Permit>,
    /// The call's turn, held until the call waits for its client, even if the request that brought
    /// it is gone.
    turn: SharedCallTurn,
    /// The request that is attached.
    viewer: Option<mpsc::Sender<CallEvent>>,
    draining: CancellationToken,
}

impl ParkedCallTask {
    /// Runs the call until its time is over or no request can come any more.
    async fn run(&mut self, inbox: &mut mpsc::Receiver<ParkOrder>) {
        loop {
            let left = or_never(self.viewer.as_ref().map(mpsc::Sender::closed));
            tokio::select! {
                biased;
                order = inbox.recv() => match order {
                    Some(ParkOrder::Attach { answers, viewer, turn }) => {
                        self.turn = turn;
                        self.attach(&answers, viewer);
                    }
                    Some(ParkOrder::Reply { key, answer }) => {
                        let act = self.park.answer(&key, answer);
                        self.act(act);
                    }
                    Some(ParkOrder::Parked(turn)) => self.parked(turn),
                    Some(ParkOrder::GiveUp) | None => return,
                },
                event = or_never(self.exchange.as_mut().map(UpstreamExchange::next)) => self.hear(event),
                () = left => self.leave(),
                // No request can come any more.
                () = self.draining.cancelled(), if self.viewer.is_none() => return,
                () = clock::sleep_until(self.park.due()) => return,
            }
        }
    }

    /// Attaches a request with its answers; an earlier one fails as superseded.
    fn attach(&mut self, answers: &RawObject, viewer: mpsc::Sender<CallEvent>) {
        if let Some(before) = self.viewer.replace(viewer) {
            // The client has sent the request again, so it hardly reads this one.
            drop(before.try_send(CallEvent::Done(CallOutcome::Failed(superseded()))));
        }
        let acts = self.park.attach(answers);
        self.act(acts);
    }

    fn leave(&mut self) {
        self.viewer = None;
        self.park.leave(clock::now());
        self.rest();
    }

    /// Parks a call that asks while no request is attached, because the client cannot answer now,
    /// whether or not it has seen the question.
    fn rest(&mut self) {
        if self.viewer.is_none() && self.park.asks() {
            self.parked(None);
        }
    }

    fn parked(&mut self, turn: SharedCallTurn) {
        let kept = self.turn.take();
        if let Some(exchange) = &mut self.exchange {
            exchange.parked(turn.or(kept));
        }
    }

    /// Processes an event of the call.
    fn hear(&mut self, event: CallEvent) {
        let event = if matches!(event, CallEvent::Unwritten) {
            // The server asked about a call that it now claims not to know: it is not sent again.
            CallEvent::Done(CallOutcome::Failed(ended()))
        } else {
            event
        };
        let (is_over, asks) = (matches!(event, CallEvent::Done(_)), matches!(event, CallEvent::Ask(_)));
        let act = self.park.hear(event, clock::now());
        self.act(act);
        if is_over {
            // The server is done, whether or not a client still wants the outcome.
            (self.exchange, self.permit, self.turn) = (None, None, None);
            self.table.lock().ended(&self.id, clock::now());
        } else if asks {
            self.rest();
        }
    }

    /// Carries out what the park decides: answers to the server, events for the client.
    fn act(&mut self, acts: impl IntoIterator<Item = ParkAction>) {
        for act in acts {
            match act {
                ParkAction::Reply(id, answer) => {
                    if let Some(exchange) = &mut self.exchange {
                        exchange.reply(&id, answer);
                    }
                }
                ParkAction::Show(event) => self.show(event),
            }
        }
    }

    /// Sends an event to the attached request, if it has room.
    fn show(&mut self, event: CallEvent) {
        let is_missable = matches!(event, CallEvent::Progress(_) | CallEvent::Log(_) | CallEvent::Alive);
        let Some(viewer) = self.viewer.as_ref().filter(|viewer| !is_missable || viewer.capacity() > RESERVED) else {
            return;
        };
        if viewer.try_send(event).is_err() {
            // The next request gets everything from the start.
            self.leave();
        }
    }

    /// Ends the parked call without further answers. Dropping the exchange cancels the call at the
    /// server.
    fn end(mut self) {
        self.table.lock().remove(&self.id);
        let acts: Vec<ParkAction> = self.park.end().collect();
        self.act(acts);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::budget::ByteBudget;
    use crate::catalog::name::UpstreamName;
    use crate::engine::askers::CallOrigin;
    use crate::engine::call::WantedEvents;
    use crate::engine::connection::ask::DeclaredCapabilities;
    use crate::engine::connection::turns::TurnKind;
    use crate::engine::peer::CallPort as _;
    use crate::engine::question::PATIENCE;
    use crate::engine::question::park::{GRACE, MAX_PER_CALLER};
    use crate::mcp::version::Era;
    use crate::policy::LOCAL;
    use crate::telemetry::metrics::Metrics;
    use crate::upstream::line::call::{LineCallSignal, StdioPort, stdio_call};
    use crate::upstream::session::lane::Lane;
    use crate::upstream::session::sent::SentCall;
    use crate::upstream::state::health::UpstreamHealth;

    type Signals = mpsc::UnboundedReceiver<LineCallSignal>;

    fn parks() -> ParkedCalls {
        ParkedCalls::new(TaskGroup::default(), CancellationToken::new())
    }

    fn lane() -> LaneUse {
        let name = UpstreamName::parse("fx").unwrap();
        let health = Arc::new(UpstreamHealth::new(name.clone(), Metrics::new().unwrap().upstream("fx"), false));
        Arc::new(Lane::main(name, DeclaredCapabilities::default(), Arc::default(), health)).take()
    }

    fn question(id: &'static str) -> ServerRequest {
        ServerRequest { id: RawJson::trusted(id), method: "elicitation/create".to_owned(), params: None }
    }

    /// Parks a call. Returns its view, the server's end of it, and what the server receives.
    #[expect(clippy::result_large_err, reason = "as of `park`")]
    fn parked_with(
        parks: &ParkedCalls,
        caller: &str,
        access: &Arc<Access>,
    ) -> Result<(ParkedExchange, StdioPort, Signals), UpstreamExchange> {
        #[expect(clippy::disallowed_methods, reason = "what the task of a connection has")]
        let (signals_in, signals) = mpsc::unbounded_channel();
        let (wants, budget) = (WantedEvents { notices: false, requests: true }, ByteBudget::new(1 << 20));
        let (port, exchange) = stdio_call(1, CallOrigin::default(), wants, budget, signals_in);
        let exchange = UpstreamExchange::Sent(SentCall::Stdio(exchange));
        let held = parks.park(&Caller::named(caller), access, exchange, (lane(), None), None, question("1"))?;
        Ok((held, port, signals))
    }

    #[expect(clippy::result_large_err, reason = "as of `park`")]
    fn parked(parks: &ParkedCalls, caller: &str) -> Result<(ParkedExchange, StdioPort, Signals), UpstreamExchange> {
        parked_with(parks, caller, &Access::new(&CancellationToken::new()))
    }

    async fn told(signals: &mut Signals) -> Vec<String> {
        let mut told = Vec::new();
        while let Some(signal) = signals.recv().await {
            told.push(match &signal {
                LineCallSignal::Reply(id, Ok(answer)) => format!("{}: {}", id.text(), answer.text()),
                LineCallSignal::Cancel(_) | LineCallSignal::Parked(..) | LineCallSignal::Reply(..) => {
                    format!("{signal:?}")
                }
            });
        }
        told
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_comes_while_the_call_ends_is_told_so() {
        let parks = parks();
        let (held, _port, _signals) = parked(&parks, "ci").unwrap();
        let orders = parks.table.lock().find(&Caller::named("ci"), &held.id).unwrap().keeper.clone();
        let place = orders.reserve().await.unwrap();
        held.give_up();
        while !orders.is_closed() {
            tokio::task::yield_now().await;
        }
        let (viewer, events) = mpsc::channel(EVENTS);
        let mut late = ParkedExchange { id: held.id, orders: orders.clone(), events };
        place.send(ParkOrder::Attach { answers: RawObject::default(), viewer, turn: None });
        let ended = tokio::time::timeout(Duration::from_secs(5), late.next()).await;
        assert!(matches!(ended, Ok(CallEvent::Done(CallOutcome::Failed(_)))), "{ended:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_nobody_answers_in_time_is_declined_and_the_call_is_off() {
        let parks = parks();
        let (mut held, _port, mut signals) = parked(&parks, "ci").unwrap();
        assert!(matches!(held.next().await, CallEvent::Ask(_)));
        let id = held.id;
        drop(held);
        tokio::time::sleep(PATIENCE - Duration::from_secs(5)).await;
        assert!(parks.lane(&Caller::named("ci"), &id).is_some() && parks.lane(&Caller::named("dev"), &id).is_none());
        let told = told(&mut signals).await;
        assert_eq!(told, ["Parked(1, None)", r#"1: {"action":"cancel"}"#, "Cancel(1)"]);
        assert!(parks.attach(&Caller::named("ci"), &id, None, None).await.is_none(), "too late");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_its_client_also_where_that_left_before_it_had_the_question() {
        let (parks, turns) = (parks(), lane().news.turns.clone());
        let turn = turns.take(TurnKind::Asker, None, PATIENCE).await.unwrap();
        let (held, mut port, mut signals) = parked(&parks, "ci").unwrap();
        let id = held.id;
        drop(held);
        assert!(matches!(signals.recv().await, Some(LineCallSignal::Parked(1, None))));
        let answers = RawJson::trusted(r#"{"elicitation-1":{"action":"accept"}}"#);
        let kept = turn.as_ref().map(Arc::downgrade).unwrap();
        let held = parks.attach(&Caller::named("ci"), &id, Some(&answers), turn).await.unwrap();
        assert!(matches!(signals.recv().await, Some(LineCallSignal::Reply(..))));
        drop(held);
        tokio::time::sleep(GRACE / 2).await;
        assert!(kept.upgrade().is_some(), "the call runs, and keeps its turn");
        assert!(port.ask(question("2")), "nobody is there");
        let Some(LineCallSignal::Parked(1, turn)) = signals.recv().await else { panic!("it waits again") };
        assert!(turn.is_some(), "its turn is over once the connection knows");
        drop(turn);
        assert!(kept.upgrade().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_not_off_while_a_request_waits_for_it() {
        let parks = parks();
        let (held, _port, _signals) = parked(&parks, "ci").unwrap();
        tokio::time::sleep(2 * PATIENCE).await;
        assert!(parks.lane(&Caller::named("ci"), &held.id).is_some(), "the request has a time of its own");
    }

    #[tokio::test(start_paused = true)]
    async fn an_outcome_waits_for_a_client_whose_response_was_lost_and_an_answer_goes_up_once() {
        let parks = parks();
        let (held, port, mut signals) = parked(&parks, "ci").unwrap();
        let id = held.id;
        drop(held);
        let answers = RawJson::trusted(r#"{"elicitation-1":{"action":"accept"}}"#);
        for _ in 0..2 {
            drop(parks.attach(&Caller::named("ci"), &id, Some(&answers), None).await.unwrap());
        }
        port.done(CallOutcome::Result { raw: RawJson::EMPTY_OBJECT, era: Era::Legacy });
        for _ in 0..2 {
            let mut again = parks.attach(&Caller::named("ci"), &id, Some(&answers), None).await.unwrap();
            assert!(matches!(again.next().await, CallEvent::Done(CallOutcome::Result { .. })));
        }
        let told = told(&mut signals).await;
        assert_eq!(told.len(), 1, "one answer and no cancellation: {told:?}");
        tokio::time::sleep(2 * GRACE).await;
        assert!(parks.attach(&Caller::named("ci"), &id, None, None).await.is_none(), "its time is over");
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_request_that_goes_on_with_a_call_is_the_one_that_is_answered() {
        let parks = parks();
        let (held, port, _signals) = parked(&parks, "ci").unwrap();
        let answers = RawJson::trusted(r#"{"elicitation-1":{"action":"accept"}}"#);
        let mut first = parks.attach(&Caller::named("ci"), &held.id, Some(&answers), None).await.unwrap();
        let mut second = parks.attach(&Caller::named("ci"), &held.id, Some(&answers), None).await.unwrap();
        let CallEvent::Done(CallOutcome::Failed(failure)) = first.next().await else { panic!("the first goes on") };
        assert_eq!(failure, superseded());
        port.done(CallOutcome::Result { raw: RawJson::EMPTY_OBJECT, era: Era::Legacy });
        assert!(matches!(second.next().await, CallEvent::Done(CallOutcome::Result { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_have_ended_give_way_to_calls_that_wait() {
        let parks = parks();
        let mut waiting: Vec<_> = (0..MAX_PER_CALLER).map(|_| parked(&parks, "ci").unwrap()).collect();
        assert!(parked(&parks, "ci").is_err(), "its share is used up");
        assert!(parked(&parks, "dev").is_ok() && parked(&parks, LOCAL).is_ok());
        let (mut ended, port, _) = waiting.pop().unwrap();
        port.done(CallOutcome::Result { raw: RawJson::EMPTY_OBJECT, era: Era::Legacy });
        while !matches!(ended.next().await, CallEvent::Done(_)) {}
        let place = parked(&parks, "ci");
        assert!(place.is_ok(), "one has ended");
        assert!(parks.lane(&Caller::named("ci"), &ended.id).is_none());
        assert!(parked(&parks, "ci").is_err(), "the others wait");
    }

    #[tokio::test(start_paused = true)]
    async fn a_parked_call_ends_with_the_access_of_its_caller() {
        let parks = parks();
        let (ours, theirs) = (Access::new(&CancellationToken::new()), Access::new(&CancellationToken::new()));
        let (mut held, _port, mut signals) = parked_with(&parks, "ci", &ours).unwrap();
        let (other, _other_port, _other_signals) = parked_with(&parks, "dev", &theirs).unwrap();
        assert!(matches!(held.next().await, CallEvent::Ask(_)));
        ours.withdraw();
        assert_eq!(told(&mut signals).await, [r#"1: {"action":"cancel"}"#, "Cancel(1)"]);
        assert!(
            parks.lane(&Caller::named("ci"), &held.id).is_none()
                && parks.lane(&Caller::named("dev"), &other.id).is_some()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_stops_does_not_wait_for_those_who_cannot_come() {
        let parks = parks();
        let (held, _port, mut signals) = parked(&parks, "ci").unwrap();
        drop(held);
        parks.draining.cancel();
        parks.tasks.join().await;
        assert_eq!(told(&mut signals).await.len(), 3);
    }
}
