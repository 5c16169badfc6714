//! The gateway itself: the layers that use a runtime, sockets, processes and files, up to the
//! endpoints that clients connect to.
//!
//! In reading order: [`telemetry`], [`base`], [`store`], [`cluster`], [`upstream`], [`gateway`],
//! [`listener`], [`serve`]; each layer may use those before it. They are a crate of their own, so
//! that a change of a command or of a console page does not compile them again.

#![allow(
    clippy::missing_errors_doc,
    clippy::len_without_is_empty,
    clippy::new_without_default,
    clippy::should_implement_trait,
    missing_debug_implementations,
    unnameable_types,
    reason = "one program is all that uses it, so what is public here is internal to that program"
)]

// Layers of the crates below, re-imported so that paths read `crate::config` here too.
use headend_config as config;
use headend_core::{catalog, engine, identity, login, mcp, policy, wire};

pub mod base;
pub mod cluster;
pub mod gateway;
pub mod listener;
pub mod serve;
#[cfg(any(test, feature = "testing"))]
pub mod stage;
pub mod store;
pub mod telemetry;
pub mod upstream;
