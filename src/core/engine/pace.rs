//! Pauses: how long to wait before a start, a list or a stream is tried again.

pub mod refresh;
pub mod restart;
pub mod stream_pace;
