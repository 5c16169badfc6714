//! One client on any transport.

pub(crate) mod heard;
