//! The pure core of headend: protocol types, policy and state machines, without sockets, files or a
//! clock.
//!
//! A crate of its own, so that the compiler keeps it pure: its manifest names no runtime and no
//! HTTP, and `now` is an argument. In reading order: [`wire`], [`mcp`], [`catalog`], [`policy`],
//! [`engine`], [`identity`], [`login`]; each may use those before it.

#![allow(
    clippy::missing_errors_doc,
    clippy::len_without_is_empty,
    clippy::new_without_default,
    unnameable_types,
    reason = "one program is all that uses it, so what is public here is internal to that program"
)]

pub mod catalog;
pub mod engine;
pub mod identity;
pub mod login;
pub mod mcp;
pub mod policy;
pub mod wire;
