//! The handshake over HTTP: sends the questions of [`crate::engine::handshake`] and opens legacy
//! sessions.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::{HeaderValue, Method as HttpMethod, Response};

use crate::engine::handshake::{
    EraHint, Handshake, HandshakeAction, HandshakeAgreement, HandshakeQuestion, HandshakeReply, HandshakeTransport,
    LEGACY_ADVICE, PROBE_TIME,
};
use crate::upstream::http::answer::{AnswerReader, AnswerRules};
use crate::upstream::http::parts::{HeaderFields, LinkParts, SESSION};
use crate::upstream::net::connections::AnswerBody;
use crate::upstream::state::http_error::HttpError;
use crate::wire::json::raw::RawJson;
use crate::wire::message::{self, Message};

/// The id of all questions, because one connection asks one at a time.
const ID: u64 = 0;

/// The agreement with a server, and the legacy session that it opened.
pub(crate) type HandshakeResult = (HandshakeAgreement, Option<HeaderValue>);

/// The reason why the handshake failed. The texts are sentences for the operator.
pub enum HandshakeFailure {
    Failed(String),
    /// The server does not speak streamable HTTP, but may speak the HTTP+SSE transport of
    /// 2024-11-05.
    Older(String),
}

impl HandshakeFailure {
    pub fn why(self) -> String {
        match self {
            Self::Failed(why) | Self::Older(why) => why,
        }
    }
}

/// Performs the handshake: finds the server's era and agrees on a revision.
///
/// # Errors
/// [`HandshakeFailure`].
pub(crate) async fn open(parts: &LinkParts, hint: EraHint) -> Result<HandshakeResult, HandshakeFailure> {
    let mut handshake = Handshake::new(hint, HandshakeTransport::Http { may_be_older: parts.remote.may_be_older });
    loop {
        let question = handshake.question();
        // Over HTTP a time-out is no answer, so each question has the time of the whole start.
        let is_probing = hint == EraHint::Probe && matches!(question, HandshakeQuestion::Discover(_));
        parts.remote.is_probing.store(is_probing, Ordering::Relaxed);
        let heard = tokio::select! {
            heard = ask(parts, question) => heard,
            never = tell_of_silence(parts), if is_probing => match never {},
        };
        parts.remote.is_probing.store(false, Ordering::Relaxed);
        match handshake.heard(heard.status, heard.reply) {
            HandshakeAction::Ask(_) => {}
            // No answer arrives late here.
            HandshakeAction::Wait(_) => {
                return Err(HandshakeFailure::Failed("the handshake was not answered in order".to_owned()));
            }
            HandshakeAction::Agreed(agreed) => {
                if parts.is_main {
                    parts.remote.instructions.store(handshake.instructions(agreed).map(Arc::new));
                }
                return Ok((agreed, heard.session));
            }
            HandshakeAction::Failed { why, older: true, .. } => return Err(HandshakeFailure::Older(why)),
            HandshakeAction::Failed { why, older: false, .. } => return Err(HandshakeFailure::Failed(why)),
        }
    }
}

/// Tells the operator after a while that the question for the era is not answered. Never returns.
async fn tell_of_silence(parts: &LinkParts) -> Infallible {
    tokio::time::sleep(PROBE_TIME).await;
    if parts.is_main {
        let time = PROBE_TIME.as_secs();
        parts.remote.health.failed(format!("`server/discover` has not been answered for {time} s{LEGACY_ADVICE}"));
    }
    std::future::pending().await
}

/// The answer to a question: HTTP status, session id, parsed reply.
struct ProbeAnswer {
    status: Option<u16>,
    session: Option<HeaderValue>,
    reply: HandshakeReply,
}

impl Default for ProbeAnswer {
    fn default() -> Self {
        Self { status: None, session: None, reply: HandshakeReply::Silence }
    }
}

/// Posts a question and reads the answer. `initialize` is sent without headers for session and
/// version.
async fn ask(parts: &LinkParts, question: HandshakeQuestion) -> ProbeAnswer {
    let method = question.method();
    let params = question.params(&parts.declared.hop(), &parts.declared);
    let body = message::encode_request(&RawJson::trusted(ID.to_string()), method.as_str(), Some(&params));
    let request = match question {
        HandshakeQuestion::Discover(revision) => {
            parts.request(revision, HttpMethod::POST, body, &HeaderFields::of(method, None))
        }
        HandshakeQuestion::Initialize => parts.remote.request(HttpMethod::POST, &parts.remote.address(), body),
    };
    let mut heard = ProbeAnswer::default();
    let answer = match parts.remote.send(request).await {
        Ok(response) => {
            heard.status = Some(response.status().as_u16());
            heard.session = response.headers().get(&SESSION).cloned();
            first_answer(response, &parts.gauge).await
        }
        Err(error) => Err(error),
    };
    let why = |error: &HttpError| format!("`{}`: {error}", method.as_str());
    heard.reply = match answer {
        Ok(outcome) => HandshakeReply::Answer(outcome),
        Err(error @ (HttpError::Status(_) | HttpError::Protocol(_))) => HandshakeReply::NoAnswer(why(&error)),
        Err(
            error @ (HttpError::Connect(_)
            | HttpError::NoDescriptor(_)
            | HttpError::Broken(_)
            | HttpError::NoToken(_)
            | HttpError::Elsewhere(_)
            | HttpError::Unadmitted(..)
            | HttpError::MoreScopes(_)
            | HttpError::NoRoom(_)),
        ) => HandshakeReply::Lost(why(&error)),
    };
    heard
}

/// Reads messages up to the response to the question.
async fn first_answer(
    response: Response<AnswerBody>,
    gauge: &AnswerRules,
) -> Result<Result<RawJson, RawJson>, HttpError> {
    let mut reader = match AnswerReader::of_question(response, gauge) {
        Ok(reader) => reader.of_request(ID),
        Err(mut unspoken) => {
            unspoken.read().await;
            return Err(gauge.unspoken(&unspoken));
        }
    };
    loop {
        if let Message::Response(answer) = reader.next().await? {
            let ours = answer.id.as_ref().is_none_or(|id| id.parse::<u64>().is_ok_and(|id| id == ID));
            return if ours { Ok(answer.outcome) } else { Err(gauge.other_id(&answer)) };
        }
    }
}
