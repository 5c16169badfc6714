//! Bytes to JSON-RPC messages and back. Pure: no IO, no clock, no tree of values.
//!
//! Payloads are never re-serialised: a message is a [`frame::Frame`] and everything inside it a slice of the bytes received.

pub(crate) mod canonical;
pub(crate) mod code;
pub(crate) mod coding;
pub(crate) mod digest;
pub(crate) mod foreign;
pub(crate) mod frame;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub(crate) mod headers;
pub(crate) mod id;
pub(crate) mod layout;
pub(crate) mod lines;
pub(crate) mod message;
pub(crate) mod raw;
pub(crate) mod sse;
pub(crate) mod start;
pub(crate) mod tokens;
