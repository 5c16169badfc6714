//! Common parts of all requests to one HTTP upstream.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method as HttpMethod, Request};
use http_body_util::Full;
use tokio_util::sync::CancellationToken;

use crate::base::task_group::TaskGroup;
use crate::catalog::name::UpstreamName;
use crate::engine::ask::Declared;
use crate::mcp::method::Method;
use crate::mcp::version::{Era, Revision};
use crate::upstream::http::answer::Gauge;
use crate::upstream::http::remote::Remote;
use crate::upstream::session_news::SessionNews;
use crate::wire::headers::encode_value;

static VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
static METHOD: HeaderName = HeaderName::from_static("mcp-method");
static NAME: HeaderName = HeaderName::from_static("mcp-name");
pub(super) static SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// The parts of a link besides its era.
#[derive(Clone)]
pub struct LinkParts {
    pub remote: Arc<Remote>,
    pub tasks: TaskGroup,
    pub gauge: Gauge,
    pub upstream: UpstreamName,
    /// The client capabilities that a legacy server learns.
    pub declared: Declared,
    /// Where what the server says outside of calls goes.
    pub news: SessionNews,
    /// It is the main session's, whose lists clients see.
    pub is_main: bool,
    /// How long the handshake of another session may take.
    pub start_limit: Duration,
    /// Ends with the session's lane.
    pub stop: CancellationToken,
}

/// The header fields that a message has besides those of its session: what is written again where it is sent again.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    /// For a modern server: the method, and the value of `Mcp-Name`.
    method: Option<Method>,
    name: Option<HeaderValue>,
    /// The trace, and arguments that are repeated.
    pub(super) more: Vec<(HeaderName, HeaderValue)>,
}

impl Fields {
    /// Those of a request of that method, which may name an item.
    pub fn of(method: Method, name: Option<&str>) -> Self {
        let name = name.and_then(|name| HeaderValue::from_str(&encode_value(name)).ok());
        Self { method: Some(method), name, more: Vec::new() }
    }
}

impl LinkParts {
    /// A request with everything that a revision demands of it, its session aside.
    pub fn request(&self, revision: Revision, http: HttpMethod, body: Bytes, fields: &Fields) -> Request<Full<Bytes>> {
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
