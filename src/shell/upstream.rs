//! Upstreams, as the layers above use them: a handle that accepts calls, for any transport.
//!
//! Locks (each guards a map for one operation and is never held across an await): an upstream's
//! sessions ([`session::lane`]), a legacy HTTP session's calls ([`http::exchange`]), calls that
//! wait for their turn ([`turns`]), watched resources ([`updates`]), parked calls
//! ([`call::parks`]), the last challenge and failure of a login ([`login::tokens`]; calls with a
//! good token take no lock).

pub mod actor;
pub mod call;
pub mod http;
pub mod line;
pub mod login;
pub mod net;
pub mod process;
pub mod session;
pub mod session_news;
pub mod shared;
pub mod spawner;
pub mod state;
pub mod subscriptions;
pub mod turns;
pub mod updates;
