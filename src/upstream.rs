//! Upstreams as the rest of the program sees them: a handle that takes calls, whatever is behind it.
//!
//! Locks (each guards a map for one operation and is never held across an await): an upstream's sessions ([`session`]), a legacy
//! HTTP session's calls ([`http`]), watched resources ([`subscriptions`]), parked calls ([`parked`]).

pub(crate) mod actor;
pub(crate) mod answer;
pub(crate) mod client;
pub(crate) mod exchange;
pub(crate) mod handle;
pub(crate) mod http;
pub(crate) mod http_actor;
pub(crate) mod initialize;
pub(crate) mod parked;
pub(crate) mod process;
pub(crate) mod resume;
pub(crate) mod session;
pub(crate) mod sse;
pub(crate) mod stdio;
pub(crate) mod subscriptions;
pub(crate) mod task;
