//! Clients as they reach the gateway: HTTP in both eras, HTTP+SSE, and lines of stdio and the admin socket.
//!
//! Locks (each is held for one step and never across an await): the session table ([`sessions`]), and within it each client's side
//! of the protocol ([`open_request`]).

pub(crate) mod endpoint;
pub(crate) mod feed;
pub mod front;
pub(crate) mod http_response;
pub mod http_server;
pub(crate) mod legacy_sse;
pub mod lines;
pub(crate) mod listening;
pub(crate) mod modern;
pub(crate) mod open_request;
pub mod pages;
pub(crate) mod replay;
mod request_body;
pub(crate) mod session_stream;
pub mod sessions;
