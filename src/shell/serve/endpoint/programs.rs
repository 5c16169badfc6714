//! Serves a program that this replica runs to another replica of the cluster, see
//! [`crate::cluster::lines`].

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use http::{Request as HttpRequest, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::HttpReply;
use crate::cluster::passed::mark_served;
use crate::config::Placement;
use crate::listener::reply;
use crate::serve::front::{HttpConnection, ListenerState};
use crate::serve::passing::misdirected;
use crate::upstream::line::share;
use crate::upstream::session::link::UpstreamLink;

/// Longest wait for a program that is starting; the other replica asks again.
const START: Duration = Duration::from_secs(5);
/// Messages that wait for the connection to the other replica.
const MESSAGES: usize = 8;

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
    let handle = {
        let snapshot = service.snapshots.load();
        let found = snapshot.handles.iter().find(|handle| handle.name.as_str() == upstream);
        found.filter(|handle| handle.spec.load().placement == Placement::One).map(Arc::clone)
    };
    let Some(handle) = handle else { return misdirected() };
    if service.draining.is_cancelled() {
        return later("this replica is about to end");
    }
    // Keeps a lazy program running for as long as the other replica uses it.
    let used = handle.main.take();
    let link = match timeout(START, handle.main.link(&handle.spec.load_full())).await {
        Ok(Ok(UpstreamLink::Stdio(link))) if link.is_shared() => link,
        Ok(_) | Err(_) => return later("the program does not run here, or not yet"),
    };
    let input = stream::unfold(body, |mut body| async move {
        loop {
            if let Ok(data) = body.frame().await?.ok()?.into_data() {
                return Some((data, body));
            }
        }
    });
    let (out, messages) = mpsc::channel(MESSAGES);
    let (leaving, giving_up) = (service.draining.clone(), service.giving_up.clone());
    let (limit, received) = (front.terms.load().limits.upstream_result_bytes, Box::pin(input));
    service.tasks.spawn("shared program", async move {
        tokio::select! {
            () = share::serve(link, received, out, limit, leaving) => {}
            () = giving_up.cancelled() => {}
        }
        drop(used);
    });
    let messages = stream::unfold(messages, |mut messages| async move { Some((messages.recv().await?, messages)) });
    let mut response = reply::events(messages);
    mark_served(response.headers_mut(), run);
    response
}
