//! Access of commands to the configuration, to the running daemon, and to the store without one.

pub(super) mod daemon;
pub(super) mod exchange;
pub(super) mod operator;
pub(super) mod source;
