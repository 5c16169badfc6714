//! The session's own stream, on which a legacy server may ask about any of its calls, and the doubt about it after a cancellation.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{Http, Post};
use crate::engine::ask::unable;
use crate::engine::doubt::Doubt;
use crate::engine::peer::CallPort as _;
use crate::engine::unasked::{Asked, Stream as On, Told, asked, told};
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
    doubt: Doubt,
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

    pub(super) fn answered(&mut self, id: u64) {
        if self.doubt.is_open() {
            self.answered.push(id);
        }
    }

    pub(super) fn is_in_doubt(&self) -> bool {
        self.doubt.is_open()
    }
}

impl Http {
    /// Asks for the stream of a session that was just opened, which knows nothing of the one before.
    pub(super) fn listen(&mut self, session: Option<u64>) {
        self.numbers += 1;
        let (number, body) = (self.numbers, Bytes::new());
        self.to_server.push_back(Post { number, session, body, after: None, listens: true });
        self.own = Own { stream: Some((number, SseDecoder::new(1 << 16))), ..Own::default() };
    }

    pub(super) fn tell_cancelled(&mut self, id: u64) {
        let params = RawJson::trusted(format!(r#"{{"requestId":{id}}}"#));
        let session = self.session;
        let number = self.post(encode_notification("notifications/cancelled", Some(&params)), session);
        self.own.doubt.cancelled();
        self.own.cancels.push(number);
    }

    /// A request has reached the server.
    pub(super) fn has_arrived(&mut self, number: u64, now: Instant) {
        let before = self.own.cancels.len();
        self.own.cancels.retain(|cancels| *cancels != number);
        if self.own.cancels.len() < before {
            self.own.doubt.delivered(self.ids + 1);
            self.ping(now);
        }
    }

    fn ping(&mut self, now: Instant) {
        if self.own.doubt.pings(now + PING_TIME) {
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
            self.own.doubt.answered(id);
        }
        self.ping(now);
    }

    /// Bytes of the stream, or of the answer to a ping. Whether they are.
    pub(super) fn reads_own(&mut self, number: u64, status: u16, piece: &Bytes, now: Instant) -> bool {
        if let Some((id, _)) = self.own.ping.filter(|(_, ping)| *ping == number) {
            self.own.ping = None;
            self.own.doubt.ping_ended();
            if status == 200 {
                self.own.answered(id);
            }
            self.clears(now);
            return true;
        }
        let Some((_, decoder)) = self.own.stream.as_mut().filter(|(own, _)| *own == number) else { return false };
        decoder.push(piece.clone());
        while let Some(event) = self.own.stream.as_mut().and_then(|(_, decoder)| decoder.next_event()) {
            self.heard_aside(event.unwrap().data);
        }
        true
    }

    fn heard_aside(&mut self, message: Bytes) {
        let heard = self.ear.hear(&Frame::from_upstream(message).unwrap()).unwrap();
        match heard.message {
            Message::Request(request) => {
                let calls: Vec<u64> = self.calls.iter().map(|call| call.id).collect();
                let candidates = self.asked.candidates(calls.into_iter(), &self.own.doubt);
                let answer = match asked(&request, &self.declared, candidates, &mut self.asked) {
                    Asked::Answered(answer, _) => answer,
                    Asked::Client(question, id) => {
                        let call = self.calls.iter_mut().find(|call| call.id == id).expect("it is in flight");
                        if call.port.ask(question) {
                            return;
                        }
                        self.asked.take(request.id.raw());
                        unable(&request.method)
                    }
                };
                let session = self.session;
                self.post(encode_answer(request.id.raw(), &answer), session);
            }
            Message::Notification(notice) => {
                let Told::Withdrawn(id) = told(notice, On::Shared) else { return };
                let Some(call) = self.asked.take(&id) else { return };
                if let Some(call) = self.calls.iter_mut().find(|sent| sent.id == call) {
                    call.port.withdrawn(&id);
                }
            }
            Message::Response(_) => panic!("a server that keeps the protocol answers where it was asked"),
        }
    }
}
