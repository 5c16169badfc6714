//! The running program: it builds the gateway, opens its faces, takes the operator's commands and ends everything in order.

pub(crate) mod admin;
pub(crate) mod file_watch;
pub(crate) mod gateway;
pub(crate) mod listen;
pub(crate) mod systemd;
