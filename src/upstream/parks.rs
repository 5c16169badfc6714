//! Parked calls: a legacy server asks something in the middle of a modern client's call.
//!
//! The client gets the question as the result of its request and sends the answer with the next one, so the call upstream
//! must outlive the request that began it. A task of its own holds it; requests attach to it and see what comes of it. A
//! request that is sent again because its response was lost attaches once more: no answer goes upstream twice.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::base::clock;
use crate::base::task_group::TaskGroup;
use crate::engine::ask::{ClientAnswer, ServerRequest, declined};
use crate::engine::call::{Executed, Failure, Outcome, Reason};
use crate::engine::event::ExchangeEvent;
use crate::policy::LOCAL;
use crate::policy::Permit;
use crate::upstream::exchange::Exchange;
use crate::upstream::parked::{HeldExchange, Order, ParkId};
use crate::upstream::session::LaneUse;
use crate::wire::raw::{RawJson, RawObject};

/// How long a question waits for the client.
const PARK_TIME: Duration = Duration::from_secs(600);
/// How long a call without open questions, or its outcome, waits for a client whose response was lost.
const GRACE: Duration = Duration::from_secs(60);
/// Parked calls of all callers, and of one caller where there are several.
const MAX_PARKED: usize = 256;
const MAX_PER_CALLER: usize = 16;
/// Open questions of one call.
const MAX_OPEN: usize = 8;
/// Events that may wait for a request that reads slowly. Progress is dropped when only the places for questions and the
/// outcome are left.
const EVENTS: usize = 32;
const RESERVED: usize = 2 * MAX_OPEN + 1;

/// All parked calls.
#[derive(Debug)]
pub(crate) struct Parks {
    table: Arc<Table>,
    tasks: TaskGroup,
    draining: CancellationToken,
    giving_up: CancellationToken,
}

#[derive(Debug, Default)]
struct Table(Mutex<HashMap<ParkId, Parked>>);

#[derive(Debug)]
struct Parked {
    /// Whose it is.
    caller: Arc<str>,
    /// Stays open for the call.
    lane: LaneUse,
    orders: mpsc::Sender<Order>,
    /// Since when it has its outcome, which waits for a client whose response was lost.
    ended: Arc<OnceLock<Instant>>,
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, HashMap<ParkId, Parked>> {
        self.0.lock()
    }
}

impl Parks {
    /// `draining` fires when no new request is accepted any more, `giving_up` when calls in flight are given up.
    pub(crate) fn new(tasks: TaskGroup, draining: CancellationToken, giving_up: CancellationToken) -> Self {
        Self { table: Arc::default(), tasks, draining, giving_up }
    }

    /// Takes a call over, with its permit and the first question. The call goes on behind the value that is returned; gives it back when
    /// there is no room.
    pub(crate) fn park(
        &self,
        caller: &Arc<str>,
        exchange: Exchange,
        lane: LaneUse,
        permit: Option<Permit>,
        question: ServerRequest,
    ) -> Result<HeldExchange, Exchange> {
        let id: ParkId = clock::random();
        let (orders, inbox) = mpsc::channel(MAX_OPEN);
        let ended = Arc::default();
        {
            let mut table = self.table.lock();
            if !make_room(&mut table, caller) {
                return Err(exchange);
            }
            let (caller, orders, ended) = (Arc::clone(caller), orders.clone(), Arc::clone(&ended));
            table.insert(id, Parked { caller, lane, orders, ended });
        }
        let (viewer, events) = mpsc::channel(EVENTS);
        let mut keeper = Keeper {
            exchange: Some(exchange),
            permit,
            viewer: Some(viewer),
            open: Vec::new(),
            asked: 0,
            outcome: None,
            ended,
            draining: self.draining.clone(),
            until: clock::now() + PARK_TIME,
        };
        keeper.ask(question);
        let (table, giving_up) = (Arc::clone(&self.table), self.giving_up.clone());
        self.tasks.spawn("parked call", async move {
            tokio::select! {
                () = keeper.run(inbox) => {}
                () = giving_up.cancelled() => {}
            }
            table.lock().remove(&id);
            keeper.end();
        });
        Ok(HeldExchange { id, orders, events })
    }

    /// The lane of a parked call of this caller.
    pub(crate) fn lane(&self, caller: &str, id: &ParkId) -> Option<LaneUse> {
        self.table.lock().get(id).filter(|parked| *parked.caller == *caller).map(|parked| parked.lane.clone())
    }

    /// Attaches a request to a parked call of this caller; `None` when there is none any more.
    pub(crate) async fn attach(&self, caller: &str, id: &ParkId, responses: Option<&RawJson>) -> Option<HeldExchange> {
        let orders = self.table.lock().get(id).filter(|p| *p.caller == *caller).map(|p| p.orders.clone())?;
        let answers = responses.and_then(|raw| RawObject::parse(raw).ok()).unwrap_or_default();
        let (viewer, events) = mpsc::channel(EVENTS);
        orders.send(Order::Attach { answers, viewer }).await.ok()?;
        Some(HeldExchange { id: *id, orders, events })
    }
}

/// The failure of a request that was sent again while it was being served.
fn superseded() -> Failure {
    let text = "The same request was sent again; the call goes on there.";
    Failure::new(Reason::UpstreamProtocol, Executed::Unknown, text)
}

/// Whether there is room for another call of this caller. Calls that have ended give way, the oldest first.
fn make_room(table: &mut HashMap<ParkId, Parked>, caller: &Arc<str>) -> bool {
    loop {
        let mine = table.values().filter(|parked| parked.caller == *caller).count();
        let has_share = **caller == *LOCAL || mine < MAX_PER_CALLER;
        if has_share && table.len() < MAX_PARKED {
            return true;
        }
        let ended = table.iter().filter(|(_, parked)| has_share || parked.caller == *caller);
        let oldest = ended.filter_map(|(id, parked)| Some((*parked.ended.get()?, *id))).min();
        let Some((_, id)) = oldest else { return false };
        table.remove(&id);
    }
}

/// A question that is open, under the key that the client knows.
struct Open {
    key: RawJson,
    request: ServerRequest,
}

/// Owner of one parked call.
struct Keeper {
    /// Until the outcome is there.
    exchange: Option<Exchange>,
    /// The call stays one of those under way while it is parked: its server has it.
    permit: Option<Permit>,
    viewer: Option<mpsc::Sender<ExchangeEvent>>,
    open: Vec<Open>,
    /// Questions so far; makes their keys.
    asked: u32,
    outcome: Option<Outcome>,
    ended: Arc<OnceLock<Instant>>,
    draining: CancellationToken,
    until: Instant,
}

impl Keeper {
    /// Until the time is over or nobody can come any more.
    async fn run(&mut self, mut inbox: mpsc::Receiver<Order>) {
        loop {
            let left = async {
                match &self.viewer {
                    Some(viewer) => viewer.closed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                order = inbox.recv() => match order {
                    Some(Order::Attach { answers, viewer }) => self.attach(&answers, viewer),
                    Some(Order::Reply { key, answer }) => self.answer(&key, answer),
                    Some(Order::Parked) => if let Some(exchange) = &mut self.exchange {
                        exchange.parked();
                    },
                    Some(Order::GiveUp) | None => return,
                },
                event = next(&mut self.exchange) => self.event(event),
                () = left => {
                    self.viewer = None;
                    self.rest();
                }
                // Nobody can come any more.
                () = self.draining.cancelled(), if self.viewer.is_none() => return,
                () = tokio::time::sleep_until(self.until.into()), if self.viewer.is_none() => return,
            }
        }
    }

    /// Waits for the client from now on.
    fn rest(&mut self) {
        self.until = clock::now() + if self.open.is_empty() { GRACE } else { PARK_TIME };
    }

    fn attach(&mut self, answers: &RawObject, viewer: mpsc::Sender<ExchangeEvent>) {
        if let Some(before) = self.viewer.replace(viewer) {
            // Its client has sent the request again, so it hardly listens any more.
            drop(before.try_send(ExchangeEvent::Done(Outcome::Failed(superseded()))));
        }
        let given: Vec<(RawJson, RawJson)> = self
            .open
            .iter()
            .filter_map(|open| Some((open.key.clone(), answers.get(&open.key.parse::<String>().ok()?)?.clone())))
            .filter(|(_, answer)| answer.is_object())
            .collect();
        for (key, answer) in given {
            self.answer(&key, Ok(answer));
        }
        let questions: Vec<ExchangeEvent> = self.open.iter().map(Open::event).collect();
        for question in questions {
            self.show(question);
        }
        if let Some(outcome) = self.outcome.clone() {
            self.show(ExchangeEvent::Done(outcome));
        }
    }

    fn answer(&mut self, key: &RawJson, answer: ClientAnswer) {
        if let Some(at) = self.open.iter().position(|open| open.key == *key) {
            let open = self.open.swap_remove(at);
            self.reply(&open.request.id, answer);
        }
    }

    fn reply(&mut self, id: &RawJson, answer: ClientAnswer) {
        if let Some(exchange) = &mut self.exchange {
            exchange.reply(id, answer);
        }
    }

    fn event(&mut self, event: ExchangeEvent) {
        match event {
            ExchangeEvent::Ask(question) => self.ask(question),
            ExchangeEvent::Withdrawn(id) => {
                if let Some(at) = self.open.iter().position(|open| open.request.id == id) {
                    let key = self.open.swap_remove(at).key;
                    self.show(ExchangeEvent::Withdrawn(key));
                }
            }
            ExchangeEvent::Notice(_) => {}
            ExchangeEvent::Progress(_) | ExchangeEvent::Log(_) | ExchangeEvent::Alive => {
                if self.viewer.as_ref().is_some_and(|viewer| viewer.capacity() > RESERVED) {
                    self.show(event);
                }
            }
            ExchangeEvent::Done(outcome) => {
                self.open.clear();
                // The server is done with it, whoever still wants to know the outcome.
                self.exchange = None;
                self.permit = None;
                self.outcome = Some(outcome.clone());
                self.ended.get_or_init(clock::now);
                self.show(ExchangeEvent::Done(outcome));
                if self.viewer.is_none() {
                    self.rest();
                }
            }
        }
    }

    fn ask(&mut self, request: ServerRequest) {
        if self.open.len() >= MAX_OPEN {
            return self.reply(&request.id, declined(&request.method));
        }
        self.asked += 1;
        let kind = request.method.split('/').next().unwrap_or_default();
        let key = RawJson::string(&format!("{kind}-{}", self.asked));
        let open = Open { key, request };
        let event = open.event();
        self.open.push(open);
        self.show(event);
        if self.viewer.is_none() {
            self.rest();
        }
    }

    fn show(&mut self, event: ExchangeEvent) {
        if self.viewer.as_ref().is_some_and(|viewer| viewer.try_send(event).is_err()) {
            // Whoever comes next is told from the start.
            self.viewer = None;
            self.rest();
        }
    }

    /// Nobody answers any more; dropping the exchange tells the server that the call is off.
    fn end(mut self) {
        for open in std::mem::take(&mut self.open) {
            self.reply(&open.request.id, declined(&open.request.method));
        }
    }
}

async fn next(exchange: &mut Option<Exchange>) -> ExchangeEvent {
    match exchange {
        Some(exchange) => exchange.next().await,
        None => std::future::pending().await,
    }
}

impl Open {
    fn event(&self) -> ExchangeEvent {
        ExchangeEvent::Ask(ServerRequest { id: self.key.clone(), ..self.request.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::name::UpstreamName;
    use crate::engine::ask::Declared;
    use crate::engine::call::Wants;
    use crate::engine::peer::CallPort as _;
    use crate::mcp::version::Era;
    use crate::telemetry::metrics::Metrics;
    use crate::upstream::health::Health;
    use crate::upstream::line_call::{Port, Signal, stdio_call};
    use crate::upstream::sent::Sent;
    use crate::upstream::session::Lane;

    type Signals = mpsc::UnboundedReceiver<Signal>;

    fn parks() -> Parks {
        Parks::new(TaskGroup::default(), CancellationToken::new(), CancellationToken::new())
    }

    fn lane() -> LaneUse {
        let name = UpstreamName::parse("fx").unwrap();
        let health = Arc::new(Health::new(name.clone(), Metrics::new().unwrap().upstream("fx")));
        Arc::new(Lane::main(name, Declared::default(), health)).take()
    }

    fn question(id: &'static str) -> ServerRequest {
        ServerRequest { id: RawJson::trusted(id), method: "elicitation/create".to_owned(), params: None }
    }

    /// Parks a call; the server's end of it, and what it is told.
    fn parked(parks: &Parks, caller: &str) -> Result<(HeldExchange, Port, Signals), Exchange> {
        #[expect(clippy::disallowed_methods, reason = "what the task of a connection has")]
        let (signals_in, signals) = mpsc::unbounded_channel();
        let (port, exchange) = stdio_call(1, Wants { notices: false, requests: true }, signals_in);
        let held =
            parks.park(&Arc::from(caller), Exchange::Sent(Sent::Stdio(exchange)), lane(), None, question("1"))?;
        Ok((held, port, signals))
    }

    async fn told(signals: &mut Signals) -> Vec<String> {
        let mut told = Vec::new();
        while let Some(signal) = signals.recv().await {
            told.push(match &signal {
                Signal::Reply(id, Ok(answer)) => format!("{}: {}", id.text(), answer.text()),
                Signal::Cancel(_) | Signal::Parked(_) | Signal::Reply(..) => format!("{signal:?}"),
            });
        }
        told
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_nobody_answers_in_time_is_declined_and_the_call_is_off() {
        let parks = parks();
        let (mut held, _port, mut signals) = parked(&parks, "ci").unwrap();
        assert!(matches!(held.next().await, ExchangeEvent::Ask(_)));
        let id = held.id;
        drop(held);
        tokio::time::sleep(PARK_TIME - Duration::from_secs(5)).await;
        assert!(parks.lane("ci", &id).is_some() && parks.lane("dev", &id).is_none());
        let told = told(&mut signals).await;
        assert_eq!(told, [r#"1: {"action":"cancel"}"#, "Cancel(1)"]);
        assert!(parks.attach("ci", &id, None).await.is_none(), "too late");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_not_off_while_a_request_waits_for_it() {
        let parks = parks();
        let (held, _port, _signals) = parked(&parks, "ci").unwrap();
        tokio::time::sleep(2 * PARK_TIME).await;
        assert!(parks.lane("ci", &held.id).is_some(), "the request has a time of its own");
    }

    #[tokio::test(start_paused = true)]
    async fn an_outcome_waits_for_a_client_whose_response_was_lost_and_an_answer_goes_up_once() {
        let parks = parks();
        let (held, port, mut signals) = parked(&parks, "ci").unwrap();
        let id = held.id;
        drop(held);
        let answers = RawJson::trusted(r#"{"elicitation-1":{"action":"accept"}}"#);
        for _ in 0..2 {
            drop(parks.attach("ci", &id, Some(&answers)).await.unwrap());
        }
        port.done(Outcome::Result { raw: RawJson::EMPTY_OBJECT, era: Era::Legacy });
        for _ in 0..2 {
            let mut again = parks.attach("ci", &id, Some(&answers)).await.unwrap();
            assert!(matches!(again.next().await, ExchangeEvent::Done(Outcome::Result { .. })));
        }
        let told = told(&mut signals).await;
        assert_eq!(told.len(), 1, "one answer and no cancellation: {told:?}");
        tokio::time::sleep(2 * GRACE).await;
        assert!(parks.attach("ci", &id, None).await.is_none(), "its time is over");
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_request_that_goes_on_with_a_call_is_the_one_that_is_answered() {
        let parks = parks();
        let (held, port, _signals) = parked(&parks, "ci").unwrap();
        let answers = RawJson::trusted(r#"{"elicitation-1":{"action":"accept"}}"#);
        let mut first = parks.attach("ci", &held.id, Some(&answers)).await.unwrap();
        let mut second = parks.attach("ci", &held.id, Some(&answers)).await.unwrap();
        let ExchangeEvent::Done(Outcome::Failed(failure)) = first.next().await else { panic!("the first goes on") };
        assert_eq!(failure, superseded());
        port.done(Outcome::Result { raw: RawJson::EMPTY_OBJECT, era: Era::Legacy });
        assert!(matches!(second.next().await, ExchangeEvent::Done(Outcome::Result { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_have_ended_give_way_to_calls_that_wait() {
        let parks = parks();
        let mut waiting: Vec<_> = (0..MAX_PER_CALLER).map(|_| parked(&parks, "ci").unwrap()).collect();
        assert!(parked(&parks, "ci").is_err(), "its share is used up");
        assert!(parked(&parks, "dev").is_ok() && parked(&parks, LOCAL).is_ok());
        let (mut ended, port, _) = waiting.pop().unwrap();
        port.done(Outcome::Result { raw: RawJson::EMPTY_OBJECT, era: Era::Legacy });
        while !matches!(ended.next().await, ExchangeEvent::Done(_)) {}
        let place = parked(&parks, "ci");
        assert!(place.is_ok(), "one has ended");
        assert!(parks.lane("ci", &ended.id).is_none());
        assert!(parked(&parks, "ci").is_err(), "the others wait");
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_stops_does_not_wait_for_those_who_cannot_come() {
        let parks = parks();
        let (held, _port, mut signals) = parked(&parks, "ci").unwrap();
        drop(held);
        parks.draining.cancel();
        parks.tasks.join().await;
        assert_eq!(told(&mut signals).await.len(), 2);
    }
}
