//! A request whose token the server refuses: sent once more with another one, where there is one.

use http::Response;

use super::{Post, Stage, Step};
use crate::upstream::answer::HttpError;
use crate::upstream::connections::AnswerBody;
use crate::upstream::keeper::Attempts;
use crate::upstream::remote::is_refusal;

impl Post {
    /// Whether an answer may be about the token.
    pub(super) fn may_go_again(&self, response: &Response<AnswerBody>) -> bool {
        self.link.parts.remote.may_log_in() && is_refusal(response.status())
    }

    pub(super) fn judging(&mut self, response: Response<AnswerBody>) -> Stage {
        let attempts = self.attempts.take().unwrap_or_default();
        Stage::Refused(self.link.parts.remote.judge(&response, self.pass, attempts), Some(Box::new(response)))
    }

    pub(super) fn judged(
        &mut self,
        again: bool,
        attempts: Attempts,
        response: Option<Box<Response<AnswerBody>>>,
    ) -> Result<Stage, Step> {
        self.attempts = Some(attempts);
        match (again, response) {
            (true, response) => {
                if let Some(response) = response {
                    self.link.drain(response.into_body());
                }
                self.write_anew();
                Ok(Stage::Unsent)
            }
            (false, Some(response)) => self.head(*response),
            (false, None) => Err(Step::Failed(HttpError::Broken("ended".to_owned()), None)),
        }
    }
}
