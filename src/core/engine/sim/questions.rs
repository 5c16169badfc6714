//! Questions in the simulated world: clients of both eras and a legacy server that asks, in any
//! order, until one of them goes away.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{SeenCallEvent, World, echo};
use crate::engine::call::CallOutcome;
use crate::engine::connection::ask::{ClientAnswer, ServerRequest, unable_answer, unanswered_answer};
use crate::engine::event::CallEvent;
use crate::engine::failure::CallFailure;
use crate::engine::question::park::{ParkAction, ParkedCall};
use crate::engine::question::{ClientQuestion, ShownQuestion, StreamQuestions};
use crate::mcp::asking::input::InputRequest;
use crate::mcp::version::{Era, Revision};
use crate::wire::json::raw::{RawJson, RawObject};

const KINDS: [&str; 3] = ["elicitation/create", "sampling/createMessage", "roots/list"];

/// Answers to requests of the server, by their ids.
type Replies = Vec<(RawJson, ClientAnswer)>;

/// One call and its client, which gets questions in the way of its era.
struct Caller {
    call: u64,
    way: Way,
    /// Number of the call's events that the client has seen.
    heard: usize,
    is_over: bool,
}

enum Way {
    OnStream(StreamQuestions<()>),
    Parked(Box<Parked>),
}

struct Parked {
    park: ParkedCall,
    /// The server's ids of the questions that were ever asked, by our keys.
    ids: BTreeMap<String, RawJson>,
    /// Keys of the questions that the client sees.
    shown: Vec<String>,
}

impl Way {
    fn of(era: Era, world: &World) -> Self {
        match era {
            Era::Legacy => Self::OnStream(StreamQuestions::default()),
            Era::Modern => Self::Parked(Box::new(Parked {
                park: ParkedCall::new(world.now),
                ids: BTreeMap::new(),
                shown: Vec::new(),
            })),
        }
    }

    fn hear(&mut self, event: CallEvent, world: &World) -> Replies {
        match self {
            Self::Parked(parked) => {
                let id = if let CallEvent::Ask(request) = &event { Some(request.id.clone()) } else { None };
                let act = parked.park.hear(event, world.now);
                parked.show(act, id.as_ref())
            }
            Self::OnStream(open) => {
                if let CallEvent::Ask(ServerRequest { id, method, params }) = event {
                    if !open.has_room() {
                        return vec![(id, unable_answer(&method))];
                    }
                    open.shown(ClientQuestion { key: id, request: InputRequest { method, params } }, (), world.now);
                } else if let CallEvent::Withdrawn(id) = event {
                    open.withdraw(&id);
                } else if let CallEvent::Done(_) = event {
                    open.close().for_each(drop);
                }
                Vec::new()
            }
        }
    }

    /// Answers one question on the stream, or some of the questions in the client's result.
    fn answer(&mut self, which: usize) -> Replies {
        match self {
            Self::OnStream(open) => {
                let number = open.iter_mut().count().max(1);
                let answered = open.end(which % number).map(|shown| shown.question.key);
                answered.map(|id| (id.clone(), Ok(accept(&id)))).into_iter().collect()
            }
            Self::Parked(parked) => {
                let mut answers = RawObject::default();
                for key in std::mem::take(&mut parked.shown).into_iter().take(which % 3) {
                    answers.set(&key, accept(&parked.ids[&key]));
                }
                let acts = parked.park.attach(&answers);
                parked.show(acts, None)
            }
        }
    }

    /// Ends the call, and returns the answers that its open questions get.
    fn end(&mut self) -> Replies {
        match self {
            Self::OnStream(open) => open.close().map(late).collect(),
            Self::Parked(parked) => {
                parked.shown.clear();
                let acts: Vec<ParkAction> = parked.park.end().collect();
                parked.show(acts, None)
            }
        }
    }

    /// Returns answers for the questions whose time is over; an error if the whole call is over.
    fn late(&mut self, now: std::time::Instant) -> Result<Replies, ()> {
        match self {
            Self::OnStream(open) => Ok(std::iter::from_fn(|| open.late(now)).map(late).collect()),
            Self::Parked(parked) if parked.park.due().is_some_and(|due| due <= now) => Err(()),
            Self::Parked(_) => Ok(Vec::new()),
        }
    }

    fn open(&mut self) -> usize {
        match self {
            Self::OnStream(open) => open.iter_mut().count(),
            Self::Parked(parked) => parked.shown.len(),
        }
    }
}

impl Parked {
    fn show(&mut self, acts: impl IntoIterator<Item = ParkAction>, asked: Option<&RawJson>) -> Replies {
        let mut replies = Vec::new();
        for act in acts {
            match act {
                ParkAction::Reply(id, answer) => replies.push((id, answer)),
                ParkAction::Show(CallEvent::Ask(request)) => {
                    let key = request.id.parse::<String>().unwrap();
                    self.ids.extend(asked.map(|id| (key.clone(), id.clone())));
                    self.shown.push(key);
                }
                ParkAction::Show(CallEvent::Withdrawn(key)) => {
                    let key = key.parse::<String>().unwrap();
                    self.shown.retain(|shown| *shown != key);
                }
                ParkAction::Show(CallEvent::Done(_)) => self.shown.clear(),
                ParkAction::Show(_) => {}
            }
        }
        replies
    }
}

fn late(shown: ShownQuestion<()>) -> (RawJson, ClientAnswer) {
    let answer = unanswered_answer(&shown.question.request.method);
    (shown.question.key, answer)
}

/// Returns an answer that names its question, so that a mix-up shows.
fn accept(id: &RawJson) -> RawJson {
    RawJson::trusted(format!(r#"{{"for":{}}}"#, id.text()))
}

struct Play {
    world: World,
    callers: Vec<Caller>,
    /// The method of each question.
    asked: Vec<&'static str>,
    withdrawn: Vec<usize>,
}

fn id_of(question: usize) -> Value {
    json!(format!("q{question}"))
}

impl Play {
    fn new() -> Self {
        let world = World::new().upstream("a", Revision::V2025_11_25, &["t"]);
        Self { world, callers: Vec::new(), asked: Vec::new(), withdrawn: Vec::new() }
    }

    fn is_alive(&self) -> bool {
        self.world.upstreams[0].alive
    }

    fn reply(&mut self, replies: Replies) {
        for (id, answer) in replies {
            self.world.upstreams[0].peer.handle_reply(&id, &answer);
            self.world.settle();
        }
    }

    /// Passes the new events of each call to its caller.
    fn hear(&mut self) {
        for at in 0..self.callers.len() {
            loop {
                let Self { world, callers, asked, .. } = self;
                let caller = &mut callers[at];
                let Some(seen) = world.seen(caller.call).get(caller.heard).cloned() else { break };
                caller.heard += 1;
                let event = match seen {
                    SeenCallEvent::Asked(id) => {
                        let number: usize = id.as_str().unwrap()[1..].parse().unwrap();
                        let (id, method) = (RawJson::trusted(id.to_string()), asked[number].to_owned());
                        CallEvent::Ask(ServerRequest { id, method, params: None })
                    }
                    SeenCallEvent::Withdrawn(id) => CallEvent::Withdrawn(RawJson::trusted(id.to_string())),
                    SeenCallEvent::Result(_) | SeenCallEvent::Error(_) | SeenCallEvent::Failed(..) => {
                        caller.is_over = true;
                        CallEvent::Done(CallOutcome::Failed(CallFailure::down()))
                    }
                    SeenCallEvent::Progress(_) | SeenCallEvent::Log(_) => CallEvent::Alive,
                };
                let replies = caller.way.hear(event, world);
                self.reply(replies);
            }
        }
    }

    fn cancel(&mut self, at: usize) {
        let replies = self.callers[at].way.end();
        self.reply(replies);
        self.callers[at].is_over = true;
        self.world.cancel(0, self.callers[at].call);
    }

    fn play(&mut self, step: &Step) {
        let running: Vec<usize> = (0..self.callers.len()).filter(|at| !self.callers[*at].is_over).collect();
        let pick = |at: usize| running.get(at % running.len().max(1)).copied();
        match *step {
            Step::Call(era) => {
                let n = self.world.calls + 1;
                let call = self.world.call("x", &echo("a__t", n)).unwrap();
                self.callers.push(Caller { call, way: Way::of(era, &self.world), heard: 0, is_over: false });
            }
            Step::Ask(kind) if self.is_alive() => {
                let id = id_of(self.asked.len());
                self.asked.push(KINDS[kind]);
                let ask = json!({"jsonrpc": "2.0", "id": id, "method": KINDS[kind], "params": {}});
                self.world.server_says(0, &ask);
            }
            Step::Withdraw(at) if self.is_alive() && !self.asked.is_empty() => {
                let question = at % self.asked.len();
                self.withdrawn.push(question);
                let params = json!({"requestId": id_of(question)});
                let said = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
                self.world.server_says(0, &said);
            }
            Step::Answer(at, which) => {
                if let Some(at) = pick(at) {
                    let replies = self.callers[at].way.answer(which);
                    self.reply(replies);
                }
            }
            Step::Leave(at) => {
                let Some(at) = pick(at) else { return };
                if let Way::Parked(parked) = &mut self.callers[at].way {
                    parked.park.leave(self.world.now);
                    if !parked.shown.is_empty() {
                        self.world.upstreams[0].peer.handle_parked(self.callers[at].call);
                    }
                }
            }
            Step::Cancel(at) => pick(at).into_iter().for_each(|at| self.cancel(at)),
            Step::Finish(at) if self.is_alive() => {
                if let Some(at) = pick(at) {
                    self.world.answer_call(0, self.callers[at].call);
                }
            }
            Step::Pass(seconds) => {
                self.world.pass(Duration::from_secs(seconds));
                for at in running {
                    match self.callers[at].way.late(self.world.now) {
                        Ok(replies) => self.reply(replies),
                        Err(()) => self.cancel(at),
                    }
                }
            }
            Step::Crash if self.is_alive() => self.world.crash(0),
            Step::Ask(_) | Step::Withdraw(_) | Step::Finish(_) | Step::Crash => {}
        }
        self.hear();
        self.world.check();
    }

    /// Returns all answers that the server got to a question.
    fn replies_to(&self, question: usize) -> Vec<&Value> {
        let seen = self.world.upstreams[0].server.seen.iter();
        seen.filter(|message| message["method"].is_null() && message["id"] == id_of(question)).collect()
    }

    /// Checks that the server waits for exactly the questions that clients see, and for the held
    /// question whose call is not known yet.
    fn check(&mut self) {
        let mut waiting = 0;
        for question in 0..self.asked.len() {
            let replies = self.replies_to(question);
            let answered_for = replies.first().map(|reply| reply["result"]["for"].clone()).unwrap_or_default();
            assert!(replies.len() <= 1, "{question} was answered {} times", replies.len());
            assert!(answered_for.is_null() || answered_for == id_of(question), "{question}: {answered_for}");
            waiting += usize::from(replies.is_empty() && !self.withdrawn.contains(&question));
        }
        let held = usize::from(self.world.upstreams[0].gate.is_held);
        let open = held + self.callers.iter_mut().map(|caller| caller.way.open()).sum::<usize>();
        assert!(!self.is_alive() || open == waiting, "{open} open, {waiting} waited for");
        let after_end = self.callers.iter_mut().any(|caller| caller.is_over && caller.way.open() > 0);
        assert!(!after_end, "a call that has ended asks");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Call(Era),
    Ask(usize),
    Withdraw(usize),
    /// A legacy client answers one question, a modern one comes back with some answers.
    Answer(usize, usize),
    /// A modern client has the questions as the result of its request.
    Leave(usize),
    Cancel(usize),
    Finish(usize),
    Pass(u64),
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let any = any::<usize>;
    let step = prop_oneof![
        6 => prop_oneof![Just(Era::Legacy), Just(Era::Modern)].prop_map(Step::Call),
        12 => (0..KINDS.len()).prop_map(Step::Ask),
        2 => any().prop_map(Step::Withdraw),
        8 => (any(), any()).prop_map(|(at, which)| Step::Answer(at, which)),
        6 => any().prop_map(Step::Leave),
        2 => any().prop_map(Step::Cancel),
        4 => any().prop_map(Step::Finish),
        2 => (0..700_u64).prop_map(Step::Pass),
        1 => Just(Step::Crash),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn each_question_is_answered_once_whoever_is_asked_and_goes_away(steps in steps()) {
        let mut play = Play::new();
        for step in steps {
            play.play(&step);
            play.check();
        }
        for at in 0..play.callers.len() {
            if !play.callers[at].is_over {
                play.cancel(at);
            }
        }
        play.check();
        let waits = |question: &usize| play.replies_to(*question).is_empty() && !play.withdrawn.contains(question);
        let left: Vec<usize> = (0..play.asked.len()).filter(waits).collect();
        prop_assert!(!play.is_alive() || left.is_empty(), "nobody answers {:?}", left);
    }
}
