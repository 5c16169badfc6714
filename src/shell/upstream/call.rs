//! The upstream half of a client's call: sent, parked, or continued as a task.

pub(crate) mod exchange;
pub(crate) mod parked;
pub mod parks;
pub(crate) mod task;
