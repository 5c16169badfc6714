//! Clients as they reach the gateway: HTTP in both eras, stdio and the admin socket in both eras.

pub(crate) mod address;
pub(crate) mod body;
pub(crate) mod coded;
pub(crate) mod conversation;
pub(crate) mod endpoint;
pub(crate) mod feed;
pub(crate) mod guard;
pub(crate) mod http;
pub(crate) mod legacy;
pub(crate) mod legacy_sse;
pub(crate) mod lines;
pub(crate) mod lobby;
pub(crate) mod modern;
pub(crate) mod pace;
pub(crate) mod pages;
pub(crate) mod pieces;
pub(crate) mod press;
pub(crate) mod replay;
pub(crate) mod reply;
pub(crate) mod session_stream;
