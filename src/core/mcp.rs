//! The MCP vocabulary on top of `wire`: revisions, extensions, methods, `_meta`, items and their
//! projection. Pure.

pub mod annotations;
pub mod capability;
pub mod claims;
pub mod client_name;
pub mod elicitation;
pub mod extension;
#[cfg(any(test, fuzzing, feature = "testing"))]
pub mod fuzz;
pub(crate) mod imitation;
pub mod input;
mod input_error;
pub mod instructions;
pub mod item;
pub mod kinds;
pub mod log;
pub(crate) mod lookalike;
pub mod meta;
pub mod method;
pub mod notice;
pub mod nulls;
pub mod project;
pub mod task;
pub mod trace;
pub mod version;
pub mod voice;
pub mod weight;
