//! What commands reach: the configuration, the running daemon, and the store without one.

pub(super) mod daemon;
pub(super) mod exchange;
pub(super) mod operator;
pub(super) mod source;
