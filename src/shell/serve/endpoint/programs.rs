//! Serves a program that this replica runs to another replica of the cluster, see
//! [`crate::cluster::lines`].

use std::sync::Arc;

use futures_util::stream;
use http::{Request as HttpRequest, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::HttpReply;
use crate::cluster::passed::mark_served;
use crate::listener::reply;
use crate::serve::front::{HttpConnection, ListenerState};
use crate::serve::passing::misdirected;

/// Answers the request of another replica for the program of an upstream: with a stream of its
/// messages if the program runs here.
pub(super) async fn serve_program(
    front: &Arc<ListenerState>,
    request: HttpRequest<Incoming>,
    seat: &HttpConnection,
) -> HttpReply {
    let (head, body) = request.into_parts();
    if let Err(response) = front.terms.load().guard.admit(&head) {
        return *response;
    }
    let service = &front.service;
    let taken = match &service.cluster {
        Some(cluster) => cluster.take_lines(&head).await,
        None => None,
    };
    let Some((upstream, run)) = taken else { return misdirected() };
    let later = |text| reply::retry_later(StatusCode::SERVICE_UNAVAILABLE, 1, text);
    if !seat.allows_peer(front) {
        return later("too many connections of replicas");
    }
    let Some(program) = service.program(upstream) else { return misdirected() };
    if service.draining.is_cancelled() {
        return later("this replica is about to end");
    }
    let input = stream::unfold(body, |mut body| async move {
        loop {
            if let Ok(data) = body.frame().await?.ok()?.into_data() {
                return Some((data, body));
            }
        }
    });
    let Some(messages) = service.share_program(&program, Box::pin(input)).await else {
        return later("the program does not run here, or not yet");
    };
    let messages = stream::unfold(messages, |mut messages| async move { Some((messages.recv().await?, messages)) });
    let mut response = reply::events(messages);
    mark_served(response.headers_mut(), run);
    response
}
