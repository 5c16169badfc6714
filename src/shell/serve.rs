//! The ways in which MCP clients reach the gateway: HTTP of both eras, HTTP+SSE, and lines over
//! stdio or the admin socket.
//!
//! Two kinds of locks, each held for one operation and never across an await: the session table
//! ([`sessions`]), and within it each client's side of the protocol ([`open_request`]).

pub(crate) mod endpoint;
pub(crate) mod feed;
pub mod front;
pub(crate) mod http_response;
pub mod http_server;
pub mod late;
pub(crate) mod legacy_sse;
pub mod lines;
pub(crate) mod listening;
pub(crate) mod modern;
pub(crate) mod open_request;
pub mod pages;
mod passing;
pub(crate) mod replay;
mod request_body;
pub(crate) mod session_stream;
pub mod sessions;
