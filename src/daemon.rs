//! The running program: builds the gateway, opens its listeners, serves the operator's commands and
//! shuts everything down in order.

pub(crate) mod access;
pub(crate) mod activation;
pub(crate) mod admin;
pub(crate) mod client_access;
mod cluster;
pub(crate) mod doors;
pub(crate) mod file_watch;
pub(crate) mod gateway;
pub(crate) mod handover;
pub(crate) mod hello;
pub(crate) mod inherited;
pub(crate) mod listen;
pub(crate) mod live;
pub(crate) mod own_places;
mod replica;
mod scrape;
pub(crate) mod succession;
pub(crate) mod systemd;
pub(crate) mod tokens;

pub(crate) use crate::base::local_time;
