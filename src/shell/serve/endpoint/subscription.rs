//! Answers a subscription over HTTP.

use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::HeaderMap;
use http::{HeaderName, Response};

use crate::gateway::client::quota::QuotaSlot;
use crate::listener::body::ReplyBody;
use crate::listener::reply;
use crate::mcp::meta::Meta;
use crate::mcp::trace;
use crate::serve::listening::OpenSubscription;
use crate::wire::sse;

static PARENT: HeaderName = HeaderName::from_static(trace::PARENT);
static STATE: HeaderName = HeaderName::from_static(trace::STATE);

/// Adds the trace context in the HTTP headers to a message that has none of its own.
pub(super) fn trace_of(headers: &HeaderMap, meta: &mut Meta) {
    let mut parents = headers.get_all(&PARENT).iter().filter_map(|value| value.to_str().ok());
    if let (Some(parent), None) = (parents.next(), parents.next()) {
        let states: Vec<&str> = headers.get_all(&STATE).iter().filter_map(|value| value.to_str().ok()).collect();
        meta.fall_back_on(parent.trim(), (!states.is_empty()).then(|| states.join(",")).as_deref());
    }
}

/// Sends a subscription as an event stream, with keep-alive comments.
pub(super) fn listen(listening: OpenSubscription, place: QuotaSlot, keepalive: Duration) -> Response<ReplyBody> {
    reply::events(stream::unfold(Some((listening, place)), move |open| async move {
        let (mut listening, place) = open?;
        if let Some(first) = listening.acknowledge().await {
            return Some((sse::event(None, None, &[&first]), Some((listening, place))));
        }
        let event = |message: &Bytes| sse::event(None, None, &[message]);
        tokio::select! {
            messages = listening.next() => match messages {
                ControlFlow::Continue(messages) => {
                    let events: Vec<Bytes> = messages.iter().map(event).collect();
                    Some((events.concat().into(), Some((listening, place))))
                }
                ControlFlow::Break(end) => Some((event(&end), None)),
            },
            () = tokio::time::sleep(keepalive) => Some((sse::comment("keep-alive"), Some((listening, place)))),
        }
    }))
}
