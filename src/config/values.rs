//! Values that several tables have: addresses, proxies, headers and commands.

pub(super) mod address;
pub(super) mod auth;
pub(super) mod certificates;
pub(super) mod command;
pub(super) mod container;
pub(super) mod instructions;
pub(super) mod issuers;
pub(super) mod network;
pub(super) mod proxy;
pub(super) mod remote;
pub(super) mod store_url;
