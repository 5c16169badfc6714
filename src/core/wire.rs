//! Converts bytes to JSON-RPC messages and back. Pure: no IO, no clock, no tree of values.
//!
//! Payloads are never serialised again: a message is a [`frame::Frame`], and everything inside it
//! is a slice of the bytes received.

pub mod canonical;
pub mod code;
pub mod coding;
pub mod digest;
pub mod foreign;
pub mod frame;
#[cfg(any(test, fuzzing, feature = "testing"))]
pub mod fuzz;
pub mod headers;
pub mod id;
pub mod json;
pub mod lines;
pub mod message;
pub mod quirk;
pub mod reach;
pub mod secrets;
pub mod sse;
pub mod start;
pub mod unreadable;
