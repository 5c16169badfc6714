//! The gateway of a world between its clients and its upstreams: routing, decision, approval, and the calls that were permitted.
//! What it does is the engine's; here is only who passes what to whom.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use self::turns::Returning;
use super::call::Call;
use super::chance::Chance;
use super::house::{HOUSE, launch, scope};
use super::link::{Events, Link};
use crate::engine::ask::ClientAnswer;
use crate::engine::call::{Outgoing, Progress};
use crate::engine::failure::{Executed, Failure, Reason};
use crate::engine::question::approval::{self, AnswerEffect, AnswerTiming, QuestionKind};
use crate::engine::question::park::{ParkId, ParkTable};
use crate::engine::route::{Params, Resume, RouteError, Routed, route};
use crate::engine::state::{Carried, MAX_ROUNDS, Opened};
use crate::engine::turns::{Passer, Ticket};
use crate::engine::used::Used;
use crate::mcp::elicitation::Terms;
use crate::mcp::input::{InputRequest, all_accepted, input_required};
use crate::mcp::kinds::Kinds;
use crate::mcp::method::Method;
use crate::mcp::version::{Era, Revision};
use crate::policy::consent::{Answer, Asked, Desk, DeskLimits, Grants, PromptId, Shown};
use crate::policy::{Action, Annotations, Caller, Decision, Evidence, Kind, Limiter, Permit, decide, decide_again};
use crate::wire::code;
use crate::wire::id::ClientId;
use crate::wire::message::{encode_answer, encode_request, error_object};
use crate::wire::raw::{RawJson, RawObject};

mod turns;

/// Who makes a request, and where its answer goes.
#[derive(Clone)]
pub(super) struct Who {
    pub(super) client: u64,
    /// The number of the request, of all requests in the world.
    pub(super) request: u64,
    pub(super) stream: u64,
    pub(super) revision: Revision,
    pub(super) caller: Caller,
    /// What a legacy client can be asked for, as it declared it.
    pub(super) declared: Option<RawJson>,
    pub(super) id: ClientId,
}

impl Who {
    pub(super) fn is_modern(&self) -> bool {
        self.revision.era() == Era::Modern
    }
}

/// A message for a client, on a stream of its own over HTTP.
pub(super) struct Tell {
    pub(super) client: u64,
    pub(super) stream: u64,
    pub(super) text: Bytes,
    /// It answers that request.
    pub(super) answers: Option<ClientId>,
}

/// A question that a legacy client has before it: its number, and the call that it is about.
struct Open {
    ask: u64,
    client: u64,
    key: u64,
}

/// A call that its legacy client is asked to approve.
struct Waiting {
    key: u64,
    ask: u64,
    prompt: PromptId,
    who: Who,
    params: RawObject,
    until: Instant,
}

/// How a request goes on with an earlier one.
pub(super) enum GoingOn {
    Anew,
    Permitted,
    Parked(ParkId, Option<RawJson>),
    Consent(PromptId, Option<RawJson>),
}

pub(super) struct Gateway {
    pub(super) events: Events,
    pub(super) calls: Vec<Call>,
    waiting: Vec<Waiting>,
    open: Vec<Open>,
    pub(super) out: Vec<Tell>,
    limiter: Limiter,
    desk: Desk,
    grants: Grants,
    used: Used,
    /// The calls that outlive their requests, by their keys.
    pub(super) parks: ParkTable<u64>,
    returning: Vec<Returning>,
    /// Turns that are over, by link.
    pub(super) over: Vec<(usize, Ticket)>,
    /// Nothing new is begun, and everything goes on that can.
    pub(super) rests: bool,
    keys: u64,
    asks: u64,
    start: Instant,
    pub(super) now: Instant,
}

impl Gateway {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            events: Events::default(),
            calls: Vec::new(),
            waiting: Vec::new(),
            open: Vec::new(),
            out: Vec::new(),
            limiter: Limiter::new(&HOUSE.policy),
            desk: Desk::new(DeskLimits { max_open: 100, per_minute: 1000 }),
            grants: Grants::new(1 << 40),
            used: Used::default(),
            parks: ParkTable::default(),
            returning: Vec::new(),
            over: Vec::new(),
            rests: false,
            keys: 0,
            asks: 0,
            start: now,
            now,
        }
    }

    pub(super) fn uptime(&self) -> Duration {
        self.now.duration_since(self.start)
    }

    fn wall(&self) -> u64 {
        1_000_000 + self.uptime().as_secs()
    }

    pub(super) fn new_key(&mut self) -> u64 {
        self.keys += 1;
        self.keys
    }

    pub(super) fn tell(&mut self, who: &Who, text: Bytes) {
        self.out.push(Tell { client: who.client, stream: who.stream, text, answers: None });
    }

    pub(super) fn answer(&mut self, who: &Who, answer: &ClientAnswer) {
        let text = encode_answer(who.id.raw(), answer);
        self.out.push(Tell { client: who.client, stream: who.stream, text, answers: Some(who.id.clone()) });
    }

    pub(super) fn refuse(&mut self, who: &Who, reason: Reason, text: &str) {
        let failure = Failure::new(reason, Executed::No, text);
        self.answer(who, &Ok(failure.tool_result(0, who.revision)));
    }

    /// Asks a legacy client about that call: the number of the question.
    pub(super) fn ask(&mut self, who: &Who, key: u64, request: &InputRequest) -> u64 {
        self.asks += 1;
        let id = RawJson::string(&format!("ask-{}", self.asks));
        self.tell(who, encode_request(&id, &request.method, request.params.as_ref()));
        self.open.push(Open { ask: self.asks, client: who.client, key });
        self.asks
    }

    /// Closes a question. Whether its client still had it before it.
    pub(super) fn close(&mut self, ask: u64) -> bool {
        let at = self.open.iter().position(|open| open.ask == ask);
        at.map(|at| self.open.swap_remove(at)).is_some()
    }

    /// A legacy client answers the question of that number.
    pub(super) fn answered(
        &mut self,
        client: u64,
        ask: u64,
        answer: ClientAnswer,
        links: &mut [Link],
        chance: &mut Chance,
    ) {
        let at = self.open.iter().position(|open| open.ask == ask && open.client == client);
        let Some(at) = at else { return };
        let key = self.open.swap_remove(at).key;
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.key == key) {
            let Waiting { prompt, who, params, .. } = self.waiting.swap_remove(at);
            return self.agreed(&prompt, answer.ok().as_ref(), who, params, links, chance);
        }
        self.with_call(key, |gateway, call| call.answered(ask, answer, gateway, links));
    }

    /// Does something with a call, which it may end.
    pub(super) fn with_call(&mut self, key: u64, act: impl FnOnce(&mut Self, &mut Call) -> bool) {
        let Some(at) = self.calls.iter().position(|call| call.key == key) else { return };
        let mut call = self.calls.swap_remove(at);
        if act(self, &mut call) {
            return self.calls.push(call);
        }
        call.change_turn(None, self);
        if let Some((id, _)) = call.park {
            self.parks.remove(&id);
        }
    }

    /// A client's request for a tool.
    pub(super) fn request(&mut self, who: Who, params: Params, links: &mut [Link], chance: &mut Chance) {
        let house = &*HOUSE;
        let Params { object, meta } = params;
        let visible = |at: usize| {
            let rules = house.rules.get(at);
            rules.is_some_and(|rules| !house.policy.hidden(rules, &who.caller, "", Annotations::ASSUMED))
        };
        let Routed { entry: at, mut outgoing, token, resume, .. } =
            match route(&house.catalog, Method::ToolsCall, &object, meta, visible) {
                Ok(routed) => routed,
                Err(error) => return self.wrong(&who, &error),
            };
        let entry = &house.catalog.entries()[at];
        if !who.is_modern() {
            outgoing.capabilities.clone_from(&who.declared);
        }
        let offered = Kinds::of(outgoing.capabilities.as_ref());
        outgoing.can_be_asked = offered.any();
        outgoing.party.caller = Some(who.caller.clone());
        let action = Action {
            arguments: outgoing.body.get("arguments").cloned(),
            ..Action::on(entry, Kind::Tool, launch(), who.caller.clone(), None, who.client)
        };
        let mut round = 0;
        let going_on = match resume {
            None => GoingOn::Anew,
            Some(resume) => match self.resume(&who, &action, &resume, &mut outgoing, &mut round) {
                Ok(going_on) => going_on,
                Err(error) => return self.wrong(&who, &error),
            },
        };
        let rules = &house.rules[at];
        let decision = match going_on {
            GoingOn::Permitted | GoingOn::Parked(..) => decide_again(&house.policy, rules, &action),
            GoingOn::Anew | GoingOn::Consent(..) => {
                let claim = |rule: &Arc<str>, need: Evidence| {
                    self.grants.claim(&Asked::new(&action, rule, need), self.wall(), None)
                };
                decide(&house.policy, rules, &action, &claim, &self.limiter, self.uptime())
            }
        };
        let permit = match decision {
            Decision::Allow(permit) => permit,
            Decision::Ask { rule, need } => {
                let asked = Asked::new(&action, &rule, need);
                let shown = Shown::new(&entry.exposed, action.said, action.arguments.as_ref());
                return self.approval(who, (asked, shown), object, &going_on, (&action, round, offered), links, chance);
            }
            Decision::Deny { .. } | Decision::Limit { .. } => return self.refuse(&who, Reason::Denied, "no"),
        };
        if let GoingOn::Parked(id, answers) = going_on {
            let progress = token.map(|token| Progress::new(token, who.revision));
            return self.attach(who, &id, (round, progress), answers.as_ref(), links, chance);
        }
        self.consume(&permit);
        let terms = Terms { upstream: Arc::from(entry.upstream_name.as_str()), ..Terms::for_tests(offered) };
        let (key, progress) = (self.new_key(), token.map(|token| Progress::new(token, who.revision)));
        let call = Call::new(key, who, (entry, action), permit, outgoing, progress, terms, round, self.now);
        self.calls.push(call);
        self.with_call(key, |gateway, call| call.send(gateway, links));
    }

    fn wrong(&mut self, who: &Who, error: &RouteError) {
        self.answer(who, &Err(error_object(code::INVALID_PARAMS, &error.to_string(), None)));
    }

    /// A once-grant is used up before its call is sent.
    fn consume(&mut self, permit: &Permit) {
        let Some(grant) = permit.grant().filter(|grant| grant.is_once()) else { return };
        assert!(grant.consume(), "a once-grant was used twice");
        self.grants = self.grants.without(|live| live.id() == grant.id());
    }

    fn resume(
        &mut self,
        who: &Who,
        action: &Action,
        resume: &Resume,
        outgoing: &mut Outgoing,
        round: &mut u8,
    ) -> Result<GoingOn, RouteError> {
        let opened = HOUSE.states.open(&scope(action), &resume.state, self.uptime()).filter(|_| who.is_modern());
        let (Opened { round: of, carried }, id) = opened.ok_or(RouteError::State)?;
        *round = of;
        match carried {
            Carried::Parked(id) => return Ok(GoingOn::Parked(id, resume.responses.clone())),
            Carried::Consent(prompt) => {
                let responses = resume.responses.as_ref().and_then(|raw| RawObject::parse(raw).ok());
                let answer = responses.and_then(|responses| responses.get(approval::KEY).cloned());
                return Ok(GoingOn::Consent(PromptId::new(prompt), answer));
            }
            // The servers of the simulation want no logins.
            Carried::Login => return Err(RouteError::State),
            Carried::Pages(keys) => {
                let accepted = resume.responses.as_ref().filter(|r| all_accepted(r, keys.split(' ')));
                accepted.ok_or(RouteError::PageDeclined)?;
            }
            Carried::Upstream(_) | Carried::Nothing => {
                if let Carried::Upstream(state) = carried {
                    outgoing.body.set("requestState", RawJson::string(&state));
                }
                if let Some(responses) = &resume.responses {
                    outgoing.body.set("inputResponses", responses.clone());
                }
                outgoing.resumed = true;
            }
        }
        let is_first = self.used.first(id, self.uptime());
        Ok(if is_first { GoingOn::Permitted } else { GoingOn::Anew })
    }

    /// Somebody has to agree first.
    #[expect(clippy::too_many_arguments, reason = "called once, where all of them were found out")]
    fn approval(
        &mut self,
        who: Who,
        (asked, shown): (Asked, Shown),
        params: RawObject,
        going_on: &GoingOn,
        (action, round, offered): (&Action, u8, Kinds),
        links: &mut [Link],
        chance: &mut Chance,
    ) {
        let id = PromptId::new(chance.bytes());
        let own = if let GoingOn::Consent(prompt, _) = going_on { Some(prompt) } else { None };
        let Ok(opened) = self.desk.open(asked, shown, id, self.wall(), 300, own) else {
            return self.refuse(&who, Reason::AwaitingApproval, "nobody is asked now");
        };
        let message = self.desk.get(&opened.id).unwrap().message();
        if !offered.form {
            self.desk.leave(&opened.id);
            return self.refuse(&who, Reason::AwaitingApproval, "this client cannot be asked");
        }
        let form = approval::form(&message, true);
        if who.is_modern() {
            if let GoingOn::Consent(of, Some(answer)) = going_on
                && *of == opened.id
            {
                return self.agreed(&opened.id, Some(answer), who, params, links, chance);
            }
            let now = Duration::from_secs(self.wall());
            self.desk.carry(&opened.id, now);
            let state = Opened { round: (round + 1).min(MAX_ROUNDS), carried: Carried::Consent(opened.id.bytes()) };
            let sealed = HOUSE.states.seal(&scope(action), &state, self.uptime(), chance.bytes()).unwrap();
            return self.answer(&who, &Ok(input_required([(approval::KEY, &form)].into_iter(), &sealed)));
        }
        let form = form.for_revision(who.revision, String::new).unwrap();
        let key = self.new_key();
        let ask = self.ask(&who, key, &form);
        let until = self.now + Duration::from_secs(300);
        self.waiting.push(Waiting { key, ask, prompt: opened.id, who, params, until });
    }

    /// The person has answered our question.
    fn agreed(
        &mut self,
        prompt: &PromptId,
        answer: Option<&RawJson>,
        who: Who,
        mut params: RawObject,
        links: &mut [Link],
        chance: &mut Chance,
    ) {
        // The persons of the simulation take their time, and its clients do not come back.
        let timing = AnswerTiming { waited: None, is_unattended: false };
        let answer = match approval::judge(QuestionKind::Form, answer, timing) {
            AnswerEffect::Answer(answer) => answer,
            AnswerEffect::Wait | AnswerEffect::Unattended => Answer::Dismiss,
        };
        let id: Arc<str> = format!("{:x}", u64::from_be_bytes(chance.bytes())).into();
        match self.desk.answer(prompt, answer, Evidence::Client, "client", self.wall(), id) {
            Ok(Some(grant)) => {
                grant.release();
                self.grants = self.grants.with(Arc::new(grant));
                params.remove("requestState");
                params.remove("inputResponses");
                let params = Params::read(Some(&params.encode())).unwrap();
                self.request(who, params, links, chance);
            }
            Ok(None) | Err(_) => self.refuse(&who, Reason::Denied, "nobody agreed"),
        }
    }

    /// A request joins a call that is parked.
    fn attach(
        &mut self,
        who: Who,
        id: &ParkId,
        now: (u8, Option<Progress>),
        answers: Option<&RawJson>,
        links: &mut [Link],
        chance: &mut Chance,
    ) {
        let Some(key) = self.parks.find(&who.caller, id).copied() else {
            return self.refuse(&who, Reason::UpstreamProtocol, "the call has ended");
        };
        if let Some(call) = self.calls.iter().find(|call| call.key == key && call.returns(links)) {
            let (link, answers, since) = (call.upstream(), answers.cloned(), self.now);
            let turn = links[link].enters(Passer::Returning, call.party());
            return self.returning.push(Returning { turn, link, key, who, now, answers, since });
        }
        self.with_call(key, |gateway, call| call.attach(who, now, answers, gateway, links, chance));
    }

    /// Deals with what upstreams said.
    pub(super) fn hear(&mut self, links: &mut [Link], chance: &mut Chance) {
        loop {
            let next = self.events.borrow_mut().pop_front();
            if let Some((key, event)) = next {
                self.with_call(key, |gateway, call| call.event(event, gateway, links, chance));
                continue;
            }
            // A call that passes may fail at once.
            self.pass_on(links, chance);
            if self.events.borrow().is_empty() {
                return;
            }
        }
    }

    /// A client takes the request of that number back. Its id, where it was open.
    pub(super) fn withdraw(&mut self, request: u64, links: &mut [Link]) -> Option<ClientId> {
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.who.request == request) {
            let Waiting { ask, who, .. } = self.waiting.swap_remove(at);
            self.close(ask);
            return Some(who.id);
        }
        if let Some(id) = self.drop_returning(|returning| returning.who.request == request) {
            return Some(id);
        }
        let call = self.calls.iter().find(|call| call.is_viewed && call.who.request == request)?;
        let (key, id) = (call.key, call.who.id.clone());
        self.with_call(key, |gateway, call| call.give_up(gateway, links));
        Some(id)
    }

    /// A client reads no longer what a request of its is answered with. To modern clients that is the cancellation.
    pub(super) fn closed(&mut self, client: u64, stream: u64, links: &mut [Link]) {
        self.drop_returning(|returning| returning.who.client == client && returning.who.stream == stream);
        let call =
            self.calls.iter().find(|call| call.is_viewed && call.who.client == client && call.who.stream == stream);
        if let Some(key) = call.map(|call| call.key) {
            self.with_call(key, |gateway, call| call.left(false, gateway, links));
        }
    }

    /// A client is gone. That cancels its calls, or they run on without it.
    pub(super) fn gone(&mut self, client: u64, runs_on: bool, links: &mut [Link]) {
        self.waiting.retain(|waiting| waiting.who.client != client);
        self.drop_returning(|returning| returning.who.client == client);
        self.desk.session_ended(client);
        self.grants = self.grants.without(|grant| grant.asked().session == Some(client));
        let keys: Vec<u64> = self.calls.iter().filter(|call| call.who.client == client).map(|call| call.key).collect();
        for key in keys {
            self.with_call(key, |gateway, call| call.left(runs_on, gateway, links));
        }
        self.open.retain(|open| open.client != client);
    }

    /// Time has passed.
    pub(super) fn pass(&mut self, links: &mut [Link], chance: &mut Chance) {
        self.pass_on(links, chance);
        self.force_late(links, chance);
        let keys: Vec<u64> = self.calls.iter().map(|call| call.key).collect();
        for key in keys {
            self.with_call(key, |gateway, call| call.pass(gateway, links, chance));
        }
        let wall = self.wall();
        self.desk.expire(wall);
        let late: Vec<usize> = (0..self.waiting.len()).filter(|at| self.waiting[*at].until <= self.now).collect();
        for at in late.into_iter().rev() {
            let waiting = self.waiting.swap_remove(at);
            self.close(waiting.ask);
            self.refuse(&waiting.who, Reason::Denied, "nobody agreed in time");
        }
    }

    /// What is left in its tables, which is nothing when no call is left.
    pub(super) fn left(&self) -> String {
        let Self { calls, waiting, open, events, returning, .. } = self;
        let prompts = self.desk.prompts().count();
        let left = [calls.len(), waiting.len(), open.len(), events.borrow().len(), prompts, returning.len()];
        if left.iter().sum::<usize>() == 0 {
            String::new()
        } else {
            format!("calls, waiting, open, events, prompts, returning: {left:?}")
        }
    }
}
