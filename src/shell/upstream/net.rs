//! Connections to servers behind URLs: addresses, TLS, proxies, and the client that shares them.

mod bell;
pub mod client;
pub(crate) mod connections;
pub(crate) mod connector;
pub(crate) mod trust;
