//! What every request to one HTTP upstream is made of.

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Uri};

use crate::base::task_group::TaskGroup;
use crate::catalog::name::UpstreamName;
use crate::engine::ask::Declared;
use crate::upstream::answer::Gauge;
use crate::upstream::client::HttpClient;
use crate::upstream::session_news::SessionNews;

pub(super) const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// What a link is made of besides its era.
#[derive(Clone)]
pub(crate) struct LinkParts {
    pub(crate) client: HttpClient,
    pub(crate) uri: Uri,
    /// The operator's headers, credentials among them.
    pub(crate) fixed: HeaderMap,
    pub(crate) tasks: TaskGroup,
    pub(crate) gauge: Gauge,
    pub(crate) upstream: UpstreamName,
    /// What a legacy server is told that its client can do.
    pub(crate) declared: Declared,
    /// Where what the server says outside of calls goes.
    pub(crate) news: SessionNews,
}
