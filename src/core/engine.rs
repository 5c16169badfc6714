//! State machines of the protocol: routing, calls, upstream connections and their restarts.
//!
//! All of them are pure: `now` is an argument, and effects are returned as values.

pub mod answer;
pub mod askers;
pub mod call;
pub mod client;
pub mod connection;
pub mod event;
pub mod failure;
pub mod fault;
#[cfg(any(test, fuzzing, feature = "testing"))]
pub mod fuzz;
pub mod handshake;
pub mod lists;
pub mod pace;
pub mod peer;
pub mod question;
pub mod replay;
pub mod route;
pub mod sealed;
#[cfg(test)]
mod sim;
pub mod task;
