//! The `initialize` that opens a legacy session over HTTP.

use http::{HeaderValue, Method as HttpMethod, Response, StatusCode};
use hyper::body::Incoming;

use crate::engine::handshake::{Agreed, initialize_params, judge_initialize};
use crate::mcp::method::Method;
use crate::upstream::answer::{Gauge, HttpError, Reader};
use crate::upstream::http_parts::{LinkParts, SESSION};
use crate::wire::message::{self, Message};
use crate::wire::raw::RawJson;

/// What `initialize` brought: what was agreed, and the session.
pub(crate) type Opened = Result<(Agreed, Option<HeaderValue>), HttpError>;

/// Posts `initialize` without any header of a session or version and reads what was agreed. The status is that of the answer,
/// if one came.
pub(crate) async fn initialize(parts: &LinkParts) -> (Option<StatusCode>, Opened) {
    let params = initialize_params(&parts.declared);
    let body = message::encode_request(&RawJson::trusted("0"), Method::Initialize.as_str(), Some(&params));
    match parts.remote.send(parts.remote.request(HttpMethod::POST, &parts.remote.uri, body)).await {
        Ok(response) => (Some(response.status()), greeting(response, &parts.gauge).await),
        Err(error) => (None, Err(error)),
    }
}

/// Reads the answer to `initialize`.
async fn greeting(response: Response<Incoming>, gauge: &Gauge) -> Opened {
    let session = response.headers().get(SESSION).cloned();
    let mut reader = Reader::of(response, gauge).await?;
    loop {
        match reader.next().await? {
            Message::Response(answer) => {
                let agreed = judge_initialize(&answer.outcome).map_err(HttpError::Protocol)?;
                return Ok((agreed, session));
            }
            Message::Notification(_) | Message::Request(_) => {}
        }
    }
}
