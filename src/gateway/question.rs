//! Questions of a server in the middle of a call, by the way in which the client is asked.
//!
//! A legacy client is asked by requests on its call's stream ([`client_requests`]), whether its server asked in the same way
//! ([`forwarded`]) or as the result of the call ([`on_stream`]). A modern client is asked by the result of its request: that of
//! a modern server passes, that of a legacy server is made here ([`as_result`]), and its call is parked
//! ([`crate::upstream::parked`]).
//!
//! A server may ask only for input that the caller declared for this very call.
//!
//! | client | server | what happens |
//! |---|---|---|
//! | modern | modern | the result passes; its state is sealed to caller, profile, upstream, method, item and arguments (`engine::state`), and only the very same call can continue with it |
//! | legacy | modern | each request becomes a request to the client on the stream of its call, then the call continues upstream |
//! | legacy | legacy | the server's request is passed on under an id of ours, and its answer passed back unchanged |
//! | modern | legacy | the call is parked: its request is answered with `input_required` and a sealed name, and the retry attaches to it. An answer goes upstream once, however often the retry is sent. After 10 minutes, or when the gateway stops, the server learns that no answer comes, and the call is cancelled. An outcome is kept for a minute, unless its slot is needed |

pub(crate) mod as_result;
pub(crate) mod client_requests;
pub(crate) mod forwarded;
pub(crate) mod on_stream;
