//! What every request to one HTTP upstream is made of.

use std::sync::Arc;

use http::HeaderName;

use crate::base::task_group::TaskGroup;
use crate::catalog::name::UpstreamName;
use crate::engine::ask::Declared;
use crate::upstream::answer::Gauge;
use crate::upstream::remote::Remote;
use crate::upstream::session_news::SessionNews;

pub(super) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// What a link is made of besides its era.
#[derive(Clone)]
pub(crate) struct LinkParts {
    pub(crate) remote: Arc<Remote>,
    pub(crate) tasks: TaskGroup,
    pub(crate) gauge: Gauge,
    pub(crate) upstream: UpstreamName,
    /// What a legacy server is told that its client can do.
    pub(crate) declared: Declared,
    /// Where what the server says outside of calls goes.
    pub(crate) news: SessionNews,
}
