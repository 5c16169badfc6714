//! Commands that run the gateway, or talk to a running one.

pub(super) mod bound;
pub(super) mod door;
pub(super) mod ends;
pub(super) mod relay;
pub(super) mod reload;
pub(super) mod restart;
pub(crate) mod serve;
pub(super) mod stdio;
mod take_over;
