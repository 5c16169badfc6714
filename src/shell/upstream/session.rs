//! Sessions with one upstream, the handle that takes calls, and calls that were sent.

pub mod handle;
pub(crate) mod lane;
pub mod link;
pub(crate) mod sent;
