//! Handles answers that may mean that the server does not know the session. The server is asked;
//! only if it does not know the session is the request sent once more, in a new session, because
//! then no method has run. Otherwise the answer is final.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::header::WWW_AUTHENTICATE;
use http::{Response, StatusCode};

use super::{DoubtfulAnswer, ExchangeStep, HttpLink, HttpPost, PostStage, SessionRenewal};
use crate::base::clock;
use crate::engine::connection::lost::{
    SessionVerdict, blames_session, is_doubtful, is_lost, lacks_method, names_session,
};
use crate::upstream::http::unspoken::NonMessageAnswer;
use crate::upstream::net::connections::AnswerBody;
use crate::upstream::state::http_error::HttpError;
use crate::upstream::state::standing::CredentialStanding;
use crate::wire::message;

/// Least time between two pings that ask about the session while the server refuses the gateway's
/// credentials.
const PAUSE: Duration = Duration::from_secs(30);

impl HttpLink {
    /// Starts a ping that shows whether the server knows the session of this number, and marks the
    /// session as suspect, so that the next call waits for the result. Does nothing if the session
    /// was replaced.
    fn suspect(self: &Arc<Self>, number: u64) {
        if self.number() != number {
            return;
        }
        self.is_suspect.store(true, Ordering::Relaxed);
        drop(self.probe());
    }

    /// Returns whether a refusal of the credentials may be taken for one of the session, so that
    /// the server is asked: always while its last verdict admits the gateway, else every [`PAUSE`].
    fn may_blame_session(&self) -> bool {
        let probed = Duration::from_millis(self.probed.load(Ordering::Relaxed));
        let is_first = probed.is_zero() || clock::uptime().saturating_sub(probed) > PAUSE;
        self.parts.remote.health.standing() == CredentialStanding::Admitted || is_first
    }
}

impl HttpPost {
    /// Fails the request if the answer refuses the gateway's credentials, and records the verdict
    /// in the upstream's health. In a session, a refusal may be about the session instead: then its
    /// head is kept in `unadmitted`, nothing is recorded yet, and its body decides.
    pub(super) fn admitted(&mut self, response: &Response<AnswerBody>) -> Result<(), ExchangeStep> {
        let remote = &self.link.parts.remote;
        self.unadmitted = None;
        let is_doubtful = self.verdict == SessionVerdict::Doubtful && self.may_be_lost();
        if is_doubtful && remote.is_unadmitted(response, self.pass) {
            let mut head = Response::new(());
            (*head.status_mut(), *head.headers_mut()) = (response.status(), response.headers().clone());
            self.unadmitted = Some(Box::new(head));
            return Ok(());
        }
        remote.admitted(response, self.pass).map_err(|error| ExchangeStep::Failed(error, None))
    }

    /// Returns whether the server may have forgotten the session. After a renewal it has not, and
    /// the answer is final.
    pub(super) fn may_be_lost(&self) -> bool {
        self.session.is_some() && !matches!(self.renewal, SessionRenewal::Done)
    }

    /// Starts to open another session, in which the request is sent again: the server does not know
    /// this one, and has processed nothing. Fails with a 404 if the request must not renew
    /// sessions.
    pub(super) fn lost(&mut self) -> Result<PostStage, ExchangeStep> {
        if matches!(self.renewal, SessionRenewal::Never | SessionRenewal::Look) {
            return Err(ExchangeStep::Failed(HttpError::Status(StatusCode::NOT_FOUND), None));
        }
        self.renewal = SessionRenewal::Done;
        Ok(PostStage::Renew(self.link.renew(self.number)))
    }

    /// Decides by a JSON-RPC response whether the session is lost, whether the server is asked
    /// about it, or whether the response is the request's answer.
    pub(super) fn answered(&mut self, answer: message::Response) -> Result<PostStage, ExchangeStep> {
        let is_ours = answer.id.as_ref().is_some_and(|id| self.is_ours(id));
        if !self.may_be_lost() {
            return Err(self.conclude(DoubtfulAnswer::Answer(answer)));
        }
        match self.verdict {
            // This status is also used for an unknown method.
            SessionVerdict::Lost if is_ours && lacks_method(&answer) => {}
            SessionVerdict::Lost => return self.lost(),
            SessionVerdict::ByBody if is_lost(&answer) => return self.lost(),
            SessionVerdict::ByBody | SessionVerdict::Doubtful if is_doubtful(&answer, is_ours) => {
                return self.refused(DoubtfulAnswer::Answer(answer), true);
            }
            SessionVerdict::Answer if blames_session(&answer) => match self.renewal {
                SessionRenewal::Look => return self.lost(),
                SessionRenewal::Due | SessionRenewal::Done | SessionRenewal::Never => self.link.suspect(self.number),
            },
            SessionVerdict::ByBody | SessionVerdict::Doubtful | SessionVerdict::Failing | SessionVerdict::Answer => {}
        }
        Err(self.conclude(DoubtfulAnswer::Answer(answer)))
    }

    /// Decides as [`Self::refused`] about an answer that is no message and whose beginning was
    /// read. The rest of its body is drained.
    pub(super) fn unspoken(
        &mut self,
        unspoken: Option<Box<NonMessageAnswer>>,
        wait: Option<Duration>,
    ) -> Result<PostStage, ExchangeStep> {
        let Some(unspoken) = unspoken else { return Err(self.conclude(DoubtfulAnswer::None)) };
        let names_it = names_session(unspoken.start());
        let error = self.link.gauge().unspoken(&unspoken);
        self.link.drain(unspoken.into_body());
        self.refused(DoubtfulAnswer::Failed(error, wait), names_it)
    }

    /// Decides as [`Self::refused`] about an answer whose body is no message; fails the request if
    /// the body could not be read at all.
    pub(super) fn unread(&mut self, error: HttpError) -> Result<PostStage, ExchangeStep> {
        let is_no_message = matches!(error, HttpError::Protocol(_));
        let refusal = DoubtfulAnswer::Failed(error, None);
        if is_no_message { self.refused(refusal, false) } else { Err(self.conclude(refusal)) }
    }

    /// Decides about an answer that does not answer the request: opens another session, asks the
    /// server about this one, or ends the request. `names_it` says that the answer blames the
    /// session.
    pub(super) fn refused(&mut self, refusal: DoubtfulAnswer, names_it: bool) -> Result<PostStage, ExchangeStep> {
        if !self.may_be_lost() {
            return Err(self.conclude(refusal));
        }
        match self.verdict {
            SessionVerdict::Lost => self.lost(),
            SessionVerdict::ByBody | SessionVerdict::Doubtful if names_it || self.is_doubtful_refusal() => {
                self.doubt(refusal)
            }
            SessionVerdict::Failing if names_it => match self.renewal {
                SessionRenewal::Look => self.lost(),
                SessionRenewal::Due | SessionRenewal::Done | SessionRenewal::Never => {
                    self.link.suspect(self.number);
                    Err(self.conclude(refusal))
                }
            },
            SessionVerdict::ByBody | SessionVerdict::Doubtful | SessionVerdict::Failing | SessionVerdict::Answer => {
                Err(self.conclude(refusal))
            }
        }
    }

    /// Returns whether an answer that does not name the session may mean that it is lost. A refusal
    /// of the credentials (401 or 403) may, if it names no other credentials (`WWW-Authenticate`)
    /// and [`HttpLink::may_blame_session`] allows the question.
    fn is_doubtful_refusal(&self) -> bool {
        let Some(head) = &self.unadmitted else { return true };
        !head.headers().contains_key(WWW_AUTHENTICATE) && self.link.may_blame_session()
    }

    /// Starts a ping that asks the server whether it knows the session. Ends the request with the
    /// refusal if its session was renewed already or must not be, and sends it again if another
    /// request has replaced the session.
    fn doubt(&mut self, refusal: DoubtfulAnswer) -> Result<PostStage, ExchangeStep> {
        match self.renewal {
            SessionRenewal::Look => Err(ExchangeStep::Failed(HttpError::Status(StatusCode::NOT_FOUND), None)),
            SessionRenewal::Never | SessionRenewal::Done => Err(self.conclude(refusal)),
            // Another request may have found out meanwhile.
            SessionRenewal::Due if self.link.number() != self.number => self.looked(refusal),
            SessionRenewal::Due => Ok(PostStage::Doubt(self.link.probe(), refusal)),
        }
    }

    /// Sends the request again if the session was replaced; otherwise the answer is final.
    pub(super) fn looked(&mut self, refusal: DoubtfulAnswer) -> Result<PostStage, ExchangeStep> {
        if self.link.number() == self.number {
            return Err(self.conclude(refusal));
        }
        self.renewal = SessionRenewal::Done;
        self.unadmitted = None;
        self.write_anew();
        Ok(PostStage::Unsent)
    }

    /// Ends the request with the answer as received.
    fn conclude(&mut self, refusal: DoubtfulAnswer) -> ExchangeStep {
        if let Some(head) = self.unadmitted.take()
            && let Err(error) = self.link.parts.remote.admitted(&head, self.pass)
        {
            return ExchangeStep::Failed(error, None);
        }
        match refusal {
            DoubtfulAnswer::Answer(answer) => self.answer(answer),
            DoubtfulAnswer::Failed(error, wait) => ExchangeStep::Failed(error, wait),
            DoubtfulAnswer::None => ExchangeStep::Failed(HttpError::Broken("ended".to_owned()), None),
        }
    }
}
