//! HTTP responses: the one table from answers and refusals to status, headers and body.

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

use crate::runtime::server::body::{ReplyBody, SLICE_FROM};
use crate::runtime::service::Answer;
use crate::wire::code;
use crate::wire::message::{encode_error, encode_result, error_object, result_head};
use crate::wire::raw::RawJson;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A response before any JSON-RPC message could be read. Carries a JSON-RPC error without an id.
pub(crate) fn refusal(status: StatusCode, code: i64, message: &str) -> Response<ReplyBody> {
    json(status, encode_error(None, &error_object(code, message, None)))
}

/// The same where the connection must not be used again.
pub(crate) fn refusal_and_close(status: StatusCode, code: i64, message: &str) -> Response<ReplyBody> {
    let mut response = refusal(status, code, message);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

pub(crate) fn method_not_allowed(allow: &'static str) -> Response<ReplyBody> {
    let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, code::INVALID_REQUEST, "method not allowed");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    response
}

/// Abuse of the transport or no room; says when to come back.
pub(crate) fn retry_later(status: StatusCode, seconds: u64, message: &str) -> Response<ReplyBody> {
    let mut response = refusal(status, code::INVALID_REQUEST, message);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

pub(crate) fn accepted() -> Response<ReplyBody> {
    with_status(StatusCode::ACCEPTED, ReplyBody::empty())
}

pub(crate) fn json(status: StatusCode, body: Bytes) -> Response<ReplyBody> {
    let mut response = with_status(status, ReplyBody::whole(body));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// An answer to the request with that id.
pub(crate) fn answer(id: &RawJson, answer: Answer) -> Response<ReplyBody> {
    match answer.outcome {
        Ok(result) if result.bytes().len() < SLICE_FROM => json(StatusCode::OK, encode_result(id, result.bytes())),
        Ok(result) => {
            let slices = [result_head(id), result.into_bytes(), Bytes::from_static(b"}")];
            let length: usize = slices.iter().map(Bytes::len).sum();
            let mut response = with_status(StatusCode::OK, ReplyBody::Slices(slices.into()));
            response.headers_mut().insert(CONTENT_TYPE, JSON);
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
            response
        }
        Err(error) => {
            let status = answer.status.and_then(|s| StatusCode::from_u16(s).ok()).unwrap_or(StatusCode::OK);
            json(status, encode_error(Some(id), &error))
        }
    }
}

/// An answer as a message, for streams and pipes.
pub(crate) fn answer_message(id: &RawJson, answer: &Answer) -> Bytes {
    match &answer.outcome {
        Ok(result) => encode_result(id, result.bytes()),
        Err(error) => encode_error(Some(id), error),
    }
}

/// A stream of events.
pub(crate) fn events(stream: impl futures_util::Stream<Item = Bytes> + Send + 'static) -> Response<ReplyBody> {
    let mut response = with_status(StatusCode::OK, ReplyBody::Events(Box::pin(stream)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

fn with_status(status: StatusCode, body: ReplyBody) -> Response<ReplyBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}
