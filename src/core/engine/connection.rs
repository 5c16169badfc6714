//! The state of a connection to an upstream between two messages: calls in flight, questions about
//! them, and doubts.

pub mod ask;
pub mod attribution;
pub mod batch;
pub mod doubt;
pub mod lost;
pub mod pending;
pub mod turns;
pub mod unasked;
