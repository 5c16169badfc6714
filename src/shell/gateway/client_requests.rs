//! Sends requests to a legacy client on the streams of its calls, and matches its responses.

use std::collections::HashMap;
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::base::clock;
use crate::engine::connection::ask::ClientAnswer;
use crate::engine::question::{ClientQuestion, ShownQuestion, StreamQuestions};
use crate::mcp::asking::input::InputRequest;
use crate::mcp::asking::kinds::{InputKinds, retain_input_capabilities};
use crate::wire::json::raw::RawJson;
use crate::wire::message::{Response, encode_notification, encode_request};

/// Most open questions to one client.
const MAX_OPEN: usize = 64;

/// Open questions to one client, and the kinds of question that it can be asked.
#[derive(Debug)]
pub struct ClientRequests {
    pub offered: InputKinds,
    /// Capabilities declared to servers in this client's name.
    pub capabilities: RawJson,
    /// Id of the next question.
    next: AtomicU64,
    open: Mutex<HashMap<u64, oneshot::Sender<ClientAnswer>, RandomState>>,
    is_closed: AtomicBool,
    /// Admits one form of the gateway at a time. The queue is at most as long as the caller has
    /// open approvals.
    turn: Arc<Semaphore>,
}

/// An open question. Dropping it closes it: a later answer is ignored.
#[derive(Debug)]
pub struct PendingRequest {
    client_requests: Arc<ClientRequests>,
    id: u64,
    answer: oneshot::Receiver<ClientAnswer>,
}

impl ClientRequests {
    /// Makes the questions to a client with these capabilities; `None` if it can be asked nothing.
    pub fn new(capabilities: Option<&RawJson>) -> Option<Arc<Self>> {
        Self::from(capabilities, 1)
    }

    /// Like [`Self::new`], for a client that an earlier process may have asked: ids begin at a
    /// random number, so that a late answer matches no question of this process.
    pub fn anew(capabilities: Option<&RawJson>) -> Option<Arc<Self>> {
        Self::from(capabilities, (u64::from(u32::from_be_bytes(clock::random())) + 1) << 20)
    }

    fn from(capabilities: Option<&RawJson>, first: u64) -> Option<Arc<Self>> {
        let capabilities = retain_input_capabilities(capabilities?)?;
        let offered = InputKinds::of(Some(&capabilities));
        let (next, turn) = (AtomicU64::new(first), Arc::new(Semaphore::new(1)));
        Some(Arc::new(Self {
            offered,
            capabilities,
            next,
            open: Mutex::default(),
            is_closed: AtomicBool::new(false),
            turn,
        }))
    }

    /// Opens a question. Returns the message to send, and the open question; `None` if too many are
    /// open or the client answers no more.
    pub fn ask(self: &Arc<Self>, request: &InputRequest) -> Option<(Bytes, PendingRequest)> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        {
            let mut open = self.open.lock();
            if open.len() >= MAX_OPEN || self.is_closed.load(Ordering::Acquire) {
                return None;
            }
            open.insert(id, sender);
        }
        let message = encode_request(&RawJson::string(&wire_id(id)), &request.method, request.params.as_ref());
        Some((message, PendingRequest { client_requests: Arc::clone(self), id, answer }))
    }

    /// Takes the turn for one of the gateway's own forms, if no other form is open.
    pub fn turn_now(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.turn).try_acquire_owned().ok()
    }

    /// Waits for the turn of one of the gateway's own forms, first come, first served. `None` never
    /// happens: the semaphore is not closed.
    pub async fn turn(self: Arc<Self>) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.turn).acquire_owned().await.ok()
    }

    /// Closes all open questions, and each later one at once, since the client answers no more.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.open.lock().clear();
    }

    /// Passes a client's response to its open question. Returns `false` if it answers none.
    pub fn answered(&self, response: Response) -> bool {
        let id = response.id.and_then(|id| id.parse::<String>().ok());
        let id = id.and_then(|id| id.strip_prefix("ask-")?.parse::<u64>().ok());
        let Some(waiting) = id.and_then(|id| self.open.lock().remove(&id)) else { return false };
        // The call may just have ended.
        drop(waiting.send(response.outcome));
        true
    }
}

/// Returns the id on the wire: a string with a prefix, so that it never looks like an id of the
/// client's own.
fn wire_id(id: u64) -> String {
    format!("ask-{id}")
}

impl PendingRequest {
    /// Waits for the answer; `None` when the client is gone. Cancel-safe.
    pub async fn answer(&mut self) -> Option<ClientAnswer> {
        (&mut self.answer).await.ok()
    }

    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<Option<ClientAnswer>> {
        Pin::new(&mut self.answer).poll(context).map(Result::ok)
    }

    /// Returns the notification that withdraws the question.
    pub fn withdrawal(&self, why: &str) -> Bytes {
        let (id, why) = (RawJson::string(&wire_id(self.id)), RawJson::string(why));
        let params = format!(r#"{{"requestId":{},"reason":{}}}"#, id.text(), why.text());
        encode_notification("notifications/cancelled", Some(&RawJson::trusted(params)))
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.client_requests.open.lock().remove(&self.id);
    }
}

/// Opens a question of the call and returns the message for the client; `None` if too many are
/// open.
pub(crate) fn ask(
    open: &mut StreamQuestions<PendingRequest>,
    client_requests: &Arc<ClientRequests>,
    question: ClientQuestion,
) -> Option<Bytes> {
    let (message, wait) = open.has_room().then(|| client_requests.ask(&question.request)).flatten()?;
    open.shown(question, wait, clock::now());
    Some(message)
}

/// Waits for the next question to end, by the client's answer or without one when its time is over.
/// Waits for ever if none is open. Cancel-safe.
pub(crate) async fn next_answer(
    open: &mut StreamQuestions<PendingRequest>,
) -> (ShownQuestion<PendingRequest>, Option<ClientAnswer>) {
    loop {
        let due = open.due();
        let answered = poll_fn(|context| {
            let polls = open.iter_mut().map(|shown| shown.wait.poll_answer(context));
            match polls.enumerate().find(|(_, poll)| poll.is_ready()) {
                Some((at, poll)) => poll.map(|answer| (at, answer)),
                None => Poll::Pending,
            }
        });
        let ended = tokio::select! {
            biased;
            (at, answer) = answered => open.end(at).map(|shown| (shown, answer)),
            () = clock::sleep_until(due) => due.and_then(|due| open.late(due)).map(|shown| (shown, None)),
        };
        if let Some(ended) = ended {
            return ended;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(method: &str) -> InputRequest {
        InputRequest { method: method.to_owned(), params: None }
    }

    fn response(id: &'static str) -> Response {
        Response {
            id: Some(RawJson::trusted(id)),
            outcome: Ok(RawJson::trusted(r#"{"action":"accept"}"#)),
            broken: None,
        }
    }

    #[tokio::test]
    async fn an_answer_reaches_its_question_once() {
        let client_requests =
            ClientRequests::new(Some(&RawJson::trusted(r#"{"elicitation":{},"experimental":{}}"#))).unwrap();
        assert_eq!(client_requests.capabilities.text(), r#"{"elicitation":{}}"#);
        let (message, mut first) = client_requests.ask(&asking("elicitation/create")).unwrap();
        assert!(message.starts_with(br#"{"jsonrpc":"2.0","id":"ask-1""#));
        let (_, second) = client_requests.ask(&asking("roots/list")).unwrap();
        for stray in [r#""ask-9""#, "1", "\"1\""] {
            assert!(!client_requests.answered(response(stray)));
        }
        assert!(client_requests.answered(response(r#""ask-1""#)));
        assert!(matches!(first.answer().await, Some(Ok(_))));
        assert!(!client_requests.answered(response(r#""ask-1""#)));
        drop(second);
        assert!(client_requests.open.lock().is_empty());
    }

    #[tokio::test]
    async fn our_own_forms_come_one_after_the_other() {
        let client_requests = ClientRequests::new(Some(&RawJson::trusted(r#"{"elicitation":{}}"#))).unwrap();
        let first = client_requests.turn_now();
        assert!(first.is_some() && client_requests.turn_now().is_none());
        let mut second = Box::pin(Arc::clone(&client_requests).turn());
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(first);
        assert!(second.await.is_some());
        assert!(client_requests.turn_now().is_some(), "given back");
    }

    #[test]
    fn a_client_without_such_capabilities_is_asked_nothing() {
        for capabilities in [None, Some("{}"), Some(r#"{"experimental":{}}"#)] {
            assert!(ClientRequests::new(capabilities.map(RawJson::trusted).as_ref()).is_none());
        }
    }
}
