//! The fields that travel with a passed-on request: its caller, for whom the sender vouches, and
//! the digest of its body.

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::cluster::membership::Cluster;
use crate::engine::sealed::peer::{PassedCaller, PassedRequest};
use crate::engine::sealed::run_id::{RunId, split_mark};
use crate::wire::digest::Digest;

/// The caller of a passed-on request: the run of the sender, and the caller sealed for this
/// request.
pub(crate) static CALLER: HeaderName = HeaderName::from_static("headend-caller");
/// Digest of the body of a passed-on request, in hexadecimal.
pub(crate) static BODY: HeaderName = HeaderName::from_static("headend-body");
static SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// The run of the replica that has served a passed-on request.
pub(crate) static RUN: HeaderName = HeaderName::from_static("headend-run");
pub(crate) static LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// Returns the run that has passed a request on, the run that it is for, and the caller for which
/// the first one vouches; `None` for any other request.
pub(crate) async fn take_caller(cluster: &Cluster, head: &Parts) -> Option<(RunId, RunId, PassedCaller)> {
    let (from, sealed) = split_mark(single(&head.headers, &CALLER)?);
    let (from, run) = (from?, cluster.run()?);
    let request = passed_request(head, from, run, declared_digest(&head.headers)?);
    Some((from, run, cluster.take_caller(&request, sealed).await?))
}

/// Returns whether a response says that this run has served its request.
pub(crate) fn is_served_by(headers: &HeaderMap, run: RunId) -> bool {
    single(headers, &RUN).and_then(RunId::parse) == Some(run)
}

/// Marks a response as one of this run.
pub(crate) fn mark_served(headers: &mut HeaderMap, run: RunId) {
    if let Ok(value) = HeaderValue::from_str(&run.to_string()) {
        headers.insert(&RUN, value);
    }
}

/// Returns whether a body is the one that its request was passed on with.
pub(crate) fn is_passed_body(headers: &HeaderMap, body: &[u8]) -> bool {
    declared_digest(headers).is_some_and(|digest| digest == Digest::of(body))
}

fn declared_digest(headers: &HeaderMap) -> Option<Digest> {
    Digest::from_hex(single(headers, &BODY)?)
}

/// Returns the value of a header that occurs once.
pub(super) fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())?.to_str().ok()
}

/// Returns the request that the caller of a passed-on request is bound to.
pub(crate) fn passed_request(head: &Parts, from: RunId, to: RunId, body: Digest) -> PassedRequest<'_> {
    let target = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let headers = [&SESSION, &LAST_EVENT].map(|name| head.headers.get(name).map(HeaderValue::as_bytes));
    PassedRequest { from, to, method: head.method.as_str(), target, headers, body }
}
