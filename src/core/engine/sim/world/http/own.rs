//! The session's own stream, on which a legacy server may ask about any of its calls, and the doubt about it after a cancellation.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{Http, Post, in_flight};
use crate::engine::ask::{declined, unable};
use crate::engine::attribution::{End, Settled, Step};
use crate::engine::peer::CallPort as _;
use crate::engine::sim::world::link::Port;
use crate::engine::turns::Gate;
use crate::engine::unasked::{Asked, Stream as On, Told, told};
use crate::mcp::method::Method;
use crate::wire::frame::Frame;
use crate::wire::message::{Message, encode_answer, encode_notification, encode_request};
use crate::wire::raw::RawJson;
use crate::wire::sse::SseDecoder;

const PING_TIME: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Own {
    /// The request that reads it.
    stream: Option<(u64, SseDecoder)>,
    /// Cancellations on their way.
    cancels: Vec<u64>,
    /// The ping that is under way: its id and its request.
    ping: Option<(u64, u64)>,
    /// Ids of answers that end a doubt as soon as what was said before them has arrived.
    answered: Vec<u64>,
}

impl Own {
    pub(super) fn cancels(&self, number: u64) -> bool {
        self.cancels.contains(&number)
    }

    pub(super) fn answered(&mut self, id: u64, in_doubt: bool) {
        if in_doubt {
            self.answered.push(id);
        }
    }
}

impl Http {
    /// Asks for the stream of a session that was just opened, which knows nothing of the one before.
    pub(super) fn listen(&mut self, session: Option<u64>) {
        self.numbers += 1;
        let (number, body) = (self.numbers, Bytes::new());
        self.to_server.push_back(Post { number, session, body, after: None, listens: true });
        self.attribution.forget();
        self.own = Own { stream: Some((number, SseDecoder::new(1 << 16))), ..Own::default() };
    }

    pub(super) fn tell_cancelled(&mut self, id: u64) {
        let params = RawJson::trusted(format!(r#"{{"requestId":{id}}}"#));
        let session = self.session;
        let number = self.post(encode_notification("notifications/cancelled", Some(&params)), session);
        self.attribution.doubt.cancelled();
        self.own.cancels.push(number);
    }

    /// A request has reached the server.
    pub(super) fn has_arrived(&mut self, number: u64, now: Instant) {
        let before = self.own.cancels.len();
        self.own.cancels.retain(|cancels| *cancels != number);
        if self.own.cancels.len() < before {
            self.attribution.doubt.delivered(self.ids + 1);
            self.ping(now);
        }
    }

    fn ping(&mut self, now: Instant) {
        if self.attribution.doubt.pings(now + PING_TIME) {
            self.ids += 1;
            let (id, session) = (self.ids, self.session);
            let body = encode_request(&RawJson::trusted(id.to_string()), Method::Ping.as_str(), None);
            let number = self.post(body, session);
            self.own.ping = Some((id, number));
        }
    }

    /// What was said on the stream before these answers has arrived with them.
    pub(super) fn clears(&mut self, now: Instant) {
        let own = self.own.stream.as_ref().map(|(number, _)| *number);
        if self.own.answered.is_empty()
            || self.streams.iter().any(|stream| Some(stream.number) == own && stream.moves())
        {
            return;
        }
        for id in std::mem::take(&mut self.own.answered) {
            self.attribution.doubt.answered(id);
        }
        self.ping(now);
    }

    /// Bytes of the stream, or of the answer to a ping. Whether they are.
    pub(super) fn reads_own(&mut self, number: u64, status: u16, piece: &Bytes, now: Instant) -> bool {
        if let Some((id, _)) = self.own.ping.filter(|(_, ping)| *ping == number) {
            self.own.ping = None;
            self.attribution.doubt.ping_ended();
            if status == 200 {
                self.own.answered(id, self.attribution.doubt.is_open());
            }
            self.clears(now);
            return true;
        }
        let Some((_, decoder)) = self.own.stream.as_mut().filter(|(own, _)| *own == number) else { return false };
        decoder.push(piece.clone());
        while let Some(event) = self.own.stream.as_mut().and_then(|(_, decoder)| decoder.next_event()) {
            self.heard_aside(event.unwrap().data, now);
        }
        true
    }

    /// A call has left. Nobody answers what was asked in the middle of it, and what waited for that may go on.
    pub(super) fn left_by(&mut self, id: u64, port: &Port, end: End, now: Instant) {
        let step = self.attribution.ended((id, &port.party), end, || in_flight(&self.calls), now);
        for request in self.attribution.open.of_call(id) {
            let session = self.session;
            self.post(encode_answer(&request.id, &declined(&request.method)), session);
        }
        self.settle(step);
    }

    /// Asks clients, and answers what is not for one.
    pub(super) fn settle(&mut self, step: Step) {
        for Settled { request, asked } in step.settled {
            let answer = match asked {
                Asked::Answered(answer, _) => answer,
                Asked::Client(question, id) => {
                    let call = self.calls.iter_mut().find(|call| call.id == id);
                    if call.is_some_and(|call| call.port.ask(question)) {
                        continue;
                    }
                    self.attribution.open.take(request.id.raw());
                    unable(&request.method)
                }
            };
            let session = self.session;
            self.post(encode_answer(request.id.raw(), &answer), session);
        }
    }

    pub(in crate::engine::sim::world) fn poll_gate(&mut self) -> Option<Gate> {
        self.attribution.poll_gate()
    }

    fn heard_aside(&mut self, message: Bytes, now: Instant) {
        let heard = self.ear.hear(&Frame::from_upstream(message).unwrap()).unwrap();
        match heard.message {
            Message::Request(request) => {
                let step = self.attribution.heard(&request, &in_flight(&self.calls), now);
                self.settle(step);
            }
            Message::Notification(notice) => {
                let Told::Withdrawn(id) = told(notice, On::Shared) else { return };
                if self.attribution.withdrawn(&id) {
                    return;
                }
                let Some(call) = self.attribution.open.take(&id) else { return };
                if let Some(call) = self.calls.iter_mut().find(|sent| sent.id == call) {
                    call.port.withdrawn(&id);
                }
            }
            Message::Response(_) => panic!("a server that keeps the protocol answers where it was asked"),
        }
    }
}
