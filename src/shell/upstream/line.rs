//! Connections that speak in lines, and the calls on them.

pub(crate) mod call;
pub(crate) mod connection;
pub(crate) mod link;
pub(crate) mod share;
