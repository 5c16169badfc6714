//! Finds the service that a request is for, and its caller.

use std::sync::Arc;

use http::request::Parts;
use http::{Response, StatusCode};

use crate::cluster::passed::take_caller;
use crate::engine::sealed::run_id::RunId;
use crate::listener::body::ReplyBody;
use crate::listener::callers::credentials::CallerAccess;
use crate::listener::reply;
use crate::listener::routes::ENDPOINT;
use crate::serve::front::{HttpConnection, ListenerState, not_found};
use crate::serve::legacy_sse;
use crate::serve::passing::misdirected;

/// The service that a request is for, with its caller.
pub(super) enum EndpointRoute {
    Endpoint { profile: Option<Arc<str>>, caller: CallerAccess },
    LegacySse { path: legacy_sse::LegacySsePath, caller: CallerAccess },
}

/// A request that a replica has passed on.
pub(super) struct AdmittedPeer {
    /// The run that has passed it on.
    pub from: RunId,
    /// The run of this process that it was passed on to.
    pub run: RunId,
    pub route: EndpointRoute,
}

/// Checks Host, then that a living replica vouches for the caller of a request, then what [`admit`]
/// checks.
pub(super) async fn admit_passed(
    front: &Arc<ListenerState>,
    head: &Parts,
    seat: &HttpConnection,
) -> Result<AdmittedPeer, Box<Response<ReplyBody>>> {
    front.terms.load().guard.admit(head)?;
    let passed = match &front.service.cluster {
        Some(cluster) => take_caller(cluster, head).await,
        None => None,
    };
    let (from, run, passed) = passed.ok_or_else(|| Box::new(misdirected()))?;
    let busy = |text| Box::new(reply::retry_later(StatusCode::SERVICE_UNAVAILABLE, 2, text));
    if !seat.allows_peer(front) {
        return Err(busy("too many connections of replicas"));
    }
    let text = "the replica that has this session does not accept the credential; try again";
    let caller = front.credentials.load().of_passed(&passed).ok_or_else(|| busy(text))?;
    if let Some(path) = legacy_sse::LegacySsePath::of(front, head.uri.path()) {
        path.admit(&head.method)?;
        front.admit_to_profile(path.profile(), &caller)?;
        return Ok(AdmittedPeer { from, run, route: EndpointRoute::LegacySse { path, caller } });
    }
    let profile = front.profile_at(&front.endpoint, head.uri.path()).ok_or_else(not_found)?;
    if !ENDPOINT.has(&head.method) {
        return Err(Box::new(reply::method_not_allowed(ENDPOINT.methods)));
    }
    front.admit_to_profile(profile.as_deref(), &caller)?;
    Ok(AdmittedPeer { from, run, route: EndpointRoute::Endpoint { profile, caller } })
}

/// Checks Host and Origin, path and method, then credentials. Returns the addressed service. The
/// metadata of a place needs no credential and is the response that is returned as an error.
pub(super) async fn admit(
    front: &Arc<ListenerState>,
    head: &Parts,
    seat: &HttpConnection,
) -> Result<EndpointRoute, Box<Response<ReplyBody>>> {
    front.terms.load().guard.admit(head)?;
    if !seat.is_for(&head.headers) {
        // A browser may send requests for other names of the certificate on one connection.
        let text = "this connection was opened for another host";
        return Err(Box::new(reply::refusal(StatusCode::MISDIRECTED_REQUEST, text)));
    }
    let path = head.uri.path();
    if let Some(response) = front.metadata(head) {
        return Err(response);
    }
    if let Some(path) = legacy_sse::LegacySsePath::of(front, path) {
        path.admit(&head.method)?;
        let caller = front.authenticate(head, path.profile(), seat).await?;
        front.admit_to_profile(path.profile(), &caller)?;
        return Ok(EndpointRoute::LegacySse { path, caller });
    }
    let profile = front.profile_at(&front.endpoint, path).ok_or_else(not_found)?;
    if !ENDPOINT.has(&head.method) {
        return Err(Box::new(reply::method_not_allowed(ENDPOINT.methods)));
    }
    let caller = front.authenticate(head, profile.as_deref(), seat).await?;
    front.admit_to_profile(profile.as_deref(), &caller)?;
    Ok(EndpointRoute::Endpoint { profile, caller })
}
