//! The state machines: routing, one call, one upstream connection, restarts. Pure: `now` is an argument, effects are values.

pub(crate) mod answer;
pub(crate) mod ask;
pub(crate) mod batch;
pub(crate) mod call;
pub(crate) mod client;
pub(crate) mod event;
pub(crate) mod fault;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub(crate) mod handshake;
pub(crate) mod lists;
pub(crate) mod peer;
pub(crate) mod pending;
pub(crate) mod question;
pub(crate) mod refresh;
pub(crate) mod replay;
pub(crate) mod restart;
pub(crate) mod route;
#[cfg(test)]
mod sim;
pub(crate) mod state;
pub(crate) mod task;
pub(crate) mod task_id;
pub(crate) mod unasked;
pub(crate) mod used;
