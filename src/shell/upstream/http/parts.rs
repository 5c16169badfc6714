//! The parts that all requests to one HTTP upstream have in common.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method as HttpMethod, Request};
use http_body_util::Full;
use tokio_util::sync::CancellationToken;

use crate::base::task_group::TaskGroup;
use crate::catalog::name::UpstreamName;
use crate::engine::connection::ask::DeclaredCapabilities;
use crate::mcp::method::Method;
use crate::mcp::version::{Era, Revision};
use crate::upstream::http::answer::AnswerRules;
use crate::upstream::http::remote::RemoteServer;
use crate::upstream::session_news::SessionNews;
use crate::wire::headers::encode_value;

static VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
static METHOD: HeaderName = HeaderName::from_static("mcp-method");
static NAME: HeaderName = HeaderName::from_static("mcp-name");
pub(super) static SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// The parts of a link that do not depend on its era.
#[derive(Clone)]
pub struct LinkParts {
    pub remote: Arc<RemoteServer>,
    pub tasks: TaskGroup,
    pub gauge: AnswerRules,
    pub upstream: UpstreamName,
    /// The client capabilities that a legacy server is told.
    pub declared: DeclaredCapabilities,
    /// Destinations of notifications that the server sends outside of calls.
    pub news: SessionNews,
    /// True for the main session, whose lists are published to clients.
    pub is_main: bool,
    /// How long the handshake of another session may take.
    pub start_limit: Duration,
    /// Fires when the session's lane ends.
    pub stop: CancellationToken,
}

/// The header fields of a message except those of its session; they are repeated if it is sent
/// again.
#[derive(Clone, Debug, Default)]
pub struct HeaderFields {
    /// The method, and the value of `Mcp-Name`, for a modern server.
    method: Option<Method>,
    name: Option<HeaderValue>,
    /// The trace context, and arguments repeated as headers.
    pub(super) more: Vec<(HeaderName, HeaderValue)>,
}

impl HeaderFields {
    /// Creates the fields for a request with this method, which may name an item.
    pub fn of(method: Method, name: Option<&str>) -> Self {
        let name = name.and_then(|name| HeaderValue::from_str(&encode_value(name)).ok());
        Self { method: Some(method), name, more: Vec::new() }
    }
}

impl LinkParts {
    /// Creates a request with all headers that a revision demands, except those of its session.
    pub fn request(
        &self,
        revision: Revision,
        http: HttpMethod,
        body: Bytes,
        fields: &HeaderFields,
    ) -> Request<Full<Bytes>> {
        self.gauge.metrics.sent(body.len());
        let mut request = self.remote.request(http, &self.remote.address(), body);
        let headers = request.headers_mut();
        if revision.features().version_header {
            headers.insert(&VERSION, HeaderValue::from_static(revision.as_str()));
        }
        if let Some(method) = fields.method.filter(|_| revision.era() == Era::Modern) {
            headers.insert(&METHOD, HeaderValue::from_static(method.as_str()));
            if let Some(name) = &fields.name {
                headers.insert(&NAME, name.clone());
            }
        }
        for (name, value) in &fields.more {
            headers.insert(name, value.clone());
        }
        request
    }
}
