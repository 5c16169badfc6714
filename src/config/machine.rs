//! The machine that headend and its upstreams run on: paths, programs and variables.

pub(super) mod host_command;
pub(super) mod managers;
pub(super) mod places;
#[cfg(any(test, feature = "testing"))]
pub mod played;
pub(super) mod surroundings;
