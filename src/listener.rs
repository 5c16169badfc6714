//! A TCP connection until its request can be read: who may connect, how slow it may be, what its head must contain. All
//! listeners share it.

pub(crate) mod address;
pub(crate) mod body;
pub(crate) mod coded;
pub(crate) mod connection;
pub(crate) mod descriptors;
pub(crate) mod guard;
pub(crate) mod lobby;
pub(crate) mod pace;
pub(crate) mod pieces;
pub(crate) mod press;
pub(crate) mod reply;
