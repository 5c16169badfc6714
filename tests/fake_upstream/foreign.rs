//! Habits of real servers and their proxies over HTTP: other media types, redirects, heartbeats,
//! streams that end.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use futures_util::{StreamExt as _, stream};
use serde_json::json;

use super::behaviour::Behaviour;
use super::server::FakeServer;

/// Two events that are no messages.
pub(crate) const HEARTBEATS: &str = "data: {\"type\":\"heartbeat\"}\n\ndata: ping\n\n";

/// Returns the answer changed by the server's options: heartbeats, or another media type.
pub(crate) fn apply_habits(server: &FakeServer, mut response: Response) -> Response {
    let kind = response.headers().get(CONTENT_TYPE).map(|kind| kind.as_bytes().to_vec()).unwrap_or_default();
    if server.does(Behaviour::Heartbeats) && kind == b"text/event-stream" {
        let (parts, body) = response.into_parts();
        let first = stream::iter([Ok(Bytes::from_static(HEARTBEATS.as_bytes()))]);
        return Response::from_parts(parts, Body::from_stream(first.chain(body.into_data_stream())));
    }
    match server.args.media.as_deref().filter(|_| kind == b"application/json") {
        None => {}
        Some("none") => drop(response.headers_mut().remove(CONTENT_TYPE)),
        Some("page") => {
            return ([(CONTENT_TYPE, "text/html; charset=utf-8")], "<!doctype html><title>Hello</title>")
                .into_response();
        }
        Some(media) => drop(response.headers_mut().insert(CONTENT_TYPE, media.parse().unwrap())),
    }
    response
}

/// Returns the answer in place of a stream of changes, for a server that ends such streams at once
/// or refuses them.
pub(crate) fn short_stream(server: &FakeServer) -> Option<Response> {
    let status = server.args.behaviours.iter().find_map(|behaviour| match behaviour {
        Behaviour::ShortStreams(status) => Some(*status),
        _ => None,
    })?;
    Some(match status {
        0 => {
            let none = stream::empty::<Result<Bytes, Infallible>>();
            ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(none)).into_response()
        }
        status => StatusCode::from_u16(status.try_into().unwrap()).unwrap().into_response(),
    })
}

/// Returns the redirect at the address that the server printed, if the server is somewhere else.
pub(crate) fn redirect(server: &FakeServer, uri: &Uri, http: &str) -> Option<Response> {
    let redirect = server.args.redirect.as_ref()?;
    if uri.path().ends_with('/') {
        return None;
    }
    server.note(&json!({"redirected": http}).to_string());
    let (status, location) = redirect.split_once(' ').unwrap_or((redirect, ""));
    let status = StatusCode::from_u16(status.parse().unwrap()).unwrap();
    Some(if location.is_empty() { status.into_response() } else { (status, [(LOCATION, location)]).into_response() })
}
