//! Answers a batch of messages of a legacy session.

use std::collections::VecDeque;

use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use http::StatusCode;

use super::{AuthenticatedRequest, HttpReply};
use crate::engine::answer::RequestAnswer;
use crate::engine::client::ClientAction;
use crate::engine::client::heard::ClientBatch;
use crate::engine::route::RequestParams;
use crate::gateway::client::ClientContext;
use crate::gateway::waiting::client_call::RequestOutcome;
use crate::listener::pieces::MessageSlices;
use crate::listener::reply;
use crate::serve::http_response::{HttpCall, SessionRequest};
use crate::serve::modern::RequestHeaders;
use crate::wire::code;
use crate::wire::json::raw::RawJson;
use crate::wire::message::{self, Request};

impl AuthenticatedRequest<'_> {
    /// Handles all messages of a batch and responds with their answers, once the last one is there.
    pub(super) async fn batch(&self, batch: ClientBatch, requests: usize) -> HttpReply {
        let session = self.session_of_header(true).await;
        if let Some(text) = batch.refusal(session.as_ref().ok().map(|session| session.client.revision)) {
            return reply::refusal(StatusCode::BAD_REQUEST, text);
        }
        // The POST has been counted as one request already.
        let admitted = self.front.admit(&self.caller, requests.saturating_sub(1));
        let session = match admitted.and(session) {
            Ok(session) => session,
            Err(response) => return *response,
        };
        self.front.service.settled().await;
        let client = self.in_session(&session);
        let (mut answers, mut served, mut told) = (Vec::<MessageSlices>::new(), Vec::new(), Vec::new());
        for said in batch.into_messages() {
            let step = session.protocol.lock().heard(said, Some(&RequestHeaders(self.headers)));
            match step {
                ClientAction::Serve(one) => {
                    let entered = SessionRequest::new(&session, &one.request.id, one.ticket);
                    served.push((one.request, one.params, entered));
                }
                ClientAction::Answer(id, answer) => answers.push(MessageSlices::answer(id.raw(), answer)),
                ClientAction::Complain(error) => answers.push(message::encode_error(None, &error).into()),
                ClientAction::Nothing
                | ClientAction::Initialize(..)
                | ClientAction::Cancel(_)
                | ClientAction::Initialized
                | ClientAction::Answered(_) => told.push(step),
            }
        }
        let requests = served.iter().map(|(request, params, _)| (&*request.method, params));
        if let Some(refused) = self.front.service.refuse_batch(&client, requests).await {
            return reply::answer(&RawJson::trusted("null"), refused);
        }
        for step in told {
            session.told(step);
        }
        let mut running: FuturesUnordered<_> = served
            .into_iter()
            .map(|(request, params, entered)| self.one_of_batch(&client, request, params, entered))
            .collect();
        while let Some(answer) = futures_util::StreamExt::next(&mut running).await {
            answers.extend(answer);
        }
        if answers.is_empty() {
            return reply::accepted();
        }
        let mut body = VecDeque::new();
        for answer in answers {
            body.push_back(Bytes::from_static(if body.is_empty() { b"[" } else { b"," }));
            body.extend(answer.slices());
        }
        body.push_back(Bytes::from_static(b"]"));
        reply::slices(StatusCode::OK, body)
    }

    /// Answers one request of a batch; `None` if the client cancelled it.
    async fn one_of_batch(
        &self,
        client: &ClientContext,
        request: Request,
        params: RequestParams,
        entered: SessionRequest,
    ) -> Option<MessageSlices> {
        let id = request.id.clone();
        // A question needs a stream, and the other answers of a batch must not wait for a person.
        let client = ClientContext { client_requests: None, can_wait: false, ..client.clone() };
        let answer = match self.front.service.handle(&client, &request, Ok(params)) {
            RequestOutcome::Answer(answer) => answer,
            RequestOutcome::Later(answer) => answer.await,
            RequestOutcome::Overloaded => RequestAnswer::error(code::INTERNAL, "too many calls in flight", None),
            RequestOutcome::Call(call) => {
                let call = HttpCall::new(call, request.id, Some(entered), self.front.keepalive());
                Box::pin(call.answer()).await?
            }
        };
        Some(MessageSlices::answer(id.raw(), answer))
    }
}
