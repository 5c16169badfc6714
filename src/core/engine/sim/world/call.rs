//! A permitted call in a world: it is sent, its server's questions reach its client in the way that the eras allow, and it ends
//! once.

use std::time::{Duration, Instant};

use super::chance::Chance;
use super::gateway::{Gateway, Who};
use super::link::{Link, Port};
use crate::catalog::merge::Entry;
use crate::engine::ask::{ClientAnswer, ServerRequest, declined, refused, unable};
use crate::engine::call::{Deadline, Outcome, Outgoing, Progress};
use crate::engine::event::ExchangeEvent;
use crate::engine::failure::{Executed, Failure, Reason};
use crate::engine::question::park::{Act, Park, ParkId};
use crate::engine::question::{Gathered, OnStream, PATIENCE, Question, Round};
use crate::engine::task::Following;
use crate::engine::turns::{Passer, Ticket};
use crate::mcp::elicitation::Terms;
use crate::mcp::extension::TASKS;
use crate::mcp::input::InputRequest;
use crate::mcp::method::Method;
use crate::mcp::project::{self, is_complete};
use crate::mcp::task::{self, Task};
use crate::mcp::version::Era;
use crate::policy::{Action, Permit};
use crate::wire::message::encode_notification;
use crate::wire::raw::{RawJson, RawObject};

mod asking;
mod following;
mod turns;

const IDLE: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(300);

/// A question of a round, its number, and when its time is over.
type OpenQuestion = (Question, u64, Instant);

pub(super) struct Call {
    pub(super) key: u64,
    pub(super) who: Who,
    /// Somebody waits for it: its client's request is open.
    pub(super) is_viewed: bool,
    /// It outlives its request, under this name.
    pub(super) park: Option<(ParkId, Park)>,
    entry: &'static Entry,
    action: Action,
    link: usize,
    permit: Permit,
    outgoing: Outgoing,
    progress: Option<Progress>,
    terms: Terms,
    round: u8,
    deadline: Deadline,
    on_stream: OnStream<u64>,
    /// A legacy client answers what a modern server asked.
    asking: Option<(Round, Option<OpenQuestion>)>,
    gathered: Gathered,
    /// The call is, or may become, a task of its server.
    following: Option<Following>,
    /// It waits until it may pass, since then.
    waits: Option<(Passer, Instant)>,
    /// Its place among those that wait, or its turn.
    pub(super) turn: Option<Ticket>,
}

impl Call {
    #[expect(clippy::too_many_arguments, reason = "called once, where all of them were found out")]
    pub(super) fn new(
        key: u64,
        who: Who,
        (entry, action): (&'static Entry, Action),
        permit: Permit,
        outgoing: Outgoing,
        progress: Option<Progress>,
        terms: Terms,
        round: u8,
        now: Instant,
    ) -> Self {
        Self {
            key,
            who,
            is_viewed: true,
            park: None,
            link: entry.upstream,
            entry,
            action,
            permit,
            outgoing,
            progress,
            terms,
            round,
            deadline: Deadline::new(now, IDLE, LONGEST),
            on_stream: OnStream::default(),
            asking: None,
            gathered: Gathered::default(),
            following: None,
            waits: None,
            turn: None,
        }
    }

    /// Whether its client waits for that upstream alone.
    pub(super) fn waits_for(&self, link: usize) -> bool {
        let rests = self.following.as_ref().is_some_and(|following| following.due().is_some());
        self.link == link && self.is_viewed && self.asking.is_none() && self.waits.is_none() && !rests
    }

    /// Whether its client is asked by requests.
    fn asks_on_stream(&self) -> bool {
        !self.who.is_modern()
    }

    fn go(&mut self, gateway: &mut Gateway, links: &mut [Link]) -> bool {
        if links[self.link].era() == Era::Legacy && task::is_required(&self.entry.definition) {
            return self.send_as_task(gateway, links);
        }
        self.hand_over(&self.outgoing, gateway, links);
        true
    }

    fn hand_over(&self, outgoing: &Outgoing, gateway: &Gateway, links: &mut [Link]) {
        let party = outgoing.party.clone();
        let port = Port { key: self.key, party, askable: outgoing.can_be_asked, events: gateway.events.clone() };
        links[self.link].call(&self.permit, outgoing, port);
    }

    fn fail(&mut self, gateway: &mut Gateway, failure: &Failure) -> bool {
        self.end(gateway, &Ok(failure.tool_result(self.key, self.who.revision)))
    }

    /// The call ends: its client is told, and what it was asked is taken back.
    fn end(&mut self, gateway: &mut Gateway, answer: &ClientAnswer) -> bool {
        self.close(gateway);
        if self.is_viewed {
            gateway.answer(&self.who, answer);
        }
        self.change_turn(None, gateway);
        // Its outcome waits for a client whose response was lost.
        let park = self.park.as_mut().map(|(_, park)| park.leave(gateway.now));
        self.is_viewed = false;
        park.is_some()
    }

    fn close(&mut self, gateway: &mut Gateway) {
        let open: Vec<u64> = self.on_stream.close().map(|shown| shown.wait).collect();
        let asking = self.asking.take().and_then(|(_, open)| open).map(|(_, ask, _)| ask);
        for ask in open.into_iter().chain(asking) {
            self.take_back(ask, gateway);
        }
    }

    fn take_back(&self, ask: u64, gateway: &mut Gateway) {
        gateway.close(ask);
        let params = RawJson::trusted(format!(r#"{{"requestId":"ask-{ask}"}}"#));
        gateway.tell(&self.who, encode_notification("notifications/cancelled", Some(&params)));
    }

    /// What its upstream says.
    pub(super) fn event(
        &mut self,
        event: ExchangeEvent,
        gateway: &mut Gateway,
        links: &mut [Link],
        chance: &mut Chance,
    ) -> bool {
        let Some(following) = &mut self.following else { return self.hear(event, gateway, links, chance) };
        let ExchangeEvent::Done(outcome) = event else { return self.hear(event, gateway, links, chance) };
        let entry = self.entry;
        let read = |raw: &RawJson| Task::got(raw, entry.upstream_name.as_str());
        if let Some(errand) = following.answered(outcome, read, IDLE, gateway.now) {
            self.errand(errand, gateway, links);
        }
        self.follow(gateway, links, chance)
    }

    /// What comes of the call, whatever it is upstream.
    fn hear(&mut self, event: ExchangeEvent, gateway: &mut Gateway, links: &mut [Link], chance: &mut Chance) -> bool {
        match &mut self.park {
            Some((id, park)) => {
                if matches!(event, ExchangeEvent::Done(_)) {
                    gateway.parks.ended(id, gateway.now);
                }
                let act = park.hear(event, gateway.now);
                self.rest(gateway, links);
                act.is_none_or(|act| self.act(act, gateway, links, chance))
            }
            None => self.show(event, gateway, links, chance),
        }
    }

    /// With nobody here who could answer, a call that asks waits for its client.
    fn rest(&mut self, gateway: &mut Gateway, links: &mut [Link]) {
        if !self.is_viewed && self.park.as_ref().is_some_and(|(_, park)| park.asks()) {
            links[self.link].parked(self.key);
            self.change_turn(None, gateway);
        }
    }

    /// Does what follows for a parked call.
    fn act(&mut self, act: Act, gateway: &mut Gateway, links: &mut [Link], chance: &mut Chance) -> bool {
        match act {
            Act::Reply(id, answer) => self.tell_server(&id, answer, gateway, links),
            Act::Show(event) if self.is_viewed => return self.show(event, gateway, links, chance),
            Act::Show(_) => {}
        }
        true
    }

    /// Passes on what the request that waits for the call is to know.
    fn show(&mut self, event: ExchangeEvent, gateway: &mut Gateway, links: &mut [Link], chance: &mut Chance) -> bool {
        match event {
            ExchangeEvent::Progress(params) => self.progress(&params, gateway),
            ExchangeEvent::Ask(request) => self.asked(request, gateway, links, chance),
            ExchangeEvent::Withdrawn(id) => self.withdrawn(&id, gateway),
            ExchangeEvent::Done(outcome) => self.done(outcome, gateway, links, chance),
            ExchangeEvent::Alive => {
                self.deadline.progressed(gateway.now);
                true
            }
            ExchangeEvent::Log(_) | ExchangeEvent::Notice(_) => true,
        }
    }

    fn progress(&mut self, params: &RawJson, gateway: &mut Gateway) -> bool {
        self.deadline.progressed(gateway.now);
        let relayed = self.progress.as_mut().and_then(|progress| progress.relay(params));
        if let Some(params) = relayed.filter(|_| self.is_viewed) {
            gateway.tell(&self.who, encode_notification("notifications/progress", Some(&params)));
        }
        true
    }

    /// Answers a question under the name that it has here.
    fn reply(&mut self, id: &RawJson, answer: ClientAnswer, gateway: &Gateway, links: &mut [Link]) {
        let act = match &mut self.park {
            Some((_, park)) => park.answer(id, answer),
            None => Some(Act::Reply(id.clone(), answer)),
        };
        if let Some(Act::Reply(id, answer)) = act {
            self.tell_server(&id, answer, gateway, links);
        }
    }

    /// A legacy server asks.
    fn asked(
        &mut self,
        request: ServerRequest,
        gateway: &mut Gateway,
        links: &mut [Link],
        chance: &mut Chance,
    ) -> bool {
        let ServerRequest { id, method, params } = &request;
        let judged = match InputRequest::of_legacy(method, params.as_ref(), &self.terms) {
            Ok(judged) => judged,
            Err(why) => {
                let no = if why.is_declined() { refused(method) } else { unable(method) };
                self.reply(id, no, gateway, links);
                return true;
            }
        };
        if self.asks_on_stream() {
            let judged = judged.for_revision(self.who.revision, || "page".to_owned()).ok();
            match judged.filter(|_| self.on_stream.has_room() && self.is_viewed) {
                Some(judged) => {
                    let ask = gateway.ask(&self.who, self.key, &judged);
                    self.on_stream.shown(Question { key: request.id, request: judged }, ask, gateway.now);
                }
                None => self.reply(id, unable(method), gateway, links),
            }
            return true;
        }
        if self.park.is_some() {
            self.gathered.add(Question { key: request.id, request: judged }, gateway.now);
            return true;
        }
        let park = chance.bytes();
        if !gateway.parks.enter(park, &self.who.caller, self.key) {
            self.reply(id, unable(method), gateway, links);
            return true;
        }
        self.park = Some((park, Park::new(gateway.now)));
        self.hear(ExchangeEvent::Ask(request), gateway, links, chance)
    }

    /// The server wants no answer to that request any more.
    fn withdrawn(&mut self, id: &RawJson, gateway: &mut Gateway) -> bool {
        if let Some(shown) = self.on_stream.withdraw(id) {
            self.take_back(shown.wait, gateway);
            self.settle(gateway.now);
        }
        self.gathered.withdraw(id);
        true
    }

    fn settle(&mut self, now: Instant) {
        if let Some(asked) = self.on_stream.settled(now) {
            self.deadline.asked_for(asked, now);
        }
    }

    /// A legacy client answers.
    pub(super) fn answered(
        &mut self,
        ask: u64,
        answer: ClientAnswer,
        gateway: &mut Gateway,
        links: &mut [Link],
    ) -> bool {
        if let Some((mut round, open)) = self.asking.take() {
            let Some((question, _, _)) = open else { return true };
            if let Err(why) = round.answered(&question, Some(answer)) {
                return self.fail(gateway, &Failure::new(Reason::UpstreamProtocol, Executed::Unknown, why));
            }
            return self.talk(round, gateway, links);
        }
        let at = self.on_stream.iter_mut().position(|shown| shown.wait == ask);
        if let Some(shown) = at.and_then(|at| self.on_stream.end(at)) {
            self.tell_server(&shown.question.key, answer, gateway, links);
            self.settle(gateway.now);
        }
        true
    }

    /// Asks the next question of a round, or goes on with the call.
    fn talk(&mut self, mut round: Round, gateway: &mut Gateway, links: &mut [Link]) -> bool {
        if let Some(question) = round.next_question() {
            let ask = gateway.ask(&self.who, self.key, &question.request);
            self.asking = Some((round, Some((question, ask, gateway.now + PATIENCE))));
            return true;
        }
        let (responses, state) = round.into_answers();
        self.outgoing.body.set("inputResponses", responses);
        self.outgoing.body.remove("requestState");
        if let Some(state) = state {
            self.outgoing.body.set("requestState", RawJson::string(&state));
        }
        self.outgoing.resumed = true;
        self.deadline = Deadline::new(gateway.now, IDLE, LONGEST);
        self.send(gateway, links)
    }

    /// The upstream says how it ended.
    fn done(&mut self, outcome: Outcome, gateway: &mut Gateway, links: &mut [Link], chance: &mut Chance) -> bool {
        if !self.is_viewed {
            return false;
        }
        self.gathered = Gathered::default();
        match outcome {
            Outcome::Failed(failure) => self.fail(gateway, &failure),
            Outcome::Result { raw, era } if era == Era::Modern && !is_complete(&raw) => {
                self.asks_by_result(&raw, gateway, links, chance)
            }
            Outcome::Result { raw, era } => match project::result(Method::ToolsCall, raw, era, self.who.revision) {
                Some(shown) => self.end(gateway, &Ok(shown)),
                None => self.fail(gateway, &Failure::malformed()),
            },
            Outcome::Error { raw } if !self.may_be_task() && TASKS.alone_is_wanted(&raw) => {
                self.send_as_task(gateway, links)
            }
            Outcome::Error { raw } => match self.pages(&raw, gateway, chance) {
                Some(result) => self.end(gateway, &Ok(result)),
                None => self.end(gateway, &Err(raw)),
            },
        }
    }

    /// Another request of the client is here, with its answers.
    pub(super) fn attach(
        &mut self,
        who: Who,
        (round, progress): (u8, Option<Progress>),
        answers: Option<&RawJson>,
        gateway: &mut Gateway,
        links: &mut [Link],
        chance: &mut Chance,
    ) -> bool {
        if self.is_viewed {
            gateway.refuse(&self.who.clone(), Reason::UpstreamProtocol, "the same request was sent again");
        }
        (self.who, self.round, self.progress, self.is_viewed) = (who, round, progress, true);
        self.gathered = Gathered::default();
        self.deadline = Deadline::new(gateway.now, IDLE, LONGEST);
        let answers = answers.and_then(|raw| RawObject::parse(raw).ok()).unwrap_or_default();
        let acts = self.park.as_mut().map(|(_, park)| park.attach(&answers)).unwrap_or_default();
        acts.into_iter().all(|act| self.act(act, gateway, links, chance))
    }

    /// Nobody wants it any more.
    pub(super) fn give_up(&mut self, gateway: &mut Gateway, links: &mut [Link]) -> bool {
        let acts: Vec<Act> = self.park.iter_mut().flat_map(|(_, park)| park.end()).collect();
        for act in acts {
            if let Act::Reply(id, answer) = act {
                self.tell_server(&id, answer, gateway, links);
            }
        }
        links[self.link].cancel(self.key, gateway.now);
        if let Some(id) = self.following.as_ref().and_then(Following::running) {
            let cancel = self.about_task(Method::TasksCancel, id, None);
            let party = cancel.party.clone();
            let port = Port { key: gateway.new_key(), party, askable: false, events: gateway.events.clone() };
            links[self.link].call(&self.permit, &cancel, port);
        }
        self.close(gateway);
        false
    }

    /// Its client is gone. A parked call stays for one that comes back; of others some run on, and the others are cancelled.
    pub(super) fn left(&mut self, runs_on: bool, gateway: &mut Gateway, links: &mut [Link]) -> bool {
        if self.park.is_none() && (!runs_on || self.asking.is_some()) {
            return self.give_up(gateway, links);
        }
        self.is_viewed = false;
        self.gathered = Gathered::default();
        if let Some((_, park)) = &mut self.park {
            park.leave(gateway.now);
            self.rest(gateway, links);
        }
        let open: Vec<_> = self.on_stream.close().collect();
        for shown in open {
            let no = declined(&shown.question.request.method);
            self.tell_server(&shown.question.key, no, gateway, links);
            gateway.close(shown.wait);
        }
        true
    }

    /// Time has passed.
    pub(super) fn pass(&mut self, gateway: &mut Gateway, links: &mut [Link], chance: &mut Chance) -> bool {
        let now = gateway.now;
        if self.waits.is_some() {
            return self.pass_waiting(gateway, links);
        }
        if let Some(errand) = self.following.as_mut().and_then(|following| following.ask_after(now)) {
            self.errand(errand, gateway, links);
        }
        if !self.is_viewed {
            let due = self.park.as_ref().map_or(Some(self.deadline.at()), |(_, park)| park.due());
            return due.is_none_or(|due| due > now) || self.give_up(gateway, links);
        }
        if self.gathered.due().is_some_and(|due| due <= now) {
            return self.inquire(gateway, links, chance);
        }
        while let Some(shown) = self.on_stream.late(now) {
            let no = declined(&shown.question.request.method);
            self.tell_server(&shown.question.key, no, gateway, links);
            self.take_back(shown.wait, gateway);
            self.settle(now);
        }
        if let Some((_, Some((_, _, until)))) = &self.asking {
            let is_late = *until <= now;
            let failure = Failure::new(Reason::UpstreamProtocol, Executed::Unknown, "no answer in time");
            return !is_late || self.fail(gateway, &failure);
        }
        if self.on_stream.is_empty() && self.gathered.due().is_none() && self.deadline.at() <= now {
            assert!(!gateway.rests || links[self.link].is_http(), "a call waits for ever, and nothing goes on");
            let failure = Failure::new(Reason::UpstreamTimeout, Executed::Unknown, "no answer in time");
            self.fail(gateway, &failure);
            return self.give_up(gateway, links);
        }
        true
    }
}
