//! Sends requests again that the server has not processed: with another token, in another session,
//! or at the address that it redirects to.

use std::future::{Future as _, poll_fn};
use std::pin::pin;

use http::{Method as HttpMethod, Response};

use super::{ExchangeStep, HttpPost, PostStage};
use crate::upstream::http::parts::SESSION;
use crate::upstream::http::remote::is_refusal;
use crate::upstream::login::tokens::TokenAttempts;
use crate::upstream::net::connections::AnswerBody;
use crate::upstream::state::http_error::HttpError;

impl HttpPost {
    /// Adds the credentials to the unsent request. Sets `has_waited` if that took a wait.
    /// Cancel-safe.
    ///
    /// # Errors
    /// As [`Remote::authorize`](crate::upstream::http::remote::RemoteServer::authorize).
    pub(super) async fn authorize(&mut self) -> Result<(), HttpError> {
        let Self { link, unsent, has_waited, .. } = self;
        let mut authorizing = pin!(link.parts.remote.authorize(unsent));
        let authorized = poll_fn(|cx| {
            let polled = authorizing.as_mut().poll(cx);
            *has_waited |= polled.is_pending();
            polled
        });
        self.pass = authorized.await?;
        Ok(())
    }

    /// Takes back the decision to write the request, because another event of the call comes first:
    /// the call is checked again before the request is written.
    pub(super) fn wait_again(&mut self) {
        if let PostStage::Ready = self.stage {
            self.stage = PostStage::Unsent;
        }
    }

    /// Handles the head of an answer: prepares the request to be sent again after a redirect,
    /// starts to get another token after a refusal of the token, and passes any other answer on.
    pub(super) fn began(&mut self, response: Response<AnswerBody>) -> Result<PostStage, ExchangeStep> {
        let remote = &self.link.parts.remote;
        let to = remote.redirected(&response, &self.address, self.is_redirected);
        if to.map_err(|error| ExchangeStep::Failed(error, None))?.is_some() {
            self.link.drain(response.into_body());
            self.is_redirected = true;
            self.write_anew();
            return Ok(PostStage::Unsent);
        }
        if self.may_go_again(&response) { Ok(self.judging(response)) } else { self.head(response) }
    }

    /// Returns whether the answer is a 401 or 403 of a server whose tokens come from a login, so
    /// that another token may help. Attempts are not counted here.
    pub(super) fn may_go_again(&self, response: &Response<AnswerBody>) -> bool {
        self.link.parts.remote.may_log_in() && is_refusal(response.status())
    }

    /// Starts to get another token for the refused request, if that can help; [`Self::judged`]
    /// takes the result.
    pub(super) fn judging(&mut self, response: Response<AnswerBody>) -> PostStage {
        let attempts = self.attempts.take().unwrap_or_default();
        PostStage::Refused(self.link.parts.remote.judge(&response, self.pass, attempts), Some(Box::new(response)))
    }

    /// Prepares the request to be sent again if `again` says so, and drains the refusal; else
    /// accepts the refusal as the answer.
    pub(super) fn judged(
        &mut self,
        again: bool,
        attempts: TokenAttempts,
        response: Option<Box<Response<AnswerBody>>>,
    ) -> Result<PostStage, ExchangeStep> {
        self.attempts = Some(attempts);
        match (again, response) {
            (true, response) => {
                if let Some(response) = response {
                    self.link.drain(response.into_body());
                }
                self.write_anew();
                Ok(PostStage::Unsent)
            }
            (false, Some(response)) => self.head(*response),
            (false, None) => Err(ExchangeStep::Failed(HttpError::Broken("ended".to_owned()), None)),
        }
    }

    /// Moves the unsent request to the current session, and marks it as having waited.
    pub(super) fn enter(&mut self) {
        self.has_waited = true;
        self.number = self.link.number();
        self.session = self.link.session.load_full().map(|session| session.as_ref().clone());
        let headers = self.unsent.headers_mut();
        headers.remove(&SESSION);
        headers.extend(self.session.clone().map(|session| (SESSION.clone(), session)));
    }

    /// Creates the request anew, to send the message once more.
    pub(super) fn write_anew(&mut self) {
        self.unsent = self.link.request(HttpMethod::POST, self.bytes.clone(), &self.fields);
        self.address = self.unsent.uri().clone();
        self.enter();
    }
}
