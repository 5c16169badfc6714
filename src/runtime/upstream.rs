//! Upstreams as the rest of the program sees them: a handle that takes calls, whatever is behind it.

pub(crate) mod actor;
pub(crate) mod answer;
pub(crate) mod client;
pub(crate) mod greeting;
pub(crate) mod handle;
pub(crate) mod http;
pub(crate) mod http_actor;
pub(crate) mod lane;
pub(crate) mod process;
pub(crate) mod resume;
pub(crate) mod sse;
pub(crate) mod stdio;
pub(crate) mod updates;
