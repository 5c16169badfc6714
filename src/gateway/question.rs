//! Questions of a server in the middle of a call, by the way in which the client is asked.
//!
//! A legacy client is asked by requests on its call's stream ([`client_requests`]), whether its server asked in the same way
//! ([`forwarded`]) or as the result of the call ([`on_stream`]). A modern client is asked by the result of its request: that of
//! a modern server passes, that of a legacy server is made here ([`as_result`]), and its call is parked
//! ([`crate::upstream::parked`]).

pub(crate) mod as_result;
pub(crate) mod client_requests;
pub(crate) mod forwarded;
pub(crate) mod on_stream;
