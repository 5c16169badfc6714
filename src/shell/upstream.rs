//! Upstreams for the layers above: a handle that takes calls, on any transport.
//!
//! Locks (each guards a map for one operation and is never held across an await): an upstream's sessions ([`session`]), a legacy
//! HTTP session's calls ([`http`]), calls that wait for their turn ([`turns`]), watched resources ([`updates`]), parked calls
//! ([`parks`]), the last challenge and failure of a login ([`keeper`]; calls with a good token take no lock).

pub(crate) mod actor;
pub(crate) mod answer;
mod askers;
mod bell;
pub(crate) mod call_failure;
#[cfg(target_os = "linux")]
mod cgroup;
pub mod client;
pub(crate) mod connections;
pub(crate) mod connector;
pub(crate) mod context;
pub(crate) mod conversation;
pub(crate) mod exchange;
pub(crate) mod fetcher;
pub(crate) mod flaws;
#[cfg_attr(not(target_os = "linux"), path = "upstream/unguarded.rs")]
pub mod guard;
pub mod handle;
pub(crate) mod health;
pub(crate) mod http;
pub(crate) mod http_actor;
mod http_lists;
pub(crate) mod http_parts;
pub(crate) mod initialize;
pub mod keeper;
pub(crate) mod last_words;
pub mod launch;
pub(crate) mod line_call;
pub(crate) mod lines;
pub mod link;
mod listing;
pub mod logbook;
pub(crate) mod login_link;
pub mod login_parts;
pub(crate) mod message_flaws;
#[cfg_attr(not(target_os = "linux"), path = "upstream/unmarked.rs")]
pub mod owner;
pub(crate) mod parked;
pub mod parks;
#[cfg(target_os = "linux")]
mod procfs;
mod redirect;
pub(crate) mod remote;
pub(crate) mod resume;
mod retry;
pub(crate) mod sent;
pub(crate) mod session;
pub(crate) mod session_news;
pub(crate) mod shared;
mod signs;
pub mod spawner;
pub(crate) mod sse;
pub(crate) mod standing;
mod stderr;
pub(crate) mod stdio;
pub(crate) mod subscriptions;
pub(crate) mod task;
pub(crate) mod trust;
pub(crate) mod turns;
pub mod unread;
pub(crate) mod unspoken;
pub(crate) mod updates;
pub mod usage;
