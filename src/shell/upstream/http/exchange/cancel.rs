//! Ends of requests. In a legacy session a cancellation is repeated until the server accepts it,
//! and followed by a ping: until its answer, messages on the session's own stream may be about the
//! cancelled call.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{HeaderValue, Method as HttpMethod};

use super::{ExchangeStep, HttpLink, HttpPost, PostStage, SessionRenewal};
use crate::base::clock;
use crate::mcp::method::Method;
use crate::upstream::http::parts::HeaderFields;
use crate::wire::json::raw::RawJson;
use crate::wire::message;

/// How long the server may take to accept a cancellation, and to answer the ping.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Waits before a cancellation that the server did not accept is repeated.
const AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// How long a message on the session's own stream may arrive after an answer that was sent later,
/// because the stream is another connection.
const BEHIND: Duration = Duration::from_millis(100);

impl HttpPost {
    /// Ends the request, and cancels it at the server if it may still run there.
    pub(super) fn end(&mut self, step: ExchangeStep) -> ExchangeStep {
        if matches!(&step, ExchangeStep::Failed(error, _) if error.may_run()) {
            self.cancel();
        }
        let stage = std::mem::replace(&mut self.stage, PostStage::Ended);
        // A server may end its stream a moment after the answer. Reading the rest keeps its
        // connection for the next call.
        if let (ExchangeStep::Answer(_), PostStage::Body(reader)) = (&step, stage)
            && let Some(rest) = reader.into_rest()
        {
            self.link.drain(rest);
        }
        step
    }

    /// Cancels a request at a legacy server by message. For a modern server, closing the response
    /// is the whole cancellation.
    pub(super) fn cancel(&self) {
        let sent = matches!(
            self.stage,
            PostStage::Head(_)
                | PostStage::Body(_)
                | PostStage::Unspoken(..)
                | PostStage::Pause(..)
                | PostStage::Resume(..)
        );
        if sent && !self.quiet && !self.link.is_modern() {
            self.link.cancel_later(self.id);
        }
    }
}

impl HttpLink {
    /// Cancels a call that was sent, in a task of its own.
    pub(super) fn cancel_later(self: &Arc<Self>, id: u64) {
        self.desk.lock().attribution.doubt.cancelled();
        let (link, session) = (Arc::clone(self), self.session.load_full());
        let stop = self.parts.tasks.stop_token().clone();
        self.parts.tasks.spawn("cancellation", async move {
            let session = session.as_deref();
            let is_told = link.tell_cancelled(id, session).await;
            tokio::select! {
                () = link.cancel(id, session, is_told) => {}
                () = stop.cancelled() => {}
            }
        });
    }

    /// Sends the cancellation. Returns whether the server has accepted it, or has no such session
    /// any more.
    async fn tell_cancelled(&self, id: u64, session: Option<&HeaderValue>) -> bool {
        if !self.is_in(session) {
            return true;
        }
        let params =
            RawJson::trusted(format!(r#"{{"requestId":{id},"reason":"the answer is not waited for any more"}}"#));
        let bytes = message::encode_notification("notifications/cancelled", Some(&params));
        let request = self.request(HttpMethod::POST, bytes, &HeaderFields::default());
        let answered = tokio::time::timeout(ANSWER_TIME, self.send(request)).await;
        matches!(answered, Ok(Ok(response)) if !response.status().is_server_error())
    }

    /// Repeats the cancellation until it is accepted, then sends a ping.
    async fn cancel(self: &Arc<Self>, id: u64, session: Option<&HeaderValue>, is_told: bool) {
        for wait in AGAIN.into_iter().filter(|_| !is_told) {
            tokio::time::sleep(wait).await;
            if self.tell_cancelled(id, session).await {
                break;
            }
        }
        {
            let mut desk = self.desk.lock();
            if !self.is_in(session) {
                return;
            }
            desk.attribution.doubt.delivered(self.ids.load(Ordering::Relaxed));
        }
        self.ping(session).await;
    }

    /// Pings until an answer ends the doubt, unless another task does that already.
    async fn ping(self: &Arc<Self>, session: Option<&HeaderValue>) {
        while self.desk.lock().attribution.doubt.pings(clock::now() + ANSWER_TIME) {
            let number = self.ids.load(Ordering::Relaxed);
            let answered =
                tokio::time::timeout(ANSWER_TIME, self.ask_within(Method::Ping, None, SessionRenewal::Never)).await;
            if matches!(answered, Ok(Ok(_))) {
                tokio::time::sleep(BEHIND).await;
            }
            let mut desk = self.desk.lock();
            if !self.is_in(session) {
                return;
            }
            desk.attribution.doubt.ping_ended();
            if !matches!(answered, Ok(Ok(_))) {
                // The answer to the next call ends the doubt.
                return;
            }
            desk.attribution.doubt.answered(number);
        }
    }

    /// Ends the doubt about calls that were cancelled before this one, shortly after this one was
    /// answered.
    pub(super) fn clear_later(self: &Arc<Self>, number: u64) {
        let link = Arc::clone(self);
        self.parts.tasks.spawn("doubt", async move {
            tokio::time::sleep(BEHIND).await;
            link.desk.lock().attribution.doubt.answered(number);
        });
    }
}
