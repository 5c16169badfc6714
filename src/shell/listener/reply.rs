//! HTTP responses for answers and refusals: status, headers and body.

use std::collections::VecDeque;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

use crate::engine::answer::RequestAnswer;
use crate::listener::body::ReplyBody;
use crate::listener::challenge::NeededScopes;
use crate::listener::pieces::MessageSlices;
use crate::wire::code;
use crate::wire::json::raw::RawJson;
use crate::wire::message::{encode_error, error_object};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Refuses a request before any JSON-RPC message was read, with a JSON-RPC error without an id.
pub fn refusal(status: StatusCode, message: &str) -> Response<ReplyBody> {
    json(status, encode_error(None, &error_object(code::INVALID_REQUEST, message, None)))
}

/// Refuses a request and closes the connection.
pub fn refusal_and_close(status: StatusCode, message: &str) -> Response<ReplyBody> {
    closing(refusal(status, message))
}

/// Adds `Connection: close` to a response.
pub fn closing(mut response: Response<ReplyBody>) -> Response<ReplyBody> {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

pub fn method_not_allowed(allow: &'static str) -> Response<ReplyBody> {
    let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, "method not allowed");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    response
}

/// Refuses a request for abuse of the transport or lack of room, with the seconds to wait.
pub fn retry_later(status: StatusCode, seconds: u64, message: &str) -> Response<ReplyBody> {
    let mut response = refusal(status, message);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// Refuses a request for lack of memory, and closes the connection without reading the rest of the
/// body.
pub fn no_room() -> Response<ReplyBody> {
    let text = "the gateway's memory for messages is used up; send the request again later";
    closing(retry_later(StatusCode::SERVICE_UNAVAILABLE, 1, text))
}

pub fn accepted() -> Response<ReplyBody> {
    with_status(StatusCode::ACCEPTED, ReplyBody::empty())
}

pub fn json(status: StatusCode, body: Bytes) -> Response<ReplyBody> {
    let mut response = with_status(status, ReplyBody::whole(body));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// Answers the request with this id. The status is that of a failure, else 200.
pub fn answer(id: &RawJson, mut answer: RequestAnswer) -> Response<ReplyBody> {
    let scopes = answer.scopes.take();
    let failed = answer.outcome.is_err().then_some(answer.status).flatten();
    let status = failed.and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or(StatusCode::OK);
    let mut response = slices(status, MessageSlices::answer(id, answer).slices().collect());
    if let Some(scopes) = scopes {
        response.extensions_mut().insert(NeededScopes(scopes));
    }
    response
}

/// Responds with a JSON body that consists of slices.
pub fn slices(status: StatusCode, slices: VecDeque<Bytes>) -> Response<ReplyBody> {
    if let (Some(whole), 1) = (slices.front(), slices.len()) {
        return json(status, whole.clone());
    }
    let length: usize = slices.iter().map(Bytes::len).sum();
    let mut response = with_status(status, ReplyBody::Slices(slices));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    response
}

/// Responds with a stream of events.
pub fn events<E: Into<MessageSlices> + 'static>(
    stream: impl futures_util::Stream<Item = E> + Send + 'static,
) -> Response<ReplyBody> {
    let stream = Box::pin(stream.map(Into::into));
    let mut response = with_status(StatusCode::OK, ReplyBody::Events(stream, MessageSlices::default()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

pub fn with_status(status: StatusCode, body: ReplyBody) -> Response<ReplyBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}
