//! The gateway: the layers that use a runtime, sockets, processes and files, up to the faces that
//! clients see.
//!
//! A crate of its own, so that a change of a command or of a page of the console does not compile
//! it again. In reading order: [`telemetry`], [`base`], [`store`], [`upstream`], [`gateway`],
//! [`listener`], [`serve`]; each may use those before it.

#![allow(
    clippy::missing_errors_doc,
    clippy::len_without_is_empty,
    clippy::new_without_default,
    clippy::should_implement_trait,
    missing_debug_implementations,
    unnameable_types,
    reason = "one program is all that uses it, so what is public here is internal to that program"
)]

// Layers of the crates below, which the layers here name as if they were here.
use headend_config as config;
use headend_core::{catalog, engine, login, mcp, policy, wire};

pub mod base;
pub mod gateway;
pub mod listener;
pub mod serve;
#[cfg(any(test, feature = "testing"))]
pub mod stage;
pub mod store;
pub mod telemetry;
pub mod upstream;
