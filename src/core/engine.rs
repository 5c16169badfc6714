//! State machines of the protocol: routing, calls, upstream connections and their restarts.
//!
//! All of them are pure: `now` is an argument, and effects are returned as values.

pub mod answer;
pub mod ask;
pub mod askers;
pub mod attribution;
pub mod batch;
pub mod call;
pub mod client;
pub mod doubt;
pub mod ended;
pub mod event;
pub mod failure;
pub mod fault;
#[cfg(any(test, fuzzing, feature = "testing"))]
pub mod fuzz;
pub mod handshake;
pub mod lists;
pub mod lost;
pub mod peer;
pub mod pending;
pub mod question;
pub mod refresh;
pub mod replay;
pub mod restart;
pub mod route;
mod sealed;
pub mod session_id;
#[cfg(test)]
mod sim;
pub mod state;
pub mod stream_pace;
pub mod task;
pub mod task_id;
pub mod turns;
pub mod unasked;
pub mod used;
