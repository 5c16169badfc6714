//! A request in a cluster: one that another replica holds the session of, and one that another
//! replica has passed on.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request as HttpRequest, StatusCode};
use hyper::body::Incoming;

use super::programs::serve_program;
use super::route::{AdmittedPeer, EndpointRoute, admit_passed};
use super::{AuthenticatedRequest, HttpReply, SESSION};
use crate::cluster::lines::program_of_path;
use crate::cluster::membership::Cluster;
use crate::cluster::passed::mark_served;
use crate::engine::client::asked::is_modern;
use crate::engine::route::RequestParams;
use crate::engine::sealed::run_id::{RunId, split_mark};
use crate::mcp::method::Method;
use crate::mcp::version::{Era, Revision};
use crate::serve::front::{HttpConnection, ListenerState};
use crate::serve::legacy_sse;
use crate::serve::modern::{self, RequestHeaders};
use crate::serve::passing::{PassableRequest, misdirected};
use crate::wire::message::Request;

/// The address of a client that is connected to another replica.
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Answers a request that another replica has passed on, or its request for a program of this one.
/// Either is served here or not at all.
pub(crate) fn handle_passed<'r>(
    front: &'r Arc<ListenerState>,
    request: HttpRequest<Incoming>,
    seat: &'r HttpConnection,
) -> BoxFuture<'r, HttpReply> {
    Box::pin(async move {
        if program_of_path(request.uri().path()).is_some() {
            return serve_program(front, request, seat).await;
        }
        Box::pin(answer_passed(front, request, seat)).await
    })
}

async fn answer_passed(front: &Arc<ListenerState>, request: HttpRequest<Incoming>, seat: &HttpConnection) -> HttpReply {
    let (head, body) = request.into_parts();
    let AdmittedPeer { from, run, route } = match admit_passed(front, &head, seat).await {
        Err(response) => return *response,
        Ok(admitted) => admitted,
    };
    // The connection of a replica is no task of the service, but its requests are.
    let under_way = front.service.tasks.token();
    let seat = HttpConnection::passed_on(ELSEWHERE);
    let mut response = match route {
        EndpointRoute::Endpoint { profile, caller } => {
            let request = AuthenticatedRequest::new(front, &seat, &head, profile, caller);
            AuthenticatedRequest { passed_by: Some(from), ..request }.respond(body).await
        }
        EndpointRoute::LegacySse { path, caller } => {
            legacy_sse::handle(front, path, caller, &seat, (&head, body)).await
        }
    };
    if response.status() != StatusCode::MISDIRECTED_REQUEST {
        mark_served(response.headers_mut(), run);
    }
    response.map(|body| body.keeping(under_way))
}

impl AuthenticatedRequest<'_> {
    /// Passes the request on if another replica holds its session, and returns the response; `None`
    /// if the request is to be served here.
    pub(super) async fn pass_on(&self, body: &Bytes) -> Option<HttpReply> {
        let (front, cluster) = (self.front, self.front.service.cluster.as_ref()?);
        let id = self.headers.get(&SESSION)?.to_str().ok()?;
        if let Some(by) = self.passed_by.filter(|_| front.service.draining.is_cancelled())
            && let Some(response) = self.hand_over(cluster, id, by).await
        {
            return Some(response);
        }
        if front.sessions.is_held(id) || is_modern(&RequestHeaders(self.headers)) {
            return None;
        }
        let preferred = Revision::preferred(Era::Legacy);
        let Some((session, revision)) = front.sessions.read_id(id, &self.client(preferred)) else {
            // A session that could not be stored ends with its replica.
            return Box::pin(self.passable(cluster, body, preferred).to_run(split_mark(id).0?)).await;
        };
        let response = Box::pin(self.passable(cluster, body, revision).to_holder(&session)).await;
        if response.is_none() {
            front.sessions.hold(id);
        }
        response
    }

    /// Passes a message on if another replica holds its session, and handles it otherwise.
    pub(super) fn message_in_cluster(&self, body: Bytes) -> BoxFuture<'_, HttpReply> {
        Box::pin(async move {
            match self.pass_on(&body).await {
                Some(response) => response,
                None => self.message(body.clone(), Some(&body)).await,
            }
        })
    }

    /// Passes a request of a modern client on if the parked call or the task that it names is in
    /// the memory of another replica; serves it otherwise.
    pub(super) async fn modern_in_cluster(
        &self,
        body: &Bytes,
        request: Request,
        revision: Revision,
        method: Method,
        params: RequestParams,
    ) -> HttpReply {
        if let (Some(cluster), Some(run)) = (&self.front.service.cluster, modern::run_of(method, &params.object))
            && let Some(response) = self.passable(cluster, body, revision).to_run(run).await
        {
            return response;
        }
        self.modern(request, revision, method, params).await
    }

    /// Hands an idle session to the replica that passed this request on, before this one ends.
    /// Returns the response that says so; `None` if the session stays.
    async fn hand_over(&self, cluster: &Cluster, id: &str, to: RunId) -> Option<HttpReply> {
        let (session, _) = self.front.sessions.read_id(id, &self.client(Revision::preferred(Era::Legacy)))?;
        let is_given = self.front.sessions.release_idle(id) && cluster.give(&session, to).await;
        is_given.then(misdirected)
    }

    pub(super) fn passable<'b>(
        &'b self,
        cluster: &'b Arc<Cluster>,
        body: &'b Bytes,
        revision: Revision,
    ) -> PassableRequest<'b> {
        let Self { front, head, caller, access, .. } = self;
        PassableRequest { front, cluster, head, body, caller, access, revision }
    }
}
