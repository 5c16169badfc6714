//! Questions of a legacy server in its session: on the stream of a call, or on the session's own
//! stream, where they may be about any call.

use std::sync::Arc;

use super::HttpLink;
use super::desk::SessionCalls;
use crate::base::clock;
use crate::engine::connection::ask::{CallCandidates, ClientAnswer, ServerRequest, unable_answer};
use crate::engine::connection::attribution::{AttributionResult, CallEnd, SettledQuestion};
use crate::engine::connection::unasked::{MessageStream, RequestDecision, decide_request};
use crate::engine::event::CallEvent;
use crate::engine::fault::ProtocolFault;
use crate::wire::json::raw::RawJson;
use crate::wire::message::{self, Request};

impl HttpLink {
    /// Judges a request on the stream of one of our requests. Requests that no client has to answer
    /// are answered here.
    pub(super) fn asked(self: &Arc<Self>, request: &Request, stream: MessageStream) -> Option<ServerRequest> {
        let candidates = match stream {
            MessageStream::Call(id) | MessageStream::Listening(id) => CallCandidates::One(id.0),
            MessageStream::Own | MessageStream::Shared => CallCandidates::None,
        };
        let judged = {
            let mut desk = self.desk.lock();
            decide_request(request, &self.parts.declared, candidates, &mut desk.attribution.open)
        };
        match judged {
            RequestDecision::Client(asked, _) => Some(asked),
            RequestDecision::Answered(answer, fault) => {
                self.answer(request, &answer, fault);
                None
            }
        }
    }

    /// Handles a request on the session's own stream.
    pub(super) fn asked_aside(self: &Arc<Self>, request: &Request) {
        let step = {
            let mut desk = self.desk.lock();
            let calls = SessionCalls::in_flight(&desk.calls);
            desk.attribution.heard(request, &calls, clock::now())
        };
        self.settle(step);
        let is_new = {
            let mut desk = self.desk.lock();
            let is_held = desk.attribution.until().is_some();
            is_held && !std::mem::replace(&mut desk.is_watched, is_held)
        };
        if is_new {
            let link = Arc::clone(self);
            self.parts.tasks.spawn("question", async move { link.watch().await });
        }
    }

    /// Refuses questions that are held for too long, until none is held.
    async fn watch(self: Arc<Self>) {
        let stop = self.parts.tasks.stop_token().clone();
        loop {
            let until = {
                let mut desk = self.desk.lock();
                desk.is_watched = desk.attribution.until().is_some();
                desk.attribution.until()
            };
            let Some(until) = until else { return };
            tokio::select! {
                () = clock::sleep_until(Some(until)) => {}
                () = stop.cancelled() => return,
            }
            let step = {
                let SessionCalls { calls, attribution, .. } = &mut *self.desk.lock();
                attribution.lapse(|| SessionCalls::in_flight(calls), clock::now())
            };
            self.settle(step);
        }
    }

    /// Removes a call from the session, which may decide whose another question is. Returns the
    /// call's open questions, and whether there is a doubt.
    pub(super) fn call_ended(self: &Arc<Self>, id: u64, end: CallEnd) -> (Vec<ServerRequest>, bool) {
        let (step, open, in_doubt) = {
            let SessionCalls { calls, attribution, .. } = &mut *self.desk.lock();
            let step = calls.remove(&id).map(|called| {
                attribution.ended((id, &called.party), end, || SessionCalls::in_flight(calls), clock::now())
            });
            (step, attribution.open.of_call(id), attribution.doubt.is_open())
        };
        self.settle(step.unwrap_or_default());
        (open, in_doubt)
    }

    /// Records that the client of a call has been given its questions.
    pub(super) fn call_parked(&self, id: u64) {
        let mut desk = self.desk.lock();
        desk.attribution.park(id);
        self.tell_gate(&mut desk);
    }

    /// Passes questions to their calls, and answers those that are for no client.
    fn settle(self: &Arc<Self>, step: AttributionResult) {
        self.tell_gate(&mut self.desk.lock());
        for lesson in &step.learned {
            self.parts.news.turns.learned(&self.parts.upstream, lesson);
        }
        for SettledQuestion { request, asked } in step.settled {
            match asked {
                RequestDecision::Answered(answer, fault) => self.answer(&request, &answer, fault),
                RequestDecision::Client(asked, call) => {
                    if !self.to_call(call, CallEvent::Ask(asked)) {
                        self.gauge().metrics.fault(ProtocolFault::RefusedRequest);
                        self.reply(request.id.raw(), &unable_answer(&request.method));
                    }
                }
            }
        }
    }

    /// Tells new calls whether they may pass. The lock is held, so that the last state is set last.
    pub(super) fn tell_gate(&self, desk: &mut SessionCalls) {
        while let Some(gate) = desk.attribution.poll_gate() {
            self.parts.news.turns.set(gate);
        }
    }

    fn answer(self: &Arc<Self>, request: &Request, answer: &ClientAnswer, fault: Option<ProtocolFault>) {
        fault.into_iter().for_each(|fault| self.gauge().metrics.fault(fault));
        self.tell_later(message::encode_answer(request.id.raw(), answer));
    }

    /// Answers a request of the server if it is still open.
    pub(super) fn reply(self: &Arc<Self>, id: &RawJson, answer: &ClientAnswer) {
        if self.desk.lock().attribution.open.take(id).is_some() {
            self.tell_later(message::encode_answer(id, answer));
        }
    }
}
